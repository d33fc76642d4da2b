"""The parts of the LanguageModel protocol that follow from `start`, `step` and `score`, for models of the tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.lm import Batch, Floats, Ids


class SequentialModel:
    """Base class: `advance` and `distributions` by the other methods; states cannot be joined."""

    engine: Any = None
    network: Any = None

    def join(self, states: Sequence[Any]) -> Any:
        raise NotImplementedError

    def score_lines(self, ids: Ids) -> Floats | None:
        return None

    def distributions(self, batch: Batch, state: Any) -> tuple[Floats, Any]:
        assert batch.mask.all()
        columns = []
        for t in range(batch.inputs.shape[1]):
            log_p, state = self.step(state, batch.inputs[:, t])
            columns.append(log_p)
        return np.stack(columns, axis=1), state

    def advance(self, batch: Batch, state: Any) -> Any:
        return self.score(batch, state)[1]

    def step(self, state: Any, ids: Ids) -> tuple[Floats, Any]:
        raise NotImplementedError

    def score(self, batch: Batch, state: Any) -> tuple[Floats, Any]:
        raise NotImplementedError
