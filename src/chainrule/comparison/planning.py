"""Which networks are trained, on which tokenizer, how large and for how long."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final

from chainrule import families
from chainrule.comparison.settings import Settings
from chainrule.comparison.tokenized import Tokenized
from chainrule.errors import ChainruleWarning, MissingExtra
from chainrule.report.quantities import duration
from chainrule.sizing import Sized, size, throughput

PREFERENCE: Final = ("word", "whitespace", "bpe", "unigram", "wordpiece", "char", "byte")
"""Tokenizers of networks, the most promising first (docs/sizing.md: words need fewer steps per byte of text)."""
SHORTEST: Final = 0.01
"""Seconds of training that loads all libraries."""
WORTHWHILE_SECONDS: Final = 600.0
"""A family is trained on a further tokenizer only if each of its runs has this long."""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One model to train."""

    tokenized: Tokenized
    family: str
    config: Any
    name: str
    seconds: float | None = None  # the most that one run of it may take
    expected_seconds: float = 0.0  # of one run; 0: unknown
    expected_epochs: float = 0.0  # likewise
    note: str = ""


def is_installed(family: str) -> bool:
    """Whether a family can be trained here; a warning where it needs something that is not installed."""
    try:
        families.get(family)
    except MissingExtra as error:
        warnings.warn(f"{family} is left out: {error}", ChainruleWarning, stacklevel=3)
        return False
    return True


def load_libraries(family: str, tokenized: Tokenized, settings: Settings) -> None:
    """Make a few updates of a network, so that loading libraries takes nothing from the time of the first one."""
    if settings.size == "auto" and families.is_builtin(family):
        config = families.get(family).candidates()[0]
        prepared, context, device = tokenized.prepared, settings.context, settings.device
        throughput(family, config, prepared, device=device, context=context, seed=settings.seed, seconds=SHORTEST)


def plan_networks(
    tokenized: Sequence[Tokenized], names: Sequence[str], settings: Settings, seconds: float | None
) -> list[Candidate]:
    """The networks to train in `seconds`, or in `settings.max_seconds` for each family, whichever is less."""
    counts = {name: _tokenizers(tokenized, seconds, len(names), settings) for name in names}
    runs = sum(map(len, counts.values())) * settings.seeds
    candidates: list[Candidate] = []
    for family in names:
        chosen = counts[family]
        shares = [None if seconds is None else seconds / runs]
        shares.append(None if settings.max_seconds is None else settings.max_seconds / len(chosen) / settings.seeds)
        share = min((limit for limit in shares if limit is not None), default=None)
        for one in chosen:
            candidates.extend(_sized_candidates(family, one, settings, share, len(tokenized) > 1))
    return candidates


def _tokenizers(
    tokenized: Sequence[Tokenized], seconds: float | None, families_count: int, settings: Settings
) -> list[Tokenized]:
    """The tokenizers that networks are trained on, the most promising first; at least one."""
    ordered = sorted(tokenized, key=lambda one: PREFERENCE.index(one.kind))
    limits = [settings.max_seconds, None if seconds is None else seconds / max(1, families_count)]
    available = min((limit for limit in limits if limit is not None), default=None)
    if available is None:
        return ordered
    return ordered[: max(1, int(available / settings.seeds / WORTHWHILE_SECONDS))]


def _sized_candidates(
    family: str, tokenized: Tokenized, settings: Settings, seconds: float | None, is_labelled: bool
) -> Iterator[Candidate]:
    if settings.size == "fixed" or not families.is_builtin(family):
        configs = [unlimited(config) for config in families.get(family).candidates()]
        seconds = None if seconds is None else seconds / max(1, len(configs))
        sizes = [Sized(config, seconds or 0.0, getattr(config, "epochs", 0), "") for config in configs]
    else:
        sizes = [
            size(
                family,
                tokenized.prepared,
                seconds=seconds,
                device=settings.device,
                context=settings.context,
                seed=settings.seed,
            )
        ]
    for sized in sizes:
        yield Candidate(
            tokenized,
            family,
            sized.config,
            row_name(family, sized.config, tokenized.label if is_labelled else ""),
            seconds,
            sized.expected_seconds,
            sized.expected_epochs,
            sized.note,
        )


def unlimited(config: Any) -> Any:
    """The config without a time limit of its own: that of the plan holds."""
    return dataclasses.replace(config, max_seconds=None) if getattr(config, "max_seconds", None) else config


def describe(candidates: Sequence[Candidate], seeds: int) -> list[str]:
    """The plan in words: one line for the whole, one for each network."""
    total = sum(candidate.expected_seconds for candidate in candidates) * seeds
    many = f"{len(candidates)} network{'' if len(candidates) == 1 else 's'}"
    times = f", {seeds} seeds each" if seeds > 1 else ""
    lines = [f"plan: {many}{times}, " + (f"about {duration(total)}" if total else "without a time limit")]
    for candidate in candidates:
        epochs = f"up to {candidate.expected_epochs:.3g} epochs" if candidate.expected_epochs else "epochs unknown"
        seconds = f" in {duration(candidate.expected_seconds)}" if candidate.expected_seconds else ""
        note = f" ({candidate.note})" if candidate.note else ""
        lines.append(f"  {candidate.name}, {candidate.tokenized.kind}: {epochs}{seconds}{note}")
    return lines


def row_name(family: str, config: Any, label: str = "") -> str:
    """The family and what tells its candidates apart: `ngram-5-modified-kneser-ney`, `ngram-char-8-absolute`."""
    facets = map(str, families.get(family).facets(config).values())
    return "-".join([family, *([label] if label else []), *facets])
