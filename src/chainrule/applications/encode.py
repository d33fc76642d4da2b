"""Train tokenizers and encode corpora on an engine (`chainrule encode`, `chainrule tokenizer train`).

Words and characters are counted by partition and added up; the vocabulary is that of a tokenizer trained in one
process. Texts are encoded by partition; the ids are written to shards in the order of the text, so that the shards
do not depend on the engine or the partitions.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np

from chainrule.config import to_json
from chainrule.data.id_shards import (
    KIND,
    TOKENS_PER_SHARD,
    UNKNOWN_WORDS,
    IdShards,
    ShardWriter,
    TextNumbers,
    id_dtype,
    open_shards,
    serialize_index,
)
from chainrule.distributed.engine import Engine
from chainrule.distributed.options import EngineOptions
from chainrule.distributed.records import Record
from chainrule.distributed.start import start_engine
from chainrule.errors import ConfigError, InputError, UsageError
from chainrule.progress import Progress, silent
from chainrule.storage import strict_json, verified_dir
from chainrule.storage.provenance import CONFIG, SKETCH, TOKENIZER, Origin
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint, fingerprint
from chainrule.text.readers import SHARD_INDEX, Sources
from chainrule.tokenizers import train as training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode_lines
from chainrule.tokenizers.punctuation import resolve_kind
from chainrule.tokenizers.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_BUCKETS: Final = 64
_NUMBERS: Final = struct.Struct("<6q")


def encode_corpus(
    text: Sources | Corpus,
    out: str | Path,
    *,
    tokenizer: TokenizerConfig | str | Path,
    tokens_per_shard: int = TOKENS_PER_SHARD,
    options: EngineOptions | None = None,
    progress: Progress | bool = silent,
    session: "SparkSession | None" = None,
    command: str = "",
    force: bool = False,
) -> IdShards:
    """Encode a corpus as a folder of id shards, which `chainrule.train` reads in place of the text.

    Args:
        text: Files, folders or a corpus.
        out: Output folder.
        tokenizer: Config of a tokenizer to train on the text, or the folder of a trained one.
        tokens_per_shard: Number of tokens after which a shard ends with the next line.
        options: Engine on which the job runs; in this process by default.
        progress: Receives the stage, the number of its tasks that are done, and the number of all.
        session: A running Spark session, with `on="spark"` in the options.
        command: Command line for the provenance record.
        force: Replace another finished folder.

    """
    if tokens_per_shard < 1:
        raise UsageError(f"tokens-per-shard is {tokens_per_shard}; choose 1 or more")
    out, corpus = Path(out), Corpus.of(text)
    config = tokenizer if isinstance(tokenizer, TokenizerConfig) else Path(tokenizer)
    settings = {"job": "encode", "tokenizer": _identify_tokenizer(config)}
    with start_engine(options or EngineOptions(), corpus, settings, progress, session=session) as engine:
        trained = load_tokenizer(config) if isinstance(config, Path) else train_tokenizer(engine, corpus, config)
        blocks = _encode(engine, corpus, trained)
        origin = Origin.now(
            text=corpus.name, fingerprint=fingerprint(corpus), command=command or "encode_corpus(…)"
        )
        _write(out, trained, blocks, tokens_per_shard, origin, force)
    return open_shards(out, trained.vocabulary)


def _identify_tokenizer(tokenizer: TokenizerConfig | Path) -> Any:
    """Return a JSON value by which `--resume` recognizes the tokenizer."""
    return to_json(tokenizer) if isinstance(tokenizer, TokenizerConfig) else verified_dir.content_sha256(tokenizer)


def train_tokenizer(engine: Engine, corpus: Corpus, config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer as `tokenizers.train.train` does; words and characters are counted on the engine.

    Sub-word tokenizers are trained in this process.
    """
    if config.vocab is not None or config.kind not in ("word", "whitespace", "char"):
        return training.train(corpus, config, engine.progress)
    config = resolve_kind(corpus, training.lower_unk(config))
    buckets = max(1, min(MOST_BUCKETS, engine.parallelism))
    counted = engine.run(
        "words", engine.read_text(corpus), _CountWords(config, corpus.name, buckets), partitions=buckets
    )
    counts: dict[str, int] = {}
    for _, payload in engine.iterate(engine.run("word-counts", counted, _add_counts)):
        counts.update(_parse_counts(payload))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return training.from_counts(dict(ordered), config)


def train_tokenizer_on(
    options: EngineOptions, corpus: Corpus, config: TokenizerConfig, progress: Progress | bool = silent
) -> Tokenizer:
    """Train a word or character tokenizer on an engine; raise UsageError for other kinds."""
    if config.vocab is not None or config.kind not in ("word", "whitespace", "char"):
        what = "a tokenizer with --vocab" if config.vocab is not None else f"a {config.kind} tokenizer"
        raise UsageError(f"{what} is made in one process; leave out --workers and --on, or train on a sample")
    with start_engine(options, corpus, {"job": "tokenizer", "tokenizer": to_json(config)}, progress) as engine:
        return train_tokenizer(engine, corpus, config)


@dataclass(frozen=True)
class _CountWords:
    config: TokenizerConfig
    name: str
    buckets: int

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the words or characters of a partition with their counts, by hash."""
        counts: Counter[str] = Counter()
        for _, block in records:
            counts.update(training.count_lines(block, self.config, self.name))
        buckets: list[dict[str, int]] = [{} for _ in range(self.buckets)]
        for word, count in counts.items():
            buckets[crc32(word.encode()) % self.buckets][word] = count
        for bucket, words in enumerate(buckets):
            if words:
                yield bucket, strict_json.dump(words)


def _add_counts(partition: int, records: Iterator[Record]) -> Iterator[Record]:
    """Add up the counts of each word."""
    counts: Counter[str] = Counter()
    for _, payload in records:
        counts.update(_parse_counts(payload))
    yield partition, strict_json.dump(counts)


def _parse_counts(payload: bytes) -> dict[str, int]:
    counts: dict[str, int] = strict_json.parse(bytes(payload))
    return counts


def _encode(engine: Engine, corpus: Corpus, tokenizer: Tokenizer) -> Iterator[Record]:
    """Encode all blocks of lines on the engine; yield them in the order of the text."""
    content = tokenizer.to_json().encode()
    path = engine.share_file(f"tokenizer-{hashlib.sha256(content).hexdigest()[:16]}.json", content)
    encode_blocks = _EncodeBlocks(path, tokenizer.config, id_dtype(tokenizer.vocab_size))
    return engine.iterate(engine.run("ids", engine.read_text(corpus), encode_blocks))


@lru_cache(maxsize=1)
def _read_tokenizer(path: Path, config: TokenizerConfig) -> Tokenizer:
    """Read a tokenizer once in each worker process."""
    return Tokenizer.from_json(path.read_bytes(), config, str(path))


@dataclass(frozen=True)
class _EncodeBlocks:
    tokenizer: Path
    config: TokenizerConfig
    dtype: str

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the counts, the spellings of unknown words and the ids of each block."""
        tokenizer = _read_tokenizer(self.tokenizer, self.config)
        for lines_before, block in records:
            encoded = encode_lines(block, tokenizer)
            spellings = strict_json.dump(Counter(encoded.spellings)) if encoded.spellings else b""
            numbers = (encoded.tokens, encoded.lines, encoded.words, encoded.characters, encoded.bytes)
            yield (
                lines_before,
                _NUMBERS.pack(*numbers, len(spellings)) + spellings + encoded.ids.astype(self.dtype).tobytes(),
            )


def _write(
    out: Path, tokenizer: Tokenizer, blocks: Iterator[Record], tokens_per_shard: int, origin: Origin, force: bool
) -> None:
    """Write the folder of shards."""
    assert origin.fingerprint is not None, "the text has no fingerprint"
    text: Fingerprint = origin.fingerprint
    dtype = id_dtype(tokenizer.vocab_size)

    def fill(folder: Path) -> None:
        writer = ShardWriter(folder, tokenizer.eos, tokens_per_shard)
        totals = TextNumbers()
        unknown: Counter[str] = Counter()
        for _, payload in blocks:
            *numbers, size = _NUMBERS.unpack_from(payload)
            totals += TextNumbers(**dict(zip(TextNumbers.__slots__, numbers, strict=True)))
            begin = _NUMBERS.size + size
            if size:
                unknown.update(_parse_counts(payload[_NUMBERS.size : begin]))
            writer.append(np.frombuffer(payload[begin:], dtype))
        writer.close()
        _check(tokenizer, totals, text, unknown)
        ordered = {word: unknown[word] for word in sorted(unknown, key=lambda word: (-unknown[word], word))}
        files = {
            SHARD_INDEX: serialize_index(tokenizer.vocabulary, totals, writer.shards, text),
            UNKNOWN_WORDS: strict_json.dump(ordered),
            TOKENIZER: tokenizer.to_json().encode(),
            CONFIG: strict_json.dump({"task": KIND, "tokenizer": to_json(tokenizer.config)}),
            SKETCH: text.to_bytes(),
        }
        for name, content in files.items():
            verified_dir.write_file(folder / name, content)

    with verified_dir.lock(out):
        verified_dir.write(out, fill, origin.manifest_facts(KIND), force=force)


def _check(tokenizer: Tokenizer, totals: TextNumbers, text: Fingerprint, unknown: Counter[str]) -> None:
    """Raise for a text without words, with unknown words in a closed vocabulary, or that was changed."""
    if not totals.words:
        raise InputError("the text contains no words, only blank lines or nothing; give a text with words")
    if totals.lines != text.lines:
        raise InputError(
            f"the text changed while it was read: {totals.lines} lines, then {text.lines}; encode it again"
        )
    if tokenizer.config.closed and unknown:
        raise ConfigError(f"--closed, but the tokenizer does not know '{min(unknown)}' of the text")
