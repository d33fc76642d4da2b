"""Test-time adaptation of a trained network: temperature, neural cache, dynamic evaluation, strided windows.

Every hyperparameter is chosen on validation text, never on the test text. The model itself is not changed.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from chainrule.data.encoded import EncodedText
from chainrule.errors import UsageError
from chainrule.lm import Floats
from chainrule.neural.adaptation import cache, dynamic, strided, temperature
from chainrule.neural.model import NeuralModel
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent

Kind = Literal["temperature", "cache", "dynamic", "stride"]


@dataclass(frozen=True, slots=True)
class AdaptedScores:
    """Log-probabilities (N,) of a text and the settings used to compute them."""

    log_probs: Floats
    settings: dict[str, float]


def adapt(
    model: NeuralModel,
    text: EncodedText,
    valid: EncodedText | None,
    kind: Kind,
    *,
    train: EncodedText | None = None,
    stride: int | None = None,
    progress: Progress = silent,
) -> AdaptedScores:
    """Tune the adaptation on `valid`, then score `text`; `stride` has nothing to tune and needs no `valid`.

    Dynamic evaluation collects gradient statistics on `train`, or on `valid` if there is no training text.
    """
    if kind not in get_args(Kind):
        raise UsageError(f"there is no adaptation '{kind}'; choose one of {', '.join(get_args(Kind))}")
    if kind == "stride":
        if stride is None:
            raise UsageError("a sliding window needs a stride: the number of tokens between two windows")
        return AdaptedScores(strided.strided_log_probs(model, text, stride, progress), {"stride": stride})
    if valid is None or not valid.tokens:
        raise UsageError(
            f"--{kind} chooses its settings on validation text, never on the test text: add --valid FILE"
        )
    if kind == "temperature":
        T = temperature.tune(model, valid, progress)
        return AdaptedScores(temperature.log_probs_at(model, text, [T], progress)[0], {"temperature": T})
    if kind == "cache":
        theta, weight = cache.tune(model, valid, progress=progress)
        log_p = cache.cached_log_probs(model, text, theta, weight, progress=progress)
        return AdaptedScores(log_p, {"theta": theta, "lambda": weight, "size": cache.SIZE})
    return _dynamic(model, text, valid, valid if train is None or not train.tokens else train, progress)


def _dynamic(
    model: NeuralModel, text: EncodedText, valid: EncodedText, statistics: EncodedText, progress: Progress
) -> AdaptedScores:
    evaluator = dynamic.DynamicEvaluator(model)
    evaluator.measure_rms(statistics, progress)
    rate, decay = dynamic.tune(evaluator, valid, progress)
    log_p = check_outputs(evaluator.score(text.ids, rate, decay, progress), model.network)
    settings = {"rate": rate, "decay": decay, "segment": evaluator.segment, "epsilon": evaluator.epsilon}
    return AdaptedScores(log_p, settings)
