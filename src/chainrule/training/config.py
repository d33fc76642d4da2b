"""Settings of the training loop, optimiser and learning-rate schedule."""

from dataclasses import dataclass
from typing import Literal

from chainrule.errors import ConfigError

Optimizer = Literal["sgd", "momentum", "rmsprop", "adam", "adamw"]
Schedule = Literal["constant", "linear", "cosine", "exponential", "plateau"]
Averaging = Literal["none", "mean", "ema"]
Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Training settings shared by all networks."""

    batch_size: int = 32  # lines, or parallel columns of the stream
    bptt: int = 70  # tokens per update (truncated BPTT); 0: a whole line or column
    epochs: int = 20
    max_seconds: float | None = None  # time limit; the schedule is shortened to fit
    optimizer: Optimizer = "adamw"
    learning_rate: float = 2e-3
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
    clip: float = 1.0  # maximum gradient norm; 0: no clipping
    clip_value: float = 0.0  # maximum absolute gradient value; 0: no clipping
    precision: Precision = "fp32"
    loss_scale: float = 4096.0  # fp16: prevents gradient underflow
    shuffle: bool = True  # new order of lines, or new offset of columns, in every epoch
    keep: Literal["best", "last"] = "best"  # weights to keep; best by validation loss
    validate_every: int = 1  # epochs
    validations: int = 0  # number of evenly spaced validations; 0: every `validate_every` epochs
    stop_after: int = 0  # early stopping: validations without improvement; 0: never
    checkpoint_seconds: float = 60.0  # between checkpoints
    log_every: int = 50  # steps
    graphs: bool = True  # on the GPU: replay steps as CUDA graphs if shapes are static
    compile: bool = False  # torch.compile the network, on the GPU

    def __post_init__(self) -> None:
        _at_least(self, 1, "batch_size", "epochs", "validate_every", "log_every", "patience")
        _at_least(self, 0, "validations", "stop_after")
        _at_least(self, 0, "bptt", "warmup", "clip", "clip_value", "weight_decay", "checkpoint_seconds")
        _between(self, 0, 1, "momentum", "beta1", "beta2", "average_decay", open_end=True)
        _between(self, 0, 1, "flat", "average_from", "decay")
        for name in ("learning_rate", "loss_scale"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"model.{name} is {getattr(self, name):g}; choose a number above 0")
        if self.max_seconds is not None and not 0 < self.max_seconds < float("inf"):
            raise ConfigError(f"model.max_seconds is {self.max_seconds:g}; choose a number above 0")

    def check_validation(self, has_validation: bool) -> None:
        """Raise ConfigError if a setting needs a validation text and there is none."""
        if has_validation:
            return
        if self.schedule == "plateau":
            raise ConfigError("model.schedule is 'plateau', which follows a validation text: give --valid")
        if self.stop_after:
            raise ConfigError("early stopping (--patience) follows a validation text: give --valid")


def _at_least(config: object, least: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not least <= value < float("inf"):
            raise ConfigError(f"model.{name} is {value:g}; choose {least} or more")


def _between(config: object, low: float, high: float, *names: str, open_end: bool = False) -> None:
    for name in names:
        value = getattr(config, name)
        if not low <= value <= high or (open_end and value == high):
            bracket = ")" if open_end else "]"
            raise ConfigError(f"model.{name} is {value:g}; choose a value in [{low:g}, {high:g}{bracket}")
