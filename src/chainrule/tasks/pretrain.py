"""Pretrain text encoders on plain text with a language-modelling objective, for initializing task models."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule import config as settings
from chainrule.api import resolve_tokenizer, split_settings
from chainrule.data.encoded import EncodedText, batches_by_length
from chainrule.data.training_data import RunOptions
from chainrule.errors import InputError
from chainrule.lm import Ids, Mask, Vocabulary
from chainrule.neural import weights
from chainrule.neural.encoders import pretraining
from chainrule.neural.encoders.encoder import TextEncoder, architecture
from chainrule.neural.encoders.pretraining import PredictionMetrics, PretrainConfig, PretrainingNetwork
from chainrule.neural.family import fit
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import verified_dir
from chainrule.storage.verified_dir import VerifiedDir
from chainrule.tasks import model
from chainrule.tasks.run_setup import digest_texts, make_origin
from chainrule.text.corpus import Corpus
from chainrule.text.readers import Sources, warn_about_replaced
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer, load_tokenizer
from chainrule.training.batches import ExampleBatches
from chainrule.training.device import select_device
from chainrule.training.trainer import TrainingPlan

if TYPE_CHECKING:
    import torch

Config = PretrainConfig
METRICS = ("nats", "perplexity", "accuracy")  # attributes of `PredictionMetrics`
BATCH_SIZE = 64  # segments per evaluation batch


@dataclass(frozen=True, slots=True)
class Segments:
    """Lines `<s> w_1 … w_n </s>` concatenated, and the segments they are read in.

    Consecutive segments of a line share one token, so that each direction predicts every word of the line exactly
    once, wherever the line is split.
    """

    ids: Ids  # (N,)  int32
    starts: Ids  # (P,)
    lengths: Ids  # (P,)  2 or more

    @classmethod
    def of(cls, text: EncodedText, vocabulary: Vocabulary, longest: int) -> "Segments":
        """Split lines into segments of at most `longest` tokens; drop segments without a word to predict."""
        is_end = text.ids == text.eos
        ids = text.ids[~(is_end & np.append(True, is_end[:-1]))]  # drop the `</s>` of empty lines
        ends = np.flatnonzero(ids == text.eos)
        T = np.diff(ends, prepend=-1)  # (L,)  tokens per line, without `<s>`
        ids = np.insert(ids, ends + 1 - T, vocabulary.bos)
        line = np.cumsum(T + 1) - (T + 1)  # (L,)  start offset of each line
        # A line has T transitions between tokens, divided evenly among its k segments.
        k = -(-T // (longest - 1))
        i = np.arange(k.sum()) - np.repeat(np.cumsum(k) - k, k)
        line, T, k = np.repeat(line, k), np.repeat(T, k), np.repeat(k, k)
        starts, lasts = line + i * T // k, line + (i + 1) * T // k
        known = np.append(0, np.cumsum(pretraining.maskable_words(vocabulary)[ids]))
        is_kept = known[lasts + 1] > known[starts]
        return cls(ids, starts[is_kept], (lasts - starts + 1)[is_kept])

    def rows(self, rows: Ids) -> tuple[Ids, Mask]:
        """Padded batch of segments: (B, T) ids and (B, T) mask of real tokens."""
        lengths = self.lengths[rows]
        columns = np.arange(lengths.max())
        mask = columns < lengths[:, None]
        positions = self.starts[rows][:, None] + np.where(mask, columns, 0)
        return self.ids[positions].astype(np.int64), mask

    def by_length(self, progress: Progress | bool = silent) -> Iterator[tuple[Ids, Mask]]:
        """Batches of all segments, sorted by length."""
        progress = as_progress(progress)
        for i, rows in enumerate(batches_by_length(self.lengths, BATCH_SIZE)):
            progress("measuring", i * BATCH_SIZE, len(self.lengths))
            yield self.rows(rows)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Pretrained(model.NetworkModel):
    """A pretrained encoder."""

    task = "pretrain"
    noun = "encoder"
    network: PretrainingNetwork
    config: PretrainConfig
    tokenizer: Tokenizer

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizer, as "text"."""
        return {"text": self.tokenizer}

    @property
    def reader(self) -> TextEncoder:
        """Embedding and encoder layers, which task models copy."""
        return self.network.reader

    @property
    def shape(self) -> dict[str, object]:
        """Settings that a task's encoder must share to copy these weights."""
        return architecture(self.config)

    @property
    def validation(self) -> dict[str, dict[str, float]]:
        """Validation metrics recorded in training, by direction or "masked"; empty without validation text."""
        names = [name for name in ("forward", "backward", "masked") if f"valid_{name}_nats" in self.metrics]
        return {name: {key: self.metrics[f"valid_{name}_{key}"] for key in METRICS} for name in names}

    def evaluate(self, text: Sources | Corpus, progress: Progress | bool = silent) -> dict[str, PredictionMetrics]:
        """Prediction metrics on a text: "forward" and "backward", or "masked" with fixed masked words."""
        progress = as_progress(progress)
        segments = _pieces(Corpus.of(text), self.tokenizer, self.config.longest, progress)
        return pretraining.evaluate(self.network, segments.by_length(progress))


def load(folder: VerifiedDir, device: str = "auto") -> Pretrained:
    """Load a pretrained encoder from an open folder."""
    fields, tokenizers, _ = model.read(folder, "pretrain", PretrainConfig)
    config, tokenizer = fields["config"], tokenizers["text"]
    network = weights.load_network(folder, lambda: pretraining.build(config, tokenizer.vocabulary), config.layers)
    return Pretrained(network=network.to(select_device(device)).eval(), tokenizer=tokenizer, **fields)


def read_shape(path: str | Path) -> dict[str, object]:
    """Read the encoder settings of a folder without loading its weights."""
    return architecture(model.read(verified_dir.open_dir(Path(path)), "pretrain", PretrainConfig)[0]["config"])


def train(
    family: str,
    text: Sources | Corpus,
    *,
    valid: Sources | Corpus | None = None,
    tokenizer: str | Path = "word",
    options: RunOptions | None = None,
    **chosen: Any,
) -> Pretrained:
    """Pretrain an encoder; `chosen` contains tokenizer settings (`min_count`) and encoder settings (`hidden`)."""
    options = RunOptions.merge(options, chosen).check_output()
    tokenizer_settings, encoder_settings = split_settings(chosen)
    config = settings.build_config(PretrainConfig, {"family": family, **encoder_settings}, "model", family)
    corpora = [Corpus.of(source_text) for source_text in (text, valid) if source_text is not None]
    trained_tokenizer = _tokenizer(corpora[0], tokenizer, tokenizer_settings, options.progress)
    segments, *valid_segments = (
        _pieces(corpus, trained_tokenizer, config.longest, options.progress) for corpus in corpora
    )
    digests = [corpus.digest() for corpus in corpora]
    options = options.with_identity(
        {"task": "pretrain"}, config, digests, [digest_texts([trained_tokenizer.to_json()])], seed=options.seed
    )
    origin = make_origin(options, "pretrain", corpora[0].name, digests[0])

    def plan(network: PretrainingNetwork, device: "torch.device") -> TrainingPlan:
        source = ExampleBatches(
            segments.lengths, lambda rows: network.collate(*segments.rows(rows)), config.training, options.seed
        )
        validate = (
            (lambda: pretraining.mean_nats(_evaluate(network, valid_segments[0]))) if valid_segments else None
        )
        return TrainingPlan(source=source, objective=pretraining.pretraining_loss, validate=validate)

    start = time.perf_counter()
    network, log, summary = fit(
        options, config.training, lambda: pretraining.build(config, trained_tokenizer.vocabulary), plan
    )
    metrics: dict[str, Any] = {
        "train_tokens": int(np.count_nonzero(segments.ids != trained_tokenizer.bos)),
        "train_seconds": round(time.perf_counter() - start, 3),
        **summary,
    }
    return Pretrained(
        network=network,
        config=config,
        tokenizer=trained_tokenizer,
        origin=origin,
        metrics=metrics | (_valid_metrics(network, valid_segments[0]) if valid_segments else {}),
        log=log,
    )


def _evaluate(network: PretrainingNetwork, segments: Segments) -> dict[str, PredictionMetrics]:
    return pretraining.evaluate(network, segments.by_length())


def _valid_metrics(network: PretrainingNetwork, segments: Segments) -> dict[str, float]:
    return {
        f"valid_{name}_{key}": getattr(figures, key)
        for name, figures in _evaluate(network, segments).items()
        for key in METRICS
    }


def _tokenizer(
    corpus: Corpus, tokenizer: str | Path, tokenizer_settings: dict[str, object], progress: Progress
) -> Tokenizer:
    choice = resolve_tokenizer(tokenizer, tokenizer_settings)
    if isinstance(choice, Path):
        return load_tokenizer(choice)
    return tokenizer_training.train(corpus, choice, progress)


def _pieces(corpus: Corpus, tokenizer: Tokenizer, longest: int, progress: Progress) -> Segments:
    """Encode a corpus and split it into segments."""
    text = encode(corpus, tokenizer, progress)
    warn_about_replaced(corpus.name, text.replaced)
    segments = Segments.of(text, tokenizer.vocabulary, longest)
    if not (text.words and len(segments.starts)):
        raise InputError(f"{corpus.name} contains no words, or none of the vocabulary; give a text with words")
    return segments
