"""One word in many sentences: its vectors in each of them, layer by layer.

Lives here: finding the word. Not here: the vectors (contextual.py), what they tell of the word's senses
(inspection/senses.py).
"""

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
    """A word's first place in each sentence, and its vectors there."""

    sentences: tuple[tuple[str, ...], ...]
    places: tuple[int, ...]
    vectors: Mapping[int, Floats]  # of each layer (n, D), a row a sentence


def occurrences(
    model: Any,
    word: str,
    sentences: Sequence[str],
    name: str = "the sentences given",
    progress: Progress | bool = silent,
) -> Occurrences:
    """The vectors of a word in sentences that hold it, each in one line; `name` is what errors call their file.

    Words are compared as the model's tokenizer sees them: in lower case where it makes no difference to the model.
    """
    progress = as_progress(progress)
    if split_words(word) != [word]:
        raise UsageError(f"{word!r} is not one word; give a word without blanks")
    if not sentences:
        raise InputError(f"{name}: there are no sentences; give some that hold '{word}'")
    layers = contextual(model, sentences, progress=progress)
    seen: Tokenizer = model.tokenizer
    places = [_find(each, word, seen, f"{name}, line {line}") for line, each in enumerate(layers, start=1)]
    if seen.unk is not None and seen.unk in seen.encode(word):
        message = (
            f"the model does not know '{word}' and reads <unk> there: its vectors are made of the context alone"
        )
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    vectors = {
        k: np.stack([each.vectors[k][place] for each, place in zip(layers, places, strict=True)])
        for k in layers[0].vectors
    }
    return Occurrences(tuple(each.words for each in layers), tuple(places), vectors)


def _find(layers: Layers, word: str, tokenizer: Tokenizer, where: str) -> int:
    """The word's first place in a sentence."""
    wanted = tokenizer.normalize(word)
    for place, each in enumerate(layers.words):
        if tokenizer.normalize(each) == wanted:
            return place
    remedy = "" if tokenizer.config.splits_punctuation else "; put blanks around words and signs"
    raise InputError(f"{where} does not hold '{word}' as a word by itself{remedy}")
