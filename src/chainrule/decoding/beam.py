"""Beam search with length normalization over any LanguageModel."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from chainrule.decoding.filters import apply_filters, make_history
from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.settings import Decoding, check_range
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, LanguageModel, S


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Partial or finished continuation of the prompt."""

    ids: tuple[int, ...] = ()  # generated ids, including `</s>` if it was generated
    log_probs: tuple[float, ...] = ()  # nats, log p of each id under the model, before any filter
    score: float = 0.0  # Σ log p under the filtered distribution
    is_finished: bool = False

    def normalized_score(self, p: float) -> float:
        """Return score / length^p; the length counts generated tokens including `</s>`."""
        return self.score / math.pow(max(1, len(self.ids)), p)


Observer = Callable[[Sequence[Hypothesis], Floats, Floats, dict[int, Hypothesis]], None]
"""Function called at each length with the K running hypotheses, their (K, V) log p and (K, V) scores of all
extensions, and the selected extensions by flat index into (K, V), ascending."""

BeamSearch = Generator[tuple[S, Ids], tuple[Floats, S], list[Hypothesis]]
"""Coroutine that yields `(state, ids)` to be stepped, receives `(log_p, state)`, and returns the hypotheses."""


def search(
    lm: LanguageModel[S], prompt: Prompt, settings: Decoding, *, num: int = 1, observer: Observer | None = None
) -> list[Hypothesis]:
    """Return the `num` best continuations: finished ones by normalized score, then unfinished ones if needed.

    At each length the B best extensions are kept; finished ones leave the beam and the others are extended further
    (Sutskever et al. 2014, section 3.2). Ties go to the lowest ids. Fewer hypotheses are returned if fewer exist.
    """
    coroutine = search_steps(*read_prompt(lm, prompt), prompt, settings, num=num, observer=observer)
    try:
        request = next(coroutine)
        while True:
            request = coroutine.send(lm.step(*request))
    except StopIteration as end:
        hypotheses: list[Hypothesis] = end.value
        return hypotheses


def search_batch(lm: LanguageModel[S], searches: Sequence[BeamSearch[S]]) -> list[list[Hypothesis]]:
    """Run several searches in lockstep, batching their model steps; they do not influence each other."""
    results: list[list[Hypothesis]] = [[] for _ in searches]
    pending: dict[int, tuple[S, Ids]] = {}

    def resume(i: int, answer: tuple[Floats, S] | None) -> None:
        try:
            pending[i] = searches[i].send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            results[i] = end.value

    for i in range(len(searches)):
        resume(i, None)
    while pending:
        requests, pending = pending, {}
        states, ids = zip(*requests.values(), strict=True)
        log_p, state = lm.step(lm.join(states), np.concatenate(ids))
        first = 0
        for i, row_ids in zip(requests, ids, strict=True):
            rows = np.arange(first, first := first + len(row_ids))
            resume(i, (log_p[rows], state.select(rows)))
    return results


def search_steps(
    log_p: Floats,
    state: S,
    prompt: Prompt,
    settings: Decoding,
    *,
    num: int = 1,
    observer: Observer | None = None,
) -> BeamSearch[S]:
    """Beam search as a coroutine: yields `(state, ids)` to be stepped and receives `(log_p, state)`.

    `log_p` (1, V) and `state` are those after the prompt.
    """
    check_range("num", num)
    if num > settings.beam_size:
        raise ConfigError(
            f"beam_size is {settings.beam_size}; choose at least {num}, the number of texts requested"
        )
    p, L = settings.length_penalty, settings.max_tokens
    running, finished = [Hypothesis()], list[Hypothesis]()
    for length in range(1, L + 1):
        extended, parents = _extend(running, log_p, prompt, settings, observer)
        unfinished = [k for k, hypothesis in enumerate(extended) if not hypothesis.is_finished]
        running = [extended[k] for k in unfinished]
        finished = _best([*finished, *(h for h in extended if h.is_finished)], p)[:num]
        if length == L or _can_stop(running, finished, num, p, L):
            break
        log_p, state = yield state.select(parents[unfinished]), np.array([h.ids[-1] for h in running])
    return [*finished, *_best(running, p)][:num]


def _extend(
    running: Sequence[Hypothesis], log_p: Floats, prompt: Prompt, settings: Decoding, observer: Observer | None
) -> tuple[list[Hypothesis], Ids]:
    """Return the B best one-token extensions, sorted by their ids, and the row of each one's parent."""
    words = prompt.words
    histories = [make_history([*words, *h.ids], settings) for h in running]
    allowed = apply_filters(log_p, histories, settings, prompt.vocabulary)
    totals = np.array([h.score for h in running])[:, None] + allowed  # (K, V)
    # Rows are sorted by their ids, so the lowest flat index is also the lowest sequence of ids.
    indices = _top_indices(totals, settings.beam_size)
    parents, tokens = np.divmod(indices, totals.shape[1])
    extended = []
    for k, token in zip(parents.tolist(), tokens.tolist(), strict=True):
        ids = (*running[k].ids, token)
        log_probs = (*running[k].log_probs, float(log_p[k, token]))
        extended.append(Hypothesis(ids, log_probs, float(totals[k, token]), prompt.is_ended_by(ids)))
    if observer is not None:
        observer(running, log_p, totals, dict(zip(indices.tolist(), extended, strict=True)))
    return extended, parents


def _top_indices(totals: Floats, B: int) -> Ids:
    """Return the ascending flat indices of the B highest finite values of (K, V); ties go to the lowest index.

    The B-th highest value of any row is a lower bound on the B highest values overall. Only values that reach the
    bound of the row with the maximum are sorted.
    """
    V = totals.shape[1]
    bound = np.partition(totals[int(np.argmax(totals)) // V], V - B)[V - B] if B < V else -np.inf
    flat = totals.reshape(-1)
    candidates = np.flatnonzero((flat >= bound) & (flat > -np.inf))
    order = np.argsort(-flat[candidates], kind="stable")[:B]
    return np.sort(candidates[order])


def _best(hypotheses: Sequence[Hypothesis], p: float) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda h: (-h.normalized_score(p), h.ids))


def _can_stop(running: Sequence[Hypothesis], finished: Sequence[Hypothesis], num: int, p: float, L: int) -> bool:
    """Return whether no running hypothesis can still be among the `num` best.

    Scores never increase, so score / L^p is an upper bound on the normalized score of every extension.
    """
    if not running:
        return True
    bound = max(h.score for h in running) / math.pow(L, p)
    return len(finished) >= num and finished[num - 1].normalized_score(p) > bound


@dataclass(frozen=True, slots=True)
class Node:
    """One extension of a hypothesis by a token."""

    parent: int | None  # index of the parent node; None: the prompt
    ids: tuple[int, ...]  # generated tokens up to and including this one
    log_prob: float  # nats, of its token given the previous ones
    score: float  # nats, of all generated tokens
    status: Literal["kept", "finished", "pruned"]


class BeamTrace:
    """Observer that records, at each length, the B best extensions and the B next best (pruned) ones, best first.

    Attributes:
        nodes: All recorded extensions, parents before children.

    """

    def __init__(self, beam_size: int) -> None:
        self.nodes: list[Node] = []
        self._beam_size = beam_size
        self._running: list[int | None] = [None]  # node of each running hypothesis

    def __call__(
        self, running: Sequence[Hypothesis], log_p: Floats, totals: Floats, selected: dict[int, Hypothesis]
    ) -> None:
        """Record the extensions of one length."""
        flat = totals.reshape(-1)
        candidates = _top_indices(totals, 2 * self._beam_size)
        node_of: dict[int, int] = {}
        for index in candidates[np.argsort(-flat[candidates], kind="stable")].tolist():
            row, token = divmod(index, totals.shape[1])
            status: Literal["kept", "finished", "pruned"] = "pruned"
            if index in selected:
                status = "finished" if selected[index].is_finished else "kept"
            node_of[index] = len(self.nodes)
            ids = (*running[row].ids, token)
            self.nodes.append(Node(self._running[row], ids, float(log_p[row, token]), float(flat[index]), status))
        self._running = [node_of[index] for index, hypothesis in selected.items() if not hypothesis.is_finished]

    def index(self, ids: tuple[int, ...]) -> int:
        """Return the index of the node with these ids."""
        return next(i for i, node in enumerate(self.nodes) if node.ids == ids)
