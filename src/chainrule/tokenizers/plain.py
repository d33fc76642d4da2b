"""The words of plain text files counted and encoded by the compiled core, on all processors.

Each function gives None where the text is not plain or the tokenizer does more than cut at blanks; train.py and
encode.py then go their own way, which says what the result is.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.encoded import Encoded
from chainrule.lm import Ids
from chainrule.text.corpus import Corpus
from chainrule.text.plain import find_plain
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer


def count_words(corpus: Corpus, config: TokenizerConfig) -> dict[str, int] | None:
    """How often each word stands in the text, the most frequent first, in code point order among equals."""
    files = find_plain(corpus) if config.is_words and not config.lowercase else None
    if files is None:
        return None
    counts: dict[str, int] | None = files.core.count_plain_words(files.names, files.threads, _placeholder(config))
    return counts


def encode_words(corpus: Corpus, tokenizer: Tokenizer, ids_file: Path | None = None) -> Encoded | None:
    """Every line's ids, in memory or in a file of int32."""
    is_plain = tokenizer.config.is_words and tokenizer.backend.normalizer is None
    files = find_plain(corpus) if is_plain else None
    if files is None:
        return None
    assert tokenizer.unk is not None
    target = b"" if ids_file is None else os.fsencode(ids_file)
    found: dict[str, Any] | None = files.core.encode_plain_words(
        files.names,
        tokenizer.known,
        tokenizer.unk,
        tokenizer.eos,
        files.threads,
        target,
        _placeholder(tokenizer.config),
    )
    if found is None:
        return None
    return Encoded(
        ids=found["ids"] if ids_file is None else ids_of_file(ids_file),
        eos=tokenizer.eos,
        unk=tokenizer.unk,
        words=found["words"],
        characters=found["characters"],
        bytes=found["bytes"],
        spellings=found["spellings"],
    )


def _placeholder(config: TokenizerConfig) -> str | None:
    """What the core leaves whole where it splits punctuation off; None where it cuts at blanks alone."""
    return config.unk if config.splits_punctuation else None


def ids_of_file(path: Path) -> Ids:
    """The ids that were written there, mapped and not read."""
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=np.int32)
    return np.memmap(path, dtype=np.int32, mode="r")
