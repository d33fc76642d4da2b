"""Time budget and progress of a comparison."""

import dataclasses
import time

from chainrule.progress import Progress


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """Time budget of a comparison."""

    total: float  # expected total in seconds
    start: float = dataclasses.field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.total - self.elapsed)


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """Progress callback of one stage, reported as elapsed time of the whole comparison."""

    outer: Progress
    clock: Clock
    name: str

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Report elapsed and total seconds."""
        description = f"{self.name}: {what}" if what else self.name
        seconds = max(1, round(self.clock.total))
        self.outer(description, min(round(self.clock.elapsed), seconds), seconds)
