"""Undoing learnt substitutions that are more than one edit, such as `f` for `ph`: words too far to be near.

Lives here: which substitutions are worth undoing, and what a spelling becomes. Not here: whether that is a word
(candidates.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from chainrule.applications.alignment import edits
from chainrule.applications.channel import BEGIN, END, Channel

MOST: Final = 60  # substitutions that are undone, the most frequent


@dataclass(frozen=True)
class Rewriting:
    """What β may stand for: the α of frequent substitutions that take two edits or more."""

    meant: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by β

    @classmethod
    def of(cls, channel: Channel) -> "Rewriting":
        """The substitutions of a channel."""
        meant: dict[str, tuple[str, ...]] = {}
        long = [key for key in channel.substitutions if all(key) and max(map(len, key)) <= 2 and edits(*key) > 1]
        for alpha, beta in sorted(long, key=lambda key: (-channel.substitutions[key], key))[:MOST]:
            meant[beta] = (*meant.get(beta, ()), alpha)
        return cls(meant)

    def undo(self, spelling: str) -> set[str]:
        """What may have been meant, with one or two substitutions undone."""
        if not self.meant:
            return set()
        once = dict.fromkeys(self._once(f"{BEGIN}{spelling}{END}"))
        twice = (again for text in once for again in self._once(text))
        return {text[1:-1] for text in (*once, *twice) if text[:1] == BEGIN and text[-1:] == END} - {spelling}

    def _once(self, text: str) -> Iterator[str]:
        for size in (1, 2):
            for at in range(len(text) - size + 1):
                for alpha in self.meant.get(text[at : at + size], ()):
                    yield text[:at] + alpha + text[at + size :]
