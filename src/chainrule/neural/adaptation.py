"""Ways to adapt a trained network to the text it is tested on; every choice is made on validation text.

Lives here: one call for all of them. Not here: dynamic.py, cache.py, temperature.py, sliding.py, which do it. The
model itself stays as it is, and its static figures stand beside what comes of this.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from chainrule.data.encoded import Encoded
from chainrule.errors import UsageError
from chainrule.lm import Floats
from chainrule.neural import cache, dynamic, sliding, temperature
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.weights import check_outputs
from chainrule.progress import Progress, silent

Kind = Literal["temperature", "cache", "dynamic", "stride"]


@dataclass(frozen=True, slots=True)
class Adapted:
    """A text's log-probabilities (N,), and the settings they were computed with."""

    log_probs: Floats
    settings: dict[str, float]


def adapt(
    model: NeuralModel,
    text: Encoded,
    valid: Encoded | None,
    kind: Kind,
    *,
    train: Encoded | None = None,
    stride: int | None = None,
    progress: Progress = silent,
) -> Adapted:
    """Choose on `valid`, then score `text` once; `stride` chooses nothing and needs no validation text.

    The gradients' statistics of dynamic evaluation are of `train`, of `valid` where there is none.
    """
    if kind not in get_args(Kind):
        raise UsageError(f"there is no adaptation '{kind}'; choose one of {', '.join(get_args(Kind))}")
    if kind == "stride":
        if stride is None:
            raise UsageError("a sliding window needs its stride: so many tokens on at a time")
        return Adapted(sliding.sliding_log_probs(model, text, stride, progress), {"stride": stride})
    if valid is None or not valid.tokens:
        raise UsageError(
            f"--{kind} chooses its settings on validation text, never on the test text: add --valid FILE"
        )
    if kind == "temperature":
        T = temperature.tune(model, valid, progress)
        return Adapted(temperature.log_probs_at(model, text, [T], progress)[0], {"temperature": T})
    if kind == "cache":
        theta, weight = cache.tune(model, valid, progress=progress)
        log_p = cache.cached_log_probs(model, text, theta, weight, progress=progress)
        return Adapted(log_p, {"theta": theta, "lambda": weight, "size": cache.SIZE})
    return _dynamic(model, text, valid, valid if train is None or not train.tokens else train, progress)


def _dynamic(model: NeuralModel, text: Encoded, valid: Encoded, statistics: Encoded, progress: Progress) -> Adapted:
    learner = dynamic.Learner(model)
    learner.measure(statistics, progress)
    rate, decay = dynamic.tune(learner, valid, progress)
    log_p = check_outputs(learner.run(text.ids, rate, decay, progress), model.network)
    chosen = {"rate": rate, "decay": decay, "segment": learner.segment, "epsilon": learner.epsilon}
    return Adapted(log_p, chosen)
