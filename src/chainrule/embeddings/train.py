"""Train word vectors on a text: count words, build the vocabulary, run one of the methods."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule import system
from chainrule.config import build_config
from chainrule.embeddings import ppmi
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import (
    CountedCorpus,
    Digest,
    TrainedVectors,
    WordVocabulary,
    build_vocabulary,
    count_blocks,
)
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
from chainrule.text.fingerprint import Fingerprint
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
    **settings: Any,
) -> WordVectors:
    """Train vectors of the words of a text, with settings from `config` or from keywords such as `method="cbow"`.

    The text is read once, into a temporary file of word numbers, in constant memory. With one thread, the same seed
    gives bit-identical vectors. With `out`, the model folder is written too; an existing model or unfinished run is
    replaced only if `force` is True.
    """
    progress = as_progress(progress)
    if config is not None and settings:
        raise UsageError(f"settings were given twice, as config and as {', '.join(settings)}; give them once")
    config = build_config(VectorConfig, settings, "vectors") if config is None else config
    if config.method in ("skipgram", "cbow") and config.negative == 0:
        raise ConfigError("vectors.negative is 0, but training needs negative samples; choose 1 or more")
    _check_run(config.method, threads, seed)
    if out is None:
        return _train(text, config, threads, seed, progress, command)
    with verified_dir.lock_for_writing(Path(out), command, force=force):
        check = lambda facts: verified_dir.check_replace(Path(out), facts, force=force)  # noqa: E731
        vectors = _train(text, config, threads, seed, progress, command, check)
        vectors.save(out, force=force)
        return vectors


def _train(
    text: Sources | Corpus,
    config: VectorConfig,
    threads: int | None,
    seed: int,
    progress: Progress,
    command: str,
    check: Callable[[Mapping[str, JSON]], None] | None = None,
) -> WordVectors:
    """Train the vectors; `check` is called with the provenance once the text is read and may raise."""
    corpus = Corpus.of(text)
    if config.tokenizer == "word" and looks_pretokenised(corpus, UNK):
        config = replace(config, tokenizer="whitespace")
    digest = hashlib.sha256()
    start = time.perf_counter()
    with scratch_folder() as scratch:
        counted, words = _count(corpus, digest, scratch / "numbers", config, progress)
        name = command or "chainrule.embeddings.train.train(…)"
        fingerprint = Fingerprint(digest.hexdigest())
        origin = Origin.now(text=corpus.name, fingerprint=fingerprint, command=name, seed=seed)
        if check is not None:
            check(origin.manifest_facts("vectors"))
        if config.method == "one-hot":  # `WordVectors` represents the V×V identity by a matrix of width 0
            trained = TrainedVectors(np.zeros((len(words), 0), np.float32), None, {"seconds": 0.0, "threads": 1})
        else:
            threads = threads or min(system.thread_count(), MAX_THREADS)
            method = import_module(METHOD_MODULES[config.method])
            trained = method.train(counted, words, config, threads=threads, seed=seed, progress=progress)
    figures = {
        "train_words": int(counted.total),
        "train_types": counted.types,
        "vocab_size": len(words),
        "train_seconds": round(time.perf_counter() - start, 3),
    }
    return WordVectors(
        words=words.words,
        matrix=trained.matrix,
        counts=words.counts,
        subwords=Subwords(config.shortest, config.longest, config.buckets) if config.has_subwords else None,
        buckets=trained.buckets,
        lowercase=config.lowercase,
        metrics=figures | replace_nonfinite(trained.metrics),
        config=config,
        origin=origin,
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
    if not counted.total:
        raise InputError(f"{corpus.name} contains no words; give a text with words")
    words = build_vocabulary(counted, config.min_count, config.vocab_size)
    if not len(words):
        highest = int(counted.counts.max())
        frequency = "once" if highest == 1 else f"{highest} times"
        raise InputError(
            f"no word of {corpus.name} occurs {config.min_count} times or more; "
            f"use more text or a lower min_count (the most frequent word occurs {frequency})"
        )
    return counted.without_words(), words


def _check_words(blocks: CorpusReader[str]) -> Iterator[str]:
    """Yield the blocks unchanged; raise on an excessively long word."""
    words = WordLengthCheck(blocks, "word vectors need text with blanks between words")
    for block in blocks:
        words.check(block)
        yield block
