"""Shared helpers of the adaptation tests: small networks with large weights, and texts."""

from typing import Any

import numpy as np
import torch

from chainrule.data.encoded import EncodedText
from chainrule.lm import Context, Ids, Vocabulary
from chainrule.neural import feedforward, gru, lstm, transformer
from chainrule.neural.model import NeuralModel

WORDS = Vocabulary(size=11, bos=0, eos=1, unk=2)
CLOSED = Vocabulary(size=11, bos=0, eos=1, unk=2, closed=True)
WINDOW = 6

FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "lstm": (lstm, {"hidden": 8, "layers": 2}),
    "gru": (gru, {"hidden": 8, "attention": "dot", "memory": 3}),
    "learned-start": (lstm, {"hidden": 8, "layers": 1, "learned_start": True}),
    "feedforward": (feedforward, {"hidden": 8, "order": 4}),
    "transformer": (transformer, {"hidden": 8, "heads": 2, "layers": 2, "window": WINDOW}),
    "adaptive": (lstm, {"hidden": 8, "layers": 1, "output": "adaptive", "tie": False}),
}


def make(
    family: str = "lstm", context: Context = "stream", words: Vocabulary = WORDS, **chosen: Any
) -> NeuralModel:
    """A model with random weights: no good predictions, but not uniform either."""
    module, sizes = FAMILIES[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = module.build(module.Config(**sizes, **chosen), words, np.ones(words.size))
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, 0.0, 0.4)
    return NeuralModel(network, words, context)


def some_ids(tokens: int, seed: int = 0, lines: int = 9) -> Ids:
    """Words 3 … 10 with `</s>` after every `lines` tokens and at the end."""
    ids = np.random.default_rng(seed).integers(3, WORDS.size, tokens).astype(np.int32)
    ids[lines - 1 :: lines] = WORDS.eos
    ids[-1] = WORDS.eos
    return ids


def encoded(ids: Ids) -> EncodedText:
    """A text of these ids with arbitrary sizes."""
    return EncodedText(ids, WORDS.eos, WORDS.unk, words=len(ids), characters=len(ids), bytes=len(ids))
