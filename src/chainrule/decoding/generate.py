"""Generate text from a prompt with any LanguageModel and its tokenizer, completely or streamed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np

from chainrule.decoding import beam, filters
from chainrule.decoding.detokenizer import (
    REPLACEMENT,
    Continuation,
    SpellingSampler,
    resolve_speller,
    spawn_spelling_generators,
)
from chainrule.decoding.filters import next_token_distribution
from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.sample import sample, spawn_generators
from chainrule.decoding.settings import Decoding, check_range
from chainrule.errors import VocabularyError
from chainrule.lm import AnyModel
from chainrule.tokenizers.tokenizer import Tokenizer

MAX_CELLS: Final = 1 << 21
"""Maximum size K · V of the distributions of one batch of samples."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One generated continuation; `str()` returns prompt and text."""

    prompt: str
    text: str  # continuation without the prompt, truncated before a stop string
    tokens: list[str]  # all generated tokens, including `</s>` and those of a stop string
    ids: list[int]
    log_probs: list[float]  # nats, log p of each token under the model, before any filter
    finish_reason: Literal["stop", "length"]  # "stop": `</s>` or a stop string

    @property
    def log_prob(self) -> float:
        """Total log-probability of the generated tokens, in nats."""
        return math.fsum(self.log_probs)

    def __str__(self) -> str:
        return self.prompt + self.text


def generate(
    lm: AnyModel,
    tokenizer: Tokenizer,
    prompt: str,
    settings: Decoding,
    *,
    num: int = 1,
    spell: SpellingSampler | None = None,
) -> list[Generation]:
    """Generate `num` continuations of the prompt, the best first for beam search.

    The i-th sample of a seed does not depend on `num`. Beam search may return fewer. `unk="spell"` requires
    `spell`; spellings do not change ids or log-probabilities.
    """
    check_range("num", num)
    spell = resolve_speller(lm.vocabulary, settings, spell)
    start, continuation = _encode_prompt(lm, tokenizer, prompt, settings, is_unknown_spelled=spell is not None)
    if settings.strategy == "beam":
        outputs = [(h.ids, h.log_probs) for h in beam.search(lm, start, settings, num=num)]
    else:
        outputs = _samples(lm, start, settings, num)
    generations = []
    for (ids, log_probs), rng in zip(outputs, spawn_spelling_generators(settings.seed, len(outputs)), strict=True):
        text, is_stopped = continuation.decode(ids, None if spell is None else partial(spell, rng))
        is_ended = is_stopped or ids[-1:] == (tokenizer.eos,)
        generations.append(
            Generation(
                prompt=continuation.prompt,
                text=text,
                tokens=tokenizer.tokens(ids),
                ids=list(ids),
                log_probs=list(log_probs),
                finish_reason="stop" if is_ended else "length",
            )
        )
    return generations


def stream(
    lm: AnyModel, tokenizer: Tokenizer, prompt: str, settings: Decoding, *, spell: SpellingSampler | None = None
) -> Iterator[str]:
    """Yield the text of one continuation as it is generated; the result of a beam search is yielded as a whole."""
    if settings.strategy == "beam":
        return (generation.text for generation in generate(lm, tokenizer, prompt, settings, spell=spell))
    spell = resolve_speller(lm.vocabulary, settings, spell)
    start, continuation = _encode_prompt(lm, tokenizer, prompt, settings, is_unknown_spelled=spell is not None)
    return _stream_text(lm, start, continuation, settings, spell)


def next_tokens(lm: AnyModel, tokenizer: Tokenizer, context: str, top: int) -> list[tuple[str, float]]:
    """Return the `top` most probable next tokens with their probabilities, ties in order of ids.

    The probabilities equal those of `score`, even if they do not sum to one.
    """
    check_range("top", top)
    start, _ = _encode_prompt(lm, tokenizer, context, Decoding())
    log_p = next_token_distribution(read_prompt(lm, start)[0], lm.vocabulary)
    candidates = np.flatnonzero(filters.top_k(log_p, top)[0] > -np.inf)
    ids = candidates[np.argsort(-log_p[0, candidates], kind="stable")]
    return list(zip(tokenizer.tokens(ids.tolist()), np.exp(log_p[0, ids]).tolist(), strict=True))


def _encode_prompt(
    lm: AnyModel, tokenizer: Tokenizer, prompt: str, settings: Decoding, *, is_unknown_spelled: bool = False
) -> tuple[Prompt, Continuation]:
    """Encode the prompt; raise if model and tokenizer have different vocabularies."""
    V = lm.vocabulary
    if (V.size, V.bos, V.eos) != (tokenizer.vocab_size, tokenizer.bos, tokenizer.eos):
        raise VocabularyError(
            f"the model was built for {V.size} ids, <s> {V.bos} and </s> {V.eos}, but this tokenizer "
            f"makes {tokenizer.vocab_size}, <s> {tokenizer.bos} and </s> {tokenizer.eos}; "
            "use the tokenizer saved with the model"
        )
    continuation = Continuation(tokenizer, prompt, settings.stop, is_unknown_spelled=is_unknown_spelled)
    # A stop string with U+FFFD may match an incomplete character, which incremental decoding does not see.
    is_incremental = settings.stop and not any(REPLACEMENT in stop for stop in settings.stop)
    stop_check = continuation.stop_check if is_incremental else None
    return Prompt(continuation.prompt_ids, V, continuation.is_stopped, stop_check), continuation


def _samples(
    lm: AnyModel, start: Prompt, settings: Decoding, num: int
) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    ids: list[list[int]] = [[] for _ in range(num)]
    log_probs: list[list[float]] = [[] for _ in range(num)]
    rngs = spawn_generators(settings.seed, num)
    batch_size = max(1, MAX_CELLS // lm.vocabulary.size)
    for first in range(0, num, batch_size):
        for token in sample(lm, start, settings, rngs=rngs[first : first + batch_size]):
            ids[first + token.sample].append(token.id)
            log_probs[first + token.sample].append(token.log_prob)
    return [(tuple(i), tuple(log_p)) for i, log_p in zip(ids, log_probs, strict=True)]


def _stream_text(
    lm: AnyModel, start: Prompt, continuation: Continuation, settings: Decoding, spell: SpellingSampler | None
) -> Iterator[str]:
    (rng,) = spawn_spelling_generators(settings.seed, 1)
    detokenizer = continuation.detokenizer(None if spell is None else partial(spell, rng))
    for token in sample(lm, start, settings):
        detokenizer.add(token.id)
        if text := detokenizer.release():
            yield text
    detokenizer.end()
    if text := detokenizer.release():
        yield text
