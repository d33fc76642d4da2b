"""Limits on the size, duration and number of requests."""

from dataclasses import dataclass, fields

from chainrule.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the server; requests that exceed one are rejected before any work is done."""

    body_bytes: int = 2 << 20
    depth: int = 32  # maximum nesting of JSON lists and objects
    names: int = 1024  # maximum number of JSON keys in a body
    seconds: float = 60.0  # timeout of a request, from its first byte to the last of the response
    idle_seconds: float = 30.0  # until a connection without a complete request is closed
    tokens: int = 4096  # generated per sample
    prompt_tokens: int = 1 << 16
    prompts: int = 256
    samples: int = 64  # per prompt
    top: int = 100  # alternatives per token
    drawn: int = 1 << 20  # per response: prompts · samples · tokens · (1 + alternatives)
    waiting: int = 512  # concurrent requests; more are rejected with 503
    rows: int = 256  # maximum batch size of a decode step
    grace_seconds: float = 5.0  # for running requests to finish at shutdown; may be 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (value >= 0 if field.name == "grace_seconds" else value > 0):
                raise ConfigError(f"limits.{field.name} is {value}; choose a positive number")
