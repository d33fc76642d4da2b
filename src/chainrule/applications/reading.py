"""Next-token distribution after a growing prefix, with the model state cached."""

from typing import Any

import numpy as np

from chainrule.lm import AnyModel, Batch, Floats


class PrefixCache:
    """Caches the state of the last prefix. Not safe for concurrent sessions."""

    def __init__(self, lm: AnyModel) -> None:
        self.lm = lm
        self._ids: tuple[int, ...] | None = None
        self._log_p: Floats = np.zeros(0)
        self._state: Any = None

    def next_log_probs(self, ids: tuple[int, ...]) -> tuple[Floats, Any]:
        """(V,) next-token log p and the model state after `<s>` and `ids`."""
        if ids != self._ids:
            is_longer = self._ids is not None and ids[: len(self._ids)] == self._ids
            new = ids[len(self._ids or ()) :] if is_longer else (self.lm.vocabulary.bos, *ids)
            state = self._state if is_longer else self.lm.start(1)
            row = np.array([new], dtype=np.int64)  # (1, T)
            if len(new) > 1:  # all but the last token in one parallel pass
                _, state = self.lm.score(Batch(row[:, :-1], row[:, 1:], np.ones((1, len(new) - 1), bool)), state)
            log_p, self._state = self.lm.step(state, row[0, -1:])
            self._log_p, self._ids = log_p[0], ids
        return self._log_p, self._state
