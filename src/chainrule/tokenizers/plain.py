"""Count and encode the words of plain text files with the compiled extension, on all processors.

Each function returns None if the files are not plain text or the tokenizer lower-cases; train.py and encode.py then
use the general Python implementation.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.encoded import EncodedText
from chainrule.lm import Ids
from chainrule.text.corpus import Corpus
from chainrule.text.plain import find_plain_files
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer


def count_words(corpus: Corpus, config: TokenizerConfig) -> dict[str, int] | None:
    """Count the words of a text, sorted by decreasing count, then by code points."""
    files = find_plain_files(corpus) if config.is_word_level and not config.lowercase else None
    if files is None:
        return None
    counts: dict[str, int] | None = files.core.count_plain_words(files.names, files.threads, _placeholder(config))
    return counts


def encode_words(corpus: Corpus, tokenizer: Tokenizer, ids_file: Path | None = None) -> EncodedText | None:
    """Encode the lines of a text, in memory or in a file of int32."""
    is_plain = tokenizer.config.is_word_level and tokenizer.backend.normalizer is None
    files = find_plain_files(corpus) if is_plain else None
    if files is None:
        return None
    assert tokenizer.unk is not None
    target = b"" if ids_file is None else os.fsencode(ids_file)
    result: dict[str, Any] | None = files.core.encode_plain_words(
        files.names,
        tokenizer.vocab,
        tokenizer.unk,
        tokenizer.eos,
        files.threads,
        target,
        _placeholder(tokenizer.config),
    )
    if result is None:
        return None
    return EncodedText(
        ids=result["ids"] if ids_file is None else map_ids(ids_file),
        eos=tokenizer.eos,
        unk=tokenizer.unk,
        words=result["words"],
        characters=result["characters"],
        bytes=result["bytes"],
        spellings=result["spellings"],
    )


def _placeholder(config: TokenizerConfig) -> str | None:
    """Return the word that is not split at punctuation; None if punctuation is not split."""
    return config.unk if config.splits_punctuation else None


def map_ids(path: Path) -> Ids:
    """Memory-map a file of ids."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.int32)
    return np.memmap(path, dtype=np.int32, mode="r")
