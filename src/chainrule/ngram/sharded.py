"""Sharded n-gram models: an n-gram model in several files, each with the n-grams that begin with a range of words.

The n-grams that score a word w_t begin at w_t, w_{t-1}, … , w_{t-n+1}, so they lie in different shards. For each
position i of a text, the shard of w_i is asked once for the stored prefixes of w_i … w_{i+n-1}: log p and the log
back-off weight of each. From the answers, log p of every word is computed with the operations of the unsharded
model in the same order, so that the results are equal bit for bit.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from chainrule import system
from chainrule.config import to_json
from chainrule.data.training_data import TrainingData
from chainrule.errors import ConfigError, ModelFileError, ShardError
from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.ngram import config as ngram_config
from chainrule.ngram import engine as engines
from chainrule.ngram.engine import Engine
from chainrule.ngram.model import MIN_TOKENS_FOR_THREADS, NgramModel, NgramState
from chainrule.storage.temp_dir import ScratchFolder
from chainrule.storage.verified_dir import REMEDY, Content, StreamedFile, VerifiedDir
from chainrule.system import thread_count

Request = TypeVar("Request")
Result = TypeVar("Result")

FOLDER: Final = "shards"
MAX_SHARDS: Final = 99_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ngram_config.Config):
    """Settings of the n-gram model that was split, and properties of its shards."""

    bounds: tuple[int, ...] = (0, 0)  # shard s has the n-grams whose first word id is in [bounds[s], bounds[s + 1])
    sizes: tuple[int, ...] = ()  # number of n-grams of each order
    log_missing: float = 0.0  # log back-off weight of a context that is not stored
    starts_at_bos: bool = False  # stream: n-grams that begin with <s> describe the start of a text
    holds_suffixes: bool = False  # every suffix of a stored n-gram is stored

    def __post_init__(self) -> None:
        ngram_config.Config.__post_init__(self)  # super() does not work in a dataclass with slots
        if len(self.bounds) < 2 or self.bounds[0] != 0 or list(self.bounds) != sorted(self.bounds):
            raise ConfigError(f"bounds is {self.bounds!r:.60}; it must start with 0 and never fall")
        if len(self.bounds) > MAX_SHARDS + 1:
            raise ConfigError(f"there are {len(self.bounds) - 1} shards; choose at most {MAX_SHARDS}")
        if self.sizes and len(self.sizes) != self.order:
            raise ConfigError(f"sizes has {len(self.sizes)} numbers but the model has {self.order} orders")

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self.bounds) - 1


class Prefixes(NamedTuple):
    """Stored prefixes of W word sequences."""

    lengths: Ids  # (W,)  words of the longest stored prefix
    log_probs: Floats  # (W, n)  [k−1]: of the prefix of k words
    log_backoffs: Floats  # (W, n−1)  likewise

    @classmethod
    def empty(cls, rows: int, order: int) -> "Prefixes":
        """Return arrays of this size, to be filled."""
        return cls(
            np.zeros(rows, dtype=np.uint8),
            np.zeros((rows, order), dtype=np.float32),
            np.zeros((rows, order - 1), dtype=np.float32),
        )

    def fill(self, rows: Ids | slice, other: "Prefixes") -> None:
        """Set these rows."""
        for whole, part in zip(self, other, strict=True):
            whole[rows] = part


class Extensions(NamedTuple):
    """The words stored after a context; after the empty context, all words."""

    is_stored: bool
    log_backoff: float
    words: Ids
    log_probs: Floats


class ShardSource(Protocol):
    """Answers for the n-grams of some shards."""

    @property
    def digests(self) -> Mapping[int, str]:
        """Content id of each shard of this source, by its number."""
        ...

    def prefixes(self, words: Ids) -> Prefixes:
        """Look up (W, n) word sequences, padded with −1, whose first words belong to these shards."""
        ...

    def extensions(self, contexts: Sequence[Ids]) -> list[Extensions]:
        """Look up the words stored after contexts whose first words belong to these shards, or after no words."""
        ...


class LocalShards:
    """Shard files opened in this process."""

    def __init__(self, shards: Mapping[int, Engine], bounds: Sequence[int]) -> None:
        self.engines = dict(shards)
        self._bounds = np.asarray(bounds)

    @property
    def digests(self) -> Mapping[int, str]:
        """Content id of each shard, by its number."""
        return {shard: engines.content_id(engine) for shard, engine in self.engines.items()}

    def prefixes(self, words: Ids) -> Prefixes:
        """Look up (W, n) word sequences, padded with −1."""
        words = np.ascontiguousarray(words, dtype=np.int32)
        result = Prefixes.empty(*words.shape)
        shard_of_row = shards_of(words[:, 0], self._bounds)
        for shard in np.unique(shard_of_row).tolist():
            rows = np.flatnonzero(shard_of_row == shard)
            threads = 1 if words.size < MIN_TOKENS_FOR_THREADS else thread_count()
            result.fill(rows, Prefixes(*self.engines[shard].prefixes(words[rows], threads)))
        return result

    def extensions(self, contexts: Sequence[Ids]) -> list[Extensions]:
        """Look up the words stored after each context."""
        return [Extensions(*self._engine(words).extensions(words)) for words in contexts]

    def _engine(self, words: Ids) -> Engine:
        if not len(words):
            return next(iter(self.engines.values()))
        return self.engines[int(shards_of(words[:1], self._bounds)[0])]


def shards_of(first_words: Ids, bounds: Ids) -> Ids:
    """Return the shard of each first word."""
    shards: Ids = np.searchsorted(bounds, first_words, side="right") - 1
    return shards


class Sequences(NamedTuple):
    """Word sequences stored end to end: the left context, which is not scored, and the words to score."""

    words: Ids  # (N,)
    starts: Ids  # (N,)  index of the first word of the sequence
    scored: Ids  # (M,)  indices of the words to score


@dataclass(frozen=True, eq=False)
class ShardedModel:
    """Language model p(w | h) of an n-gram model in shards."""

    config: Config
    vocabulary: Vocabulary
    context: Context
    is_normalized: bool
    digests: tuple[str | None, ...]  # content id of each shard
    sources: tuple[ShardSource, ...]  # local shards first
    path: str = ""
    engine: ClassVar[None] = None
    network: ClassVar[None] = None

    @property
    def order(self) -> int:
        """Order n."""
        return self.config.order

    @property
    def local(self) -> LocalShards | None:
        """The shards opened in this process; None if there are none."""
        return next((source for source in self.sources if isinstance(source, LocalShards)), None)

    @property
    def missing(self) -> list[int]:
        """Numbers of the shards that no source has."""
        return [shard for shard, source in enumerate(self._source_of_shard) if source < 0]

    def start(self, rows: int) -> NgramState:
        """Return the state after n−1 `<s>`."""
        return NgramState(np.full((rows, self.order - 1), self.vocabulary.bos, dtype=np.int32))

    def join(self, states: Sequence[NgramState]) -> NgramState:
        """Concatenate the rows of several states."""
        return NgramState(np.concatenate([state.ids for state in states]))

    def step(self, state: NgramState, ids: Ids) -> tuple[Floats, NgramState]:
        """Return log p of every next word, (K,) -> (K, V), and the new state."""
        after = NgramState(np.concatenate([state.ids, ids[:, None]], axis=1, dtype=np.int32)[:, 1:])
        return self._next_log_probs(after.ids), after

    def score(self, batch: Batch, state: NgramState) -> tuple[Floats, NgramState]:
        """Return log p of the targets, (B, T) -> (B, T)."""
        tokens = np.concatenate([state.ids, batch.inputs], axis=1, dtype=np.int32)
        log_p = np.zeros(batch.targets.shape)
        log_p[batch.mask] = self._score(self._sequences_of_rows(tokens, batch))
        return log_p, self._next_state(tokens, batch)

    def score_lines(self, ids: Ids) -> Floats | None:
        """Return log p of lines stored end to end, (N,) -> (N,), equal to `score`; None for a stream model."""
        if self.context == "stream":
            return None
        is_start = np.ones(len(ids), dtype=bool)
        is_start[1:] = ids[:-1] == self.vocabulary.eos
        context = self._trim(np.full(self.order - 1, self.vocabulary.bos))
        at = np.repeat(np.flatnonzero(is_start), len(context))
        words = np.insert(ids, at, self.vocabulary.bos)
        is_context = np.insert(np.zeros(len(ids), dtype=bool), at, True)
        first = np.flatnonzero(is_start) + len(context) * np.arange(np.count_nonzero(is_start))
        starts = np.zeros(len(words), dtype=np.int64)
        starts[first] = first
        return self._score(Sequences(words, np.maximum.accumulate(starts), np.flatnonzero(~is_context)))

    def distributions(self, batch: Batch, state: NgramState) -> tuple[Floats, NgramState]:
        """Return log p of every next word at every position, (B, T) -> (B, T, V)."""
        tokens = np.concatenate([state.ids, batch.inputs], axis=1, dtype=np.int32)
        T, n = batch.inputs.shape[1], self.order
        contexts = tokens[:, np.arange(1, T + 1)[:, None] + np.arange(n - 1)]  # (B, T, n−1)
        log_p = self._next_log_probs(contexts.reshape(len(tokens) * T, n - 1))
        return log_p.reshape(*batch.inputs.shape, self.vocabulary.size), self._next_state(tokens, batch)

    def advance(self, batch: Batch, state: NgramState) -> NgramState:
        """Return the state after the batch: the last n−1 ids of each row."""
        return self._next_state(np.concatenate([state.ids, batch.inputs], axis=1, dtype=np.int32), batch)

    def _next_state(self, tokens: Ids, batch: Batch) -> NgramState:
        last = batch.mask.sum(axis=1)[:, None] + np.arange(self.order - 1)  # (B, n−1)
        return NgramState(np.take_along_axis(tokens, last, axis=1))

    def _sequences_of_rows(self, tokens: Ids, batch: Batch) -> Sequences:
        """Cut rows into sequences: a new one begins where an input differs from the target before it."""
        words: list[Ids] = []
        starts: list[Ids] = []
        scored: list[Ids] = []
        position = 0
        for row, targets, length in zip(self._read(tokens), batch.targets, batch.mask.sum(axis=1), strict=True):
            for first, last in self._runs(row, targets[:length]):
                context = self._trim(row[first + 1 : first + self.order])
                words += [context, targets[first:last]]
                size = len(context) + last - first
                starts.append(np.full(size, position))
                scored.append(np.arange(position + len(context), position + size))
                position += size
        if not words:
            return Sequences(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
        return Sequences(np.concatenate(words), np.concatenate(starts), np.concatenate(scored))

    def _runs(self, row: Ids, targets: Ids) -> Iterator[tuple[int, int]]:
        """Yield the ranges of targets that follow one another without a break."""
        if not len(targets):
            return
        is_break = np.ones(len(targets), dtype=bool)
        is_break[:-1] = row[self.order : self.order + len(targets) - 1] != targets[:-1]
        if self._restarts_at_bos:
            is_break |= targets == self.vocabulary.bos
        first = 0
        for last in (np.flatnonzero(is_break) + 1).tolist():
            yield first, last
            first = last

    @property
    def _restarts_at_bos(self) -> bool:
        """Whether `<s>` is read as a `</s>` without left context."""
        return self.context == "stream" and not self.config.starts_at_bos

    def _read(self, tokens: Ids) -> Ids:
        """Return the tokens as the context of the next word: a line model reads `</s>` as the next `<s>`."""
        if self.context == "stream":
            return tokens
        return np.where(tokens == self.vocabulary.eos, self.vocabulary.bos, tokens)

    def _trim(self, context: Ids) -> Ids:
        """Drop the words of a context that make no difference, and replace `<s>` where it restarts a stream."""
        bos, eos = self.vocabulary.bos, self.vocabulary.eos
        places = np.flatnonzero(context == bos)
        if not len(places):
            return context
        if self._restarts_at_bos:
            return np.concatenate([[eos], context[places[-1] + 1 :]])
        leading = int(np.argmax(np.append(context != bos, True)))
        return context[leading - 1 :] if leading > 1 and not self._repeats_bos else context

    @cached_property
    def _repeats_bos(self) -> bool:
        """Whether the bigram `<s> <s>` is stored."""
        words = np.full((1, self.order), -1)
        words[0, :2] = self.vocabulary.bos
        return bool(self._prefixes(words).lengths[0] > 1)

    def _score(self, sequences: Sequences) -> Floats:
        """Return log p of the scored words: the longest stored n-gram plus the weights of longer contexts."""
        words, starts, scored = sequences
        n, log_missing = self.order, self.config.log_missing
        prefixes = self._prefixes(_windows(words, starts, n))
        log_p = prefixes.log_probs[scored, 0].astype(np.float64)
        distance = scored - starts[scored]  # words before the scored one
        reach = scored - _last_begins(words, starts, self.vocabulary.bos)[scored]
        for m in range(1, n):  # contexts of m words, which begin at `first`
            has_context = distance >= m
            first = np.where(has_context, scored - m, 0)
            lengths = np.where(has_context, prefixes.lengths[first], 0)
            backed_off = np.where(lengths == m, log_p + prefixes.log_backoffs[first, m - 1], log_p)
            if log_missing:
                backed_off = np.where((lengths < m) & (m <= reach), log_p + log_missing, backed_off)
            log_p = np.where(lengths > m, prefixes.log_probs[first, m], backed_off)
        return engines.check_scores(log_p, self)

    def _next_log_probs(self, contexts: Ids) -> Floats:
        """Return log p of every word after each context, (K, n−1) -> (K, V)."""
        trimmed = [self._trim(row) for row in self._read(contexts)]
        queries: dict[bytes, Ids] = {}
        for words in trimmed:
            for first in range(len(words)):
                suffix = np.ascontiguousarray(words[first:], dtype=np.int32)
                queries[suffix.tobytes()] = suffix
        extensions = dict(zip(queries, self._extensions(list(queries.values())), strict=True))
        log_p = np.tile(self._unigrams, (len(contexts), 1))
        for row, words in zip(log_p, trimmed, strict=True):
            begins = np.flatnonzero(words == self.vocabulary.bos)
            reach = len(words) - (int(begins[-1]) if len(begins) else 0)
            for m in range(1, len(words) + 1):
                after = extensions[np.ascontiguousarray(words[len(words) - m :], dtype=np.int32).tobytes()]
                if after.is_stored:
                    row += after.log_backoff
                    row[after.words] = after.log_probs
                elif m <= reach:
                    row += self.config.log_missing
        return engines.check_scores(log_p, self)

    @cached_property
    def _unigrams(self) -> Floats:
        """(V,) log p of the words after the empty context."""
        if not self.sources:
            raise self._missing_error(0)
        return self.sources[0].extensions([np.zeros(0, dtype=np.int32)])[0].log_probs.astype(np.float64)

    @cached_property
    def _source_of_shard(self) -> list[int]:
        """Index of the source of each shard; −1 if there is none."""
        sources = [-1] * self.config.shards
        for index, source in reversed(list(enumerate(self.sources))):
            for shard in source.digests:
                sources[shard] = index
        return sources

    def _sources_of(self, first_words: Ids) -> Ids:
        """Return the index of the source of each first word; raise ShardError if its shard is missing."""
        shards = shards_of(first_words, np.asarray(self.config.bounds))
        sources = np.asarray(self._source_of_shard)[shards]
        if len(sources) and sources.min() < 0:
            raise self._missing_error(int(shards[np.argmin(sources)]))
        return sources

    def _missing_error(self, shard: int) -> ShardError:
        """Return the error of a shard that no source has."""
        return ShardError(
            f"{self.path or 'the model'} lacks {file_name(shard, self.config.shards)}; copy the file into the "
            "folder, or give the addresses of servers that have it (chainrule serve --shard-server URL)"
        )

    def _prefixes(self, words: Ids) -> Prefixes:
        """Look up the prefixes of (W, n) sequences, each in the shard of its first word."""
        result = Prefixes.empty(*words.shape)
        source_of_row = self._sources_of(words[:, 0])
        rows = [np.flatnonzero(source_of_row == index) for index in range(len(self.sources))]
        requests = [(source, at) for source, at in zip(self.sources, rows, strict=True) if len(at)]
        for (_, at), part in _in_parallel(lambda request: request[0].prefixes(words[request[1]]), requests):
            result.fill(at, part)
        return result

    def _extensions(self, contexts: Sequence[Ids]) -> list[Extensions]:
        """Look up the words stored after contexts, each in the shard of its first word."""
        sources = self._sources_of(np.array([words[0] for words in contexts], dtype=np.int64))
        result: dict[int, Extensions] = {}
        requests = [
            (source, np.flatnonzero(sources == index).tolist())
            for index, source in enumerate(self.sources)
            if (sources == index).any()
        ]
        for (_, at), part in _in_parallel(lambda r: r[0].extensions([contexts[i] for i in r[1]]), requests):
            result.update(zip(at, part, strict=True))
        return [result[i] for i in range(len(contexts))]


def _windows(words: Ids, starts: Ids, n: int) -> Ids:
    """Return the n words from each position on, (N, n), padded with −1 at the end of the sequence."""
    N = len(words)
    if not N:
        return np.zeros((0, n), dtype=np.int32)
    index = np.arange(N)
    begins = np.flatnonzero(starts == index)
    ends = np.append(begins[1:], N)[np.searchsorted(begins, index, side="right") - 1]
    padded = np.concatenate([words, np.full(n - 1, -1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, n)
    sequences: Ids = np.where(index[:, None] + np.arange(n) < ends[:, None], windows, -1).astype(np.int32)
    return sequences


def _last_begins(words: Ids, starts: Ids, bos: int) -> Ids:
    """Return for each position the last `<s>` before it in its sequence, or the start of the sequence, (N,)."""
    places = np.maximum.accumulate(np.where(words == bos, np.arange(len(words)), 0))
    last: Ids = np.maximum(np.append(0, places[:-1])[: len(places)], starts)
    return last


def _in_parallel(
    call: Callable[[Request], Result], requests: Sequence[Request]
) -> Iterator[tuple[Request, Result]]:
    """Call a function for each request, several at the same time."""
    if len(requests) == 1:
        yield requests[0], call(requests[0])
    elif requests:
        with ThreadPoolExecutor(len(requests)) as pool:
            yield from zip(requests, pool.map(call, requests), strict=True)


def file_name(shard: int, shards: int) -> str:
    """Return the name of a shard in its model folder.

    >>> file_name(0, 4)
    'shards/00000-of-00004.ngram'
    """
    return f"{FOLDER}/{shard:05d}-of-{shards:05d}.ngram"


def write_shards(engine: Engine, folder: Path, shards: int) -> tuple[list[Path], list[int]]:
    """Split a model file into shard files; return them and the limits of their ranges of first words."""
    if not 1 <= shards <= min(MAX_SHARDS, engine.vocabulary_size):
        limit = min(MAX_SHARDS, engine.vocabulary_size)
        raise ConfigError(f"shards is {shards}; choose a number from 1 to {limit} for this model")
    bounds = list(engine.shard_bounds(shards))
    paths = [folder / Path(file_name(shard, shards)).name for shard in range(shards)]
    for path, start, end in zip(paths, bounds[:-1], bounds[1:], strict=True):
        engine.save_shard(path, start, end, thread_count())
    return paths, bounds


def split(lm: NgramModel, config: ngram_config.Config, shards: int) -> ShardedModel:
    """Split an n-gram model into shards with about equal numbers of n-grams, in temporary files."""
    scratch = ScratchFolder()
    try:
        paths, bounds = write_shards(lm.engine, scratch.path, shards)
        local = LocalShards({s: engines.open_file(path, parts=shards) for s, path in enumerate(paths)}, bounds)
    except BaseException:
        scratch.remove()
        raise
    weakref.finalize(local, scratch.remove)
    sharded_config = Config(
        **to_json(config) | {"prune": config.prune},
        bounds=tuple(bounds),
        sizes=tuple(lm.engine.sizes),
        log_missing=lm.engine.log_missing,
        starts_at_bos=lm.engine.starts_at_bos,
        holds_suffixes=lm.engine.holds_suffixes,
    )
    digests = tuple(local.digests[shard] for shard in range(shards))
    return ShardedModel(sharded_config, lm.vocabulary, lm.context, lm.is_normalized, digests, (local,))


def add_source(lm: ShardedModel, source: ShardSource) -> ShardedModel:
    """Return the model with a further source of shards; earlier sources take precedence."""
    return replace(lm, sources=(*lm.sources, source))


def join(lm: ShardedModel) -> tuple[NgramModel, ngram_config.Config]:
    """Join the shards to one n-gram model, in a temporary file, with the bytes of the model that was split."""
    shards = local_shards(lm)
    scratch = ScratchFolder()
    try:
        path = scratch.path / "model.ngram"
        system.load_extension().NgramModel.join_shards(
            shards, list(lm.config.bounds), lm.config.holds_suffixes, path, thread_count()
        )
        engine = engines.open_file(path)
    except BaseException:
        scratch.remove()
        raise
    weakref.finalize(engine, scratch.remove)
    settings = {name: getattr(lm.config, name) for name in ngram_config.Config.__dataclass_fields__}
    return NgramModel(engine, lm.vocabulary, lm.context, lm.is_normalized), ngram_config.Config(**settings)


def local_shards(lm: ShardedModel) -> list[Engine]:
    """Return all shards in order; raise ConfigError if one is not in this process."""
    opened = {} if lm.local is None else lm.local.engines
    absent = [shard for shard in range(lm.config.shards) if shard not in opened]
    if absent:
        raise ConfigError(
            f"{lm.path or 'the model'} lacks {len(absent)} of {lm.config.shards} shard files, the first is "
            f"{file_name(absent[0], lm.config.shards)}; copy them into the folder"
        )
    return [opened[shard] for shard in range(lm.config.shards)]


def train(data: TrainingData, config: Config) -> ShardedModel:
    """Raise ConfigError: a sharded model is made from a trained n-gram model."""
    raise ConfigError("a sharded-ngram model is made from an n-gram model with chainrule convert --to shards")


def files(lm: ShardedModel) -> Mapping[str, Content]:
    """Return the shard files; a copy of the folder may lack some of them."""
    shards = local_shards(lm)
    return {
        file_name(shard, len(shards)): StreamedFile(
            engine.bytes, partial(engines.save, engine), engines.content_id(engine), is_optional=True
        )
        for shard, engine in enumerate(shards)
    }


def load(
    files: VerifiedDir, config: Config, vocabulary: Vocabulary, context: Context, device: str = "auto"
) -> ShardedModel:
    """Load the shards that are present in the folder; `device` is ignored, n-gram models run on the CPU."""
    names = [file_name(shard, config.shards) for shard in range(config.shards)]
    unlisted = next((name for name in names if name not in files.files), None)
    if unlisted is not None or config.bounds[-1] != vocabulary.size:
        raise ModelFileError(f"{files.path} was not made with its config and tokenizer", REMEDY)
    opened = {}
    for shard, name in enumerate(names):
        if files.is_present(name):
            opened[shard] = engines.open_file(files.verified_path(name), parts=config.shards)
            _check_shard(files, name, opened[shard], config, vocabulary, context)
    return ShardedModel(
        config,
        vocabulary,
        context,
        config.is_normalized and all(engine.is_normalized for engine in opened.values()),
        tuple(files.files[name].content_id for name in names),
        (LocalShards(opened, config.bounds),) if opened else (),
        str(files.path),
    )


def _check_shard(
    files: VerifiedDir, name: str, engine: Engine, config: Config, vocabulary: Vocabulary, context: Context
) -> None:
    """Raise ModelFileError if a shard file is not the listed one or does not fit the config and the tokenizer."""
    if files.files[name].content_id != engines.content_id(engine):
        raise ModelFileError(f"{files.path / name} is not the file that the manifest lists; {REMEDY}")
    unk = -1 if vocabulary.unk is None else vocabulary.unk
    expected = (config.order, vocabulary.size, vocabulary.bos, vocabulary.eos, unk, context == "stream")
    actual = (engine.order, engine.vocabulary_size, engine.bos, engine.eos, engine.unk, engine.is_stream)
    stored = (np.float32(config.log_missing), config.starts_at_bos)
    if actual != expected or stored != (np.float32(engine.log_missing), engine.starts_at_bos):
        raise ModelFileError(f"{files.path / name} was not made with the config and tokenizer beside it; {REMEDY}")


def parameters(lm: ShardedModel) -> int:
    """Return the number of stored probabilities and back-off weights of the whole model."""
    *lower, top = lm.config.sizes or (0,)
    return 2 * sum(lower) + top


def candidates() -> list[Config]:
    """Return no configurations: a sharded model is not trained."""
    return []


def facets(config: Config) -> dict[str, str | int]:
    """Return the settings that distinguish models: order, smoothing and number of shards."""
    return {"order": config.order, "smoothing": config.smoothing, "shards": config.shards}
