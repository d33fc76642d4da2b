"""Settings of a comparison: the options of `chainrule compare`."""

import dataclasses
import math
import re
from pathlib import Path
from typing import Any, Final, Literal, get_args

from chainrule.config import setting
from chainrule.errors import ConfigError
from chainrule.tokenizers.config import KINDS

Keep = Literal["best", "all", "none"]
Size = Literal["auto", "fixed"]

MIN_COUNT: Final = 2
"""Default minimum count: words seen once become `<unk>`, so that every family trains on some unknown words."""
DEFAULT_BUDGET: Final = 120.0
"""Total seconds if neither `budget` nor `max_seconds` is given."""
COUNTED_KINDS: Final = ("word", "whitespace", "char")
UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a comparison."""

    families: tuple[str, ...] = setting((), "Model families to train, separated by commas.  [default: all]")
    tokenizer: str = setting(
        "word",
        "Tokenizer: word (splits punctuation), whitespace, char, byte, bpe, wordpiece, unigram (training is not "
        "reproducible, even with --seed), or a tokenizer folder.",
        shows_default=True,
    )
    tokenizers: tuple[str, ...] = setting(
        (), "Tokenizers to compare in one table, separated by commas: word,char,bpe."
    )
    tokenizer_settings: dict[str, object] = dataclasses.field(default_factory=dict)
    context: Literal["line", "stream"] = setting(
        "line",
        "'line' resets the context at every line; 'stream' carries it over from the line before.",
        shows_default=True,
    )
    seed: int = 0
    seeds: int = setting(1, "Number of seeds to train every neural model with.", shows_default=True)
    budget: float | None = None  # seconds for the whole comparison; DEFAULT_BUDGET without `max_seconds`
    max_seconds: float | None = setting(None, "Time budget of each family, in seconds.")
    size: Size = setting(
        "auto", "Layer sizes (neural models): auto (chosen for text and budget) or fixed.", shows_default=True
    )
    device: str = "auto"
    out: Path | None = None  # output folder
    keep: Keep = setting("best", "Models to keep on disk: best (of each family), all or none.", shows_default=True)
    resume: bool = setting(False, "Resume an interrupted comparison.")  # in `out`
    force: bool = False  # replace another comparison in `out`
    command: str = "chainrule.compare(…)"

    def __post_init__(self) -> None:
        from chainrule import families  # the table needs NumPy, which the help of the command does not

        for name in self.families:
            families.get(name)
            if name not in families.trainable():
                raise ConfigError(f"'{name}' is not trained on text; choose from {', '.join(families.trainable())}")
        for name in ("max_seconds", "budget"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ConfigError(f"{name.replace('_', '-')} is {seconds:g}; choose a number above 0")
        if self.seeds < 1:
            raise ConfigError(f"seeds is {self.seeds}; choose 1 or more")
        for name, kind in (("keep", Keep), ("size", Size)):
            if getattr(self, name) not in get_args(kind):
                raise ConfigError(f"{name} is '{getattr(self, name)}'; choose one of {', '.join(get_args(kind))}")
        if self.resume and self.out is None:
            raise ConfigError("resume continues the comparison in a folder: give out")
        labels = [tokenizer_label(name) for name in self.tokenizer_names]
        if len(set(labels)) < len(labels):
            raise ConfigError(f"tokenizers contains '{max(labels, key=labels.count)}' twice; give each once")

    @property
    def tokenizer_names(self) -> tuple[str, ...]:
        """Kinds or folders of the tokenizers to compare."""
        return self.tokenizers or (self.tokenizer,)

    @property
    def total_seconds(self) -> float | None:
        """Total time limit in seconds; None if only families have one."""
        if self.budget is None and self.max_seconds is None:
            return DEFAULT_BUDGET
        return self.budget

    def settings_of(self, tokenizer: str) -> dict[str, object]:
        """Settings of one tokenizer; `min_count` defaults to MIN_COUNT if nothing else limits the vocabulary."""
        chosen = self.tokenizer_settings
        if len(self.tokenizer_names) > 1:
            if tokenizer not in KINDS:
                return {}  # a finished tokenizer
            if tokenizer not in COUNTED_KINDS:
                chosen = {name: value for name, value in chosen.items() if name not in ("min_count", "top_percent")}
        limits = {"min_count", "vocab_size", "top_percent", "closed"}
        if tokenizer not in COUNTED_KINDS or limits & set(chosen):
            return dict(chosen)
        return {**chosen, "min_count": MIN_COUNT}


def make_settings(chosen: dict[str, Any]) -> Settings:
    """Settings from the keyword arguments of `chainrule.compare`."""
    if chosen.get("out") is not None:
        chosen = chosen | {"out": Path(chosen["out"])}
    if isinstance(chosen.get("budget"), str):
        chosen = chosen | {"budget": parse_duration(chosen["budget"])}
    return Settings(**chosen)


def tokenizer_label(tokenizer: str) -> str:
    """Display name of a tokenizer: its kind or the name of its folder."""
    return tokenizer if tokenizer in KINDS else Path(tokenizer).name


def parse_duration(text: str) -> float:
    """Parse `90`, `90s`, `10m` or `1h` to seconds.

    >>> parse_duration("90"), parse_duration("1.5m"), parse_duration("1h")
    (90.0, 90.0, 3600.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([smh]?)\s*", text)
    seconds = float(match[1]) * UNITS[match[2]] if match else math.nan
    if not 0 < seconds < math.inf:
        raise ConfigError(f"budget is '{text}'; give a time above 0 such as 90s, 10m or 1h")
    return seconds
