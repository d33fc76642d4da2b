"""Word completion while typing: p(word | context, prefix).

The text is split into context and prefix. A word-level model chooses among the words of its vocabulary; with
smaller tokens, a beam search extends the prefix to the end of the word.
"""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.decoding.detokenizer import Continuation
from chainrule.decoding.settings import check_range
from chainrule.errors import InputError
from chainrule.lm import AnyModel, Batch, Floats, Ids, Mask
from chainrule.model import Model
from chainrule.text.lines import BLANKS
from chainrule.tokenizers.config import JOINER
from chainrule.tokenizers.punctuation import is_punctuation, join, joined_sides
from chainrule.tokenizers.tokenizer import Tokenizer


class PrefixCache:
    """Caches the state of the last prefix. Not safe for concurrent sessions."""

    def __init__(self, lm: AnyModel) -> None:
        self.lm = lm
        self._ids: tuple[int, ...] | None = None
        self._log_p: Floats = np.zeros(0)
        self._state: Any = None

    def next_log_probs(self, ids: tuple[int, ...]) -> tuple[Floats, Any]:
        """(V,) next-token log p and the model state after `<s>` and `ids`."""
        if ids != self._ids:
            is_longer = self._ids is not None and ids[: len(self._ids)] == self._ids
            new = ids[len(self._ids or ()) :] if is_longer else (self.lm.vocabulary.bos, *ids)
            state = self._state if is_longer else self.lm.start(1)
            row = np.array([new], dtype=np.int64)  # (1, T)
            if len(new) > 1:  # all but the last token in one parallel pass
                state = self.lm.advance(Batch(row[:, :-1], row[:, 1:], np.ones((1, len(new) - 1), bool)), state)
            log_p, self._state = self.lm.step(state, row[0, -1:])
            self._log_p, self._ids = log_p[0], ids
        return self._log_p, self._state


WORD_BYTES: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'-_") | set(
    range(128, 256)
)
"""Bytes inside words: letters, digits, apostrophe, hyphen, underscore and all non-ASCII bytes."""
LAST_BYTE: Final = b"\xff"  # greater than every byte of UTF-8


class TokenBytes:
    """Bytes of each token; empty for control symbols and `<unk>`.

    Attributes:
        texts: Bytes by id. Word-initial WordPiece tokens start with a blank.
        inner: Ids of tokens that consist of word bytes only.
        length: (V,) bytes per token.
        is_end: (V,) `</s>` and tokens whose first byte ends the preceding word.
        tail: (V,) number of trailing word bytes per token.

    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        controls = {tokenizer.bos, tokenizer.eos, tokenizer.unk}
        # The bytes after another token; a bare "##" of WordPiece then decodes to nothing, but it can be a word.
        self.texts = [
            b"" if i in controls or not name else tokenizer.token_bytes(i, i) or b" " + name.encode()
            for i, name in enumerate(tokenizer.names())
        ]
        self.tail: Ids = np.array([_tail_length(text) for text in self.texts])
        self.length: Ids = np.array([len(text) for text in self.texts])
        self.inner: Ids = np.flatnonzero((self.length > 0) & (self.tail == self.length))
        self.is_end: Mask = np.array([text[:1] != b"" and text[0] not in WORD_BYTES for text in self.texts])
        self.is_end[tokenizer.eos] = True
        order = sorted((text, i) for i, text in enumerate(self.texts) if text)
        self._sorted = [text for text, _ in order]
        self._ids = np.array([i for _, i in order], dtype=np.int64)
        self._id_of = {text: i for i, text in enumerate(self.texts) if text}

    def starting_with(self, prefix: bytes) -> Ids:
        """Ids of tokens that start with `prefix`."""
        first = bisect_left(self._sorted, prefix)
        last = bisect_left(self._sorted, prefix + LAST_BYTE, lo=first)
        return self._ids[first:last]

    def prefixes_of(self, text: bytes) -> Ids:
        """Ids of tokens that are proper prefixes of `text`."""
        ids = (self._id_of.get(text[:length]) for length in range(1, len(text)))
        return np.array([i for i in ids if i is not None], dtype=np.int64)


def _tail_length(text: bytes) -> int:
    length = 0
    while length < len(text) and text[-1 - length] in WORD_BYTES:
        length += 1
    return length


BEAM: Final = 16
MAX_WORD_TOKENS: Final = 40
"""Maximum number of tokens of a completed word."""
LAST_CHARACTER: Final = "\U0010ffff"
MAX_PARTIAL_TOKENS: Final = 8
"""Maximum number of tokens of an unfinished word: U.S has three."""
SEPARATORS: Final = f"{BLANKS}\r\n"


@dataclass(frozen=True, slots=True)
class Completion:
    """A completed word with p(word | context, prefix)."""

    word: str
    probability: float


@dataclass(frozen=True, slots=True)
class _Beam:
    """Partial words of the beam search."""

    texts: list[bytes]  # bytes generated after the context
    log_probs: Floats  # (K,)
    log_p: Floats  # (K, V) next-token log-probabilities
    state: Any


class _VocabularyWord(NamedTuple):
    """Surface form of a vocabulary word, and whether it attaches to the preceding text."""

    text: str
    id: int
    joins_left: bool


def _vocabulary_words(tokenizer: Tokenizer) -> Iterator[_VocabularyWord]:
    """Vocabulary words without `<unk>`; punctuation marks without joiners."""
    for name, i in tokenizer.vocab.items():
        if i == tokenizer.unk:
            continue
        is_joined = tokenizer.config.splits_punctuation and JOINER in name
        yield (
            _VocabularyWord(join(name), i, joined_sides(name)[0]) if is_joined else _VocabularyWord(name, i, False)
        )


def split_prefix(text: str) -> tuple[str, str]:
    """Split a text into context and unfinished word at the last blank.

    >>> split_prefix("the stock mar")
    ('the stock ', 'mar')
    """
    prefix = re.split(rf"[{BLANKS}\r\n]", text)[-1]
    return text[: len(text) - len(prefix)], prefix


class Completer:
    """Interactive word completion. Caches the state of the context; not safe for concurrent sessions."""

    def __init__(self, model: Model) -> None:
        self._tokenizer = model.tokenizer
        self._prefix_cache = PrefixCache(model.lm)
        self._kind = model.tokenizer.config.kind
        self._is_split = model.tokenizer.config.splits_punctuation
        is_words = model.tokenizer.config.is_word_level
        words = sorted(_vocabulary_words(model.tokenizer)) if is_words else []
        self._vocabulary_words = [word.text for word in words]
        self._ids: Ids = np.array([word.id for word in words], dtype=np.int64)
        self._joins: Mask = np.array([word.joins_left for word in words], dtype=bool)
        self._token_bytes = None if is_words else TokenBytes(model.tokenizer)

    def split_prefix(self, text: str) -> tuple[str, str]:
        """Split a text into context and unfinished word.

        The word starts after the last blank or, if the tokenizer splits punctuation, after the last mark, unless a
        vocabulary word starts with the preceding word and that mark (don' for don't).
        """
        context, typed = split_prefix(text)
        if not self._is_split or not typed:
            return context, typed
        first = self._word_start(typed)
        return context + typed[:first], typed[first:]

    def _word_start(self, chunk: str) -> int:
        """Offset of the unfinished word in the text after the last blank."""
        *before, (last, start, _) = self._tokenizer.spans(chunk)[-MAX_PARTIAL_TOKENS:]
        for name, first, _ in before:
            if not is_punctuation(name) and self._is_prefix(self._tokenizer.normalize(chunk[first:])):
                return first
        return len(chunk) if is_punctuation(last) else start

    def _is_prefix(self, prefix: str) -> bool:
        index = bisect_left(self._vocabulary_words, prefix)
        return index < len(self._vocabulary_words) and self._vocabulary_words[index].startswith(prefix)

    def complete(self, text: str, top: int = 10) -> list[Completion]:
        """Most probable completions of the last word of the text, best first.

        A word-level model renormalizes over the vocabulary words with this prefix. For other tokenizers the
        probability of a word is that of its tokens followed by a word boundary.
        """
        check_range("top", top)
        context, typed = self.split_prefix(text)
        prefix = self._tokenizer.normalize(typed)
        try:
            prefix_bytes = prefix.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{text[:40]!a} cannot be encoded as UTF-8; correct it") from error
        if self._is_split:
            return self._complete_from_vocabulary(
                self._read_split(text, typed), prefix, top, not context or context[-1] in SEPARATORS
            )
        if self._token_bytes is None:
            return self._complete_from_vocabulary(self._read(context)[0], prefix, top)
        # Subword tokens include the preceding blank, so the blank belongs to the prefix.
        blank = context[-1:] if context[-1:] in BLANKS else ""
        before = context[: len(context) - len(blank)]
        lead = b" " if self._kind == "wordpiece" else blank.encode()
        return self._complete_by_search(self._read(before), lead + prefix_bytes, len(lead), top)

    def _read(self, context: str) -> tuple[Floats, Any]:
        return self._prefix_cache.next_log_probs(Continuation(self._tokenizer, context).prompt_ids)

    def _read_split(self, text: str, typed: str) -> Floats:
        """Next-token log p after the text without the unfinished word.

        The whole text is tokenized, so that a mark before the unfinished word has its joiner. A final mark is read
        with or without a trailing joiner, whichever is more probable.
        """
        ids = Continuation(self._tokenizer, text).prompt_ids
        if typed:
            return self._prefix_cache.next_log_probs(ids[: -len(self._tokenizer.spans(typed))])[0]
        forms = self._mark_ids(text)
        if not forms:
            return self._prefix_cache.next_log_probs(ids)[0]
        log_p = self._prefix_cache.next_log_probs(ids[:-1])[0]
        return self._prefix_cache.next_log_probs((*ids[:-1], max(forms, key=log_p.__getitem__)))[0]

    def _mark_ids(self, text: str) -> list[int]:
        """Possible token ids of a final punctuation mark."""
        chunk = split_prefix(text)[1]
        if not chunk:
            return []
        name = self._tokenizer.spans(chunk)[-1][0]
        return [i for form in (name, name + JOINER) if (i := self._tokenizer.token_id(form)) is not None]

    def _complete_from_vocabulary(
        self, log_p: Floats, prefix: str, top: int, is_apart: bool = False
    ) -> list[Completion]:
        """Complete from the sorted vocabulary; `is_apart` excludes words that attach to the preceding text."""
        first, last = (
            bisect_left(self._vocabulary_words, prefix),
            bisect_right(self._vocabulary_words, prefix + LAST_CHARACTER),
        )
        indices = np.arange(first, last)
        if is_apart:
            indices = indices[~self._joins[first:last]]
        ids = self._ids[indices]
        log_p = log_p[ids]
        total = _log_sum_exp(log_p)
        if total == -np.inf:
            return []
        if self._is_split:  # forms with and without a joiner have the same text
            return self._sum_equal_words(indices, log_p - total, top)
        best = np.argpartition(-log_p, top - 1)[:top] if top < len(ids) else np.arange(len(ids))
        best = best[np.lexsort((ids[best], -log_p[best]))]
        p = np.exp(log_p[best] - total)
        return [
            Completion(self._vocabulary_words[first + i], q)
            for i, q in zip(best.tolist(), p.tolist(), strict=True)
            if q
        ]

    def _sum_equal_words(self, indices: Ids, log_p: Floats, top: int) -> list[Completion]:
        sums: dict[str, float] = {}
        for index, p in zip(indices.tolist(), np.exp(log_p).tolist(), strict=True):
            sums[self._vocabulary_words[index]] = sums.get(self._vocabulary_words[index], 0.0) + p
        best = heapq.nsmallest(top, ((-p, word) for word, p in sums.items() if p))
        return [Completion(word, -p) for p, word in best]

    def _complete_by_search(
        self, context_output: tuple[Floats, Any], prefix: bytes, lead: int, top: int
    ) -> list[Completion]:
        """Beam search over tokens that match the prefix and then extend to the end of the word."""
        tokens = self._require_tokens()
        beam = _Beam([b""], np.zeros(1), context_output[0][None], context_output[1])
        mass = 0.0 if not prefix else -np.inf  # log p(prefix | context)
        words: dict[bytes, float] = {}
        for _ in range(MAX_WORD_TOKENS):
            self._add_complete_words(beam, prefix, lead, words)
            rows, ids, scores, passed = self._extend(beam, prefix)
            mass = float(np.logaddexp(mass, passed))
            threshold = sorted(words.values(), reverse=True)[top - 1 : top]
            if not len(rows) or (threshold and scores[0] < threshold[0]):
                break
            log_p, state = self._prefix_cache.lm.step(beam.state.select(rows), ids)
            texts = [beam.texts[r] + tokens.texts[i] for r, i in zip(rows.tolist(), ids.tolist(), strict=True)]
            beam = _Beam(texts, scores, log_p, state)
        best_words = sorted(words, key=lambda word: (-words[word], word))[:top]
        return [Completion(word.decode(), float(np.exp(words[word] - mass))) for word in best_words]

    def _add_complete_words(self, beam: _Beam, prefix: bytes, lead: int, words: dict[bytes, float]) -> None:
        """Add the beam's complete words with log p(word, boundary)."""
        is_end = self._require_tokens().is_end
        for text, log_prob, row in zip(beam.texts, beam.log_probs.tolist(), beam.log_p, strict=True):
            word = text[lead:]
            if len(text) < len(prefix) or not word or not _is_utf8(word):
                continue
            end = log_prob + _log_sum_exp(row[is_end])
            if end > -np.inf:
                words[word] = float(np.logaddexp(words.get(word, -np.inf), end))

    def _extend(self, beam: _Beam, prefix: bytes) -> tuple[Ids, Ids, Floats, float]:
        """Rows, new ids and log p of the extended beam, and log p of having completed the prefix."""
        tokens, passed = self._require_tokens(), -np.inf
        lengths = np.array([len(text) for text in beam.texts])
        beyond, within = np.flatnonzero(lengths >= len(prefix)), np.flatnonzero(lengths < len(prefix))
        rows, ids = [np.repeat(beyond, len(tokens.inner))], [np.tile(tokens.inner, len(beyond))]
        scores = [(beam.log_probs[beyond, None] + beam.log_p[beyond][:, tokens.inner]).ravel()]
        for row in within.tolist():
            rest = prefix[len(beam.texts[row]) :]
            whole = tokens.starting_with(rest)
            passed = float(np.logaddexp(passed, beam.log_probs[row] + _log_sum_exp(beam.log_p[row, whole])))
            fits = tokens.length[whole] - len(rest) <= tokens.tail[whole]
            new = np.concatenate([whole[fits], tokens.prefixes_of(rest)])
            rows.append(np.full(len(new), row))
            ids.append(new)
            scores.append(beam.log_probs[row] + beam.log_p[row, new])
        all_scores = np.concatenate(scores)
        best = np.argpartition(-all_scores, BEAM)[:BEAM] if len(all_scores) > BEAM else np.arange(len(all_scores))
        best = best[np.argsort(-all_scores[best], kind="stable")]
        best = best[all_scores[best] > -np.inf]
        return np.concatenate(rows)[best], np.concatenate(ids)[best], all_scores[best], passed

    def _require_tokens(self) -> TokenBytes:
        assert self._token_bytes is not None
        return self._token_bytes


def _is_utf8(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def _log_sum_exp(log_p: Floats) -> float:
    highest = log_p.max(initial=-np.inf)
    return float(highest + np.log(np.exp(log_p - highest).sum())) if highest > -np.inf else -np.inf
