"""How many tokens a second a network learns from and scores on this machine, measured on the text itself."""

import dataclasses
import json
import time
import warnings
from itertools import pairwise
from typing import Any, Final

import numpy as np

from chainrule.data.encoded import Encoded
from chainrule.data.training import TrainingData
from chainrule.errors import ChainruleWarning
from chainrule.evaluation.scores import token_log_probs
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.device import choose
from chainrule.neural.family import NeuralFamily
from chainrule.neural.validation import mean_nats

LONGEST_PART: Final = 1 << 16  # tokens of the text that training is measured on
SCORED: Final = (1 << 8, 1 << 10, 1 << 12)  # tokens that scoring is measured on, until it takes long enough
LONG_ENOUGH: Final = 0.1  # seconds
ENDLESS: Final = 1 << 20  # epochs
SHORTEST: Final = 1e-3  # seconds: one update, in which libraries are loaded and memory is taken
LOG_EVERY: Final = {"cpu": 1, "cuda": 10}  # a line of the log waits for the GPU


@dataclasses.dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second."""

    training: float
    validation: float  # while learning: a stream in columns
    evaluation: float  # exact, after learning: a stream as one
    seconds: float = 0.0  # that measuring took, without the warm-up


def measure(family: NeuralFamily, data: TrainingData, config: Any, seconds: float) -> Throughput:
    """Train for about `seconds` from random weights after a warm-up, then score a small part of the text."""
    first = _beginning(data.train, LONGEST_PART)
    run = dataclasses.replace(data, train=first, valid=None, place=None, summary={})
    limits: dict[str, Any] = {"epochs": ENDLESS, "stop_after": 0, "validations": 0, "schedule": "constant"}
    device = choose(data.device)
    limits |= {"max_seconds": seconds, "log_every": LOG_EVERY[device.type]}
    warm_up = seconds if device.type == "cuda" else SHORTEST  # a GPU selects kernels for each config
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)  # advice on a run of a second
        family.train(run, dataclasses.replace(config, **limits | {"max_seconds": warm_up}))
        start = time.perf_counter()
        model = family.train(run, dataclasses.replace(config, **limits))
    training = _training_speed(model.log)
    if training is None:
        training = run.summary["train_tokens_processed"] / max(1e-6, run.summary["train_seconds"])
    validation = _scoring_speed(mean_nats, model, first)
    evaluation = validation
    if data.context != "line":
        evaluation = _scoring_speed(token_log_probs, model, first)
    return Throughput(training, validation, evaluation, time.perf_counter() - start)


def _training_speed(log: bytes) -> float | None:
    """Tokens a second after the first line of the log, in which kernels are chosen and memory is taken."""
    lines = [line for line in map(json.loads, log.splitlines()) if "tokens_per_second" in line]
    seconds = [after["seconds"] - before["seconds"] for before, after in pairwise(lines)]
    tokens = sum(gone * line["tokens_per_second"] for gone, line in zip(seconds, lines[1:], strict=True))
    return tokens / sum(seconds) if sum(seconds) > 0 else None


def _scoring_speed(score: Any, model: NeuralModel, text: Encoded) -> float:
    """Tokens a second over ever longer parts, until one takes long enough to be measured."""
    for tokens in SCORED:
        part = _beginning(text, tokens)
        start = time.perf_counter()
        score(model, part)
        seconds = time.perf_counter() - start
        if seconds >= LONG_ENOUGH and tokens > SCORED[0]:
            break
    return part.tokens / max(1e-6, seconds)


def _beginning(text: Encoded, tokens: int) -> Encoded:
    """The first tokens of a text, the last of them `</s>`."""
    if text.tokens <= tokens:
        return text
    ids = np.array(text.ids[:tokens])
    ids[-1] = text.eos
    return dataclasses.replace(text, ids=ids)
