"""How many tokens a second a network learns from and scores on this machine, measured on the text itself."""

import dataclasses
import time
import warnings
from typing import Any, Final

import numpy as np

from chainrule.data.encoded import Encoded
from chainrule.data.training import TrainingData
from chainrule.errors import ChainruleWarning
from chainrule.evaluation.scores import token_log_probs
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.family import NeuralFamily
from chainrule.neural.validation import mean_nats
from chainrule.progress import silent

LONGEST_PART: Final = 1 << 18  # tokens of the text that training is measured on
SCORED: Final = 1 << 13  # tokens that validation is measured on
SCORED_AS_STREAM: Final = 1 << 11  # tokens that a stream is evaluated on, one after another
WARM_UP: Final = 0.1  # of the time, spent before anything is measured
ENDLESS: Final = 1 << 20  # epochs


@dataclasses.dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second."""

    training: float
    validation: float  # while learning: a stream in columns
    evaluation: float  # exact, after learning: a stream as one


def measure(family: NeuralFamily, data: TrainingData, config: Any, seconds: float) -> Throughput:
    """Train for about `seconds` from random weights, then score a part of the text twice.

    A tenth of the time is spent on a run that is not counted: in it kernels are chosen and memory is taken.
    """
    first = _beginning(data.train, LONGEST_PART)
    limits: dict[str, Any] = {"epochs": ENDLESS, "stop_after": 0, "validations": 0, "schedule": "constant"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)  # advice on a run of a second
        for part in (WARM_UP, 1.0):
            run = dataclasses.replace(
                data, train=first, valid=None, place=None, resume=False, tensorboard=None, progress=silent, summary={}
            )
            model = family.train(run, dataclasses.replace(config, max_seconds=part * seconds, **limits))
    training = run.summary["train_tokens_processed"] / max(1e-6, run.summary["train_seconds"])
    validation = _speed(mean_nats, model, _beginning(first, SCORED))
    if data.context == "line":
        return Throughput(training, validation, validation)
    return Throughput(training, validation, _speed(token_log_probs, model, _beginning(first, SCORED_AS_STREAM)))


def _speed(score: Any, model: NeuralModel, text: Encoded) -> float:
    """Tokens a second, the second time."""
    score(model, text)
    start = time.perf_counter()
    score(model, text)
    return text.tokens / max(1e-6, time.perf_counter() - start)


def _beginning(text: Encoded, tokens: int) -> Encoded:
    """The first tokens of a text, the last of them `</s>`."""
    if text.tokens <= tokens:
        return text
    ids = np.array(text.ids[:tokens])
    ids[-1] = text.eos
    return dataclasses.replace(text, ids=ids)
