"""What a translator reads and gives back: pairs in ids; a translation and what it is worth, and where it looked."""

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
from chainrule.text.pairs import Pairs
from chainrule.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from chainrule.neural.pairs import PairConfig


@dataclass(frozen=True, slots=True)
class Translation:
    """One target for a source."""

    source: str
    text: str
    ids: list[int]  # `</s>` the last of them where it ended so
    tokens: list[str]  # their names
    log_probs: list[float]  # nats, one a token, what the model itself says
    length_penalty: float  # p
    is_finished: bool  # False: the length was used up before `</s>` or a stop string

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
        """These ids of the target's tokenizer, and their text without the blanks around it."""
        tokens = tokenizer.tokens(ids)
        return cls(source, text.strip(), list(ids), tokens, list(log_probs), length_penalty, is_finished)

    @property
    def log_prob(self) -> float:
        """log p(target | source) in nats."""
        return float(np.sum(self.log_probs))

    @property
    def score(self) -> float:
        """What translations are ranked by, however they were found: log p over length^p, `</s>` counted."""
        return float(self.log_prob / max(1, len(self.ids)) ** self.length_penalty)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Where each prediction looked in the source."""

    source: list[str]  # S tokens, `</s>` the last
    target: list[str]  # T tokens, `</s>` the last where it ended so
    by_head: Floats  # (L, H, T, S), by layer and head

    @property
    def weights(self) -> Floats:
        """(T, S) over all layers and heads."""
        mean: Floats = self.by_head.mean(axis=(0, 1))
        return mean


def ranked(found: Sequence[Translation]) -> list[Translation]:
    """The best first: finished ones by score, then those cut off."""
    return sorted(found, key=lambda translation: (not translation.is_finished, -translation.score))


def decoding_of(usual: Decoding, chosen: Mapping[str, Any], num: int = 1) -> Decoding:
    """Settings with what was chosen by name over them; refused where they do not give `num` translations."""
    names = [field.name for field in fields(Decoding)]
    if unknown := [name for name in chosen if name not in names]:
        raise ConfigError(f"decoding has no setting '{unknown[0]}'; choose among {', '.join(names)}")
    made = replace(usual, **chosen)
    if made.strategy == "greedy" and num > 1:
        raise ConfigError(f"num is {num}, and greedy gives one translation; use beam or sample")
    return made


def seed_of(seed: int | None, number: int) -> int | None:
    """The seed of the samples of source `number`, from 0: equal sources differ, a run can be repeated."""
    if seed is None:
        return None
    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1, np.uint64)[0])


def check_texts(texts: Sequence[str], what: str) -> None:
    """Refuse one text where a list of them is wanted."""
    if isinstance(texts, str):
        raise InputError(f"{what} is one text; give a list of texts, such as [text]")


def check_aligned(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse what are no pairs, and none at all."""
    for texts, what in ((sources, "sources"), (targets, "targets")):
        check_texts(texts, what)
    if len(sources) != len(targets):
        raise InputError(f"{len(sources)} sources but {len(targets)} targets; give one target a source")
    if not len(sources):
        raise InputError("there are no pairs; give at least one source and its target")


def with_end(tokenizer: Tokenizer, text: str) -> Ids:
    """The ids of a line and its `</s>`."""
    return np.append(tokenizer.encode(text), tokenizer.eos).astype(np.int64)


def readable(ids: Ids, config: "PairConfig", name: str) -> Ids:
    """The same ids, refused where a Transformer has no positions for them."""
    if config.family == "transformer" and len(ids) > config.longest:
        raise InputError(
            f"{name} has {len(ids)} tokens with </s>, and this model reads {config.longest}; "
            "cut it into sentences, or train with --set longest=…"
        )
    return ids


def make_tokenizers(
    data: Pairs, is_joint: bool, tokenizer: str | Path, wanted: dict[str, object], progress: Progress
) -> tuple[Tokenizer, Tokenizer]:
    """Of the sources and of the targets; one for both where they are joint."""
    if is_joint:
        both = make_tokenizer([*data.sources, *data.targets], tokenizer, wanted, progress)
        return both, both
    source = make_tokenizer(data.sources, tokenizer, wanted, progress)
    return source, make_tokenizer(data.targets, tokenizer, wanted, progress)


def encoded(data: Pairs, source: Tokenizer, target: Tokenizer, longest: int) -> tuple[list[Ids], list[Ids]]:
    """The pairs in ids; those too long are left out, and counted in a warning."""
    both = [(with_end(source, s), with_end(target, t)) for s, t in zip(data.sources, data.targets, strict=True)]
    kept = [pair for pair in both if max(map(len, pair)) <= longest]
    if not kept:
        raise InputError(f"{data.name}: every pair is longer than {longest} tokens; set longest higher")
    if len(kept) < len(both):
        message = f"{data.name}: {len(both) - len(kept)} pairs are longer than {longest} tokens and left out"
        warnings.warn(f"{message}; set longest higher to keep them", ChainruleWarning, stacklevel=4)
    return [s for s, _ in kept], [t for _, t in kept]
