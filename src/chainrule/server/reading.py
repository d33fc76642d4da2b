"""Chunked, batched prefill of prompts; the chunk size adapts so that running requests are not delayed for long."""

import time
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from chainrule.lm import Advancing, AnyModel, Batch, Distributing, Floats
from chainrule.server.post import ResponseBatcher
from chainrule.server.work import Outputs, Task

TARGET_SECONDS: Final = 0.05
"""Target duration of a chunk."""

MAX_LOGITS: Final = 1 << 22
"""Maximum number of (B, T, V) or (K, V) log-probabilities in memory."""

FIRST_CHUNK, MIN_CHUNK, MAX_CHUNK, MIN_TOKENS_PER_TEXT = (
    256,
    128,
    1 << 15,
    4,
)  # tokens of a piece at first, at least, at most; of one text


class ChunkSize:
    """Chunk size in tokens, adapted to the measured duration."""

    def __init__(self, most: int) -> None:
        self.most = max(1, most)
        self.tokens = min(FIRST_CHUNK, self.most)

    def update(self, tokens: int, seconds: float) -> None:
        """Halve the size after a slow chunk; double it after a fast and full one."""
        if seconds > 2 * TARGET_SECONDS:
            self.tokens = max(min(MIN_CHUNK, self.most), self.tokens // 2)
        elif seconds < TARGET_SECONDS / 2 and 2 * tokens > self.tokens:
            self.tokens = min(self.most, 2 * self.tokens)


class Prefill:
    """Processes the prompts of tasks."""

    def __init__(self, lm: AnyModel, rows: int) -> None:
        self._lm, self._rows = lm, rows
        self._chunk_sizes: dict[Outputs, ChunkSize] = {
            "nothing": ChunkSize(MAX_CHUNK),
            "scores": ChunkSize(MAX_CHUNK),
            "all": ChunkSize(min(MAX_CHUNK, MAX_LOGITS // lm.vocabulary.size)),
        }

    def run(self, tasks: Sequence[Task], responses: ResponseBatcher) -> list[Task]:
        """Process one chunk of the tasks that need the same outputs as the first; return these tasks."""
        outputs = tasks[0].outputs
        chunk_size = self._chunk_sizes[outputs]
        compatible = [task for task in tasks if task.outputs == outputs]
        rows = self._rows if outputs != "all" or hasattr(self._lm, "distributions") else 1
        batch = compatible[: max(1, min(rows, chunk_size.most // MIN_TOKENS_PER_TEXT))]
        share = max(min(MIN_TOKENS_PER_TEXT, chunk_size.most), chunk_size.tokens // len(batch))
        start = time.perf_counter()
        try:
            token_count = self._run_chunk(batch, share)
        except Exception as error:
            if len(batch) == 1:
                batch[0].fail(error, responses)
            for task in batch if len(batch) > 1 else ():  # find the tasks that fail; the others go on
                self._run_alone(task, share, responses)
            return batch
        chunk_size.update(token_count, time.perf_counter() - start)
        return batch

    def _run_alone(self, task: Task, share: int, responses: ResponseBatcher) -> None:
        try:
            self._run_chunk([task], share)
        except Exception as error:
            task.fail(error, responses)

    def _run_chunk(self, tasks: Sequence[Task], share: int) -> int:
        """Process up to `share` tokens of each task; return the total number."""
        lengths = [min(task.remaining, share) for task in tasks]
        shape = (len(tasks), max(lengths))
        inputs, targets = (np.full(shape, self._lm.vocabulary.eos) for _ in range(2))
        for b, (task, n) in enumerate(zip(tasks, lengths, strict=True)):
            inputs[b, :n] = task.tokens[task.done : task.done + n]
            targets[b, :n] = task.tokens[task.done + 1 : task.done + 1 + n]
        mask = np.arange(shape[1]) < np.array(lengths)[:, None]
        state = join_states(self._lm, [task.state for task in tasks])
        log_p, after = score_batch(self._lm, Batch(inputs, targets, mask), state, tasks[0].outputs)
        for b, (task, n) in enumerate(zip(tasks, lengths, strict=True)):
            if log_p is not None:
                task.record(log_p[b, :n])
            task.state = after.select(np.array([b])) if len(tasks) > 1 else after
            task.done += n
        return sum(lengths)


def join_states(lm: AnyModel, states: Sequence[Any]) -> Any:
    """Join states along the batch axis; models that cannot join are only called with one."""
    return states[0] if len(states) == 1 else cast("Any", lm).join(states)


def score_batch(lm: AnyModel, batch: Batch, state: Any, outputs: Outputs) -> tuple[Floats | None, Any]:
    """Process a batch; return the requested outputs, None, (B, T) or (B, T, V), and the new state."""
    if outputs == "all":
        return distributions(lm, batch, state)
    if outputs == "nothing" and hasattr(lm, "advance"):
        return None, cast("Advancing[Any]", lm).advance(batch, state)
    scores, after = lm.score(batch, state)
    return (scores if outputs == "scores" else None), after


def distributions(lm: AnyModel, batch: Batch, state: Any) -> tuple[Floats, Any]:
    """Return the (B, T, V) log-probabilities and the new state; models without `distributions` are stepped."""
    if hasattr(lm, "distributions"):
        return cast("Distributing[Any]", lm).distributions(batch, state)
    assert len(batch.inputs) == 1
    log_probs = []
    for id_ in batch.inputs[0]:
        log_p, state = lm.step(state, np.array([id_]))
        log_probs.append(log_p)
    return np.stack(log_probs, axis=1), state
