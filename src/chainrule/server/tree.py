"""A beam search as a tree: what was kept, what ended, and what nearly was kept, at every length.

Lives here: watching the search of decoding/beam.py. Not here: the search itself, and HTTP (explaining.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from chainrule.decoding.beam import Hypothesis, steps
from chainrule.decoding.prompt import Prompt, read
from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import shape
from chainrule.lm import AnyModel, Floats, Ids, State

Fate = Literal["kept", "finished", "pruned"]


@dataclass(frozen=True, slots=True)
class Node:
    """One token behind a hypothesis."""

    parent: int | None  # its place among the nodes; None: right behind the prompt
    ids: tuple[int, ...]  # all that was generated up to here
    log_prob: float  # nats, of its token given all before
    score: float  # nats, of all that was generated
    fate: Fate


@dataclass(frozen=True, slots=True)
class Tree:
    """Every node, parents before children, and the hypotheses that were found, the best first."""

    nodes: list[Node]
    found: list[Hypothesis]

    def place(self, ids: tuple[int, ...]) -> int:
        """Where the node of these ids stands."""
        return next(i for i, node in enumerate(self.nodes) if node.ids == ids)


def grow(lm: AnyModel, prompt: Prompt, settings: Decoding, check: Callable[[], None] = lambda: None) -> Tree:
    """Search, and note at each length the B extensions that are kept and the B next best that are not.

    `check` is called before every step; what it raises ends the search.
    """
    log_p, state = read(lm, prompt)
    search = steps(log_p, _Noted(state), prompt, settings, num=settings.beam_size)
    nodes: list[Node] = []
    running: list[int | None] = [None]  # the nodes that go on, in the order of the search's rows
    answer: tuple[Floats, State] | None = None
    while True:
        running = _extend(nodes, running, log_p, prompt, settings)
        try:
            asked, ids = search.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            return Tree(nodes, end.value)
        check()
        log_p, after = lm.step(asked.state, ids)
        answer = (log_p, _Noted(after))


@dataclass(frozen=True, slots=True)
class _Noted:
    """A state in the search's hands; the search forks it and never asks what it is."""

    state: Any

    def select(self, rows: Ids) -> Self:
        return replace(self, state=self.state.select(rows))


def _extend(
    nodes: list[Node], running: list[int | None], log_p: Floats, prompt: Prompt, settings: Decoding
) -> list[int | None]:
    """Add the children of one length; those that go on, in the order of (row, token), as the search has them."""
    before = [() if at is None else nodes[at].ids for at in running]
    allowed = shape(log_p, [[*prompt.words, *ids] for ids in before], settings, prompt.vocabulary)
    totals = np.array([0.0 if at is None else nodes[at].score for at in running])[:, None] + allowed  # (K, V)
    flat = totals.reshape(-1)
    B = settings.beam_size
    best = [int(i) for i in np.argsort(-flat, kind="stable")[: 2 * B] if flat[i] > -np.inf]
    going: list[tuple[int, int]] = []  # (place in (K, V), node)
    for rank, at in enumerate(best):
        row, token = divmod(at, totals.shape[1])
        ids = (*before[row], token)
        ends = prompt.is_ended_by(ids)
        fate: Fate = "pruned" if rank >= B else "finished" if ends else "kept"
        if fate == "kept":
            going.append((at, len(nodes)))
        nodes.append(Node(running[row], ids, float(log_p[row, token]), float(flat[at]), fate))
    return [node for _, node in sorted(going)]
