"""A trained tagger: words in, tags out, and the folder it is kept in.

Lives here: `Tagger` and how it reads a sentence. Not here: learning (tag.py), the network (neural/tagger.py), how
tags are learnt and measured (tagset.py).
"""

import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from chainrule import artifact
from chainrule.data.spellings import Spellings
from chainrule.errors import ChainruleWarning, InputError
from chainrule.lm import Ids
from chainrule.model import Origin
from chainrule.neural import tagger, weights
from chainrule.neural.device import choose, device_of
from chainrule.neural.tagger import Collate, TagBatch, TagConfig, TagNetwork
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks import store
from chainrule.tasks.tagset import TagReport, TagSet, as_bioes, compare
from chainrule.text.columns import Tagged, read_tagged
from chainrule.tokenizers.tokenizer import Tokenizer

SIDE_BY_SIDE: Final = 64  # sentences that are tagged at a time
OVERLAP: Final = 4  # a quarter of a piece is read again in the next

Sentences = str | Path | Sequence[Tagged]
"""A file of columns, or what was read from one."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tagger:
    """A trained model of p(tags | words)."""

    task: ClassVar = "tag"
    network: TagNetwork
    config: TagConfig
    tokenizer: Tokenizer
    tags: TagSet
    spellings: Spellings | None
    column: str | int | None = None  # where the tag stood in the training file; None: where it is expected
    origin: Origin = field(default_factory=Origin)
    metrics: dict[str, Any] = field(default_factory=dict)
    log: bytes = b""

    def __repr__(self) -> str:
        return f"<{self.config.family} tagger of {self.origin.text}: {self.parameters:,} parameters>"

    @property
    def parameters(self) -> int:
        """Weights that were learnt."""
        return sum(p.numel() for p in self.network.parameters())

    def tag(self, words: Sequence[str]) -> list[str]:
        """The tags of one sentence."""
        return self.tag_all([words])[0]

    def tag_all(self, sentences: Sequence[Sequence[str]], progress: Progress | bool = silent) -> list[list[str]]:
        """The tags of each sentence, written as in the training file; a sentence without words has none."""
        progress = as_progress(progress)
        paths = self._ask(sentences, tagger.best_tags, "tagging", progress)
        return [self.tags.decode(np.array(path, dtype=np.int64)) for path in paths]

    def confidences(
        self, sentences: Sequence[Sequence[str]], progress: Progress | bool = silent
    ) -> list[list[float]]:
        """p(tag | words) of each tag that `tag_all` gives; of spans as they are learnt, so of S-PER, not I-PER."""
        progress = as_progress(progress)
        return self._ask(sentences, tagger.confidences, "weighing", progress)

    def marginals(self, words: Sequence[str], most: int = 5) -> list[dict[str, float]]:
        """p(tag | words) of each word's `most` probable tags, these first; spans are written as they are learnt."""
        if not words:
            return []
        found = np.array(self._ask([words], tagger.marginals, "weighing", silent)[0])  # (n, K)
        order = np.argsort(-found, axis=1, kind="stable")[:, :most]
        return [{self.tags.names[k]: float(row[k]) for k in ks} for row, ks in zip(found, order, strict=True)]

    def evaluate(
        self, tagged: Sentences, *, column: str | int | None = None, progress: Progress | bool = silent
    ) -> TagReport:
        """Tag these sentences and compare; tags the model never met count as errors, and a warning names them.

        Without a `column`, tags are read from the one they were learnt from.
        """
        progress = as_progress(progress)
        sentences, name = read(tagged, self.column if column is None else column)
        return self.measure(sentences, self.tags.gold(sentences, name), progress)

    def measure(
        self, sentences: Sequence[Tagged], gold: Sequence[Sequence[str]], progress: Progress | bool = silent
    ) -> TagReport:
        """Tag these sentences and compare with `gold`, which is in the scheme of the training file."""
        progress = as_progress(progress)
        start = time.perf_counter()
        found = self.tag_all([sentence.words for sentence in sentences], progress)
        seconds = time.perf_counter() - start
        ids = [encode(self.tokenizer, sentence.words, i) for i, sentence in enumerate(sentences, start=1)]
        return compare(gold, found, [row == self.tokenizer.unk for row in ids], self.tags.scheme, seconds)

    def _ask(
        self,
        sentences: Sequence[Sequence[str]],
        question: Callable[[TagNetwork, TagBatch], Sequence[np.ndarray]],
        what: str,
        progress: Progress,
    ) -> list[list[Any]]:
        """What the network says of each word; sentences too long for it are read in pieces, and counted."""
        if isinstance(sentences, str):
            raise InputError(f"the sentences are one text, {sentences[:40]!r}; give a list of lists of words")
        ids = [encode(self.tokenizer, words, i) for i, words in enumerate(sentences, start=1)]
        most = most_words(self.config)
        lengths = [len(row) for row in ids]
        pieces = [(i, piece) for i, n in enumerate(lengths) for piece in cut(n, most or n)]
        too_long = sum(n > (most or n) for n in lengths)
        if too_long:
            message = f"{too_long} of {len(ids)} sentences have more than {most} words and are read in pieces"
            remedy = f"a model trained with longest={max(lengths) + 2} reads them whole"
            warnings.warn(f"{message}; {remedy}", ChainruleWarning, stacklevel=3)
        data = self._collate(
            [ids[i][piece.read] for i, piece in pieces], [sentences[i][piece.read] for i, piece in pieces]
        )
        answers: dict[int, np.ndarray] = {}
        for rows in counted(batches(data), what, progress):
            answers |= zip(rows.tolist(), question(self.network, data(rows)), strict=True)
        found: list[list[Any]] = [[] for _ in sentences]
        for k, (i, piece) in enumerate(pieces):
            found[i] += answers[k][piece.kept].tolist()
        return found

    def _collate(self, ids: Sequence[Ids], words: Sequence[Sequence[str]]) -> Collate:
        return Collate(
            ids=ids,
            words=words,
            tags=None,
            spellings=self.spellings,
            vocabulary=self.tokenizer.vocabulary,
            device=device_of(self.network),
        )

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model folder; another model or an unfinished run there is replaced only with `force`."""
        parts = store.Parts(
            task="tag",
            config=self.config,
            tokenizers={"text": self.tokenizer},
            more={
                "tags": self.tags.to_json(),
                "characters": None if self.spellings is None else self.spellings.to_json(),
                "column": self.column,
            },
            origin=self.origin,
            metrics=self.metrics,
        )
        files = {weights.FILE: weights.to_bytes(self.network)}
        store.save(path, parts, files | ({store.LOG: self.log} if self.log else {}), force=force)


def load(path: str | Path, device: str = "auto") -> Tagger:
    """The tagger of a folder, every file verified first."""
    sealed, parts = store.load(path, "tag", TagConfig)
    config, tokenizer = parts.config, parts.tokenizers["text"]
    with artifact.refusing(sealed):
        known = TagSet.from_json(parts.more["tags"])
        spellings = Spellings.from_json(parts.more["characters"]) if config.characters else None
        network = weights.restore(sealed, lambda: build(config, tokenizer, known, spellings), config.layers)
        column = parts.more.get("column")  # older folders do not say
        if not isinstance(column, str | int | None):
            raise ValueError(f"column {column!r}")
    return Tagger(
        network=network.to(choose(device)).eval(),
        config=config,
        tokenizer=tokenizer,
        tags=known,
        spellings=spellings,
        column=column,
        origin=parts.origin,
        metrics=dict(parts.metrics),
        log=sealed.bytes(store.LOG) if store.LOG in sealed.files else b"",
    )


def build(config: TagConfig, tokenizer: Tokenizer, known: TagSet, spellings: Spellings | None) -> TagNetwork:
    """An untrained network for these words, tags and characters."""
    characters = 0 if spellings is None else spellings.size
    return TagNetwork(config, tokenizer.vocabulary, characters, len(known.names), known.allowed)


def read(tagged: Sentences, column: str | int | None) -> tuple[Sequence[Tagged], str]:
    """The sentences, spans of BILOU in BIOES, and what messages call them."""
    if isinstance(tagged, str | Path):
        name = "standard input" if str(tagged) == "-" else str(tagged)
        return as_bioes(read_tagged(tagged, column=column)), name
    sentences = list(tagged) if isinstance(tagged, Iterable) else []
    if not sentences:
        raise InputError("there are no sentences; give a file, or a list of Tagged(words, tags)")
    for number, sentence in enumerate(sentences, start=1):
        if not isinstance(sentence, Tagged):
            raise InputError(
                f"sentence {number} is {sentence!r:.60}; give Tagged(words, tags), each word with a tag"
            )
    return as_bioes(sentences), "sentences in memory"


def encode(tokenizer: Tokenizer, words: Sequence[str], number: int) -> Ids:
    """(n,) one id a word; `number` is the sentence's, for messages."""
    if isinstance(words, str):
        raise InputError(
            f"sentence {number} is one text, {words[:40]!r}; give a list of words, as text.split() does"
        )
    if tokenizer.config.splits_punctuation:  # each word is one token all the same
        ids = np.array([tokenizer.word_id(as_one(word)) for word in words if word], dtype=np.int64)
    else:
        ids = tokenizer.encode(" ".join(map(as_one, words))).astype(np.int64)
    if len(ids) != len(words):
        raise InputError(f"sentence {number} has {len(words)} words, some of them empty; leave these out")
    return ids


def most_words(config: TagConfig) -> int | None:
    """How long a sentence may be: a Transformer has room for `longest` tokens, two of them `<s>` and `</s>`."""
    return config.longest - 2 if config.family == "transformer" else None


class Piece(NamedTuple):
    """Part of a sentence that is read at once."""

    read: slice  # of the sentence
    kept: slice  # of the piece: the words that stand further from a cut here than in its neighbours


def cut(n: int, most: int) -> list[Piece]:
    """A sentence of n words in pieces of at most `most`, neighbours sharing a quarter or more.

    >>> [(piece.read, piece.kept) for piece in cut(6, 4)]
    [(slice(0, 4, None), slice(0, 3, None)), (slice(2, 6, None), slice(1, 4, None))]
    """
    if n <= most:
        return [Piece(slice(0, n), slice(0, n))] if n else []
    starts = [*range(0, n - most, most - most // OVERLAP), n - most]
    # A word t of two pieces is t − right from the later one's cut, left + most − 1 − t from the earlier one's.
    ends = [*((left + right + most + 1) // 2 for left, right in pairwise(starts)), n]
    return [
        Piece(slice(start, start + most), slice(first - start, end - start))
        for start, first, end in zip(starts, [0, *ends], ends, strict=False)
    ]


def batches(data: Collate) -> list[Ids]:
    """Sentences of like length together, those without words left out."""
    lengths = np.array([len(row) for row in data.ids], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")[(lengths == 0).sum() :]
    return np.split(order, range(SIDE_BY_SIDE, len(order), SIDE_BY_SIDE)) if len(order) else []


def as_one(word: str) -> str:
    """The word as it is looked up, without blanks inside."""
    return re.sub(r"[ \t\r\n]", "_", word)


def counted(parts: Sequence[Ids], what: str, progress: Progress) -> Iterator[Ids]:
    """The same parts, with word of how many of their sentences are done before each, and at the end."""
    done, total = 0, sum(map(len, parts))
    for rows in parts:
        progress(what, done, total)
        yield rows
        done += len(rows)
    progress(what, done, total)
