"""Translations and attention alignments, and the encoding of sentence pairs."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.lm import Floats, Ids
from chainrule.progress import Progress
from chainrule.tasks.running import make_tokenizer
from chainrule.text.pairs import SentencePairs
from chainrule.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from chainrule.neural.pairs import PairConfig


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation of a source."""

    source: str
    text: str
    ids: list[int]  # ends with `</s>` if finished
    tokens: list[str]  # token strings of `ids`
    log_probs: list[float]  # nats per token, from the model without decoding adjustments
    length_penalty: float  # exponent p of `score`
    is_finished: bool  # False: max_tokens was reached before `</s>` or a stop string

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        source: str,
        text: str,
        ids: Sequence[int],
        log_probs: Sequence[float],
        length_penalty: float,
        is_finished: bool,
    ) -> "Translation":
        """Create from target token ids; `text` is stripped."""
        tokens = tokenizer.tokens(ids)
        return cls(source, text.strip(), list(ids), tokens, list(log_probs), length_penalty, is_finished)

    @property
    def log_prob(self) -> float:
        """log p(target | source) in nats."""
        return float(np.sum(self.log_probs))

    @property
    def score(self) -> float:
        """Ranking score: log p / length^p, `</s>` included in the length."""
        return float(self.log_prob / max(1, len(self.ids)) ** self.length_penalty)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Cross-attention weights of a translation."""

    source: list[str]  # S tokens, ending with `</s>`
    target: list[str]  # T tokens, ending with `</s>` if finished
    by_head: Floats  # (L, H, T, S) per layer and head

    @property
    def weights(self) -> Floats:
        """(T, S) mean over layers and heads."""
        mean: Floats = self.by_head.mean(axis=(0, 1))
        return mean


def rank_translations(translations: Sequence[Translation]) -> list[Translation]:
    """Sort by score, best first, unfinished translations last."""
    return sorted(translations, key=lambda translation: (not translation.is_finished, -translation.score))


def override_decoding(base: Decoding, chosen: Mapping[str, Any], num: int = 1) -> Decoding:
    """Override decoding settings by name; raise if they cannot produce `num` translations."""
    names = [field.name for field in fields(Decoding)]
    if unknown := [name for name in chosen if name not in names]:
        raise ConfigError(f"decoding has no setting '{unknown[0]}'; choose among {', '.join(names)}")
    decoding = replace(base, **chosen)
    if decoding.strategy == "greedy" and num > 1:
        raise ConfigError(f"num is {num}, and greedy gives one translation; use beam or sample")
    return decoding


def source_seed(seed: int | None, number: int) -> int | None:
    """Sampling seed of source `number`, counted from 0; differs between sources, reproducible between runs."""
    if seed is None:
        return None
    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1, np.uint64)[0])


def check_texts(texts: Sequence[str], name: str) -> None:
    """Raise if `texts` is a single string instead of a list."""
    if isinstance(texts, str):
        raise InputError(f"{name} is one text; give a list of texts, such as [text]")


def check_aligned(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Raise unless there is at least one pair and every source has a target."""
    for texts, name in ((sources, "sources"), (targets, "targets")):
        check_texts(texts, name)
    if len(sources) != len(targets):
        raise InputError(f"{len(sources)} sources but {len(targets)} targets; give one target for each source")
    if not len(sources):
        raise InputError("there are no pairs; give at least one source and its target")


def encode_with_eos(tokenizer: Tokenizer, text: str) -> Ids:
    """Encode a line and append `</s>`."""
    return np.append(tokenizer.encode(text), tokenizer.eos).astype(np.int64)


def check_length(ids: Ids, config: "PairConfig", name: str) -> Ids:
    """Return `ids` unchanged; raise if they are too long for a Transformer."""
    if config.family == "transformer" and len(ids) > config.longest:
        raise InputError(
            f"{name} has {len(ids)} tokens with </s>, but this model reads at most {config.longest}; "
            "cut it into sentences, or train with --set longest=…"
        )
    return ids


def make_tokenizers(
    data: SentencePairs,
    is_joint: bool,
    tokenizer: str | Path,
    tokenizer_settings: dict[str, object],
    progress: Progress,
) -> tuple[Tokenizer, Tokenizer]:
    """Train or load the source and target tokenizers, or one joint tokenizer for both."""
    if is_joint:
        joint = make_tokenizer([*data.sources, *data.targets], tokenizer, tokenizer_settings, progress)
        return joint, joint
    source = make_tokenizer(data.sources, tokenizer, tokenizer_settings, progress)
    return source, make_tokenizer(data.targets, tokenizer, tokenizer_settings, progress)


def encode_pairs(
    data: SentencePairs, source: Tokenizer, target: Tokenizer, longest: int
) -> tuple[list[Ids], list[Ids]]:
    """Encode the pairs; drop those longer than `longest`, with a warning."""
    pairs = [
        (encode_with_eos(source, s), encode_with_eos(target, t))
        for s, t in zip(data.sources, data.targets, strict=True)
    ]
    usable = [pair for pair in pairs if max(map(len, pair)) <= longest]
    if not usable:
        raise InputError(f"{data.name}: every pair is longer than {longest} tokens; set longest higher")
    if len(usable) < len(pairs):
        message = f"{data.name}: {len(pairs) - len(usable)} pairs are longer than {longest} tokens and left out"
        warnings.warn(f"{message}; set longest higher to keep them", ChainruleWarning, stacklevel=4)
    return [s for s, _ in usable], [t for _, t in usable]
