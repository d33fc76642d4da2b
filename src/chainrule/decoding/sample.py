"""Sample a batch of continuations of a prompt from any LanguageModel; greedy decoding is temperature 0."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.decoding.filters import apply_filters, make_history
from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.settings import Decoding
from chainrule.lm import Floats, Ids, LanguageModel, S


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One token of one sample."""

    sample: int  # index of the sample
    id: int
    log_prob: float  # nats, under the model, before any filter


def spawn_generators(seed: int | None, num: int) -> list[np.random.Generator]:
    """Return one generator per sample; the i-th depends only on the seed and i."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(num)]


def draw_tokens(log_p: Floats, rngs: Sequence[np.random.Generator]) -> Ids:
    """Draw one token per row by inverse transform sampling, (K, V) -> (K,), each row with its own generator."""
    cdf = np.cumsum(np.exp(log_p), axis=-1)  # (K, V)
    u = (
        np.array([rng.random() for rng in rngs]) * cdf[:, -1]
    )  # scaled by the total, which may differ from 1 by rounding
    drawn: Ids = np.argmax(cdf > u[:, None], axis=-1)
    return drawn


def sample(
    lm: LanguageModel[S],
    prompt: Prompt,
    settings: Decoding,
    *,
    num: int = 1,
    rngs: Sequence[np.random.Generator] | None = None,
) -> Iterator[SampledToken]:
    """Sample `num` continuations in parallel, yielding one token of each per step; finished samples are dropped.

    `rngs` overrides the generators, for example for a part of a larger set of samples.
    """
    rngs = spawn_generators(settings.seed, num) if rngs is None else rngs
    num = len(rngs)
    prompt_history = make_history(prompt.words, settings)
    histories = [prompt_history.fork() for _ in range(num)]
    is_last = [_end_check(prompt) for _ in range(num)]
    running = list(range(num))
    log_p, state = read_prompt(lm, prompt)
    log_p, state = np.repeat(log_p, num, axis=0), state.select(np.zeros(num, dtype=np.intp))
    for length in range(1, settings.max_tokens + 1):
        allowed = apply_filters(log_p, [histories[i] for i in running], settings, prompt.vocabulary)
        ids = draw_tokens(allowed, [rngs[i] for i in running])
        for row, i in enumerate(running):
            histories[i].append(int(ids[row]))
            yield SampledToken(i, int(ids[row]), float(log_p[row, ids[row]]))
        if length == settings.max_tokens:
            return
        rows = [row for row, i in enumerate(running) if not is_last[i](int(ids[row]))]
        if not rows:
            return
        if len(rows) < len(running):  # a state may be large: copy it only if rows are dropped
            running, ids, state = [running[row] for row in rows], ids[rows], state.select(np.array(rows))
        log_p, state = lm.step(state, ids)


def _end_check(prompt: Prompt) -> Callable[[int], bool]:
    """Return a function to call with each id of one sample; it returns True for the last id."""
    if prompt.stop_check is not None:
        is_stopped = prompt.stop_check()
        return lambda id_: id_ == prompt.vocabulary.eos or is_stopped(id_)
    generated: list[int] = []

    def is_last(id_: int) -> bool:
        generated.append(id_)
        return prompt.is_ended_by(generated)

    return is_last
