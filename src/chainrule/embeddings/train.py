"""Train word vectors on a text: count words, build the vocabulary, run one of the methods."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule import system
from chainrule.config import build_config
from chainrule.distributed.options import EngineOptions, take_engine_options
from chainrule.distributed.start import start_engine
from chainrule.embeddings import ppmi
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import (
    LONG_WORD_REMEDY,
    CountedCorpus,
    Digest,
    TrainedVectors,
    WordVocabulary,
    build_vocabulary,
    count_blocks,
)
from chainrule.embeddings.distributed_counts import EngineCounter
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vectors import WordVectors
from chainrule.errors import ConfigError, InputError, UsageError
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import verified_dir
from chainrule.storage.provenance import Origin
from chainrule.storage.strict_json import replace_nonfinite
from chainrule.storage.temp_dir import scratch_folder
from chainrule.storage.verified_dir import JSON
from chainrule.text.corpus import Corpus, CorpusReader, WordLengthCheck
from chainrule.text.fingerprint import Fingerprint, text_sha256
from chainrule.text.readers import Sources, warn_about_replaced
from chainrule.tokenizers.punctuation import looks_pretokenised
from chainrule.tokenizers.train import UNK

METHOD_MODULES: Final = {
    "skipgram": "chainrule.embeddings.word2vec",
    "cbow": "chainrule.embeddings.word2vec",
    "glove": "chainrule.embeddings.glove",
    "ppmi": "chainrule.embeddings.ppmi",
}
"""Modules whose `train(counted, vocabulary, config, *, threads, seed, progress)` returns `TrainedVectors`."""
ENGINE_METHODS: Final = ("glove", "ppmi")
"""Methods that train on counts, which an engine provides; their modules have `fit(pairs, words, config, …)`."""
COUNT_SETTINGS: Final = ("lowercase", "tokenizer", "min_count", "vocab_size", "window")
"""Settings that the counts depend on."""
MAX_THREADS: Final = 256


def train(
    text: Sources | Corpus,
    *,
    config: VectorConfig | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | bool = silent,
    out: str | Path | None = None,
    force: bool = False,
    command: str = "",
    engine: EngineOptions | None = None,
    **settings: Any,
) -> WordVectors:
    """Train vectors of the words of a text, with settings from `config` or from keywords such as `method="cbow"`.

    The text is read once, into a temporary file of word numbers, in constant memory. With one thread, the same seed
    gives bit-identical vectors. With `out`, the model folder is written too; an existing model or unfinished run is
    replaced only if `force` is True.

    With an `engine`, or its options by name (`workers`, `on`, which may be a SparkSession, `master`, `work`,
    `partition`, `resume`), words and co-occurrences are counted on it, for GloVe and PPMI; the counts are those of
    one process.
    """
    session = None
    if engine is None:
        engine, session = take_engine_options(settings)
    if config is not None and settings:
        raise UsageError(f"settings were given twice, as config and as {', '.join(settings)}; give them once")
    config = build_config(VectorConfig, settings, "vectors") if config is None else config
    if config.method in ("skipgram", "cbow") and config.negative == 0:
        raise ConfigError("vectors.negative is 0, but training needs negative samples; choose 1 or more")
    _check_run(config.method, threads, seed)
    if engine is not None and config.method not in ENGINE_METHODS:
        is_hogwild = config.method in ("skipgram", "cbow")
        remedy = f"train {config.method} with --threads N" if is_hogwild else f"leave them out for {config.method}"
        raise UsageError(f"--workers and --on are for {' and '.join(ENGINE_METHODS)}; {remedy}")
    run = _Run(
        threads=threads or min(system.thread_count(), MAX_THREADS),
        seed=seed,
        progress=as_progress(progress),
        command=command or "chainrule.embeddings.train.train(…)",
        engine=engine,
        session=session,
    )
    if out is None:
        return _train(text, config, run)
    with verified_dir.lock_for_writing(Path(out), command, force=force):
        check = lambda facts: verified_dir.check_replace(Path(out), facts, force=force)  # noqa: E731
        vectors = _train(text, config, replace(run, check=check))
        vectors.save(out, force=force)
        return vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """How to train; `check` is called with the provenance once the text is read and may raise."""

    threads: int
    seed: int
    progress: Progress
    command: str
    engine: EngineOptions | None
    session: Any  # a running Spark session
    check: Callable[[Mapping[str, JSON]], None] | None = None

    def origin(self, corpus: Corpus, sha256: str) -> Origin:
        """Return the checked provenance of vectors of a text."""
        fingerprint = Fingerprint(sha256)
        origin = Origin.now(text=corpus.name, fingerprint=fingerprint, command=self.command, seed=self.seed)
        if self.check is not None:
            self.check(origin.manifest_facts("vectors"))
        return origin


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """Trained vectors, with the words and the text they belong to."""

    words: tuple[str, ...]
    counts: NDArray[np.uint64]
    types: int
    total: int
    origin: Origin
    trained: TrainedVectors


def _train(text: Sources | Corpus, config: VectorConfig, run: _Run) -> WordVectors:
    """Train the vectors."""
    corpus = Corpus.of(text)
    if config.tokenizer == "word" and looks_pretokenised(corpus, UNK):
        config = replace(config, tokenizer="whitespace")
    start = time.perf_counter()
    train_method = _train_here if run.engine is None else _train_on_engine
    with scratch_folder() as scratch:
        result = train_method(corpus, config, run, scratch)
    figures = {
        "train_words": int(result.total),
        "train_types": result.types,
        "vocab_size": len(result.words),
        "train_seconds": round(time.perf_counter() - start, 3),
    }
    return WordVectors(
        words=result.words,
        matrix=result.trained.matrix,
        counts=result.counts,
        subwords=Subwords(config.shortest, config.longest, config.buckets) if config.has_subwords else None,
        buckets=result.trained.buckets,
        lowercase=config.lowercase,
        metrics=figures | replace_nonfinite(result.trained.metrics),
        config=config,
        origin=result.origin,
    )


def _train_here(corpus: Corpus, config: VectorConfig, run: _Run, scratch: Path) -> _Result:
    """Train in this process."""
    digest = hashlib.sha256()
    counted, words = _count(corpus, digest, scratch / "numbers", config, run.progress)
    origin = run.origin(corpus, digest.hexdigest())
    if config.method == "one-hot":  # `WordVectors` represents the V×V identity by a matrix of width 0
        trained = TrainedVectors(np.zeros((len(words), 0), np.float32), None, {"seconds": 0.0, "threads": 1})
    else:
        method = import_module(METHOD_MODULES[config.method])
        trained = method.train(counted, words, config, threads=run.threads, seed=run.seed, progress=run.progress)
    return _Result(
        words=words.words,
        counts=words.counts,
        types=counted.types,
        total=counted.total,
        origin=origin,
        trained=trained,
    )


def _train_on_engine(corpus: Corpus, config: VectorConfig, run: _Run, scratch: Path) -> _Result:
    """Count words and co-occurrences on an engine, then train in this process."""
    assert run.engine is not None
    start = time.perf_counter()
    job = {
        "version": system.versions()["chainrule"],
        "vectors": {name: getattr(config, name) for name in COUNT_SETTINGS},
        "seed": run.seed,
    }
    with start_engine(run.engine, corpus, job, run.progress, session=run.session) as engine:
        counter = EngineCounter(engine, corpus, config, run.seed)
        counted = counter.count_words()
        _check_vocabulary(corpus, counted.total, len(counted.words), counted.highest_count, config)
        origin = run.origin(corpus, text_sha256(corpus))
        pairs = counter.count_cooccurrences(counted, scratch)
    seconds = time.perf_counter() - start
    method = import_module(METHOD_MODULES[config.method])
    trained = method.fit(
        pairs, len(counted.words), config, seconds, threads=run.threads, seed=run.seed, progress=run.progress
    )
    return _Result(
        words=counted.words,
        counts=counted.counts,
        types=counted.types,
        total=counted.total,
        origin=origin,
        trained=trained,
    )


def _check_run(method: str, threads: int | None, seed: int) -> None:
    """Raise on invalid run options or a missing dependency before any work is done."""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"threads is {threads}; choose a whole number from 1 to {MAX_THREADS}")
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"seed is {seed}; choose a whole number from 0 to 2**64 - 1")
    if method == "ppmi":
        ppmi.require_scipy()


def _count(
    corpus: Corpus, digest: Digest, file: Path, config: VectorConfig, progress: Progress
) -> tuple[CountedCorpus, WordVocabulary]:
    """Count the text and build the vocabulary."""
    blocks = corpus.blocks()
    checked = _check_words(blocks)
    is_split = config.tokenizer == "word"
    counted = count_blocks(checked, file, config.lowercase, progress, digest, splits_punctuation=is_split)
    warn_about_replaced(corpus.name, blocks.replaced)
    words = build_vocabulary(counted, config.min_count, config.vocab_size)
    highest_count = int(counted.counts.max(initial=0))
    _check_vocabulary(corpus, counted.total, len(words), highest_count, config)
    return counted.without_words(), words


def _check_vocabulary(corpus: Corpus, total: int, words: int, highest_count: int, config: VectorConfig) -> None:
    """Raise if the text has no words, or none that are frequent enough."""
    if not total:
        raise InputError(f"{corpus.name} contains no words; give a text with words")
    if not words:
        frequency = "once" if highest_count == 1 else f"{highest_count} times"
        raise InputError(
            f"no word of {corpus.name} occurs {config.min_count} times or more; "
            f"use more text or a lower min_count (the most frequent word occurs {frequency})"
        )


def _check_words(blocks: CorpusReader[str]) -> Iterator[str]:
    """Yield the blocks unchanged; raise on an excessively long word."""
    words = WordLengthCheck(blocks, LONG_WORD_REMEDY)
    for block in blocks:
        words.check(block)
        yield block
