"""A tag for every word of a sentence: an encoder, perhaps the words' spellings beside it, and a chain of tags.

s_t = W h_t + b,   p(y_1 … y_n | words) by the chain of crf.py, or word by word without one (Lample et al. 2016,
Ma & Hovy 2016)

Lives here: settings, network, batches, loss, and the two questions put to a network (best tags, p of each tag). Not
here: what tags mean (evaluation/spans.py), text (tasks/tag.py). The encoder reads `<s>` and `</s>` around words,
as in pre-training; these have no spelling, no score and no tag. Letters: B rows, T words, K tags, N spellings.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.data.spellings import Spellings
from chainrule.errors import ConfigError
from chainrule.evaluation.spans import Transitions
from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.neural.block import chosen, drop
from chainrule.neural.characters import CharacterFeatures
from chainrule.neural.crf import CRF, Independent
from chainrule.neural.device import exact
from chainrule.neural.encoder import EncoderConfig, Reader, framed
from chainrule.neural.network import Tensors
from chainrule.neural.settings import LARGEST
from chainrule.neural.weights import check_outputs
from chainrule.training import threads
from chainrule.training.examples import padded


@dataclass(frozen=True, slots=True, kw_only=True)
class TagConfig(EncoderConfig):
    """Settings of a tagger."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "tie")
    crf: bool = True  # tags are chosen together, by which may follow which; else each by itself
    characters: int = 50  # features of a word's spelling, 0: none
    rare_unknown: float = 0.5  # how often a word met once is read as <unk> while learning: so <unk> gets a vector
    scheme: Literal["auto", "keep", "bioes", "iob2"] = "auto"  # how spans are learnt; auto: bioes, keep: as written
    hidden: int = 400
    embedding: int = 100
    dropout: float = 0.5
    batch_size: int = 16  # sentences
    epochs: int = 30
    learning_rate: float = 2e-3

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        self.check_longest(3)
        if not 0 <= self.characters <= LARGEST:
            raise ConfigError(f"model.characters is {self.characters}; choose 0 to {LARGEST} features")
        if not 0 <= self.rare_unknown <= 1:
            raise ConfigError(f"model.rare_unknown is {self.rare_unknown:g}; choose a value in [0, 1]")
        if self.output != "softmax":
            raise ConfigError(f"model.output is '{self.output}'; a tagger knows all its tags: leave it at softmax")


@dataclass(frozen=True, slots=True)
class TagBatch:
    """Sentences side by side."""

    inputs: Tensor  # (B, T + 2) ids, each row `<s>`, its words, `</s>`
    targets: Tensor  # (B, T) tags
    mask: Tensor  # (B, T) True where there is a word
    spellings: Tensor  # (N, L) characters of the batch's words, each once
    places: Tensor  # (B, T) which of the N each word is
    is_rare: Tensor | None = None  # (B, T + 2) words that were met once
    starts: bool = True


class TagNetwork(nn.Module):
    """An encoder over word vectors and spellings, a score for each tag, and the chain that weighs tags together."""

    def __init__(
        self, config: TagConfig, vocabulary: Vocabulary, characters: int, tags: int, allowed: Transitions | None
    ) -> None:
        super().__init__()
        self.config, self.unknown = config, vocabulary.unk
        self.spelling = (
            CharacterFeatures(characters, config.characters, chosen(config.input_dropout, config))
            if config.characters
            else None
        )
        self.reader = Reader(config, vocabulary.size, config.characters)
        self.output = nn.Linear(config.hidden, tags)
        nn.init.zeros_(self.output.bias)
        masks = None if allowed is None else tuple(torch.from_numpy(mask) for mask in allowed)
        self.chain: CRF | Independent = CRF(tags, masks) if config.crf else Independent()

    def start(self, rows: int) -> Tensors:
        """Nothing is carried from sentence to sentence."""
        return ()

    def work(self, rows: int, T: int) -> float:
        """Multiplications of the reader's largest product over (rows, T) inputs."""
        return self.reader.work(rows, T)

    def forward(self, ids: Tensor, mask: Tensor, spellings: Tensor, places: Tensor) -> Tensor:
        """(B, T + 2) inputs, (B, T) which words there are, (N, L), (B, T) -> (B, T, K) the score of each tag."""
        c, features = self.config, None
        if self.spelling is not None:
            spelled = functional.embedding(places, self.spelling(spellings)) * mask[..., None]
            features = functional.pad(spelled, (0, 0, 1, 1))  # (B, T + 2, F)  zero at both signs
        read = functional.pad(mask, (2, 0), value=True)  # two more in front: n words and two signs
        hidden = self.reader(ids, read, features).hidden[:, 1:-1]  # (B, T, D)  of the words
        scores: Tensor = self.output(drop(hidden, chosen(c.output_dropout, c), c, self.training))
        return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Collate:
    """Rows of sentences to a batch on the device; none is empty."""

    ids: Sequence[Ids]  # of each sentence's words
    words: Sequence[Sequence[str]]  # as they are spelled
    tags: Sequence[Ids] | None  # None: they are to be found
    spellings: Spellings | None
    vocabulary: Vocabulary
    device: torch.device
    is_rare: Mask | None = None  # (V,) words met once in training; None: nothing is learnt

    def __call__(self, rows: Ids) -> TagBatch:
        """The sentences of these rows."""
        chosen = rows.tolist()
        sentences = [framed(self.ids[i], self.vocabulary) for i in chosen]
        inputs, _ = padded(sentences, self.vocabulary.eos, self.device)
        gold = [np.zeros_like(self.ids[i]) if self.tags is None else self.tags[i] for i in chosen]
        tags, mask = padded(gold, 0, self.device)
        is_rare = None
        if self.is_rare is not None:
            rare = [self.is_rare[ids].astype(np.int64) for ids in sentences]  # the signs are no words of the text
            is_rare = padded(rare, 0, self.device)[0].bool()
        spellings, places = self._spell([self.words[i] for i in chosen])
        return TagBatch(inputs, tags, mask, spellings, places, is_rare)

    def _spell(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """(N, L) each word's characters once, (B, T) which of them stands where; padding is the first."""
        found: dict[str, int] = {}
        places = [np.array([found.setdefault(word, len(found)) for word in words]) for words in sentences]
        characters = np.zeros((1, 1), dtype=np.int64) if self.spellings is None else self.spellings.ids(list(found))
        return torch.from_numpy(characters).to(self.device), padded(places, 0, self.device)[0]


def tag_loss(network: TagNetwork, batch: TagBatch, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """−log p(tags | words) over the number of words."""
    ids = batch.inputs
    if batch.is_rare is not None and network.unknown is not None and network.config.rare_unknown:
        drawn = torch.rand(ids.shape, device=ids.device) < network.config.rare_unknown
        ids = ids.masked_fill(batch.is_rare & drawn, network.unknown)
    scores = network(ids, batch.mask, batch.spellings, batch.places)
    nats = network.chain.nats(scores, batch.targets, batch.mask).sum() / batch.mask.sum()
    return nats, nats, ()


def best_tags(network: TagNetwork, batch: TagBatch) -> list[Ids]:
    """The most probable tags of each sentence, together where there is a chain."""
    with _asked(network, batch) as scores:
        path, _ = network.chain.decode(scores, batch.mask)
    return _rows(path, batch.mask)


def confidences(network: TagNetwork, batch: TagBatch) -> list[Floats]:
    """(n,) of each sentence: p(y_t | words) of the tags that `best_tags` gives."""
    with _asked(network, batch) as scores:
        path, _ = network.chain.decode(scores, batch.mask)
        p = network.chain.marginals(scores, batch.mask).gather(2, path[:, :, None]).squeeze(2)
    return [check_outputs(row, network) for row in _rows(p.double(), batch.mask)]


def marginals(network: TagNetwork, batch: TagBatch) -> list[Floats]:
    """(n, K) of each sentence: p(y_t = k | words)."""
    with _asked(network, batch) as scores:
        p = network.chain.marginals(scores, batch.mask)
    return [check_outputs(row, network) for row in _rows(p.double(), batch.mask)]


@contextmanager
def _asked(network: TagNetwork, batch: TagBatch) -> Iterator[Tensor]:
    """(B, T, K) scores, and no more threads than they are worth while they are looked at."""
    with exact(), threads.suited(network.work(*batch.inputs.shape)):
        scores = network(batch.inputs, batch.mask, batch.spellings, batch.places)
        check_outputs(scores[batch.mask].double().cpu().numpy(), network, may_be_impossible=False)
        yield scores


def _rows(values: Tensor, mask: Tensor) -> list[np.ndarray]:
    """Each row without its padding."""
    lengths = mask.sum(dim=1).tolist()
    return [row[:n] for row, n in zip(values.cpu().numpy(), lengths, strict=True)]
