"""Beam search over any LanguageModel.

Lives here: the search and its length rule. Not here: what may be chosen (shaping.py), drawing it (sample.py).
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.decoding.prompt import Prompt, read
from chainrule.decoding.ranges import check
from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import shape
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, LanguageModel, S


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A continuation and what it is worth."""

    ids: tuple[int, ...] = ()  # `</s>` the last of them where it ended so
    log_probs: tuple[float, ...] = ()  # nats, what the model itself says of each id
    score: float = 0.0  # Σ log p under the shaped distribution; the model's own where no filter is set
    is_finished: bool = False

    def rank(self, p: float) -> float:
        """The score over length^p, the length in generated tokens with `</s>`; p = 0 is the plain sum."""
        return self.score / math.pow(max(1, len(self.ids)), p)


Search = Generator[tuple[S, Ids], tuple[Floats, S], list[Hypothesis]]
"""A search that asks for steps (state, ids) and is sent their answers; in the end it returns what it found."""


def search(lm: LanguageModel[S], prompt: Prompt, settings: Decoding, *, num: int = 1) -> list[Hypothesis]:
    """The `num` best continuations found: finished ones by rank, then, if these are too few, unfinished ones.

    At each length the B best extensions are kept; those that are finished are set aside and the others go on
    (Sutskever et al. 2014, section 3.2). Ties go to the lowest ids. Fewer come back where fewer are possible.
    """
    search = steps(*read(lm, prompt), prompt, settings, num=num)
    try:
        asked = next(search)
        while True:
            asked = search.send(lm.step(*asked))
    except StopIteration as end:
        found: list[Hypothesis] = end.value
        return found


def together(
    lm: LanguageModel[S], join: Callable[[Sequence[S]], S], searches: Sequence[Search[S]]
) -> list[list[Hypothesis]]:
    """Several searches in step with each other: what they ask of the model at a time is asked at once.

    `join` puts the rows of several states into one. What a search finds does not depend on those beside it.
    """
    found: list[list[Hypothesis]] = [[] for _ in searches]
    asked: dict[int, tuple[S, Ids]] = {}

    def go_on(i: int, answer: tuple[Floats, S] | None) -> None:
        try:
            asked[i] = searches[i].send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            found[i] = end.value

    for i in range(len(searches)):
        go_on(i, None)
    while asked:
        requests, asked = asked, {}
        log_p, state = lm.step(
            join([state for state, _ in requests.values()]), np.concatenate([ids for _, ids in requests.values()])
        )
        first = 0
        for i, (_, ids) in requests.items():
            rows = np.arange(first, first := first + len(ids))
            go_on(i, (log_p[rows], state.select(rows)))
    return found


def steps(log_p: Floats, state: S, prompt: Prompt, settings: Decoding, *, num: int = 1) -> Search[S]:
    """The search as one who asks, from (1, V) log p and the state after the prompt; each `yield` wants a step."""
    check("num", num)
    if num > settings.beam_size:
        raise ConfigError(
            f"beam_size is {settings.beam_size}; choose at least {num}, the number of texts asked for"
        )
    p, L = settings.length_penalty, settings.max_tokens
    running, finished = [Hypothesis()], list[Hypothesis]()
    for length in range(1, L + 1):
        extended, parents = _extend(running, log_p, prompt, settings)
        going = [k for k, hypothesis in enumerate(extended) if not hypothesis.is_finished]
        running = [extended[k] for k in going]
        finished = _best([*finished, *(h for h in extended if h.is_finished)], p)[:num]
        if length == L or _is_decided(running, finished, num, p, L):
            break
        log_p, state = yield state.select(parents[going]), np.array([h.ids[-1] for h in running])
    return [*finished, *_best(running, p)][:num]


def _extend(
    running: Sequence[Hypothesis], log_p: Floats, prompt: Prompt, settings: Decoding
) -> tuple[list[Hypothesis], Ids]:
    """The B best extensions by one token, in the order of their ids, and the row each came from."""
    words = prompt.words
    allowed = shape(log_p, [[*words, *h.ids] for h in running], settings, prompt.vocabulary)
    totals = np.array([h.score for h in running])[:, None] + allowed  # (K, V)
    # Rows stand in the order of their ids, so the lowest flat index is also the lowest sequence of ids.
    parents, tokens = np.divmod(_highest(totals, settings.beam_size), totals.shape[1])
    extended = []
    for k, token in zip(parents.tolist(), tokens.tolist(), strict=True):
        ids = (*running[k].ids, token)
        log_probs = (*running[k].log_probs, float(log_p[k, token]))
        extended.append(Hypothesis(ids, log_probs, float(totals[k, token]), prompt.is_ended_by(ids)))
    return extended, parents


def _highest(totals: Floats, B: int) -> Ids:
    """Where the B highest of (K, V) stand, as ascending flat indices, the lowest among equals; none of `-inf`.

    The B-th highest of any one row is a bound that the B highest of all reach: with that of the row which holds the
    highest of all few others do, and only these are sorted.
    """
    V = totals.shape[1]
    bound = np.partition(totals[int(np.argmax(totals)) // V], V - B)[V - B] if B < V else -np.inf
    flat = totals.reshape(-1)
    reached = np.flatnonzero((flat >= bound) & (flat > -np.inf))
    order = np.argsort(-flat[reached], kind="stable")[:B]
    return np.sort(reached[order])


def _best(hypotheses: Sequence[Hypothesis], p: float) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda h: (-h.rank(p), h.ids))


def _is_decided(running: Sequence[Hypothesis], finished: Sequence[Hypothesis], num: int, p: float, L: int) -> bool:
    """Whether no running hypothesis can still be among the `num` best.

    A score only falls, and ranks highest at the greatest length: score / L^p bounds all that may come.
    """
    if not running:
        return True
    bound = max(h.score for h in running) / math.pow(L, p)
    return len(finished) >= num and finished[num - 1].rank(p) > bound
