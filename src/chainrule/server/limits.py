"""How much one request may ask for, and how many may wait."""

from dataclasses import dataclass, fields

from chainrule.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a request; what lies beyond is refused before any work is done for it."""

    body_bytes: int = 2 << 20
    depth: int = 32  # of lists and objects inside each other
    names: int = 1024  # of fields in one body, in all of its objects together
    seconds: float = 60.0  # of one request, from its first byte to the last of the answer
    idle_seconds: float = 30.0  # until a connection without a whole request is closed
    tokens: int = 4096  # drawn for one prompt
    prompt_tokens: int = 1 << 16
    prompts: int = 256
    samples: int = 64  # of one prompt
    top: int = 100  # alternatives told with a token
    drawn: int = 1 << 20  # tokens and alternatives of one answer: prompts · samples · tokens · (1 + alternatives)
    waiting: int = 512  # requests at once, before others are sent away
    rows: int = 256  # texts stepped together by one model
    grace_seconds: float = 5.0  # that running requests have to end when the server is stopped; may be 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value >= 0 if field.name == "grace_seconds" else value > 0):
                raise ConfigError(f"limits.{field.name} is {value}; choose a positive number")
