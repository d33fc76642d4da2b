"""A prompt as ids with its stopping rule, and prefilling of a model with a prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.lm import Batch, Floats, LanguageModel, S, Vocabulary

StopRule = Callable[[Sequence[int]], bool]
"""Function of all generated ids; returns True if the text is complete although `</s>` was not generated."""


def never_stop(ids: Sequence[int]) -> bool:
    """Stop only at `</s>`."""
    return False


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids to continue, and the rule that finishes a continuation."""

    ids: tuple[int, ...]  # without the initial `<s>`; `</s>` ends each complete line of the prompt
    vocabulary: Vocabulary
    stop_rule: StopRule = never_stop
    stop_check: Callable[[], Callable[[int], bool]] | None = None
    """Factory of an incremental `stop_rule`: the function is called with each new id of one continuation."""

    @property
    def words(self) -> list[int]:
        """Ids of the prompt without `</s>`, to which the repetition filters apply."""
        return [i for i in self.ids if i != self.vocabulary.eos]

    def is_ended_by(self, generated: Sequence[int]) -> bool:
        """Return whether the generated ids finish the text, by `</s>` or by the stop rule."""
        return bool(generated) and (generated[-1] == self.vocabulary.eos or self.stop_rule(generated))


def read_prompt(lm: LanguageModel[S], prompt: Prompt) -> tuple[Floats, S]:
    """Prefill the model with `<s>` and the prompt; return log p of the next token, (1, V), and the state."""
    state = lm.start(1)
    ids = np.array([prompt.vocabulary.bos, *prompt.ids], dtype=np.int64)
    if len(ids) > 1:  # all but the last token in one parallel pass
        inputs, targets = ids[None, :-1], ids[None, 1:]
        state = lm.advance(Batch(inputs, targets, np.ones(inputs.shape, dtype=np.bool_)), state)
    return lm.step(state, ids[-1:])
