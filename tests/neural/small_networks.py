"""Shared helpers of the contextual-vector tests: small networks of every kind with an eight-word tokenizer."""

from types import SimpleNamespace
from typing import Any

import torch

from chainrule.neural.encoders.pretraining import PretrainConfig, build
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer
from neural.adaptation_models import make

VOCABULARY = ["the", "old", "bank", "of", "a", "river", "was", "muddy"]
SENTENCES = [
    "the bank was old",
    "a river",
    "the old river of the bank was a muddy river",
    "muddy",
    "",
    "of a bank unknown the",
]
LANGUAGE_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("lstm", {}),
    "lstm-normed": ("lstm", {"layer_norm": True, "tie": False, "embedding": 6}),
    "gru-attentive": ("gru", {"layers": 2}),
    "attention-in-state": ("lstm", {"attention": "dot", "attention_use": "state", "memory": 3}),
    "learned-start": ("learned-start", {}),
    "feedforward": ("feedforward", {"layers": 2, "embedding": 6, "direct": True}),
    "transformer": ("transformer", {}),
    "transformer-learned-post": ("transformer", {"positions": "learned", "norm": "post"}),
}
ENCODERS: dict[str, dict[str, Any]] = {
    "two-way-lstm": {"hidden": 8, "embedding": 6},
    "two-way-gru": {"family": "gru", "hidden": 8, "layers": 1},
    "two-way-rnn": {"family": "rnn", "hidden": 8},
    "masked": {"family": "transformer", "hidden": 8, "heads": 2},
    "masked-wider": {"family": "transformer", "hidden": 8, "heads": 2, "embedding": 6, "norm": "post"},
}
KINDS = [*LANGUAGE_MODELS, *ENCODERS]


def words(kind: str = "word") -> Tokenizer:
    """The eight words, or their characters."""
    if kind == "word":
        return tokenizer_training.from_words(VOCABULARY, TokenizerConfig())
    from chainrule.text.corpus import Corpus

    return tokenizer_training.train(Corpus.from_lines([" ".join(VOCABULARY)]), TokenizerConfig(kind="char"))


def reader(kind: str, tokenizer: Tokenizer | None = None, **chosen: Any) -> Any:
    """A model of this kind with random weights and the attributes that contextual vectors need."""
    tokenizer = tokenizer or words()
    if kind in LANGUAGE_MODELS:
        family, sizes = LANGUAGE_MODELS[kind]
        lm = make(family, "line", tokenizer.vocabulary, **sizes, **chosen)
        return SimpleNamespace(lm=lm, tokenizer=tokenizer, network=None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        network = build(PretrainConfig(**ENCODERS[kind] | chosen), tokenizer.vocabulary).eval()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, 0.0, 0.4)
    return SimpleNamespace(network=network, tokenizer=tokenizer)


def network_of(model: Any) -> Any:
    return model.lm.network if hasattr(model, "lm") else model.network
