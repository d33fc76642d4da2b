"""Progress of a comparison by the clock: how much of its time has passed, and what is being done."""

import dataclasses
import time

from chainrule.progress import Progress


@dataclasses.dataclass(frozen=True, slots=True)
class Clock:
    """The time of a comparison."""

    total: float  # seconds that it may take, as far as is known
    start: float = dataclasses.field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        """Seconds until the total; 0 once it is over."""
        return max(0.0, self.total - self.elapsed)


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """One piece of work; its progress moves the clock's bar and adds to the description."""

    outer: Progress
    clock: Clock
    name: str

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Report the seconds that have passed, of those that there are."""
        words = f"{self.name}: {what}" if what else self.name
        seconds = max(1, round(self.clock.total))
        self.outer(words, min(round(self.clock.elapsed), seconds), seconds)
