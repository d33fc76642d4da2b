"""How to compare: the options of `chainrule compare`."""

import dataclasses
from pathlib import Path
from typing import Any

from chainrule import families
from chainrule.errors import ConfigError
from chainrule.lm import Context

MIN_COUNT = 2
"""Words seen once are unknown words, unless said otherwise: every family meets some while it learns."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to compare."""

    families: tuple[str, ...] = ()  # all that learn from text, where none are named
    tokenizer: str = "word"
    tokenizer_settings: dict[str, object] = dataclasses.field(default_factory=dict)
    context: Context = "line"
    seed: int = 0
    max_seconds: float | None = None  # for each family
    device: str = "auto"
    out: Path | None = None  # where report, results and models go
    force: bool = False  # replace another comparison in `out`
    command: str = "chainrule.compare(…)"

    def __post_init__(self) -> None:
        for name in self.families:
            families.get(name)
            if name not in families.trainable():
                raise ConfigError(
                    f"'{name}' does not learn from text; choose from {', '.join(families.trainable())}"
                )
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ConfigError(f"max-seconds is {self.max_seconds:g}; choose a number above 0")


def make_settings(chosen: dict[str, Any]) -> Settings:
    """The settings, with words seen once cut off where nothing else was said of the vocabulary."""
    if chosen.get("out") is not None:
        chosen = chosen | {"out": Path(chosen["out"])}
    settings = Settings(**chosen)
    cuts = {"min_count", "vocab_size", "top_percent", "closed"}
    if settings.tokenizer not in ("word", "whitespace", "char") or cuts & set(settings.tokenizer_settings):
        return settings
    return dataclasses.replace(settings, tokenizer_settings={**settings.tokenizer_settings, "min_count": MIN_COUNT})
