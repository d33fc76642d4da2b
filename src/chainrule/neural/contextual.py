"""Vectors of words in their sentences: what each layer of a trained network makes of each word.

Lives here: sentences into a network, its layers listened to, vectors of tokens into vectors of words. Not here: the
networks themselves, what such vectors show (inspection/senses.py). Letters: B batch, T tokens, n words, D width.

A language model (a decoder) reads from `<s>` on, so a word's vector knows the words before it and the word itself.
A pre-trained encoder also knows the words after it: forward and backward recurrent layers side by side (ELMo,
Peters et al. 2018), or a Transformer that attends to all words (BERT, Devlin et al. 2019), here without hiding any.
Layer 0 is the word's own vector, the same in every sentence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from chainrule.errors import ConfigError, InputError, UsageError
from chainrule.lm import Floats, Ids
from chainrule.neural import listening
from chainrule.neural.device import device_of, exact
from chainrule.neural.encoder import framed
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, as_progress, silent
from chainrule.tokenizers.tokenizer import Tokenizer, split_words
from chainrule.training.threads import suited

TOKENS_AT_ONCE = 1 << 13

Sentence = str | Sequence[str]
"""A line of words with blanks between them, or the words."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The words of a sentence and their vectors; those of each layer are as wide as the layer is."""

    words: tuple[str, ...]
    vectors: Mapping[int, Floats]  # of each layer (n, D), float32; layer 0: the words' own


class _Span(NamedTuple):
    """Tokens of a row that are read at once."""

    row: int
    first: int
    last: int  # one after the last
    kept: int  # one after the last whose vector counts

    @property
    def length(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class _Source:
    """A network, and how it reads a sentence."""

    network: Any
    tokenizer: Tokenizer
    lm: Any = None  # the language model whose network it is; an encoder has none

    @property
    def window(self) -> int | None:
        """Tokens it can read at once; None: any number."""
        if self.lm is not None:
            return self.network.window  # type: ignore[no-any-return]
        c = self.network.config
        return c.longest if c.family == "transformer" else None

    def frame(self, ids: Ids) -> Ids:
        """The tokens as they are read: the first behind a sign, with an encoder the last before one, too."""
        if self.lm is None:
            return framed(ids, self.tokenizer.vocabulary)
        read: Ids = self.lm.as_read(np.concatenate([[self.tokenizer.bos], ids]))
        return read

    def spans(self, row: int, T: int) -> list[_Span]:
        """A row of T tokens in spans that can be read at once.

        A decoder starts anew where its window ends, as it does when it scores. An encoder reads spans of about the
        same length, as it did when it learnt; of a token that two of them share, the vector in the second counts.
        """
        W = self.window
        if W is None or T <= W:
            return [_Span(row, 0, T, T)]
        if self.lm is not None:
            ends = [*range(W, T, W), T]
            return [_Span(row, first, last, last) for first, last in pairwise([0, *ends])]
        k = -(-(T - 1) // (W - 1))
        edges = [i * (T - 1) // k for i in range(k + 1)]
        return [_Span(row, i, j + 1, j + (j == T - 1)) for i, j in pairwise(edges)]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The tokens of a sentence, and which of them (P,) are of which word (P,)."""

    ids: Ids
    piece: Ids
    word: Ids


def contextual(
    model: Any, sentences: Iterable[Sentence], layer: int | None = None, progress: Progress | bool = silent
) -> list[Layers]:
    """The vectors of every word of every sentence in every layer, or in one of them.

    `model` is a neural language model or an encoder of `chainrule pretrain`, as `chainrule.load` gives them. Each
    sentence is read by itself. Where the tokenizer splits punctuation, a mark is a word of its own. A word that the
    tokenizer cuts into pieces has the mean of their vectors; pieces that are blanks alone belong to no word. The
    last layer of a recurrent or Transformer language model is what predicts the next token: attention over the past
    and a last norm are in it where the model has them.
    """
    progress = as_progress(progress)
    source = _source(model)
    wanted = _wanted(source.network.config.layers, layer)
    if isinstance(sentences, str):
        raise UsageError("contextual was given one text; give a list of sentences, such as [text]")
    texts, pieces = [], []
    for place, sentence in enumerate(sentences, start=1):
        words, of_words = _cut(sentence, place, source.tokenizer)
        texts.append(words)
        pieces.append(of_words)
    found = _read([source.frame(each.ids) for each in pieces], source, wanted, progress)
    return [
        Layers(words, {k: _mean(x, each, len(words)) for k, x in zip(wanted, vectors, strict=True)})
        for words, each, vectors in zip(texts, pieces, found, strict=True)
    ]


def _source(model: Any) -> _Source:
    """The network of a language model or of an encoder; whatever else is refused."""
    lm = getattr(model, "lm", None)
    network = getattr(model if lm is None else lm, "network", None)
    if network is not None and listening.is_known(network):
        return _Source(network, model.tokenizer, lm)
    what = getattr(model, "family", getattr(model, "task", type(model).__name__))
    raise UsageError(
        f"contextual vectors are those of a neural language model or of an encoder of chainrule pretrain, "
        f"and this model ({what}) is neither"
    )


def _wanted(layers: int, layer: int | None) -> list[int]:
    if layer is None:
        return list(range(layers + 1))
    if not 0 <= layer <= layers:
        raise ConfigError(f"layer is {layer}; this model has the layers 0 (the words' own vectors) to {layers}")
    return [layer]


def _cut(sentence: Sentence, place: int, tokenizer: Tokenizer) -> tuple[tuple[str, ...], _Pieces]:
    """The words of a sentence and their tokens.

    The words of a text are those of a word tokenizer, or else what stands between blanks; a list gives them.
    """
    if isinstance(sentence, str) and tokenizer.config.splits_punctuation:
        encoding = tokenizer.encoding(sentence)
        words = _checked((sentence[first:last] for first, last in encoding.offsets), place)
        every = np.arange(len(words))
        return words, _Pieces(np.array(encoding.ids, dtype=np.int64), every, every)
    words = _checked(split_words(sentence) if isinstance(sentence, str) else sentence, place)
    return words, _pieces(words, tokenizer)


def _checked(words: Iterable[str], place: int) -> tuple[str, ...]:
    """The same words; one with a blank or a line break is refused."""
    words = tuple(words)
    for word in words:
        if not word or any(mark in word for mark in " \t\n"):
            raise InputError(
                f"sentence {place}: {word[:40]!r} is no word; give words without blanks and line breaks"
            )
    return words


def _pieces(words: Sequence[str], tokenizer: Tokenizer) -> _Pieces:
    """The tokens of words with one blank between each two."""
    text = " ".join(words)
    encoding = tokenizer.encoding(text)
    owner = np.repeat(np.arange(2 * len(words)), [part for word in words for part in (len(word), 1)])
    owner = np.where(owner % 2, -1, owner // 2)  # (characters + 1,)  which word; −1: the blank after one
    pairs = [
        (piece, word)
        for piece, (first, last) in enumerate(encoding.offsets)
        for word in np.unique(owner[first:last]).tolist()
        if word >= 0
    ]
    piece, word = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return _Pieces(np.array(encoding.ids, dtype=np.int64), piece, word)


def _mean(vectors: Floats, pieces: _Pieces, words: int) -> Floats:
    """(T, D) of a sentence's tokens, its sign `<s>` before them -> (n, D) of its words."""
    sums = np.zeros((words, vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, pieces.word, vectors[pieces.piece + 1])
    sums /= np.bincount(pieces.word, minlength=words).astype(np.float32)[:, None]
    return sums


def _read(rows: list[Ids], source: _Source, wanted: list[int], progress: Progress) -> list[list[Floats]]:
    """Of each row of tokens the wanted layers' vectors (T, D); spans of like length are read side by side."""
    spans = [span for row, ids in enumerate(rows) for span in source.spans(row, len(ids))]
    found: list[list[Floats]] = [[] for _ in rows]
    done = 0
    for batch in _batches(spans):
        progress("reading", done, len(spans))
        done += len(batch)
        layers = _layers(source.network, [rows[span.row][span.first : span.last] for span in batch])
        for place, k in enumerate(wanted):
            for span, x in zip(batch, layers[k].float().cpu().numpy(), strict=True):  # (T, D)
                of_row = found[span.row]
                if len(of_row) == place:
                    of_row.append(np.empty((len(rows[span.row]), x.shape[1]), dtype=np.float32))
                kept = check_outputs(x[: span.kept - span.first], source.network, may_be_impossible=False)
                of_row[place][span.first : span.kept] = kept
    return found


def _batches(spans: list[_Span]) -> Iterator[list[_Span]]:
    """Spans by length, so many at a time that what is read at once is bounded."""
    batch: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.length):
        if batch and (len(batch) + 1) * span.length > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(span)
    if batch:
        yield batch


def _layers(network: Any, rows: list[Ids]) -> list[torch.Tensor]:
    """Every layer's vectors (B, T, D) of rows side by side; what is behind a row's end is of no meaning."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, rows[0][0], dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    read, words = (torch.from_numpy(array).to(device_of(network)) for array in (ids, mask))
    with exact(), suited(network.work(*ids.shape)):
        return listening.layers(network, read, words)
