"""Contextual word vectors: the output of each layer of a trained network for each word of a sentence.

A causal language model sees only the preceding words. A pre-trained encoder sees both sides: concatenated forward
and backward recurrent layers (ELMo, Peters et al. 2018) or an unmasked Transformer encoder (BERT, Devlin et al.
2019). Layer 0 is the word embedding, the same in every sentence. Notation: B batch, T tokens, n words, D width.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from chainrule.data.encoded import group_by_length
from chainrule.errors import ChainruleWarning, ConfigError, InputError, UsageError
from chainrule.lm import Floats, Ids
from chainrule.neural.encoders.encoder import add_boundaries
from chainrule.neural.probes import activations
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, as_progress, silent
from chainrule.tokenizers.tokenizer import Tokenizer, split_words
from chainrule.training.device import device_of, exact_inference, limit_threads

TOKENS_AT_ONCE = 1 << 13

Sentence = str | Sequence[str]
"""Whitespace-separated words in one string, or a list of words."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Words of a sentence and their vectors in each layer."""

    words: tuple[str, ...]
    vectors: Mapping[int, Floats]  # layer -> (n, D) float32; layer 0: word embeddings


class _Span(NamedTuple):
    """Token range of a row that is read in one pass."""

    row: int
    first: int
    last: int  # exclusive end
    used: int  # exclusive end of the positions whose vectors are used


@dataclass(frozen=True, slots=True)
class _Source:
    """A network and how it reads a sentence."""

    network: Any
    tokenizer: Tokenizer
    lm: Any = None  # the language model; None for an encoder

    @property
    def window(self) -> int | None:
        """Maximum number of tokens per pass; None: unlimited."""
        if self.lm is not None:
            return self.network.window  # type: ignore[no-any-return]
        c = self.network.config
        return c.longest if c.family == "transformer" else None

    def frame(self, ids: Ids) -> Ids:
        """Add boundary markers: before the sentence, and for an encoder also after it."""
        if self.lm is None:
            return add_boundaries(ids, self.tokenizer.vocabulary)
        read: Ids = self.lm.map_boundaries(np.concatenate([[self.tokenizer.bos], ids]))
        return read

    def spans(self, row: int, T: int) -> list[_Span]:
        """Split a row of T tokens into spans that fit the window.

        A decoder restarts at each window, as it does when scoring. An encoder reads spans of similar length that
        overlap by one token, whose vector is taken from the second span.
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
    """Token ids of a sentence, and the (token, word) index pairs that belong together."""

    ids: Ids
    piece: Ids
    word: Ids


def contextual(
    model: Any, sentences: Iterable[Sentence], layer: int | None = None, progress: Progress | bool = silent
) -> list[Layers]:
    """Return the vectors of every word of every sentence in all layers, or in one layer.

    `model` is a neural language model or a pre-trained encoder, as returned by `chainrule.load`. Sentences are read
    independently. If the tokenizer splits punctuation, a punctuation mark is a word. A word of several tokens gets
    the mean of their vectors; whitespace tokens belong to no word. The last layer of a recurrent or Transformer
    language model is the input of the output layer, after attention over the past and the final norm if the model
    has them.
    """
    progress = as_progress(progress)
    source = _source(model)
    layers = _select_layers(source.network.config.layers, layer)
    if isinstance(sentences, str):
        raise UsageError("contextual was given one text; give a list of sentences, such as [text]")
    texts, pieces = [], []
    for number, sentence in enumerate(sentences, start=1):
        words, tokens = _cut(sentence, number, source.tokenizer)
        texts.append(words)
        pieces.append(tokens)
    row_vectors = _read([source.frame(sentence_pieces.ids) for sentence_pieces in pieces], source, layers, progress)
    return [
        Layers(words, {k: _mean(x, sentence_pieces, len(words)) for k, x in zip(layers, vectors, strict=True)})
        for words, sentence_pieces, vectors in zip(texts, pieces, row_vectors, strict=True)
    ]


def _source(model: Any) -> _Source:
    """Return the network of a language model or encoder; raise UsageError for other models."""
    lm = getattr(model, "lm", None)
    network = getattr(model if lm is None else lm, "network", None)
    if network is not None and activations.is_supported(network):
        return _Source(network, model.tokenizer, lm)
    what = getattr(model, "family", getattr(model, "task", type(model).__name__))
    raise UsageError(
        f"contextual vectors are those of a neural language model or of an encoder of chainrule pretrain, "
        f"but this model ({what}) is neither"
    )


def _select_layers(layers: int, layer: int | None) -> list[int]:
    if layer is None:
        return list(range(layers + 1))
    if not 0 <= layer <= layers:
        raise ConfigError(f"layer is {layer}; this model has the layers 0 (the words' own vectors) to {layers}")
    return [layer]


def _cut(sentence: Sentence, number: int, tokenizer: Tokenizer) -> tuple[tuple[str, ...], _Pieces]:
    """Split a sentence into words and tokens.

    Words are those of a word tokenizer, else whitespace-separated; a list of words is used as it is.
    """
    if isinstance(sentence, str) and tokenizer.config.splits_punctuation:
        encoding = tokenizer.encoding(sentence)
        words = _checked((sentence[first:last] for first, last in encoding.offsets), number)
        indices = np.arange(len(words))
        return words, _Pieces(np.array(encoding.ids, dtype=np.int64), indices, indices)
    words = _checked(split_words(sentence) if isinstance(sentence, str) else sentence, number)
    return words, _pieces(words, tokenizer)


def _checked(words: Iterable[str], number: int) -> tuple[str, ...]:
    """Return the words; raise InputError if one is empty or contains whitespace."""
    words = tuple(words)
    for word in words:
        if not word or any(space in word for space in " \t\n"):
            raise InputError(
                f"sentence {number}: {word[:40]!r} is not a word; give words without blanks and line breaks"
            )
    return words


def _pieces(words: Sequence[str], tokenizer: Tokenizer) -> _Pieces:
    """Tokenize words joined by single spaces and align tokens with words."""
    text = " ".join(words)
    encoding = tokenizer.encoding(text)
    owner = np.repeat(np.arange(2 * len(words)), [part for word in words for part in (len(word), 1)])
    owner = np.where(owner % 2, -1, owner // 2)  # (characters + 1,)  word index; −1: space
    pairs = [
        (piece, word)
        for piece, (first, last) in enumerate(encoding.offsets)
        for word in np.unique(owner[first:last]).tolist()
        if word >= 0
    ]
    piece, word = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return _Pieces(np.array(encoding.ids, dtype=np.int64), piece, word)


def _mean(vectors: Floats, pieces: _Pieces, words: int) -> Floats:
    """(T, D) token vectors, `<s>` first -> (n, D) word vectors."""
    sums = np.zeros((words, vectors.shape[1]), dtype=np.float32)
    np.add.at(sums, pieces.word, vectors[pieces.piece + 1])
    sums /= np.bincount(pieces.word, minlength=words).astype(np.float32)[:, None]
    return sums


def _read(rows: list[Ids], source: _Source, layers: list[int], progress: Progress) -> list[list[Floats]]:
    """Return the (T, D) vectors of the selected layers for each row; spans of similar length are batched."""
    spans = [span for row, ids in enumerate(rows) for span in source.spans(row, len(ids))]
    row_vectors: list[list[Floats]] = [[] for _ in rows]
    done = 0
    lengths = np.array([span.last - span.first for span in spans], dtype=np.int64)
    for indices in group_by_length(lengths, TOKENS_AT_ONCE):
        batch = [spans[i] for i in indices]
        progress("reading", done, len(spans))
        done += len(batch)
        outputs = _layers(source.network, [rows[span.row][span.first : span.last] for span in batch])
        for index, k in enumerate(layers):
            for span, x in zip(batch, outputs[k].float().cpu().numpy(), strict=True):  # (T, D)
                vectors = row_vectors[span.row]
                if len(vectors) == index:
                    vectors.append(np.empty((len(rows[span.row]), x.shape[1]), dtype=np.float32))
                values = check_outputs(x[: span.used - span.first], source.network, allow_neg_inf=False)
                vectors[index][span.first : span.used] = values
    return row_vectors


def _layers(network: Any, rows: list[Ids]) -> list[torch.Tensor]:
    """Run rows as one padded batch; return the outputs (B, T, D) of every layer, undefined on padding."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, rows[0][0], dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    ids_tensor, mask_tensor = (torch.from_numpy(array).to(device_of(network)) for array in (ids, mask))
    with exact_inference(), limit_threads(network.largest_matmul(*ids.shape)):
        return activations.layer_outputs(network, ids_tensor, mask_tensor)


@dataclass(frozen=True, slots=True)
class Occurrences:
    """First occurrence of a word in each sentence, and its vectors there."""

    sentences: tuple[tuple[str, ...], ...]
    positions: tuple[int, ...]
    vectors: Mapping[int, Floats]  # layer -> (n, D), one row per sentence


def occurrences(
    model: Any,
    word: str,
    sentences: Sequence[str],
    name: str = "the sentences given",
    progress: Progress | bool = silent,
) -> Occurrences:
    """Return the vectors of a word in sentences that contain it; `name` is the file named in error messages.

    Words are compared after the tokenizer's normalization, e.g. lower-casing.
    """
    progress = as_progress(progress)
    if split_words(word) != [word]:
        raise UsageError(f"{word!r} is not one word; give a word without blanks")
    if not sentences:
        raise InputError(f"{name}: there are no sentences; give some that contain '{word}'")
    layers = contextual(model, sentences, progress=progress)
    tokenizer: Tokenizer = model.tokenizer
    positions = [
        _find(sentence, word, tokenizer, f"{name}, line {line}") for line, sentence in enumerate(layers, start=1)
    ]
    if tokenizer.unk is not None and tokenizer.unk in tokenizer.encode(word):
        message = f"the model does not know '{word}' and reads <unk> there: its vectors depend on the context alone"
        warnings.warn(message, ChainruleWarning, stacklevel=2)
    vectors = {
        k: np.stack([sentence.vectors[k][position] for sentence, position in zip(layers, positions, strict=True)])
        for k in layers[0].vectors
    }
    return Occurrences(tuple(sentence.words for sentence in layers), tuple(positions), vectors)


def _find(layers: Layers, word: str, tokenizer: Tokenizer, where: str) -> int:
    """Index of the first occurrence of the word in a sentence."""
    normalized = tokenizer.normalize(word)
    for position, candidate in enumerate(layers.words):
        if tokenizer.normalize(candidate) == normalized:
            return position
    remedy = "" if tokenizer.config.splits_punctuation else "; put blanks around words and punctuation"
    raise InputError(f"{where} does not contain '{word}' as a separate word{remedy}")
