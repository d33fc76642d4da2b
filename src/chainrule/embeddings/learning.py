"""Word vectors from text: count the words, choose those to keep, learn by one of the methods.

Lives here: the way from text to `WordVectors`. Not here: the methods (word2vec.py, glove.py, ppmi.py, one_hot.py),
counting and choice (counting.py, vocabulary.py).
"""

import hashlib
import math
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from chainrule import folder
from chainrule.config import make
from chainrule.embeddings import counting, storage, vocabulary
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vectors import WordVectors
from chainrule.embeddings.vocabulary import Chosen
from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus, Fragments
from chainrule.text.files import Sources
from chainrule.text.lines import join_lines


class Digest(Protocol):
    """What a hash offers."""

    def update(self, content: bytes, /) -> None:
        """Read on."""
        ...


METHODS: Final = {
    "skipgram": "chainrule.embeddings.word2vec",
    "cbow": "chainrule.embeddings.word2vec",
    "glove": "chainrule.embeddings.glove",
    "ppmi": "chainrule.embeddings.ppmi",
    "one-hot": "chainrule.embeddings.one_hot",
}


def train(
    text: Sources | Corpus,
    *,
    config: VectorConfig | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
    out: str | Path | None = None,
    command: str = "",
    **chosen: Any,
) -> WordVectors:
    """Learn vectors of the words of a text; `chosen` are settings, such as `method="cbow"`, in place of `config`.

    The text is read once, into a temporary file of numbers, and never in memory. With one thread the same seed
    gives the same bits. With `out` the folder is written as well.
    """
    if config is not None and chosen:
        raise UsageError(f"settings were given twice, as config and as {', '.join(chosen)}; give them once")
    config = make(VectorConfig, chosen, "vectors") if config is None else config
    _check_run(threads, seed, out)
    corpus = Corpus.of(text)
    digest = hashlib.sha256()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="chainrule-") as scratch:
        counted, kept = _count(corpus, digest, Path(scratch, "numbers"), config, progress)
        learnt = import_module(METHODS[config.method]).train(
            counted, kept, config, threads=threads or _processors(), seed=seed, progress=progress
        )
    figures = {
        "train_words": int(counted.total),
        "train_types": len(counted.words),
        "vocab_size": len(kept.words),
        "train_seconds": round(time.perf_counter() - start, 3),
    }
    made = WordVectors(
        words=tuple(kept.words),
        matrix=learnt.matrix,
        counts=kept.counts,
        subwords=Subwords(config.shortest, config.longest, config.buckets) if config.has_subwords else None,
        buckets=learnt.buckets,
        lowercase=config.lowercase,
        metrics=figures | _plain(learnt.metrics),
        config=config,
        about=storage.origin(
            corpus.name, digest.hexdigest(), command or "chainrule.embeddings.learning.train(…)", seed
        ),
    )
    if out is not None:
        made.save(out)
    return made


def _check_run(threads: int | None, seed: int, out: str | Path | None) -> None:
    """Refuse before any work what cannot end well."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}; choose 1 or more")
    if seed < 0:
        raise UsageError(f"seed is {seed}; choose 0 or more")
    if out is not None:
        folder.check_target(Path(out))


def _count(
    corpus: Corpus, digest: Digest, file: Path, config: VectorConfig, progress: Progress
) -> tuple[Counted, Chosen]:
    """The text as numbers, and the words to keep."""
    fragments = corpus.fragments()
    lines = _hashed(fragments, digest)
    counted = counting.count(lines, file, config.lowercase, progress)
    if fragments.replaced:
        message = f"{corpus.name}: {fragments.replaced} sequences are not UTF-8 and were read as U+FFFD"
        warnings.warn(message, ChainruleWarning, stacklevel=4)
    if not counted.total:
        raise InputError(f"{corpus.name} holds no words; give a text with words")
    kept = vocabulary.choose(counted, config.min_count, config.vocab_size)
    if not len(kept.words):
        raise InputError(
            f"no word of {corpus.name} comes {config.min_count} times or more; "
            f"take more text or a lower min_count (the most frequent comes {int(counted.counts.max())} times)"
        )
    return counted, kept


def _hashed(fragments: Fragments, digest: Digest) -> Iterator[str]:
    """The lines, which the digest reads along, in UTF-8 with LF after each."""
    for line in join_lines(fragments):
        digest.update(line.encode() + b"\n")
        yield line


def _plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """The figures as JSON has them: Python's own numbers, None for what is not finite."""
    found = {name: value.item() if isinstance(value, np.generic) else value for name, value in metrics.items()}
    return {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in found.items()}


def _processors() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
