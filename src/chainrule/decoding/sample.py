"""Drawing continuations of a prompt from any LanguageModel, several side by side; greedy is temperature 0.

Lives here: the draw and the loop around it. Not here: what may be drawn (shaping.py), text (generate.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.decoding.prompt import Prompt, read
from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import history, shape
from chainrule.lm import Floats, Ids, LanguageModel, S


@dataclass(frozen=True, slots=True)
class Draw:
    """One token of one sample."""

    sample: int
    id: int
    log_prob: float  # nats, what the model itself says, before any filter


def generators(seed: int | None, num: int) -> list[np.random.Generator]:
    """One generator a sample; the i-th depends on the seed and on i, not on how many there are."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(num)]


def draw(log_p: Floats, rngs: Sequence[np.random.Generator]) -> Ids:
    """(K, V) -> (K,), one token a row by inverting its cumulative distribution, each with its generator."""
    cdf = np.cumsum(np.exp(log_p), axis=-1)  # (K, V)
    u = np.array([rng.random() for rng in rngs]) * cdf[:, -1]  # below the total, be that 1 or nearly so
    drawn: Ids = np.argmax(cdf > u[:, None], axis=-1)
    return drawn


def sample(
    lm: LanguageModel[S],
    prompt: Prompt,
    settings: Decoding,
    *,
    num: int = 1,
    rngs: Sequence[np.random.Generator] | None = None,
) -> Iterator[Draw]:
    """Draw `num` continuations, all by one token at a time; a sample that has ended is stepped no further.

    `rngs` are the generators of these samples where they are some among many.
    """
    rngs = generators(settings.seed, num) if rngs is None else rngs
    num = len(rngs)
    words = history(prompt.words, settings)
    texts = [words.fork() for _ in range(num)]
    is_last = [_end_check(prompt) for _ in range(num)]
    running = list(range(num))
    log_p, state = read(lm, prompt)
    log_p, state = np.repeat(log_p, num, axis=0), state.select(np.zeros(num, dtype=np.intp))
    for length in range(1, settings.max_tokens + 1):
        allowed = shape(log_p, [texts[i] for i in running], settings, prompt.vocabulary)
        ids = draw(allowed, [rngs[i] for i in running])
        for row, i in enumerate(running):
            texts[i].append(int(ids[row]))
            yield Draw(i, int(ids[row]), float(log_p[row, ids[row]]))
        if length == settings.max_tokens:
            return
        going = [row for row, i in enumerate(running) if not is_last[i](int(ids[row]))]
        if not going:
            return
        if len(going) < len(running):  # a state may be large: copy it only where rows go
            running, ids, state = [running[row] for row in going], ids[going], state.select(np.array(going))
        log_p, state = lm.step(state, ids)


def _end_check(prompt: Prompt) -> Callable[[int], bool]:
    """Return a function that is called with each id of one sample: whether it is the last."""
    if prompt.stop_check is not None:
        is_stopped = prompt.stop_check()
        return lambda id_: id_ == prompt.vocabulary.eos or is_stopped(id_)
    generated: list[int] = []

    def check(id_: int) -> bool:
        generated.append(id_)
        return prompt.is_ended_by(generated)

    return check
