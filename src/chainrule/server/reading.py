"""Reading what requests begin with: several side by side, a piece at a time.

Lives here: how much is read at once, so that whoever is being continued meanwhile waits for no more than a moment.
Not here: the steps that follow (worker.py).
"""

import time
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from chainrule.lm import Advancing, AnyModel, Batch, Distributing, Floats
from chainrule.server.post import Post
from chainrule.server.work import Needs, Task

SECONDS: Final = 0.05
"""What reading one piece should take."""

CELLS: Final = 1 << 22
"""Numbers of the (B, T, V) or (K, V) log-probabilities that stand in memory at once."""

FIRST, FEWEST, MOST, SHORTEST = 256, 128, 1 << 15, 4  # tokens of a piece at first, at least, at most; of one text


class Pace:
    """How many tokens a piece has, found by reading."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.tokens = min(FIRST, self.most)

    def learn(self, tokens: int, seconds: float) -> None:
        """Halve what took too long, double what was full and over soon."""
        if seconds > 2 * SECONDS:
            self.tokens = max(min(FEWEST, self.most), self.tokens // 2)
        elif seconds < SECONDS / 2 and 2 * tokens > self.tokens:
            self.tokens = min(self.most, 2 * self.tokens)


class Reader:
    """Reads the beginnings of tasks into their states."""

    def __init__(self, lm: AnyModel, rows: int) -> None:
        self._lm, self._rows = lm, rows
        self._paces: dict[Needs, Pace] = {
            "nothing": Pace(MOST),
            "scores": Pace(MOST),
            "all": Pace(min(MOST, CELLS // lm.vocabulary.size)),
        }

    def read(self, tasks: Sequence[Task], post: Post) -> list[Task]:
        """Read a piece of the first tasks that need the same as the first, and tell which they were."""
        needs = tasks[0].needs
        pace = self._paces[needs]
        alike = [task for task in tasks if task.needs == needs]
        rows = self._rows if needs != "all" or hasattr(self._lm, "distributions") else 1
        chosen = alike[: max(1, min(rows, pace.most // SHORTEST))]
        share = max(min(SHORTEST, pace.most), pace.tokens // len(chosen))
        start = time.perf_counter()
        try:
            read = self._piece(chosen, share)
        except Exception as error:
            if len(chosen) == 1:
                chosen[0].fail(error, post)
            for task in chosen if len(chosen) > 1 else ():  # the fault is one task's: the others go on
                self._alone(task, share, post)
            return chosen
        pace.learn(read, time.perf_counter() - start)
        return chosen

    def _alone(self, task: Task, share: int, post: Post) -> None:
        try:
            self._piece([task], share)
        except Exception as error:
            task.fail(error, post)

    def _piece(self, tasks: Sequence[Task], share: int) -> int:
        """Read up to `share` tokens of each; how many it were in all."""
        lengths = [min(task.rest, share) for task in tasks]
        shape = (len(tasks), max(lengths))
        inputs, targets = (np.full(shape, self._lm.vocabulary.eos) for _ in range(2))
        for b, (task, n) in enumerate(zip(tasks, lengths, strict=True)):
            inputs[b, :n] = task.tokens[task.done : task.done + n]
            targets[b, :n] = task.tokens[task.done + 1 : task.done + 1 + n]
        mask = np.arange(shape[1]) < np.array(lengths)[:, None]
        state = joined(self._lm, [task.state for task in tasks])
        log_p, after = told(self._lm, Batch(inputs, targets, mask), state, tasks[0].needs)
        for b, (task, n) in enumerate(zip(tasks, lengths, strict=True)):
            if log_p is not None:
                task.note(log_p[b, :n])
            task.state = after.select(np.array([b])) if len(tasks) > 1 else after
            task.done += n
        return sum(lengths)


def joined(lm: AnyModel, states: Sequence[Any]) -> Any:
    """The rows of these states in one; a model that cannot join is never given two."""
    return states[0] if len(states) == 1 else cast("Any", lm).join(states)


def told(lm: AnyModel, batch: Batch, state: Any, needs: Needs) -> tuple[Floats | None, Any]:
    """Read a batch: what is needed of it, (B, T) or (B, T, V), and the state after."""
    if needs == "all":
        return distributions(lm, batch, state)
    if needs == "nothing" and hasattr(lm, "advance"):
        return None, cast("Advancing[Any]", lm).advance(batch, state)
    scores, after = lm.score(batch, state)
    return (scores if needs == "scores" else None), after


def distributions(lm: AnyModel, batch: Batch, state: Any) -> tuple[Floats, Any]:
    """(B, T, V) as `Distributing` says; one row of a model that does not offer it is stepped through."""
    if hasattr(lm, "distributions"):
        return cast("Distributing[Any]", lm).distributions(batch, state)
    assert len(batch.inputs) == 1
    found = []
    for id_ in batch.inputs[0]:
        log_p, state = lm.step(state, np.array([id_]))
        found.append(log_p)
    return np.stack(found, axis=1), state
