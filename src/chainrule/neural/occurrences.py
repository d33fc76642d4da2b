"""Vectors of one word in many sentences, layer by layer."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.lm import Floats
from chainrule.neural.contextual import Layers, contextual
from chainrule.progress import Progress, as_progress, silent
from chainrule.tokenizers.tokenizer import Tokenizer, split_words


@dataclass(frozen=True, slots=True)
class Occurrences:
    """First occurrence of a word in each sentence, and its vectors there."""

    sentences: tuple[tuple[str, ...], ...]
    positions: tuple[int, ...]
    vectors: Mapping[int, Floats]  # layer -> (n, D), one row per sentence


def occurrences(
    model: Any,
    word: str,
    sentences: Sequence[str],
    name: str = "the sentences given",
    progress: Progress | bool = silent,
) -> Occurrences:
    """Return the vectors of a word in sentences that contain it; `name` is the file named in error messages.

    Words are compared after the tokenizer's normalisation, e.g. lower-casing.
    """
    progress = as_progress(progress)
    if split_words(word) != [word]:
        raise UsageError(f"{word!r} is not one word; give a word without blanks")
    if not sentences:
        raise InputError(f"{name}: there are no sentences; give some that contain '{word}'")
    layers = contextual(model, sentences, progress=progress)
    tokenizer: Tokenizer = model.tokenizer
    positions = [
        _find(sentence, word, tokenizer, f"{name}, line {line}") for line, sentence in enumerate(layers, start=1)
    ]
    if tokenizer.unk is not None and tokenizer.unk in tokenizer.encode(word):
        message = f"the model does not know '{word}' and reads <unk> there: its vectors depend on the context alone"
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    vectors = {
        k: np.stack([sentence.vectors[k][position] for sentence, position in zip(layers, positions, strict=True)])
        for k in layers[0].vectors
    }
    return Occurrences(tuple(sentence.words for sentence in layers), tuple(positions), vectors)


def _find(layers: Layers, word: str, tokenizer: Tokenizer, where: str) -> int:
    """Index of the first occurrence of the word in a sentence."""
    normalized = tokenizer.normalize(word)
    for position, candidate in enumerate(layers.words):
        if tokenizer.normalize(candidate) == normalized:
            return position
    remedy = "" if tokenizer.config.splits_punctuation else "; put blanks around words and punctuation"
    raise InputError(f"{where} does not contain '{word}' as a separate word{remedy}")
