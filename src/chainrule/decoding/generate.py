"""Text in, text out, for any LanguageModel and its tokenizer.

Lives here: generating whole or in pieces, and the distribution of the next token. Not here: the strategies
(sample.py, beam.py) and how ids become text (continuation.py).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from chainrule.decoding import beam, filters
from chainrule.decoding.codec import Codec
from chainrule.decoding.continuation import REPLACEMENT, Continuation
from chainrule.decoding.prompt import Prompt, read
from chainrule.decoding.ranges import check
from chainrule.decoding.sample import generators, sample
from chainrule.decoding.settings import Decoding
from chainrule.decoding.shaping import distribution
from chainrule.decoding.spelled import Spell, SpelledCodec, required_spell, spelling_generators
from chainrule.errors import VocabularyError
from chainrule.lm import AnyModel

CELLS_AT_ONCE: Final = 1 << 21
"""Numbers K · V of the distributions that are held at a time."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One continuation; printed, it stands behind its prompt."""

    prompt: str
    text: str  # the continuation alone, cut before a stop string
    tokens: list[str]  # all that was generated: `</s>` and the tokens of a stop string too
    ids: list[int]
    log_probs: list[float]  # nats, each token under the model itself, before any filter
    finish_reason: Literal["stop", "length"]  # "stop": `</s>` or a stop string

    @property
    def log_prob(self) -> float:
        """The log-probability of all that was generated, in nats."""
        return math.fsum(self.log_probs)

    def __str__(self) -> str:
        return self.prompt + self.text


def generate(
    lm: AnyModel, tokenizer: Codec, prompt: str, settings: Decoding, *, num: int = 1, spell: Spell | None = None
) -> list[Generation]:
    """`num` continuations of the prompt: samples in their order, or the best of a beam first.

    The i-th sample of a seed is the same text whatever `num` is. A beam gives fewer where it finds fewer. With
    `unk="spell"` `spell` is needed; the spelling of a word changes neither ids nor log-probabilities.
    """
    check("num", num)
    tokenizer = _spelling(lm, tokenizer, settings, spell)
    start, continuation = _start(lm, tokenizer, prompt, settings)
    if settings.strategy == "beam":
        found = [(h.ids, h.log_probs) for h in beam.search(lm, start, settings, num=num)]
    else:
        found = _samples(lm, start, settings, num)
    generations = []
    for (ids, log_probs), rng in zip(found, spelling_generators(settings.seed, len(found)), strict=True):
        spelled = _spell_unknown(tokenizer, ids, rng)
        generations.append(
            Generation(
                prompt=continuation.prompt,
                text=continuation.text(spelled),
                tokens=tokenizer.tokens(ids),
                ids=list(ids),
                log_probs=list(log_probs),
                finish_reason="stop" if start.is_ended_by(spelled) else "length",
            )
        )
    return generations


def stream(
    lm: AnyModel, tokenizer: Codec, prompt: str, settings: Decoding, *, spell: Spell | None = None
) -> Iterator[str]:
    """The text of one continuation in pieces, each as soon as it is settled; a beam comes in one piece."""
    if settings.strategy == "beam":
        return (generation.text for generation in generate(lm, tokenizer, prompt, settings, spell=spell))
    tokenizer = _spelling(lm, tokenizer, settings, spell)
    start, continuation = _start(lm, tokenizer, prompt, settings)
    return _pieces(lm, tokenizer, start, continuation, settings)


def next_tokens(lm: AnyModel, tokenizer: Codec, context: str, top: int) -> list[tuple[str, float]]:
    """The `top` most probable next tokens and their probabilities, the lowest id first among equals.

    The probabilities are those that `score` gives the same tokens, also where they do not sum to one.
    """
    check("top", top)
    start, _ = _start(lm, tokenizer, context, Decoding())
    log_p = distribution(read(lm, start)[0], lm.vocabulary)
    kept = np.flatnonzero(filters.top_k(log_p, top)[0] > -np.inf)
    ids = kept[np.argsort(-log_p[0, kept], kind="stable")]
    return list(zip(tokenizer.tokens(ids.tolist()), np.exp(log_p[0, ids]).tolist(), strict=True))


def _start(lm: AnyModel, tokenizer: Codec, prompt: str, settings: Decoding) -> tuple[Prompt, Continuation]:
    has = lm.vocabulary
    if (has.size, has.bos, has.eos) != (tokenizer.vocab_size, tokenizer.bos, tokenizer.eos):
        raise VocabularyError(
            f"the model was built for {has.size} ids, <s> {has.bos} and </s> {has.eos}, but this tokenizer "
            f"makes {tokenizer.vocab_size}, <s> {tokenizer.bos} and </s> {tokenizer.eos}; "
            "use the tokenizer saved with the model"
        )
    continuation = Continuation(tokenizer, prompt, settings.stop)
    # A stop string with U+FFFD may match a character that is not yet complete: only a new decoding finds that.
    is_incremental = settings.stop and not any(REPLACEMENT in stop for stop in settings.stop)
    stop_check = continuation.stop_check if is_incremental else None
    return Prompt(continuation.prompt_ids, has, continuation.is_stopped, stop_check), continuation


def _samples(
    lm: AnyModel, start: Prompt, settings: Decoding, num: int
) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    ids: list[list[int]] = [[] for _ in range(num)]
    log_probs: list[list[float]] = [[] for _ in range(num)]
    rngs = generators(settings.seed, num)
    together = max(1, CELLS_AT_ONCE // lm.vocabulary.size)
    for first in range(0, num, together):
        for draw in sample(lm, start, settings, rngs=rngs[first : first + together]):
            ids[first + draw.sample].append(draw.id)
            log_probs[first + draw.sample].append(draw.log_prob)
    return [(tuple(i), tuple(log_p)) for i, log_p in zip(ids, log_probs, strict=True)]


def _pieces(
    lm: AnyModel, tokenizer: Codec, start: Prompt, continuation: Continuation, settings: Decoding
) -> Iterator[str]:
    text = continuation.grow()
    (rng,) = spelling_generators(settings.seed, 1)
    for draw in sample(lm, start, settings):
        text.add(*_spell_unknown(tokenizer, [draw.id], rng))
        if piece := text.release():
            yield piece
    if rest := text.end():
        yield rest


def _spelling(lm: AnyModel, tokenizer: Codec, settings: Decoding, spell: Spell | None) -> Codec:
    """The codec of a generation: with `unk="spell"` one that writes a word for `<unk>`."""
    draw = required_spell(lm.vocabulary, settings, spell)
    unk = lm.vocabulary.unk
    return tokenizer if draw is None or unk is None else SpelledCodec(tokenizer, unk, draw)


def _spell_unknown(tokenizer: Codec, ids: Sequence[int], rng: np.random.Generator) -> list[int]:
    return [tokenizer.spelled(i, rng) if isinstance(tokenizer, SpelledCodec) else i for i in ids]
