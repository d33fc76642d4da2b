"""p(target | source) behind the contract: a translator, given a source, is a language model of the target.

Lives here: binding sources to a network, and its nats on pairs. Not here: text (tasks/translate.py).
"""

from collections.abc import Sequence

import numpy as np
import torch

from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural.adapter import LARGEST_PIECE, NeuralModel, NeuralState
from chainrule.neural.device import device_of, exact
from chainrule.neural.encoder_decoder import EncoderDecoder
from chainrule.neural.network import Tensors
from chainrule.neural.pairs import Collate, PairBatch, PairConfig, PairNetwork
from chainrule.neural.seq2seq import Seq2Seq
from chainrule.neural.weights import check_outputs
from chainrule.training.examples import padded
from chainrule.training.threads import suited

SIDE_BY_SIDE = 64  # pairs that are read at a time


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
    ids, mask = padded(sources, vocabulary.eos, device)
    with exact(), suited(network.work(*ids.shape)):
        state = NeuralState(network.encode(ids, mask))
        rows = [state.select(torch.tensor([i]).numpy()).tensors for i in range(len(sources))]
    return [Conditional(network, vocabulary, row) for row in rows]


def nats(network: PairNetwork, batch: PairBatch) -> Floats:
    """(B,) −log p(target | source) of each pair, `</s>` included."""
    B, T = batch.inputs.shape
    with exact():
        with suited(network.work(B, T)):
            hidden = network(batch.inputs, network.encode(batch.source, batch.source_mask)).hidden.flatten(0, 1)
        wanted = batch.targets.flatten()
        rows = max(1, LARGEST_PIECE // network.output.impossible.numel())  # of V numbers in memory at once
        found = [
            network.output.log_probs(hidden.index_select(0, places)).gather(1, wanted[places, None])
            for places in batch.places.split(rows)
        ]
        log_p = check_outputs(torch.cat(found)[:, 0].double().cpu().numpy(), network)
    total = np.zeros(B)
    np.add.at(total, batch.places.cpu().numpy() // T, -log_p)
    return total


def mean_nats(network: PairNetwork, data: Collate) -> float:
    """Nats a target token, `</s>` included."""
    lengths = [len(target) for target in data.targets]
    total = sum(float(nats(network, data(rows)).sum()) for rows in batches(lengths))
    return total / sum(lengths)


def batches(lengths: Sequence[int]) -> list[Ids]:
    """Rows of like length together."""
    order = np.argsort(np.array(lengths), kind="stable")
    return np.split(order, range(SIDE_BY_SIDE, len(order), SIDE_BY_SIDE))


def alignment(network: PairNetwork, source: Ids, target: Ids, vocabulary: Vocabulary) -> Floats:
    """(L, H, T, S): where the prediction of each target token, `</s>` the last, looked in the source."""
    device = device_of(network)
    with exact(), suited(network.work(1, len(target))):
        state = network.encode(*padded([source], vocabulary.eos, device))
        ids = torch.tensor([[vocabulary.bos, *target.tolist()]], device=device)[:, : len(target)]
        values: Floats = network.align(ids, state)[0].double().cpu().numpy()
    return check_outputs(values, network, may_be_impossible=False)
