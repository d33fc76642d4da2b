"""Translation models as language models of the target given a source, p(target | source)."""

from collections.abc import Sequence

import numpy as np
import torch

from chainrule.data.encoded import batches_by_length
from chainrule.lm import Floats, Ids, Vocabulary
from chainrule.neural.encoders.seq2seq import PairBatch, PairCollator, PairConfig, PairNetwork, Seq2Seq
from chainrule.neural.encoders.transformer_seq2seq import EncoderDecoder
from chainrule.neural.model import LARGEST_PIECE, NeuralModel, NeuralState
from chainrule.neural.network import Tensors
from chainrule.neural.weights import check_outputs
from chainrule.training.batches import pad_to_device
from chainrule.training.device import device_of, exact_inference, limit_threads

BATCH_SIZE = 64  # pairs per batch


def build(config: PairConfig, source_size: int, vocabulary: Vocabulary) -> PairNetwork:
    """Build an untrained translation model."""
    network_class = EncoderDecoder if config.family == "transformer" else Seq2Seq
    return network_class(config, source_size, vocabulary)


class ConditionalLM(NeuralModel):
    """Language model of the target for one fixed source."""

    def __init__(self, network: PairNetwork, vocabulary: Vocabulary, source: Tensors) -> None:
        super().__init__(network, vocabulary, "line")
        self.source = source  # state of one row

    def start(self, rows: int) -> NeuralState:
        """Initial state: the encoded source, repeated for each row."""
        index = torch.zeros(rows, dtype=torch.int64, device=self.device)
        return NeuralState(tuple(tensor.index_select(0, index) for tensor in self.source))


def condition_on(network: PairNetwork, vocabulary: Vocabulary, sources: Sequence[Ids]) -> list[ConditionalLM]:
    """Encode the sources as one batch and return a language model for each; every source ends in `</s>`."""
    device = device_of(network)
    network.eval()
    ids, mask = pad_to_device(sources, vocabulary.eos, device)
    with exact_inference(), limit_threads(network.largest_matmul(*ids.shape)):
        state = NeuralState(network.encode(ids, mask))
        rows = [state.select(torch.tensor([i]).numpy()).tensors for i in range(len(sources))]
    return [ConditionalLM(network, vocabulary, row) for row in rows]


def pair_nats(network: PairNetwork, batch: PairBatch) -> Floats:
    """(B,) −log p(target | source) of each pair, including `</s>`."""
    B, T = batch.inputs.shape
    with exact_inference():
        with limit_threads(network.largest_matmul(B, T)):
            hidden = network(batch.inputs, network.encode(batch.source, batch.source_mask)).hidden.flatten(0, 1)
        target_ids = batch.targets.flatten()
        rows = max(1, LARGEST_PIECE // network.output.impossible.numel())  # bounds the logits in memory
        log_probs = [
            network.output.log_probs(hidden.index_select(0, positions)).gather(1, target_ids[positions, None])
            for positions in batch.target_positions.split(rows)
        ]
        log_p = check_outputs(torch.cat(log_probs)[:, 0].double().cpu().numpy(), network)
    total = np.zeros(B)
    np.add.at(total, batch.target_positions.cpu().numpy() // T, -log_p)
    return total


def mean_nats(network: PairNetwork, data: PairCollator) -> float:
    """Mean nats per target token, including `</s>`."""
    lengths = [len(target) for target in data.targets]
    total = sum(float(pair_nats(network, data(rows)).sum()) for rows in batches_by_length(lengths, BATCH_SIZE))
    return total / sum(lengths)


def attention_alignment(network: PairNetwork, source: Ids, target: Ids, vocabulary: Vocabulary) -> Floats:
    """(L, H, T, S) attention weights of each target token, including `</s>`, over the source tokens."""
    device = device_of(network)
    with exact_inference(), limit_threads(network.largest_matmul(1, len(target))):
        state = network.encode(*pad_to_device([source], vocabulary.eos, device))
        ids = torch.tensor([[vocabulary.bos, *target.tolist()]], device=device)[:, : len(target)]
        values: Floats = network.align(ids, state)[0].double().cpu().numpy()
    return check_outputs(values, network, allow_neg_inf=False)
