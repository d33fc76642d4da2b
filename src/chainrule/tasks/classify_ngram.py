"""The generative classifier: one n-gram for each label and Bayes' rule, behind the surface of tasks/classify.py."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.api import split_settings
from chainrule.errors import ConfigError
from chainrule.folder import Content, Sealed
from chainrule.lm import Floats, Ids
from chainrule.ngram.config import Config as NgramConfig
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks import bayes
from chainrule.tasks.bayes import Bayes
from chainrule.tasks.classify_page import Span
from chainrule.tasks.running import Running
from chainrule.text.labelled import Labelled
from chainrule.text.lines import cut_lines
from chainrule.tokenizers.config import KINDS, TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class BayesConfig(NgramConfig):
    """Settings of the n-grams; by default of order 1, naive Bayes."""

    family: Literal["ngram"] = "ngram"
    order: int = bayes.NGRAM.order
    smoothing: str = bayes.NGRAM.smoothing

    @property
    def ngram(self) -> NgramConfig:
        """The same without the family."""
        return NgramConfig(**{field.name: getattr(self, field.name) for field in dataclasses.fields(NgramConfig)})


@dataclass(frozen=True, slots=True)
class Generative:
    """p(label | text) ∝ p(label) · p(text | label)."""

    model: Bayes

    @classmethod
    def load(cls, files: Sealed, config: BayesConfig, counts: dict[str, int], tokenizer: Tokenizer) -> Self:
        """The classifier of a folder."""
        prior = tuple(count / sum(counts.values()) for count in counts.values())
        own = bayes.Config(labels=tuple(counts), prior=prior, ngram=settings.to_json(config.ngram))
        return cls(Bayes.load(files, own, tokenizer))

    @property
    def tokenizer(self) -> Tokenizer:
        """Of all the n-grams."""
        return self.model.tokenizer

    @property
    def parameters(self) -> int:
        """How many numbers were estimated."""
        return sum(families.get("ngram").parameters(lm) for lm in self.model.models)

    def log_posteriors(self, texts: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N, K) log p(label | text)."""
        progress = as_progress(progress)
        return self.model.log_posteriors(texts, progress)

    @property
    def way(self) -> str:
        """How it is explained."""
        return "evidence"

    def explain(self, text: str, label: int, other: int, by: str) -> tuple[Ids, list[Span], Floats]:
        """Each token with log p(token | before it, label) − log p(token | before it, other)."""
        if by != "evidence":
            raise ConfigError(f"an n-gram classifier has no {by}; explain it by evidence")
        of = np.stack([log_p for _, log_p in self.model.token_evidence(text)])  # (T, K)
        with np.errstate(invalid="ignore"):
            difference = of[:, label] - of[:, other]
        ids, spans = locate(text, self.tokenizer)
        return ids, spans, np.where(np.isnan(difference), 0.0, difference)  # impossible for both: no evidence

    def files(self) -> dict[str, Content]:
        """What is saved."""
        return self.model.files()


def locate(text: str, tokenizer: Tokenizer) -> tuple[Ids, list[Span]]:
    """The tokens of a text, `</s>` behind each line, and which characters each stands for."""
    ids: list[int] = []
    spans: list[Span] = []
    at = 0
    for fragment in cut_lines([text or "\n"]):
        found = tokenizer.encoding(fragment.text)
        ids += found.ids
        spans += [(at + start, at + end) for start, end in found.offsets]
        at += len(fragment.text)
        if fragment.ends_line:
            ids.append(tokenizer.eos)
            spans.append((at, at))
            at += 2 if text.startswith("\r\n", at) else 1
    return np.array(ids), spans


def train(
    data: Labelled, tokenizer: str | Path | None, running: Running, chosen: dict[str, Any]
) -> tuple[Generative, BayesConfig, dict[str, Any]]:
    """One n-gram for each label, and figures of the run; `chosen` are settings of tokenizer and n-grams."""
    wanted, own = split_settings(chosen)
    config = settings.make(BayesConfig, own | {"family": "ngram"}, "model", "ngram")
    if tokenizer is not None and tokenizer not in KINDS:
        raise ConfigError(f"an n-gram classifier trains its own tokenizer: choose one of {', '.join(KINDS)}")
    choice = settings.make(TokenizerConfig, {"kind": tokenizer or "word", "lowercase": True} | wanted, "tokenizer")
    start = time.perf_counter()
    made = Bayes.train(
        data.texts, data.labels, tokenizer=choice, ngram=config.ngram, seed=running.seed, progress=running.progress
    )
    seconds = round(time.perf_counter() - start, 3)
    return Generative(made), config, {"train_texts": len(data), "train_seconds": seconds}
