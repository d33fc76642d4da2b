"""Where a continuation starts and when it ends.

Lives here: the prompt in ids and reading it into a model. Not here: text (continuation.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.lm import Batch, Floats, LanguageModel, S, Vocabulary

Halts = Callable[[Sequence[int]], bool]
"""Whether these ids, all that was generated, complete a text although `</s>` is not among them."""


def never(ids: Sequence[int]) -> bool:
    """The rule of a text that ends at `</s>` alone."""
    return False


@dataclass(frozen=True, slots=True)
class Prompt:
    """The ids to continue, and the rule by which a continuation is finished."""

    ids: tuple[int, ...]  # without the opening `<s>`; `</s>` where a line of the prompt ends
    vocabulary: Vocabulary
    halts: Halts = never
    stop_check: Callable[[], Callable[[int], bool]] | None = None
    """Makes a function with the meaning of `halts` that is called with each new id of one continuation."""

    @property
    def words(self) -> list[int]:
        """The ids that are text: what a continuation may be kept from repeating."""
        return [i for i in self.ids if i != self.vocabulary.eos]

    def is_ended_by(self, generated: Sequence[int]) -> bool:
        """Whether these new ids finish the text: the last is `</s>`, or `halts` says so."""
        return bool(generated) and (generated[-1] == self.vocabulary.eos or self.halts(generated))


def read(lm: LanguageModel[S], prompt: Prompt) -> tuple[Floats, S]:
    """Read `<s>` and the prompt: (1, V) log p of what comes next, and the state after it."""
    state = lm.start(1)
    ids = np.array([prompt.vocabulary.bos, *prompt.ids], dtype=np.int64)
    if len(ids) > 1:  # all but the last token in one parallel pass
        inputs, targets = ids[None, :-1], ids[None, 1:]
        _, state = lm.score(Batch(inputs, targets, np.ones(inputs.shape, dtype=np.bool_)), state)
    return lm.step(state, ids[-1:])
