"""Training, validation, saving and loading shared by all neural language-model families."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from chainrule import system
from chainrule.config import to_json
from chainrule.data.encoded import EncodedText, MappedIds, id_blocks
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.errors import ConfigError, UsageError
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.neural import weights
from chainrule.neural.adaptation import adapt
from chainrule.neural.model import NeuralModel
from chainrule.neural.network import Network
from chainrule.storage.verified_dir import VerifiedDir
from chainrule.training import ranks
from chainrule.training.batches import BatchSource, LineBatches, MappedStream, StreamBatches
from chainrule.training.config import TrainingConfig
from chainrule.training.device import select_device
from chainrule.training.step import next_token
from chainrule.training.trainer import Trainer, TrainingPlan

N = TypeVar("N", bound=nn.Module)
COLUMNS = 16  # parallel columns of a validation stream
SHORTEST_COLUMN = 1024  # minimum tokens per column; fewer columns for a short text
TOKENS_AT_ONCE = 512  # of each column


def fit(
    options: RunOptions,
    config: TrainingConfig,
    build: Callable[[], N],
    plan: Callable[[N, torch.device], TrainingPlan],
) -> tuple[N, bytes, dict[str, Any]]:
    """Train a network.

    Returns the network with its final weights, the training log, and the summary of the run (epochs, steps, reason
    to stop).
    """
    device = select_device(options.device)
    check_precision(config.precision, device)
    team = ranks.current()
    if system.rank_and_size()[1] > 1 and not team.is_distributed:
        raise UsageError("several processes train language models only (chainrule train); start one process")
    weights.tensor_specs(build)  # reject an oversized network before allocating memory
    seconds = [s for s in (config.max_seconds, options.time_limit) if s is not None]
    config = dataclasses.replace(config, max_seconds=min(seconds, default=None))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(options.seed)
        network: N = build().to(device)
        if device.type == "cuda" and team.rank:  # each rank draws the dropout masks of its rows
            torch.cuda.manual_seed(options.seed + (team.rank << 32))
        trainer = Trainer(network, config, plan(network, device), options)
        return network, trainer.fit(), trainer.summary()


def check_precision(precision: str, device: torch.device) -> None:
    """Raise ConfigError for a precision the device does not support.

    Some CPUs claim to support bf16 and crash at its first instruction.
    """
    if precision != "fp32" and device.type == "cpu":
        raise ConfigError(f"training.precision is '{precision}', which requires a GPU; use fp32 on the CPU")
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError("training.precision is 'bf16', which this GPU cannot compute in; choose fp32 or fp16")


LOG = "train_log.jsonl"


@dataclass(frozen=True, slots=True)
class NeuralFamily:
    """A network architecture as a model family."""

    Config: type[Any]
    build: Callable[[Any, Vocabulary, Floats | None], Network]
    candidates: Callable[[], list[Any]]
    facets: Callable[[Any], dict[str, str | int]]

    def train(self, data: TrainingData, config: Any) -> NeuralModel:
        """Train a model from weights initialized by the seed; rank 0 sends the job to the other ranks."""
        team = ranks.current()
        if team.is_distributed and team.is_first:
            team.from_first(lambda: job_to_json(data, config))
        counts = np.zeros(data.vocabulary.size, dtype=np.int64)
        for block in id_blocks(data.train.ids) if team.is_first else ():  # only rank 0's buffers are used
            counts += np.bincount(block, minlength=data.vocabulary.size)
        vocabulary, options = data.vocabulary, data.options

        def plan(network: Network, device: torch.device) -> TrainingPlan:
            return TrainingPlan(
                source=training_source(data, config.training, network, device),
                objective=next_token,
                validate=_validation(NeuralModel(network, vocabulary, options.context), data.valid, config),
                unigram_nats=_entropy(counts) if config.output != "nce" else float("inf"),  # loss not in nats
            )

        network, log, summary = fit(
            options, config.training, lambda: self.build(config, vocabulary, counts.astype(np.float64)), plan
        )
        ranks.close()
        data.summary.update(summary)
        return NeuralModel(network, vocabulary, options.context, log)

    def files(self, lm: NeuralModel) -> dict[str, bytes]:
        """Files of a saved model: weights and training log."""
        return {weights.FILE: weights.serialize(lm.network)} | ({LOG: lm.log} if lm.log else {})

    def load(
        self, files: VerifiedDir, config: Any, vocabulary: Vocabulary, context: Context, device: str = "auto"
    ) -> NeuralModel:
        """Load a model from its files."""
        counts = np.ones(vocabulary.size)  # buffers derived from counts are loaded
        network = weights.load_network(files, lambda: self.build(config, vocabulary, counts), config.layers)
        log = files.bytes(LOG) if LOG in files.files else b""
        return NeuralModel(network.to(select_device(device)), vocabulary, context, log)

    def parameters(self, lm: NeuralModel) -> int:
        """Number of parameters; tied matrices count once."""
        return sum(p.numel() for p in lm.network.parameters())

    adapt = staticmethod(adapt)


def training_source(
    data: TrainingData, config: TrainingConfig, network: Network, device: torch.device
) -> BatchSource:
    """Batches of lines or of one stream; a network with a window reads at most one window per step.

    A stream in a mapped file is read window by window; one in memory is kept on the device.
    """
    if network.window is not None:
        config = dataclasses.replace(config, bptt=min(config.bptt or network.window, network.window))
    ids: Any = data.train.ids
    team, seed = ranks.current(), data.options.seed
    if isinstance(ids, np.memmap) or (team.is_distributed and not isinstance(ids, MappedIds)):
        ids = MappedIds([ids])
    if data.options.context == "stream" and isinstance(ids, MappedIds):
        return MappedStream(ids, config, seed, device, team.rank, team.size)
    if data.options.context == "stream":
        return StreamBatches(ids, config, seed, device)
    bos, eos = data.vocabulary.bos, data.vocabulary.eos
    return LineBatches(ids, bos, eos, config, seed, device, team.rank, team.size)


def job_to_json(data: TrainingData, config: Any) -> dict[str, Any]:
    """Describe a training run for the other ranks, which map the same files of ids."""
    ids: Any = data.train.ids
    arrays: list[Any] = ids.arrays if isinstance(ids, MappedIds) else [ids]
    options = data.options
    if not all(isinstance(array, np.memmap) and array.filename is not None for array in arrays):
        raise UsageError("the token ids of several processes must be in files; train on a text file")
    return {
        "family": options.identity["family"],
        "config": to_json(config),
        "ids": [[str(array.filename), array.dtype.name, array.offset, len(array)] for array in arrays],
        "vocabulary": dataclasses.asdict(data.vocabulary),
        "options": {
            "context": options.context,
            "seed": options.seed,
            "device": options.device,
            "time_limit": options.time_limit,
            "out": None if options.out is None else str(options.out.absolute()),
            "resume": options.resume,
            "identity": dict(options.identity),
        },
    }


def data_from_json(job: Mapping[str, Any]) -> TrainingData:
    """Inverse of `job_to_json` for a rank other than 0, which neither validates nor writes."""
    vocabulary = Vocabulary(**job["vocabulary"])
    arrays = [np.memmap(path, dtype, "r", offset, count) for path, dtype, offset, count in job["ids"]]
    ids: Any = MappedIds(arrays)
    train = EncodedText(ids, vocabulary.eos, vocabulary.unk, words=0, characters=0, bytes=0)
    return TrainingData(train=train, valid=None, vocabulary=vocabulary, options=RunOptions(**job["options"]))


def _validation(model: NeuralModel, valid: EncodedText | None, config: Any) -> Callable[[], float] | None:
    if valid is None or not model.vocabulary.predictable[valid.ids].any():
        return None
    sample = subsample(valid, config.validation_tokens, model.context)
    if not model.vocabulary.predictable[sample.ids].any():
        sample = valid
    return lambda: mean_nats(model, sample)


def subsample(text: EncodedText, tokens: int, context: Context) -> EncodedText:
    """Subsample about `tokens` tokens evenly from a text; 0: all of it.

    Takes whole lines, or as many pieces of a stream as `mean_nats` reads columns.
    """
    if not 0 < tokens < text.tokens:
        return text
    if context == "stream":
        pieces = max(1, min(COLUMNS, tokens // SHORTEST_COLUMN))
        starts = np.arange(pieces) * (text.tokens // pieces)
        ids = np.concatenate([text.ids[start : start + tokens // pieces] for start in starts])
    else:
        ends = np.flatnonzero(text.ids == text.eos) + 1
        selected = np.linspace(0, len(ends) - 1, max(1, round(len(ends) * tokens / text.tokens))).astype(int)
        starts = np.concatenate([[0], ends[:-1]])
        ids = np.concatenate([text.ids[starts[i] : ends[i]] for i in selected])
    return dataclasses.replace(text, ids=ids)


def mean_nats(model: NeuralModel, text: EncodedText) -> float:
    """Mean −log p per token over possible tokens, i.e. without `<unk>` of a closed vocabulary.

    A stream is read as parallel columns, each from an empty state: an approximation that is faster than the exact
    evaluation of one sequential stream.
    """
    is_predictable = model.vocabulary.predictable
    if model.context == "line":
        return float(-token_log_probs(model, text)[is_predictable[text.ids]].mean())
    B = max(1, min(COLUMNS, text.tokens // SHORTEST_COLUMN))
    L = text.tokens // B
    targets = text.ids[: B * L].reshape(B, L)
    first = np.concatenate([[model.vocabulary.bos], targets[:-1, -1]])
    inputs = np.concatenate([first[:, None], targets[:, :-1]], axis=1)
    counts = is_predictable[targets]  # (B, L)
    state, nats = model.start(B), 0.0
    for t in range(0, L, TOKENS_AT_ONCE):
        cut = slice(t, t + TOKENS_AT_ONCE)
        piece = Batch(inputs[:, cut], targets[:, cut], np.ones(targets[:, cut].shape, dtype=bool))
        scores, state = model.score(piece, state)
        nats -= scores[counts[:, cut]].sum()
    return float(nats / counts.sum())


def _entropy(counts: Ids) -> float:
    """Entropy of the unigram distribution in nats: the loss of a model without context."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
