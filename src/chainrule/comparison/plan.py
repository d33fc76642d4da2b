"""Plan the networks of a comparison: tokenizers, sizes and training times."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from chainrule import families
from chainrule.comparison.settings import Settings
from chainrule.comparison.tokenized_text import Tokenized
from chainrule.config import flatten, with_settings
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, MissingExtra
from chainrule.ngram.config import Config
from chainrule.plots.formatting import format_duration
from chainrule.sizing import SizedConfig, choose_size, throughput

TOKENIZER_PRIORITY: Final = ("word", "whitespace", "bpe", "unigram", "wordpiece", "char", "byte")
"""Tokenizers for networks by priority (docs/sizing.md: words need fewer steps per byte of text)."""
WARM_UP_SECONDS: Final = 0.01
"""Seconds of the warm-up training that loads all libraries."""
MIN_RUN_SECONDS: Final = 600.0
"""A family is trained on another tokenizer only if each of its runs gets this many seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A model to train."""

    tokenized: Tokenized
    family: str
    config: Any
    name: str
    seconds: float | None = None  # time limit of one run
    expected_seconds: float = 0.0  # per run; 0: unknown
    expected_epochs: float = 0.0  # per run; 0: unknown
    note: str = ""


def is_installed(family: str) -> bool:
    """Whether a family can be trained; warn if an extra is missing."""
    try:
        families.get(family)
    except MissingExtra as error:
        warnings.warn(f"{family} is left out: {error}", ChainruleWarning, stacklevel=3)
        return False
    return True


def load_libraries(family: str, tokenized: Tokenized, settings: Settings) -> None:
    """Train briefly, so that loading libraries does not count against the first network."""
    if settings.size == "auto" and families.is_builtin(family):
        config = families.get(family).candidates()[0]
        throughput(family, config, tokenized.prepared, _options(settings), WARM_UP_SECONDS)


def _options(settings: Settings) -> RunOptions:
    return RunOptions(device=settings.device, context=settings.context, seed=settings.seed)


def plan_networks(
    tokenized: Sequence[Tokenized], names: Sequence[str], settings: Settings, seconds: float | None
) -> list[Candidate]:
    """Plan the networks within `seconds` in total and `settings.max_seconds` per family."""
    tokenizers = {name: _tokenizers(tokenized, seconds, len(names), settings) for name in names}
    runs = sum(map(len, tokenizers.values())) * settings.seeds
    candidates: list[Candidate] = []
    for family in names:
        chosen = tokenizers[family]
        shares = [None if seconds is None else seconds / runs]
        shares.append(None if settings.max_seconds is None else settings.max_seconds / len(chosen) / settings.seeds)
        share = min((limit for limit in shares if limit is not None), default=None)
        for text in chosen:
            candidates.extend(_sized_candidates(family, text, settings, share, len(tokenized) > 1))
    return candidates


def _tokenizers(
    tokenized: Sequence[Tokenized], seconds: float | None, families_count: int, settings: Settings
) -> list[Tokenized]:
    """Tokenizers to train networks on by priority; at least one."""
    ordered = sorted(tokenized, key=lambda text: TOKENIZER_PRIORITY.index(text.kind))
    limits = [settings.max_seconds, None if seconds is None else seconds / max(1, families_count)]
    available = min((limit for limit in limits if limit is not None), default=None)
    if available is None:
        return ordered
    return ordered[: max(1, int(available / settings.seeds / MIN_RUN_SECONDS))]


def _sized_candidates(
    family: str, tokenized: Tokenized, settings: Settings, seconds: float | None, is_labelled: bool
) -> Iterator[Candidate]:
    if settings.size == "fixed" or not families.is_builtin(family):
        configs = [remove_time_limit(config) for config in families.get(family).candidates()]
        seconds = None if seconds is None else seconds / max(1, len(configs))
        sizes = [SizedConfig(config, seconds or 0.0, flatten(config).get("epochs", 0), "") for config in configs]
    else:
        sizes = [choose_size(family, tokenized.prepared, seconds=seconds, options=_options(settings))]
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


def remove_time_limit(config: Any) -> Any:
    """Remove the time limit of a config; the plan sets it."""
    return with_settings(config, max_seconds=None) if flatten(config).get("max_seconds") else config


def describe_plan(candidates: Sequence[Candidate], seeds: int) -> list[str]:
    """Describe the plan: one summary line, then one line per network."""
    total = sum(candidate.expected_seconds for candidate in candidates) * seeds
    networks = f"{len(candidates)} network{'' if len(candidates) == 1 else 's'}"
    seeds_text = f", {seeds} seeds each" if seeds > 1 else ""
    lines = [
        f"plan: {networks}{seeds_text}, " + (f"about {format_duration(total)}" if total else "without a time limit")
    ]
    for candidate in candidates:
        epochs = f"up to {candidate.expected_epochs:.3g} epochs" if candidate.expected_epochs else "epochs unknown"
        seconds = f" in {format_duration(candidate.expected_seconds)}" if candidate.expected_seconds else ""
        note = f" ({candidate.note})" if candidate.note else ""
        lines.append(f"  {candidate.name}, {candidate.tokenized.kind}: {epochs}{seconds}{note}")
    return lines


def row_name(family: str, config: Any, label: str = "") -> str:
    """Row name from family and facets: `ngram-5-modified-kneser-ney`, `ngram-char-8-absolute`."""
    facets = map(str, families.get(family).facets(config).values())
    return "-".join([family, *([label] if label else []), *facets])


MAX_ORDER: Final = {"char": 12, "byte": 12, "bpe": 8, "unigram": 8, "wordpiece": 8}
"""Maximum order by tokenizer kind; word tokenizers use the candidate grid of the family."""
OTHER_SMOOTHINGS: Final = ("kneser-ney", "absolute", "witten-bell")
"""Smoothings tried at the best order of modified Kneser-Ney."""

ValidBits = Callable[[str], float]
"""Maps the name of a model to its validation bits per byte; NaN if unknown."""


def ngram_candidates(tokenized: Tokenized, valid_bits: ValidBits, is_labelled: bool) -> Iterator[Candidate]:
    """Yield candidates; each must be trained before the next is requested.

    For words, all candidates of the family. For characters, bytes and sub-words, modified Kneser-Ney with
    increasing order until validation bits rise, then other smoothings at the best order.
    """
    label = tokenized.label if is_labelled else ""

    def candidate(config: Config) -> Candidate:
        return Candidate(tokenized, "ngram", config, row_name("ngram", config, label))

    highest = MAX_ORDER.get(tokenized.kind)
    if highest is None:
        for config in families.get("ngram").candidates():
            yield candidate(config)
        return
    best_order, best_bits = 1, math.inf
    for order in range(1, highest + 1):
        current = candidate(Config(order=order))
        yield current
        bits = valid_bits(current.name)
        if bits >= best_bits:
            break
        if not math.isnan(bits):
            best_order, best_bits = order, bits
    for smoothing in OTHER_SMOOTHINGS:
        yield candidate(Config(order=best_order, smoothing=smoothing))
