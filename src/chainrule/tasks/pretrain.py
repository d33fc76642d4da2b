"""Encoders learnt from plain text, for tasks to begin with: text in, an encoder out.

Lives here: text in pieces, learning from them, measuring, the folder. Not here: the networks, and how a task takes
one over (neural/pretraining.py).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from chainrule import artifact
from chainrule import config as settings
from chainrule.api import split_settings, tokenizer_choice
from chainrule.data.encoded import Encoded
from chainrule.data.training import Job
from chainrule.errors import InputError
from chainrule.lm import Ids, Mask, Vocabulary
from chainrule.model import Origin
from chainrule.neural import pretraining, weights
from chainrule.neural.device import choose
from chainrule.neural.encoder import Reader, shape
from chainrule.neural.learning import Plan, learn
from chainrule.neural.pretraining import Encoder, Figures, PretrainConfig
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks import store
from chainrule.tasks.running import Running
from chainrule.text.corpus import Corpus
from chainrule.text.files import Sources
from chainrule.text.utf8 import warn_of_replaced
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.examples import Examples

if TYPE_CHECKING:
    import torch

Config = PretrainConfig
FIGURES = ("nats", "perplexity", "accuracy")  # of a held-out text, as `Figures` has them
SIDE_BY_SIDE = 64  # pieces that are measured at a time


@dataclass(frozen=True, slots=True)
class Pieces:
    """Lines as `<s> w_1 … w_n </s>`, end to end, and where in them the pieces are that are read at a time.

    The last token of a piece is the first of the next one of its line, so that each direction predicts every word
    of a line once, however it is cut.
    """

    ids: Ids  # (N,)  int32
    starts: Ids  # (P,)
    lengths: Ids  # (P,)  each 2 or more

    @classmethod
    def of(cls, text: Encoded, vocabulary: Vocabulary, longest: int) -> "Pieces":
        """Pieces of at most `longest` tokens; lines, and pieces, without a word to predict are left out."""
        is_end = text.ids == text.eos
        ids = text.ids[~(is_end & np.append(True, is_end[:-1]))]  # without the `</s>` of empty lines
        ends = np.flatnonzero(ids == text.eos)
        T = np.diff(ends, prepend=-1)  # (L,)  tokens of each line after its `<s>`
        ids = np.insert(ids, ends + 1 - T, vocabulary.bos)
        line = np.cumsum(T + 1) - (T + 1)  # where each begins
        # A line has T steps from one token to the next; they are shared out evenly among its k pieces.
        k = -(-T // (longest - 1))
        i = np.arange(k.sum()) - np.repeat(np.cumsum(k) - k, k)
        line, T, k = np.repeat(line, k), np.repeat(T, k), np.repeat(k, k)
        starts, lasts = line + i * T // k, line + (i + 1) * T // k
        known = np.append(0, np.cumsum(pretraining.words(vocabulary)[ids]))
        is_kept = known[lasts + 1] > known[starts]
        return cls(ids, starts[is_kept], (lasts - starts + 1)[is_kept])

    def rows(self, rows: Ids) -> tuple[Ids, Mask]:
        """These pieces side by side: (B, T) ids, (B, T) True where there is one."""
        lengths = self.lengths[rows]
        columns = np.arange(lengths.max())
        mask = columns < lengths[:, None]
        places = self.starts[rows][:, None] + np.where(mask, columns, 0)
        return self.ids[places].astype(np.int64), mask

    def by_length(self, progress: Progress | bool = silent) -> Iterator[tuple[Ids, Mask]]:
        """All pieces, those of like length side by side."""
        progress = as_progress(progress)
        order = np.argsort(self.lengths, kind="stable")
        for first in range(0, len(order), SIDE_BY_SIDE):
            progress("measuring", first, len(order))
            yield self.rows(order[first : first + SIDE_BY_SIDE])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pretrained:
    """An encoder that has read a text."""

    task: ClassVar = "pretrain"
    network: Encoder
    config: PretrainConfig
    tokenizer: Tokenizer
    origin: Origin = field(default_factory=Origin)
    metrics: dict[str, Any] = field(default_factory=dict)
    log: bytes = b""

    def __repr__(self) -> str:
        return f"<{self.config.family} encoder of {self.origin.text}: {self.parameters:,} parameters>"

    @property
    def reader(self) -> Reader:
        """Word vectors and layers: what a task's reader adopts."""
        return self.network.reader

    @property
    def shape(self) -> dict[str, object]:
        """The settings that a task's encoder must share to adopt this one."""
        return shape(self.config)

    @property
    def parameters(self) -> int:
        """Weights that were learnt; a shared matrix counts once."""
        return sum(p.numel() for p in self.network.parameters())

    @property
    def validation(self) -> dict[str, dict[str, float]]:
        """What the held-out text said when it was trained, by direction or "masked"; empty without such a text."""
        names = [name for name in ("forward", "backward", "masked") if f"valid_{name}_nats" in self.metrics]
        return {name: {key: self.metrics[f"valid_{name}_{key}"] for key in FIGURES} for name in names}

    def evaluate(self, text: Sources | Corpus, progress: Progress | bool = silent) -> dict[str, Figures]:
        """How well it predicts a text: "forward" and "backward", or "masked" words, the same ones every time."""
        progress = as_progress(progress)
        pieces = _pieces(Corpus.of(text), self.tokenizer, self.config.longest, progress)
        return pretraining.measure(self.network, pieces.by_length(progress))

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model folder; another model or an unfinished run there is replaced only with `force`."""
        parts = store.Parts(
            task="pretrain",
            config=self.config,
            tokenizers={"text": self.tokenizer},
            more={},
            origin=self.origin,
            metrics=self.metrics,
        )
        files = {weights.FILE: weights.to_bytes(self.network)}
        store.save(path, parts, files | ({store.LOG: self.log} if self.log else {}), force=force)


def load(path: str | Path, device: str = "cpu") -> Pretrained:
    """The encoder of a folder, every file verified first."""
    sealed, parts = store.load(path, "pretrain", PretrainConfig)
    with artifact.refusing(sealed):
        tokenizer = parts.tokenizers["text"]
    config = parts.config
    network = weights.restore(sealed, lambda: pretraining.build(config, tokenizer.vocabulary), config.layers)
    return Pretrained(
        network=network.to(choose(device)).eval(),
        config=config,
        tokenizer=tokenizer,
        origin=parts.origin,
        metrics=dict(parts.metrics),
        log=sealed.bytes(store.LOG) if store.LOG in sealed.files else b"",
    )


def shape_of(path: str | Path) -> dict[str, object]:
    """The settings that the encoder of a folder decides, its weights left alone."""
    _, parts = store.load(path, "pretrain", PretrainConfig)
    return shape(parts.config)


def train(
    family: str,
    text: Sources | Corpus,
    *,
    valid: Sources | Corpus | None = None,
    tokenizer: str | Path = "word",
    running: Running | None = None,
    **chosen: Any,
) -> Pretrained:
    """Learn from plain text; `chosen` are settings of the tokenizer (`min_count`) and of the encoder (`hidden`)."""
    running = Running.of(running, chosen)
    wanted, own = split_settings(chosen)
    config = settings.make(PretrainConfig, {"family": family, **own}, "model", family)
    corpora = [Corpus.of(each) for each in (text, valid) if each is not None]
    made = _tokenizer(corpora[0], tokenizer, wanted, running.progress)
    pieces, *watched = (_pieces(corpus, made, config.longest, running.progress) for corpus in corpora)
    digests = [corpus.digest() for corpus in corpora]
    job = _job(running, config, digests, made)
    origin = running.origin("pretrain", corpora[0].name, digests[0])

    def plan(network: Encoder, device: "torch.device") -> Plan:
        source = Examples(pieces.lengths, lambda rows: network.collate(*pieces.rows(rows)), config, job.seed)
        validate = (lambda: pretraining.mean_nats(_measured(network, watched[0]))) if watched else None
        return Plan(source=source, objective=pretraining.text_loss, validate=validate)

    start = time.perf_counter()
    network, log = learn(job, config, lambda: pretraining.build(config, made.vocabulary), plan)
    metrics: dict[str, Any] = {
        "train_tokens": int(np.count_nonzero(pieces.ids != made.bos)),
        "train_seconds": round(time.perf_counter() - start, 3),
        **job.summary,
    }
    return Pretrained(
        network=network,
        config=config,
        tokenizer=made,
        origin=origin,
        metrics=metrics | (_valid_metrics(network, watched[0]) if watched else {}),
        log=log,
    )


def _measured(network: Encoder, pieces: Pieces) -> dict[str, Figures]:
    return pretraining.measure(network, pieces.by_length())


def _valid_metrics(network: Encoder, pieces: Pieces) -> dict[str, float]:
    return {
        f"valid_{name}_{key}": getattr(figures, key)
        for name, figures in _measured(network, pieces).items()
        for key in FIGURES
    }


def _tokenizer(corpus: Corpus, tokenizer: str | Path, wanted: dict[str, object], progress: Progress) -> Tokenizer:
    choice = tokenizer_choice(tokenizer, wanted)
    if isinstance(choice, Path):
        return artifact.load_tokenizer(choice)
    return tokenizer_training.train(corpus, choice, progress)


def _pieces(corpus: Corpus, tokenizer: Tokenizer, longest: int, progress: Progress) -> Pieces:
    """The text in ids, one array of them."""
    text = encode(corpus, tokenizer, progress)
    warn_of_replaced(corpus.name, text.replaced)
    pieces = Pieces.of(text, tokenizer.vocabulary, longest)
    if not (text.words and len(pieces.starts)):
        raise InputError(f"{corpus.name} holds no words, or none of the vocabulary; give a text with words")
    return pieces


def _job(running: Running, config: PretrainConfig, digests: list[str], tokenizer: Tokenizer) -> Job:
    """The run; its texts are known by their digests, as they need not fit into memory as lines."""
    job = running.job("pretrain", config, [], {"text": tokenizer})
    return replace(job, identity=job.identity | {"text": digests})
