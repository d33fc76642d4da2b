"""p(target | source) behind the contract: a translator, given a source, is a language model of the target.

Lives here: binding sources to a network, and its nats on pairs. Not here: text (tasks/translate.py).
"""

from collections.abc import Sequence

import torch

from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural.adapter import NeuralModel, NeuralState
from chainrule.neural.device import device_of, exact
from chainrule.neural.encoder_decoder import EncoderDecoder
from chainrule.neural.network import Tensors
from chainrule.neural.pairs import PairBatch, PairConfig, PairNetwork, padded
from chainrule.neural.seq2seq import Seq2Seq


def build(config: PairConfig, source_size: int, vocabulary: Vocabulary) -> PairNetwork:
    """An untrained translator."""
    kind = EncoderDecoder if config.family == "transformer" else Seq2Seq
    return kind(config, source_size, vocabulary)


class Conditional(NeuralModel):
    """A language model of what a source becomes; every row of `start` has the same source."""

    def __init__(self, network: PairNetwork, vocabulary: Vocabulary, source: Tensors) -> None:
        super().__init__(network, vocabulary, "line")
        self.source = source  # of one row

    def start(self, rows: int) -> NeuralState:
        """Nothing of the target read yet."""
        index = torch.zeros(rows, dtype=torch.int64, device=self.device)
        return NeuralState(tuple(tensor.index_select(0, index) for tensor in self.source))


def given(network: PairNetwork, vocabulary: Vocabulary, sources: Sequence[Ids]) -> list[Conditional]:
    """One language model a source, encoded side by side; each source ends in `</s>`."""
    device = device_of(network)
    network.eval()
    with exact():
        state = NeuralState(network.encode(*padded(list(sources), vocabulary.eos, device)))
        rows = [state.select(torch.tensor([i]).numpy()).tensors for i in range(len(sources))]
    return [Conditional(network, vocabulary, row) for row in rows]


def nats(network: PairNetwork, batch: PairBatch) -> Floats:
    """(B,) −log p(target | source) of each pair, `</s>` included."""
    with exact():
        hidden = network(batch.inputs, network.encode(batch.source, batch.source_mask)).hidden
        log_p = network.output.log_probs(hidden.flatten(0, 1)).gather(1, batch.targets.flatten()[:, None])
        found = -(log_p.view_as(batch.targets) * batch.mask).sum(dim=1)
    values: Floats = found.double().cpu().numpy()
    return values


def alignment(network: PairNetwork, source: Ids, target: Ids, vocabulary: Vocabulary) -> Floats:
    """(L, H, T, S): where the prediction of each target token, `</s>` the last, looked in the source."""
    device = device_of(network)
    with exact():
        state = network.encode(*padded([source], vocabulary.eos, device))
        ids = torch.tensor([[vocabulary.bos, *target.tolist()]], device=device)[:, : len(target)]
        values: Floats = network.align(ids, state)[0].double().cpu().numpy()
    return values
