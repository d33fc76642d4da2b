"""Progress of one piece of work as a part of the whole."""

import dataclasses

from chainrule.progress import Progress

PARTS = 100  # steps of the progress bar for each piece of work


@dataclasses.dataclass(frozen=True, slots=True)
class Inner:
    """One of `total` pieces of work after `before` others; what it tells is told as a part of the whole."""

    outer: Progress
    name: str
    before: int
    total: int

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Move the whole's bar by this piece's part."""
        part = min(1.0, done / total) if total else 0.0
        words = f"{self.name}: {what}" if what else self.name
        self.outer(words, round(PARTS * (self.before + part)), PARTS * self.total)
