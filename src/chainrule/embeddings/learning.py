"""Word vectors from text: count the words, choose those to keep, learn by one of the methods.

Lives here: the way from text to `WordVectors`. Not here: the methods (word2vec.py, glove.py, ppmi.py, one_hot.py),
counting and choice (counting.py, vocabulary.py).
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule import folder, processors
from chainrule.config import make
from chainrule.embeddings import counting, ppmi, storage, vocabulary
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted, Digest
from chainrule.embeddings.subwords import Subwords
from chainrule.embeddings.vectors import WordVectors
from chainrule.embeddings.vocabulary import Chosen
from chainrule.errors import ConfigError, InputError, UsageError
from chainrule.manifest import JSON
from chainrule.progress import Progress, as_progress, silent
from chainrule.scratch import scratch_folder
from chainrule.text.corpus import Blocks, Corpus, WordLengthCheck
from chainrule.text.files import Sources
from chainrule.text.utf8 import warn_of_replaced
from chainrule.tokenizers.punctuation import looks_pretokenised
from chainrule.tokenizers.word_list import UNK

METHODS: Final = {
    "skipgram": "chainrule.embeddings.word2vec",
    "cbow": "chainrule.embeddings.word2vec",
    "glove": "chainrule.embeddings.glove",
    "ppmi": "chainrule.embeddings.ppmi",
    "one-hot": "chainrule.embeddings.one_hot",
}
MOST_THREADS: Final = 256


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
    **chosen: Any,
) -> WordVectors:
    """Learn vectors of the words of a text; `chosen` are settings, such as `method="cbow"`, in place of `config`.

    The text is read once, into a temporary file of numbers, and never in memory. With one thread the same seed
    gives the same bits. With `out` the folder is written as well; another model or an unfinished run there is
    refused unless `force` is True.
    """
    progress = as_progress(progress)
    if config is not None and chosen:
        raise UsageError(f"settings were given twice, as config and as {', '.join(chosen)}; give them once")
    config = make(VectorConfig, chosen, "vectors") if config is None else config
    if config.method in ("skipgram", "cbow") and config.negative == 0:
        raise ConfigError("vectors.negative is 0, and without noise words all vectors grow alike; choose 1 or more")
    _check_run(config.method, threads, seed)
    if out is None:
        return _train(text, config, threads, seed, progress, command)
    with folder.writing(Path(out), command, force=force):
        check = lambda facts: folder.check_replace(Path(out), facts, force=force)  # noqa: E731
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
    """Learn the vectors; `check` sees the facts of the manifest once the text is read, and may refuse to go on."""
    corpus = Corpus.of(text)
    if config.tokenizer == "word" and looks_pretokenised(corpus, UNK):
        config = replace(config, tokenizer="whitespace")
    digest = hashlib.sha256()
    start = time.perf_counter()
    with scratch_folder() as scratch:
        counted, kept = _count(corpus, digest, scratch / "numbers", config, progress)
        name = command or "chainrule.embeddings.learning.train(…)"
        about = storage.origin(corpus.name, digest.hexdigest(), name, seed)
        if check is not None:
            check(about)
        learnt = import_module(METHODS[config.method]).train(
            counted,
            kept,
            config,
            threads=threads or min(processors.threads(), MOST_THREADS),
            seed=seed,
            progress=progress,
        )
    figures = {
        "train_words": int(counted.total),
        "train_types": counted.types,
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
        about=about,
    )
    return made


def _check_run(method: str, threads: int | None, seed: int) -> None:
    """Refuse before any work what cannot end well."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise UsageError(f"threads is {threads}; choose a whole number from 1 to {MOST_THREADS}")
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"seed is {seed}; choose a whole number from 0 to 2**64 - 1")
    if method == "ppmi":
        ppmi.need_scipy()


def _count(
    corpus: Corpus, digest: Digest, file: Path, config: VectorConfig, progress: Progress
) -> tuple[Counted, Chosen]:
    """The text as numbers, and the words to keep."""
    blocks = corpus.blocks()
    checked = _check_words(blocks)
    is_split = config.tokenizer == "word"
    counted = counting.count_blocks(checked, file, config.lowercase, progress, digest, splits_punctuation=is_split)
    warn_of_replaced(corpus.name, blocks.replaced)
    if not counted.total:
        raise InputError(f"{corpus.name} holds no words; give a text with words")
    kept = vocabulary.choose(counted, config.min_count, config.vocab_size)
    if not len(kept.words):
        most = int(counted.counts.max())
        often = "once" if most == 1 else f"{most} times"
        raise InputError(
            f"no word of {corpus.name} comes {config.min_count} times or more; "
            f"take more text or a lower min_count (the most frequent comes {often})"
        )
    return counted.without_words(), kept


def _check_words(blocks: Blocks) -> Iterator[str]:
    """The same blocks; a word that is too long to be one is refused."""
    words = WordLengthCheck(blocks, "put blanks in: vectors are of words")
    for block in blocks:
        words.check(block)
        yield block


def _plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """The figures as JSON has them: Python's own numbers, None for what is not finite."""
    found = {name: value.item() if isinstance(value, np.generic) else value for name, value in metrics.items()}
    return {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in found.items()}
