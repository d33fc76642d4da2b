"""Train a modified Kneser–Ney model on an engine: the model file of training on one machine, byte for byte.

The stages, each a folder of the work folder:

    words       text -> counts of its words by hash of the word; sizes, line sketch and sample of the text
    vocabulary  counts of each word, added up
    windows     text -> windows of n words, by partition of their context (cpp/ngram/partition)
    sums        windows of a partition -> counts that other partitions need
    estimates   windows of a partition -> its n-grams with log p and back-off weights, by range of first words
    tables      n-grams of a range -> rows in the order of the model file

The driver settles the vocabulary between `vocabulary` and `windows`, estimates what the partitions share between
`sums` and `estimates`, and writes the file from the mapped tables.
"""

import shutil
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

from chainrule import system
from chainrule.config import to_json
from chainrule.distributed.engine import Engine
from chainrule.distributed.records import EmptyRecords, Record, Records, map_file, map_payload, task_file
from chainrule.errors import ChainruleError, ConfigError, InputError, UsageError
from chainrule.lm import Context, Ids
from chainrule.ngram import engine as ngram_engine
from chainrule.ngram.config import Config
from chainrule.text.corpus import LONGEST_WORD, Corpus
from chainrule.text.fingerprint import SHORTEST_LINE, SKETCH_SIZE, Fingerprint, text_sha256
from chainrule.text.lines import cut_lines
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import EncodedBatch, encode_fragments
from chainrule.tokenizers.punctuation import resolve_kind
from chainrule.tokenizers.tokenizer import Tokenizer, WordTokenizer, load_tokenizer, split_words

Arrays = dict[str, NDArray[Any]]

SAMPLE_BYTES: Final = 2 << 20
"""Least size of the sample on which the partitions are balanced."""
SAMPLE_BYTES_PER_PARTITION: Final = 1 << 14
WINDOWS_AT_ONCE: Final = 1 << 24
"""Windows that are sorted and encoded together."""
PARTITIONS_PER_SUM: Final = 64
"""Partitions whose sums the driver adds up by itself."""
_ENDING_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramJob:
    """What to train: the text, its tokenizer, and the model."""

    corpus: Corpus
    tokenizer: TokenizerConfig | Path  # settings of a new tokenizer, or the folder of a trained one
    config: Config
    context: Context

    def __post_init__(self) -> None:
        if self.config.smoothing != "modified-kneser-ney":
            raise UsageError(
                f"--workers and --on train modified-kneser-ney models; leave them out for {self.config.smoothing}"
            )
        if self.config.entropy_prune:
            raise UsageError(
                "entropy pruning works in memory; leave out --workers and --on, or prune the trained model with "
                "chainrule convert --entropy-prune"
            )

    def settings(self) -> dict[str, Any]:
        """Return the settings that the result depends on, as JSON."""
        tokenizer = self.tokenizer
        return {
            "version": system.versions()["chainrule"],
            "family": "ngram",
            "model": to_json(self.config),
            "context": self.context,
            "tokenizer": str(tokenizer.resolve()) if isinstance(tokenizer, Path) else to_json(tokenizer),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedNgram:
    """A trained model file, with what describes the training text."""

    tokenizer: Tokenizer
    path: Path  # of the model file
    fingerprint: Fingerprint
    tokens: int
    characters: int
    unknown: Mapping[str, int]  # count of each word outside the vocabulary


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Counts on which the speller is trained."""

    tokenizer: Tokenizer
    unknown: Mapping[str, int]  # count of each word outside the vocabulary
    known: Callable[[], Mapping[str, int]]  # count of each word (character) of the vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedText:
    """The text after it was read once."""

    counts: dict[str, int]  # of words (characters), most frequent first; empty for tokenizers that have none
    words: int
    lines: int
    characters: int
    size: int  # in bytes
    sketch: NDArray[np.uint64]
    sample: bytes
    endings: list[bytes]  # last lines of each partition of the text, for stream context


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedWindows:
    """The stage `windows`, with figures of the encoded text."""

    records: Records | None  # None at order 1
    tokens: int
    unknown: dict[str, int]
    id_counts: Ids | None  # at order 1


def train_ngram(
    engine: Engine, job: NgramJob, model_path: Path, on_words: Callable[[WordCounts], None] = lambda counts: None
) -> TrainedNgram:
    """Train a model on an engine and write its file; `on_words` is called as soon as the words are counted."""
    engine.start_workers(_load)
    sha256 = _TextDigest(engine, job.corpus)
    loaded = load_tokenizer(job.tokenizer) if isinstance(job.tokenizer, Path) else None
    config = loaded.config if loaded else _resolve_config(job)
    text = engine.read_text(job.corpus)
    if not len(text):
        raise _no_words()
    scanned = scan_text(engine, text, config, job)
    if not scanned.words:
        raise _no_words()
    tokenizer = loaded or _train_tokenizer(job.corpus, config, scanned)
    counted = _figures_of_counts(tokenizer, scanned) if tokenizer.config.tokens_are_text else None
    if counted is not None:
        on_words(_check_words(tokenizer, counted, scanned))
    engine.progress("planning partitions", 0, None)
    files = _JobFiles(engine, job, tokenizer, scanned)
    encoded = _encode_windows(engine, text, files, counted)
    if counted is None:
        on_words(_check_words(tokenizer, encoded, scanned))
    tables = _estimate(engine, files, encoded)
    _write_model(engine, files, tables, model_path)
    return TrainedNgram(
        tokenizer=tokenizer,
        path=model_path,
        fingerprint=Fingerprint(sha256.result(), scanned.sketch, scanned.lines),
        tokens=encoded.tokens,
        characters=scanned.characters,
        unknown=encoded.unknown,
    )


def _load() -> None:
    """Load the extension in a worker; calling this function imports this module."""
    system.load_extension()


def _check_words(tokenizer: Tokenizer, encoded: EncodedWindows, scanned: ScannedText) -> WordCounts:
    """Return the counts for the speller; raise for an unknown word if the vocabulary is closed."""
    if tokenizer.config.closed and encoded.unknown:
        word = next(iter(encoded.unknown))
        raise ConfigError(f"--closed, but the tokenizer does not know '{word}' of the training text")
    return WordCounts(tokenizer, encoded.unknown, lambda: _known_counts(tokenizer, scanned.counts))


def _no_words() -> InputError:
    return InputError("the training text contains no words, only blank lines or nothing; give a text with words")


def _resolve_config(job: NgramJob) -> TokenizerConfig:
    """Return the settings of a new tokenizer, with the kind that suits the text."""
    assert isinstance(job.tokenizer, TokenizerConfig)
    return resolve_kind(job.corpus, tokenizer_training.lower_unk(job.tokenizer))


def _train_tokenizer(corpus: Corpus, config: TokenizerConfig, scanned: ScannedText) -> Tokenizer:
    """Build a vocabulary from the counts; the driver trains sub-word tokenizers on the text."""
    if config.tokens_are_text and config.vocab is None:
        return tokenizer_training.from_counts(dict(scanned.counts), config)
    return tokenizer_training.train(corpus, config)


def _known_counts(tokenizer: Tokenizer, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of words of the vocabulary; of all words for WordPiece, whose ids are not words."""
    if tokenizer.config.kind == "wordpiece":
        return {word: count for word, count in counts.items() if word != tokenizer.config.unk}
    return {
        word: count for word, count in counts.items() if tokenizer.vocab.get(word, tokenizer.unk) != tokenizer.unk
    }


class _TextDigest:
    """SHA-256 of the text, computed in a thread while the stages run; it is stored in the work folder."""

    def __init__(self, engine: Engine, corpus: Corpus) -> None:
        self._engine, self._corpus = engine, corpus
        self._value = engine.read_shared("text.sha256")
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        if self._value is None:
            self._thread.start()

    def _run(self) -> None:
        try:
            self._value = text_sha256(self._corpus).encode()
            if self._engine.work.path.exists():  # it is removed if the training fails
                self._engine.share_file("text.sha256", self._value)
        except Exception as error:
            self._error = error

    def result(self) -> str:
        """Wait for the digest."""
        if self._thread.is_alive():
            self._engine.progress("hashing the text", 0, None)
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._value is not None
        return self._value.decode()


# Stages `words` and `vocabulary`


@dataclass(frozen=True, slots=True)
class CountWords:
    """Task of the stage `words`: count the words of a partition of the text; the last part has its summary."""

    config: TokenizerConfig
    parts: int
    sample_share: float
    ending: int  # lines kept of the end of the partition

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return counts by part, and the summary."""
        core = system.load_extension()
        is_native = _counts_words(self.config) and not self.config.lowercase
        counter = core.BlockCounter(self.config.placeholder, SHORTEST_LINE, SKETCH_SIZE, is_native)
        counts: Counter[str] = Counter()
        sample: list[bytes] = []
        ending: deque[bytes] = deque(maxlen=self.ending)
        credit = 0.0
        for _, block in records:
            lines = bytes(block)
            if core.has_long_line(lines):
                _check_word_lengths(lines, self.config)
                for fragment in cut_lines([lines.decode()]):
                    counter.add(fragment.text.encode() + b"\n", fragment.ends_line)
            else:
                counter.add(lines)
            if not is_native and (_counts_words(self.config) or self.config.kind == "char"):
                texts = (fragment.text for fragment in cut_lines([lines.decode()]))
                counts.update(tokenizer_training.count_tokens(texts, self.config))
            credit += len(lines) * self.sample_share
            if credit > 0:
                end = lines.find(b"\n", min(len(lines), max(int(credit), 1)) - 1) + 1
                sample.append(lines[:end])
                credit -= end
            if self.ending:
                ending.extend(lines[-_ENDING_BYTES:].splitlines(keepends=True)[-self.ending :])
        counter.add_counts(counts)
        yield from counter.records(self.parts)
        sizes = [partition, counter.words, counter.lines, counter.characters, counter.bytes]
        summary = {
            "sizes": np.array(sizes, np.int64),
            "sketch": counter.sketch(),
            "sample": _as_array(b"".join(sample)),
            "ending": _as_array(b"".join(ending)),
        }
        yield self.parts, write_tensors(summary)


@dataclass(frozen=True, slots=True)
class AddCounts:
    """Task of the stage `vocabulary`: add up the counts of one part, or join the summaries."""

    parts: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return one record."""
        if partition < self.parts:
            yield 0, system.load_extension().add_word_counts([payload for _, payload in records])
            return
        sketch = np.zeros(0, np.uint64)
        sizes: dict[int, NDArray[np.int64]] = {}
        texts: dict[str, dict[int, bytes]] = {"sample": {}, "ending": {}}
        for _, payload in records:
            summary = read_tensors(bytes(payload))
            number = int(summary["sizes"][0])
            sizes[number] = summary["sizes"][1:]
            sketch = np.union1d(sketch, summary["sketch"])[:SKETCH_SIZE]
            for name, parts in texts.items():
                parts[number] = summary[name].tobytes()
        order = sorted(sizes)
        joined = {name: b"".join(parts[p] for p in order) for name, parts in texts.items()}
        tensors: Arrays = {name: _as_array(content) for name, content in joined.items()}
        tensors["ending_sizes"] = np.array([len(texts["ending"][p]) for p in order], np.int64)
        tensors["sizes"] = np.sum([sizes[p] for p in order], axis=0)
        yield 0, write_tensors(tensors | {"sketch": sketch})


def _as_array(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


def _counts_words(config: TokenizerConfig) -> bool:
    """Whether the words of the text are counted: for word tokenizers, and for WordPiece for its speller."""
    return config.is_word_level or config.kind == "wordpiece"


def _check_word_lengths(lines: bytes, config: TokenizerConfig) -> None:
    """Raise for words that are too long for a vocabulary."""
    if config.collapses_blanks and any(
        len(word) > LONGEST_WORD for word in split_words(lines.decode().replace("\n", " "))
    ):
        raise InputError(
            f"the text has a word of more than {LONGEST_WORD:,} characters; "
            "insert blanks, or train with --tokenizer char, byte or bpe"
        )


def scan_text(engine: Engine, text: Records, config: TokenizerConfig, job: NgramJob) -> ScannedText:
    """Run the stages `words` and `vocabulary`."""
    parts = min(max(1, len(text) // 4), 256)
    stored = job.corpus.size_hint() or sum(len(line) for line in job.corpus.texts)
    sample = max(SAMPLE_BYTES, SAMPLE_BYTES_PER_PARTITION * len(text))
    ending = job.config.order - 1 if job.context == "stream" else 0
    count = CountWords(config, parts, min(1.0, sample / max(stored, 1)), ending)
    counted = engine.run("words", text, count, partitions=parts + 1)
    added = engine.run("vocabulary", counted, AddCounts(parts))
    counts = system.load_extension().word_counts([bytes(p) for part in range(parts) for _, p in added[part]])
    summary = read_tensors(bytes(next(iter(added[parts]))[1]))
    words, lines, characters, size = summary["sizes"].tolist()
    ends = np.cumsum(summary["ending_sizes"])[:-1]
    return ScannedText(
        counts=counts,
        words=words,
        lines=lines,
        characters=characters,
        size=size,
        sketch=summary["sketch"],
        sample=summary["sample"].tobytes(),
        endings=[part.tobytes() for part in np.split(summary["ending"], ends)],
    )


# Stage `windows`


class _JobFiles:
    """Files in the work folder that the tasks read: plan, vocabulary, and the words before each partition."""

    def __init__(self, engine: Engine, job: NgramJob, tokenizer: Tokenizer, scanned: ScannedText) -> None:
        core = system.load_extension()
        self.job, self.tokenizer = job, tokenizer
        self.is_native = isinstance(tokenizer, WordTokenizer) and not tokenizer.config.lowercase
        if isinstance(tokenizer, WordTokenizer) and self.is_native:
            vocabulary = core.word_encoding_to_bytes(tokenizer.word_encoding)
            sample = core.encode_lines(scanned.sample, tokenizer.word_encoding)["ids"]
        else:
            vocabulary = tokenizer.to_json().encode()
            sample = _encode(scanned.sample, tokenizer)
        self.vocabulary = engine.share_file("vocabulary", vocabulary)
        self.partitions = -(-scanned.size // engine.work.partition_bytes)
        self.plan = core.PartitionPlan.balance(
            sample=sample,
            order=job.config.order,
            vocabulary_size=tokenizer.vocabulary.size,
            bos=tokenizer.bos,
            eos=tokenizer.eos,
            is_stream=job.context == "stream",
            partitions=self.partitions,
            ranges=-(-self.partitions // 2),
        )
        self.plan_file = engine.share_file("plan", self.plan.to_bytes())
        self.starts = None
        if job.context == "stream" and job.config.order > 1:
            self.starts = engine.share_file("starts", _starts(scanned.endings, tokenizer, job.config.order - 1))


def _starts(endings: list[bytes], tokenizer: Tokenizer, width: int) -> bytes:
    """Return the last `width` ids before each partition of the text, padded with −1 on the left, as int32."""
    rows = np.full((len(endings), width), -1, np.int32)
    before = np.zeros(0, np.int32)
    for row, ending in zip(rows, endings, strict=True):
        if len(before):
            row[-len(before) :] = before
        before = np.concatenate([before, _encode(ending, tokenizer)])[-width:]
    return rows.tobytes()


def _encode(lines: bytes, tokenizer: Tokenizer) -> Ids:
    """Encode lines that end with LF."""
    fragments = cut_lines([lines.decode(errors="ignore")])
    return np.concatenate([np.zeros(0, np.int32), *(batch.ids for batch in encode_fragments(fragments, tokenizer))])


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeWindows:
    """Task of the stage `windows`: encode the windows of a partition of the text; the last key has its figures."""

    config: TokenizerConfig
    order: int
    partitions: int
    plan: Path
    vocabulary: Path
    is_native: bool  # whether `vocabulary` is a WordEncoding, otherwise tokenizer.json
    starts: Path | None

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return windows by partition."""
        core = system.load_extension()
        encoder = core.WindowEncoder(_read_plan(self.plan))
        if self.starts is not None:
            starts = np.fromfile(self.starts, np.int32).reshape(-1, self.order - 1)[partition]
            encoder.start(starts[starts >= 0])
        figures = _EncodedFigures(counts_ids=self.order == 1)
        for _, block in records:
            lines = bytes(block)
            if not self.is_native:
                for batch in encode_fragments(cut_lines([lines.decode()]), self._tokenizer()):
                    figures.add(batch)
                    if self.order > 1:
                        encoder.add(batch.ids)
            elif core.has_long_line(lines):
                for fragment in cut_lines([lines.decode()]):
                    ids = core.encode_lines(fragment.text.encode() + b"\n", self._encoding())["ids"]
                    encoder.add(ids if fragment.ends_line else ids[:-1])
            else:
                encoder.add_text(lines, self._encoding())
            if encoder.windows >= WINDOWS_AT_ONCE:
                yield from encoder.take()
        yield from encoder.take()
        yield self.partitions, figures.to_bytes(encoder.tokens)

    def _encoding(self) -> Any:
        return _read_encoding(self.vocabulary)

    def _tokenizer(self) -> Tokenizer:
        return _read_tokenizer(self.vocabulary, self.config)


@dataclass(slots=True)
class _EncodedFigures:
    """Figures of a text that a tokenizer encodes in Python."""

    counts_ids: bool
    tokens: int = 0
    spellings: Counter[str] = field(default_factory=Counter)
    id_counts: Ids = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, batch: EncodedBatch) -> None:
        """Add encoded lines."""
        self.tokens += len(batch.ids)
        self.spellings.update(batch.spellings)
        if self.counts_ids:
            self.id_counts = _add_counts(self.id_counts, np.bincount(batch.ids))

    def to_bytes(self, tokens: int) -> bytes:
        """Return the figures as tensors; `tokens` are those that were encoded otherwise."""
        counter = system.load_extension().BlockCounter(None, SHORTEST_LINE, 0)
        counter.add_counts(self.spellings)
        return write_tensors(
            {
                "tokens": np.array([self.tokens or tokens], np.int64),
                "spellings": _as_array(b"".join(record for _, record in counter.records(1))),
                "id_counts": self.id_counts,
            }
        )


def _add_counts(a: Ids, b: Ids) -> Ids:
    """Add counts by id; the longer array has more ids."""
    total = np.zeros(max(len(a), len(b)), np.int64)
    total[: len(a)] += a
    total[: len(b)] += b
    return total


@lru_cache(maxsize=1)
def _read_plan(path: Path) -> Any:
    return system.load_extension().PartitionPlan(path.read_bytes())


@lru_cache(maxsize=1)
def _read_encoding(path: Path) -> Any:
    return system.load_extension().word_encoding_from_bytes(path.read_bytes())


@lru_cache(maxsize=1)
def _read_tokenizer(path: Path, config: TokenizerConfig) -> Tokenizer:
    return Tokenizer.from_json(path.read_bytes(), config, str(path))


def _encode_windows(
    engine: Engine, text: Records, files: _JobFiles, counted: EncodedWindows | None
) -> EncodedWindows:
    """Run the stage `windows` and read its figures; at order 1, the counts of the words are enough."""
    tokenizer, order = files.tokenizer, files.job.config.order
    if counted is not None and order == 1:
        return counted
    encode = EncodeWindows(
        config=tokenizer.config,
        order=order,
        partitions=files.partitions,
        plan=files.plan_file,
        vocabulary=files.vocabulary,
        is_native=files.is_native,
        starts=files.starts,
    )
    records = engine.run("windows", text, encode, partitions=files.partitions + 1)
    tokens, spellings = 0, []
    id_counts: Ids = np.zeros(tokenizer.vocabulary.size, np.int64)
    for _, payload in records[files.partitions]:
        figures = read_tensors(bytes(payload))
        tokens += int(figures["tokens"][0])
        spellings.append(figures["spellings"].tobytes())
        id_counts = _add_counts(id_counts, figures["id_counts"])
    if counted is not None and counted.tokens != tokens:
        raise InputError(f"the text changed while it was read: {counted.tokens} tokens, then {tokens}; train again")
    unknown = system.load_extension().word_counts(spellings) if counted is None else counted.unknown
    return EncodedWindows(
        records=records if order > 1 else None, tokens=tokens, unknown=unknown, id_counts=id_counts
    )


def _figures_of_counts(tokenizer: Tokenizer, scanned: ScannedText) -> EncodedWindows:
    """Return the figures of a text whose tokens are words or characters, from their counts."""
    id_counts = np.zeros(tokenizer.vocabulary.size, np.int64)
    id_counts[tokenizer.eos] = scanned.lines
    unknown: dict[str, int] = {}
    for word, count in scanned.counts.items():
        id_ = tokenizer.vocab.get(word, tokenizer.unk)
        id_counts[id_] += count
        if id_ == tokenizer.unk:
            unknown[word] = count
    return EncodedWindows(records=None, tokens=int(id_counts.sum()), unknown=unknown, id_counts=id_counts)


# Stages `sums`, `estimates` and `tables`, and the model file


@dataclass(frozen=True, slots=True)
class SumCounts:
    """Task of the stage `sums`: count a partition; return what other partitions need to know."""

    plan: Path
    parts: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return sums by part."""
        plan = _read_plan(self.plan)
        if partition < plan.partitions:  # the last has figures of the text
            yield from system.load_extension().partition_sums(plan, [p for _, p in records], parts=self.parts)


@dataclass(frozen=True, slots=True)
class MergeSums:
    """Task of the stage `merged-sums`: add up the sums of one part."""

    order: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return one record."""
        yield 0, system.load_extension().merge_sums(self.order, [payload for _, payload in records])


@dataclass(frozen=True, slots=True)
class EstimatePartition:
    """Task of the stage `estimates`: estimate the n-grams of a partition."""

    plan: Path
    shared: Path

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return n-grams by range of their first word."""
        plan = _read_plan(self.plan)
        if partition < plan.partitions:
            windows = [payload for _, payload in records]
            shared = map_file(self.shared)
            yield from system.load_extension().partition_estimates(plan, shared, partition, windows)


@dataclass(frozen=True, slots=True)
class AssembleRange:
    """Task of the stage `tables`: arrange the n-grams of a range in the order of the file."""

    plan: Path
    shared: Path

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Return one table."""
        shared = map_file(self.shared)
        runs = [payload for _, payload in records]
        yield 0, system.load_extension().assemble_range(_read_plan(self.plan), shared, partition, runs)


def _estimate(engine: Engine, files: _JobFiles, windows: EncodedWindows) -> Records:
    """Run the stages after `windows`."""
    core, config, vocabulary = system.load_extension(), files.job.config, files.tokenizer.vocabulary
    if windows.records is None:
        sums = [core.unigram_sums(windows.id_counts)]
    else:
        parts = -(-files.partitions // PARTITIONS_PER_SUM)
        records = engine.run("sums", windows.records, SumCounts(files.plan_file, parts), partitions=parts)
        if parts > 1:
            records = engine.run("merged-sums", records, MergeSums(config.order))
        sums = [payload for _, payload in engine.iterate(records)]
    engine.progress("estimating what partitions share", 0, None)
    content, default_reasons = core.global_estimates(
        files.plan,
        sums,
        unk=-1 if vocabulary.unk is None else vocabulary.unk,
        is_closed=vocabulary.closed,
        cut_offs=list(config.cut_offs()),
    )
    ngram_engine.warn_about_default_discounts(default_reasons)
    shared = engine.share_file("estimates", content)
    runs: Records = EmptyRecords(files.plan.ranges)
    if windows.records is not None:
        estimate = EstimatePartition(files.plan_file, shared)
        runs = engine.run("estimates", windows.records, estimate, partitions=files.plan.ranges)
        if engine.options.work is None:
            shutil.rmtree(engine.work.path / "windows")  # no longer needed
    return engine.run("tables", runs, AssembleRange(files.plan_file, shared))


def _write_model(engine: Engine, files: _JobFiles, tables: Records, path: Path) -> None:
    """Write the model file from the mapped tables."""
    engine.progress("writing the model", 0, None)
    config, vocabulary = files.job.config, files.tokenizer.vocabulary
    folder = engine.work.path / "tables"
    path.unlink(missing_ok=True)  # of an interrupted run
    try:
        system.load_extension().write_ranges(
            [map_payload(folder / task_file(range_)) for range_ in range(len(tables))],
            files.plan,
            unk=-1 if vocabulary.unk is None else vocabulary.unk,
            is_closed=vocabulary.closed,
            holds_suffixes=not any(config.cut_offs()),
            names=files.tokenizer.names(),
            layout=config.layout,
            bits=config.bits,
            threads=system.thread_count(),
            out=str(path),
        )
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ChainruleError(
            f"{path} cannot be written: {error.strerror or error}; make room, or choose another disk with --work"
        ) from error
