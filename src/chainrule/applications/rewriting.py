"""Undo learnt error patterns of two or more edits, such as `f` for `ph`, to reach distant candidates."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from chainrule.applications.alignment import edit_distance
from chainrule.applications.channel import BEGIN, END, Channel

MAX_PATTERNS: Final = 60  # number of most frequent substitutions to undo


@dataclass(frozen=True)
class ErrorPatterns:
    """Frequent substitutions α → β of two or more edits, by β."""

    meant: dict[str, tuple[str, ...]] = field(default_factory=dict)  # β to its possible α

    @classmethod
    def of(cls, channel: Channel) -> "ErrorPatterns":
        """Select the patterns of a channel."""
        meant: dict[str, tuple[str, ...]] = {}
        long = [
            key for key in channel.substitutions if all(key) and max(map(len, key)) <= 2 and edit_distance(*key) > 1
        ]
        for alpha, beta in sorted(long, key=lambda key: (-channel.substitutions[key], key))[:MAX_PATTERNS]:
            meant[beta] = (*meant.get(beta, ()), alpha)
        return cls(meant)

    def undo(self, spelling: str) -> set[str]:
        """Spellings with one or two substitutions undone."""
        if not self.meant:
            return set()
        once = dict.fromkeys(self._undo_one(f"{BEGIN}{spelling}{END}"))
        twice = (again for text in once for again in self._undo_one(text))
        return {text[1:-1] for text in (*once, *twice) if text[:1] == BEGIN and text[-1:] == END} - {spelling}

    def _undo_one(self, text: str) -> Iterator[str]:
        for size in (1, 2):
            for i in range(len(text) - size + 1):
                for alpha in self.meant.get(text[i : i + size], ()):
                    yield text[:i] + alpha + text[i + size :]
