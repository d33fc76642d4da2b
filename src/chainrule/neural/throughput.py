"""Measure training and scoring speed of a network in tokens per second."""

import dataclasses
import json
import time
import warnings
from itertools import pairwise
from typing import Any, Final

import numpy as np

from chainrule.config import with_settings
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.errors import ChainruleWarning
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.neural.family import NeuralFamily, mean_nats
from chainrule.neural.model import NeuralModel
from chainrule.training.device import select_device

LONGEST_PART: Final = 1 << 16  # tokens used to measure training
SCORED: Final = (1 << 8, 1 << 10, 1 << 12)  # tokens used to measure scoring
LONG_ENOUGH: Final = 0.1  # seconds
ENDLESS: Final = 1 << 20  # epochs
SHORTEST: Final = 1e-3  # seconds: one update, to load libraries and allocate memory
LOG_EVERY: Final = {"cpu": 1, "cuda": 10}  # a log line synchronises with the GPU


@dataclasses.dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second."""

    training: float
    validation: float  # during training: a stream in parallel columns
    evaluation: float  # exact: one sequential stream
    seconds: float = 0.0  # duration of the measurement without warm-up


def measure(family: NeuralFamily, data: TrainingData, config: Any, seconds: float) -> Throughput:
    """Train for about `seconds` from random weights after a warm-up, then score a small part of the text."""
    first = _truncate(data.train, LONGEST_PART)
    options = RunOptions(seed=data.options.seed, context=data.options.context, device=data.options.device)
    run = dataclasses.replace(data, train=first, valid=None, options=options, summary={})
    limits: dict[str, Any] = {"epochs": ENDLESS, "stop_after": 0, "validations": 0, "schedule": "constant"}
    device = select_device(options.device)
    limits |= {"max_seconds": seconds, "log_every": LOG_EVERY[device.type]}
    warm_up = seconds if device.type == "cuda" else SHORTEST  # a GPU selects kernels for each config
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)  # diagnostics are meaningless for a run of a second
        family.train(run, with_settings(config, **limits | {"max_seconds": warm_up}))
        start = time.perf_counter()
        model = family.train(run, with_settings(config, **limits))
    training = _training_speed(model.log)
    if training is None:
        training = run.summary["train_tokens_processed"] / max(1e-6, run.summary["train_seconds"])
    validation = _scoring_speed(mean_nats, model, first)
    evaluation = validation
    if options.context != "line":
        evaluation = _scoring_speed(token_log_probs, model, first)
    return Throughput(training, validation, evaluation, time.perf_counter() - start)


def _training_speed(log: bytes) -> float | None:
    """Tokens per second after the first log line, which includes kernel selection and memory allocation."""
    lines = [line for line in map(json.loads, log.splitlines()) if "tokens_per_second" in line]
    seconds = [after["seconds"] - before["seconds"] for before, after in pairwise(lines)]
    tokens = sum(duration * line["tokens_per_second"] for duration, line in zip(seconds, lines[1:], strict=True))
    return tokens / sum(seconds) if sum(seconds) > 0 else None


def _scoring_speed(score: Any, model: NeuralModel, text: EncodedText) -> float:
    """Tokens per second on increasing parts of the text, until one takes long enough to measure."""
    for tokens in SCORED:
        part = _truncate(text, tokens)
        start = time.perf_counter()
        score(model, part)
        seconds = time.perf_counter() - start
        if seconds >= LONG_ENOUGH and tokens > SCORED[0]:
            break
    return part.tokens / max(1e-6, seconds)


def _truncate(text: EncodedText, tokens: int) -> EncodedText:
    """First tokens of a text, the last one replaced by `</s>`."""
    if text.tokens <= tokens:
        return text
    ids = np.array(text.ids[:tokens])
    ids[-1] = text.eos
    return dataclasses.replace(text, ids=ids)
