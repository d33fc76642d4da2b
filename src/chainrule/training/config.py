"""Settings of the training loop, optimizer and learning-rate schedule."""

from dataclasses import dataclass
from typing import Literal

from chainrule.config import check_fractions, setting
from chainrule.errors import ConfigError

Optimizer = Literal["sgd", "momentum", "rmsprop", "adam", "adamw"]
Schedule = Literal["constant", "linear", "cosine", "exponential", "plateau"]
Averaging = Literal["none", "mean", "ema"]
Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Training settings shared by all networks."""

    batch_size: int = setting(32, "Neural models: lines (or parallel streams) per batch.")
    bptt: int = setting(70, "Neural models: truncated back-propagation length in tokens; 0 uses whole lines.")
    accumulate: int = setting(
        1,
        "Neural language models: gradient accumulation, the number of parts in which a batch is computed one after "
        "another to save memory; the result is that of the whole batch.",
        shows_default=True,
        min=1,
    )
    epochs: int = setting(20, "Neural models: maximum number of epochs.")
    max_seconds: float | None = setting(  # the learning-rate schedule is shortened to fit
        None, "Neural models: maximum training time in seconds."
    )
    optimizer: Optimizer = setting("adamw", "Optimizer (neural models): sgd, momentum, rmsprop, adam or adamw.")
    learning_rate: float = setting(2e-3, "Neural models: peak learning rate.")
    momentum: float = 0.9  # for momentum
    beta1: float = 0.9  # for adam and adamw
    beta2: float = 0.99  # for rmsprop, adam and adamw
    weight_decay: float = 0.0
    schedule: Schedule = "linear"
    warmup: int = 100  # steps from 0 to the peak rate, at most a tenth of the run
    flat: float = 0.3  # share of the run at the peak rate before linear, cosine or exponential decay
    decay: float = 0.25  # plateau: factor; exponential: ratio of final to peak rate
    patience: int = 1  # plateau: validations without improvement before the rate is reduced
    averaging: Averaging = "none"  # weight averaging: mean or exponential moving average
    average_from: float = 0.6  # share of the run after which averaging starts
    average_decay: float = 0.999  # ema: decay per step
    clip: float = setting(1.0, "Neural models: maximum gradient norm; 0 disables clipping.")
    clip_value: float = 0.0  # maximum absolute gradient value; 0: no clipping
    precision: Precision = setting("fp32", "Arithmetic precision (neural models): fp32, bf16 or fp16.")
    loss_scale: float = 4096.0  # fp16: prevents gradient underflow
    shuffle: bool = True  # new order of lines, or new offset of columns, in every epoch
    keep: Literal["best", "last"] = "best"  # weights to keep; best by validation loss
    validate_every: int = 1  # epochs
    validations: int = 0  # number of evenly spaced validations; 0: every `validate_every` epochs
    stop_after: int = setting(  # 0: never
        0,
        "Neural models: early stopping after this many validations without improvement; needs --valid.",
        option="--patience",
        min=1,
    )
    checkpoint_seconds: float = 60.0  # between checkpoints
    log_every: int = 50  # steps
    graphs: bool = True  # on the GPU: replay steps as CUDA graphs if shapes are static
    compile: bool = False  # torch.compile the network, on the GPU

    def __post_init__(self) -> None:
        _at_least(self, 1, "batch_size", "accumulate", "epochs", "validate_every", "log_every", "patience")
        _at_least(self, 0, "validations", "stop_after")
        _at_least(self, 0, "bptt", "warmup", "clip", "clip_value", "weight_decay", "checkpoint_seconds")
        check_fractions(self, "training", "momentum", "beta1", "beta2", "average_decay")
        check_fractions(self, "training", "flat", "average_from", "decay", includes_one=True)
        for name in ("learning_rate", "loss_scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"training.{name} is {getattr(self, name):g}; choose a number above 0")
        if self.max_seconds is not None and not 0 < self.max_seconds < float("inf"):
            raise ConfigError(f"training.max_seconds is {self.max_seconds:g}; choose a number above 0")

    def check_validation(self, has_validation: bool) -> None:
        """Raise ConfigError if a setting needs a validation text and there is none."""
        if has_validation:
            return
        if self.schedule == "plateau":
            raise ConfigError("training.schedule is 'plateau', which needs a validation text: give --valid")
        if self.stop_after:
            raise ConfigError("early stopping (--patience) needs a validation text: give --valid")


def _at_least(config: object, least: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not least <= value < float("inf"):
            raise ConfigError(f"training.{name} is {value:g}; choose {least} or more")
