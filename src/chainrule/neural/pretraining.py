"""Encoders learnt from plain text: by two language models of opposite directions, or by finding hidden words.

Lives here: both networks, their batches and figures, and how a task's encoder takes over what was learnt.
Not here: the encoders themselves (encoder.py), reading text (tasks/pretrain.py), what tasks predict.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids, Mask, Vocabulary
from chainrule.neural.block import chosen, drop
from chainrule.neural.device import device_of, exact
from chainrule.neural.encoder import EncoderConfig, Reader, shape
from chainrule.neural.output import make_output
from chainrule.neural.weights import check_outputs
from chainrule.training import threads

BECOME_SIGN, BECOME_OTHER = 0.8, 0.1  # of the chosen words; the rest stay as they are (Devlin et al. 2019)
FIXED_SEED = 0  # of what is hidden in a text to measure on: the same at each measurement
LOG_PROBS_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig(EncoderConfig):
    """Settings of an encoder and of what it learns from plain text."""

    without_effect: ClassVar[tuple[str, ...]] = (*EncoderConfig.without_effect, "frozen_vectors")
    mask: float = 0.15  # transformer: part of a piece's words that is to be found out, at least one
    directions: Literal["joined", "apart", "forward"] = "apart"
    layers: int = 2
    longest: int = 128  # tokens of a piece, `<s>` and `</s>` among them; longer lines are several
    epochs: int = 10
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        EncoderConfig.__post_init__(self)
        if self.directions != "apart":
            raise ConfigError(
                f"model.directions is '{self.directions}'; a direction that predicts may not see the other, "
                "and both are wanted: leave it at 'apart'"
            )
        if self.family != "transformer" and self.mask != 0.15:
            raise ConfigError(f"model.mask is no setting of family '{self.family}', which hides no words")
        if not 0 < self.mask < 1:
            raise ConfigError(f"model.mask is {self.mask:g}; choose a value in (0, 1)")
        self.check_longest(2)
        if self.output != "softmax":
            raise ConfigError(f"model.output is '{self.output}'; an encoder is learnt with the full softmax")


def adopt(reader: Reader, given: Reader) -> None:
    """Copy word vectors and layers; columns for features that a first layer reads beside them stay as they are."""
    _check_fit(reader, given)
    sources = dict(given.named_parameters())
    with torch.no_grad():
        for name, target in reader.named_parameters():
            if not name.startswith("features."):
                source = sources[name]
                target[..., : source.shape[-1]].copy_(source)


def _check_fit(reader: Reader, given: Reader) -> None:
    wanted, found = (shape(each.config) | {"vocabulary": len(each.embedding)} for each in (reader, given))
    for each in (wanted, found):
        if each["layers"] == 1 and each.get("directions") == "joined":
            each["directions"] = "apart"  # no layer reads both
    names = [name for name in wanted if wanted[name] != found.get(name)]
    if names:
        here, there = (", ".join(f"{name} {each.get(name, 'none')}" for name in names) for each in (wanted, found))
        raise ConfigError(f"the pre-trained encoder does not fit: it has {there}, and the encoder here {here}")


def words(vocabulary: Vocabulary) -> Mask:
    """(V,) which ids are words that can be predicted: not `</s>`."""
    words = vocabulary.predictable
    words[vocabulary.eos] = False
    return words


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Pieces side by side, and what is to be predicted from which place of them."""

    inputs: Tensor  # (B, T)
    words: Tensor  # (B, T)  True where a row has not ended
    signs: Tensor | None  # (B, T, 1)  1 where a word is hidden
    places: Tensor  # (N,)  t + T·b; behind them B·T more for the backward half of two directions
    targets: Tensor  # (N,)
    mask: None = None  # all targets count
    starts: bool = True


class Encoder(nn.Module):
    """A reader, and the words its vectors predict."""

    predicts: ClassVar[tuple[str, ...]]  # the kinds of its predictions, in the order of their places
    config: PretrainConfig
    reader: Reader

    def __init__(self, config: PretrainConfig, vocabulary: Vocabulary, width: int, features: int) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.reader = Reader(config, vocabulary.size, features)
        E = config.embedding_width
        self.map = nn.Linear(width, E) if config.tie and width != E else None
        self.output = make_output(config, E if config.tie else width, vocabulary, self.reader.embedding, None)

    def start(self, rows: int) -> tuple[Tensor, ...]:
        """Nothing is carried over from batch to batch."""
        return ()

    def work(self, rows: int, T: int) -> float:
        """Multiplications of the reader's largest product over (rows, T) ids; the output layer counts its own."""
        return self.reader.work(rows, T)

    def collate(self, ids: Ids, mask: Mask, generator: torch.Generator | None = None) -> TextBatch:
        """(B, T), (B, T) -> a batch on the network's device; `generator` is torch's own where none is given."""
        raise NotImplementedError

    def views(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (…, width): the vectors that predict, in the order of a batch's places."""
        raise NotImplementedError

    def forward(self, batch: TextBatch) -> Tensor:
        """What the output layer reads, (N, E), or (N, width) where it has vectors of its own."""
        c = self.config
        hidden = self.reader(batch.inputs, batch.words, batch.signs).hidden
        hidden = drop(hidden, chosen(c.output_dropout, c), c, self.training)
        found = self.views(hidden)[batch.places]
        return found if self.map is None else self.map(found)

    def tensors(self, *arrays: Any) -> list[Tensor]:
        """The arrays on the network's device."""
        return [torch.from_numpy(array).to(device_of(self)) for array in arrays]


class TwoWay(Encoder):
    """ELMo's two language models (Peters et al. 2018): at w_t one half predicts w_{t+1}, the other w_{t−1}.

    They share word vectors, output layer and the map to it. The forward half predicts w_1 … w_n and `</s>`, the
    backward half w_n … w_1: `<s>` stands before every line and is never predicted.
    """

    predicts = ("forward", "backward")

    def __init__(self, config: PretrainConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary, config.hidden // 2, 0)

    def collate(self, ids: Ids, mask: Mask, generator: torch.Generator | None = None) -> TextBatch:
        """Targets of the forward half, then those of the backward half."""
        B, T = ids.shape
        known = mask & self.vocabulary.predictable[ids]
        b, t = np.nonzero(known[:, 1:])  # w_{t+1}, from t
        b2, t2 = np.nonzero(known[:, :-1] & mask[:, 1:])  # w_t, from t + 1
        places = np.concatenate([b * T + t, B * T + b2 * T + t2 + 1])
        targets = np.concatenate([ids[b, t + 1], ids[b2, t2]])
        inputs, words, places_, targets_ = self.tensors(ids, mask, places, targets)
        return TextBatch(inputs, words, None, places_, targets_)

    def views(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (2·B·T, D/2): all forward halves, then all backward ones."""
        return torch.cat([half.flatten(0, 1) for half in hidden.chunk(2, dim=-1)])


class Masked(Encoder):
    """BERT's hidden words (Devlin et al. 2019), found from what stands around them; one text, no second sentence.

    The sign in a hidden word's place is `<s>`, as the word vectors have it, with a vector of its own added as a
    feature: the word vectors are those of the vocabulary and no more.
    """

    predicts = ("masked",)

    def __init__(self, config: PretrainConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary, config.hidden, 1)

    def collate(self, ids: Ids, mask: Mask, generator: torch.Generator | None = None) -> TextBatch:
        """Choose words, the same part of each row; hide most of them, change some, leave some."""
        possible = words(self.vocabulary)
        known = mask & possible[ids]
        lots, fates = (torch.rand(ids.shape, generator=generator).numpy() for _ in range(2))
        count = known.sum(axis=1)
        number = np.clip(np.rint(self.config.mask * count), 1, count)  # at least one, as BERT has it
        rank = np.where(known, lots, np.inf).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        is_chosen = rank < number[:, None]
        is_hidden = is_chosen & (fates < BECOME_SIGN)
        is_changed = is_chosen & (fates >= 1 - BECOME_OTHER)
        names = np.flatnonzero(possible)
        others = names[torch.randint(len(names), ids.shape, generator=generator).numpy()]
        read = np.where(is_hidden, self.vocabulary.bos, np.where(is_changed, others, ids))
        signs = is_hidden[..., None].astype(np.float32)
        places = np.flatnonzero(is_chosen)
        return TextBatch(*self.tensors(read, mask, signs, places, ids.flatten()[places]))

    def views(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (B·T, D)."""
        return hidden.flatten(0, 1)


def build(config: PretrainConfig, vocabulary: Vocabulary) -> Encoder:
    """An untrained encoder of the family."""
    return (Masked if config.family == "transformer" else TwoWay)(config, vocabulary)


def text_loss(network: Any, batch: TextBatch, state: Any) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """The mean of −log p over all that is predicted, of both directions where there are two."""
    nats = network.output.loss(network(batch), batch.targets)
    return nats, nats, ()


@dataclass(frozen=True, slots=True)
class Figures:
    """How well words of a text are predicted."""

    tokens: int  # that were predicted
    nats: float  # a token
    accuracy: float  # part of them that was the most probable

    @property
    def perplexity(self) -> float:
        """Of the predicted tokens."""
        return float(np.exp(min(self.nats, 700)))


def measure(network: Encoder, texts: Iterable[tuple[Ids, Mask]]) -> dict[str, Figures]:
    """Figures by what it predicts, of (B, T) ids and where they are; hidden words are the same at each call."""
    names = network.predicts
    sums = np.zeros((len(names), 3))  # tokens, nats, right
    generator = torch.Generator().manual_seed(FIXED_SEED)
    for ids, mask in texts:
        batch = network.collate(ids, mask, generator)
        kind = (batch.places // batch.inputs.numel()).cpu().numpy()
        for k, values in enumerate((np.ones(len(kind)), *_scores(network, batch))):
            sums[:, k] += np.bincount(kind, values, minlength=len(names))
    rows = zip(names, sums.tolist(), strict=True)
    return {name: Figures(int(n), nats / n, right / n) for name, (n, nats, right) in rows if n}


def mean_nats(figures: dict[str, Figures]) -> float:
    """Nats a token over all that was predicted."""
    return sum(f.tokens * f.nats for f in figures.values()) / sum(f.tokens for f in figures.values())


def _scores(network: Encoder, batch: TextBatch) -> tuple[Floats, Floats]:
    """(N,) −log p(target), (N,) 1 where the target is the most probable."""
    rows = max(1, LOG_PROBS_AT_ONCE // network.vocabulary.size)
    log_probs, right = [], []
    with exact(), threads.suited(network.work(*batch.inputs.shape)):
        for hidden, targets in zip(network(batch).split(rows), batch.targets.split(rows), strict=True):
            with threads.all_of_them(hidden.numel() * network.vocabulary.size):
                log_p = network.output.log_probs(hidden)
            log_probs.append(log_p.gather(1, targets[:, None])[:, 0])
            right.append(log_p.argmax(dim=-1) == targets)
    values = check_outputs(torch.cat(log_probs).double().cpu().numpy(), network)
    return -values, torch.cat(right).double().cpu().numpy()
