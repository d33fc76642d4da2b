"""What has been typed, read into a model once: only what is new is read at the next keystroke."""

from typing import Any

import numpy as np

from chainrule.lm import AnyModel, Batch, Floats


class Reader:
    """The distribution after a prefix of ids; it remembers the last prefix, and is no place for two typists."""

    def __init__(self, lm: AnyModel) -> None:
        self.lm = lm
        self._ids: tuple[int, ...] | None = None
        self._log_p: Floats = np.zeros(0)
        self._state: Any = None

    def after(self, ids: tuple[int, ...]) -> tuple[Floats, Any]:
        """Log p of what comes next, (V,), and the state of one row after `<s>` and these ids."""
        if ids != self._ids:
            is_longer = self._ids is not None and ids[: len(self._ids)] == self._ids
            new = ids[len(self._ids or ()) :] if is_longer else (self.lm.vocabulary.bos, *ids)
            state = self._state if is_longer else self.lm.start(1)
            row = np.array([new], dtype=np.int64)  # (1, T)
            if len(new) > 1:  # all but the last in one parallel pass
                _, state = self.lm.score(Batch(row[:, :-1], row[:, 1:], np.ones((1, len(new) - 1), bool)), state)
            log_p, self._state = self.lm.step(state, row[0, -1:])
            self._log_p, self._ids = log_p[0], ids
        return self._log_p, self._state
