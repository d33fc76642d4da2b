"""Networks sized to their text, their machine and their time: from bytes and seconds to widths, dropout and epochs.

`size` follows a small table of measured rules (docs/sizing.md). It prefers the widest network that still reads
enough of the text in the time: `EPOCHS` times through it, or `TOKENS_PER_WEIGHT` tokens for each weight that takes
part in a prediction, whichever is less. How fast this machine is, is measured by training the candidate briefly.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chainrule import config as settings_reader
from chainrule import families
from chainrule.data.training import TrainingData
from chainrule.errors import ConfigError
from chainrule.lm import Context
from chainrule.preparation import Prepared

if TYPE_CHECKING:
    from chainrule.neural.throughput import Throughput

EPOCHS: Final = 4.0
"""Times through the text that a network should at least have time for."""
TOKENS_PER_WEIGHT: Final = 15.0
"""Of a text that is too long for `EPOCHS`: tokens to read for each weight used in a prediction."""
FEWEST_EPOCHS: Final = 2.0
"""Below it the smallest network is noted as scaled down as far as possible."""
FEWEST_STEPS: Final = 200
"""Updates below which a network learns nothing useful."""
VALIDATIONS: Final = 10
"""In a run with a budget; twice as many in a run to convergence."""
PATIENCE: Final = 4
VALIDATION_SHARE: Final = 0.05
"""Part of the budget that validations may take together."""
LARGEST_RESERVE: Final = 0.5
"""Part of the budget that the final evaluation of the validation text may take from learning."""
LARGE_VOCABULARY: Final = 5_000
"""Above it training on a CPU samples its softmax."""
SAMPLES: Final = 1024
RECURRENT_GATES: Final = {"rnn": 1, "gru": 3, "lstm": 4}
CPU_FLOPS: Final = 7e10
CUDA_FLOPS: Final = 1e13
"""First guesses of floating-point operations per second; the measurement replaces them."""
PROBES: Final = 3
"""Candidates to measure at most."""

WIDTHS: Final[Mapping[str, Sequence[tuple[int, int]]]] = {
    "feedforward": [(64, 1), (96, 1), (128, 1), (192, 1), (256, 1), (384, 1), (512, 1)],
    "rnn": [(64, 1), (96, 1), (128, 1), (192, 1), (256, 1), (384, 1), (512, 1), (768, 1), (1024, 1)],
    "gru": [(48, 1), (64, 1), (96, 1), (128, 1), (192, 1), (256, 1), (384, 1), (512, 1), (768, 1), (1024, 1)],
    "lstm": [(48, 1), (64, 1), (96, 1), (128, 1), (192, 1), (256, 1), (384, 1), (512, 1), (768, 1), (1024, 1)],
    "transformer": [(48, 1), (64, 2), (96, 2), (128, 2), (128, 3), (192, 3), (256, 4), (384, 6), (512, 6)],
}
"""Widths and layers by family, smallest first."""

LARGEST_BY_BYTES: Final = ((0.1e6, 128), (0.3e6, 192), (1e6, 384), (3e6, 512), (10e6, 768), (math.inf, 1024))
"""Widest recurrent network for a text of up to so many bytes; wider ones overfit before they get better."""


@dataclass(frozen=True)
class Sized:
    """A config chosen by `size`, and what to expect of it."""

    config: Any  # the family's Config
    expected_seconds: float  # training, its validations and the final evaluation of the validation text
    expected_epochs: float
    note: str = ""  # how the budget constrained the size; empty where it did not
    family: str = ""
    tokens_per_second: float = 0.0  # of training

    @property
    def plan(self) -> str:
        """One line: sizes, epochs and time.

        `lstm: 256 units, sampled softmax, about 4.1 epochs in 600 s at 9,800 tokens/s`
        """
        config = self.config
        layers = f"{config.layers} layers of {config.hidden} units" if config.layers > 1 else f"{config.hidden} units"
        output = {"softmax": "full softmax", "nce": "noise-contrastive estimation"}.get(
            config.output, f"{config.output} softmax"
        )
        epochs = f"{self.expected_epochs:.2g}" if self.expected_epochs < 10 else f"{self.expected_epochs:.0f}"
        speed = f"about {epochs} epochs in {self.expected_seconds:,.0f} s at {self.tokens_per_second:,.0f} tokens/s"
        note = f" ({self.note})" if self.note else ""
        return f"{self.family}: {layers}, {output}, dropout {config.dropout:g}, {speed}{note}"


Measure = Callable[[Any], "Throughput"]
"""The throughput of a config."""


def size(
    family: str,
    prepared: Prepared,
    *,
    seconds: float | None,
    device: str,
    context: Context,
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
    measure: Measure | None = None,
) -> Sized:
    """Choose the config of a network for a text, a machine and a budget.

    Args:
        family: A neural family.
        prepared: The text.
        seconds: Time for training and validation together; None: choose for convergence.
        device: `auto`, `cpu` or `cuda`.
        context: `line` or `stream`.
        seed: Of the weights that are measured with; it does not change what is chosen.
        settings: Settings that are fixed; the rest is chosen around them.
        measure: Throughput of a config; by default `throughput` on this machine.

    Raises:
        ConfigError: the family has no size to choose, or a setting is wrong.

    """
    if family not in WIDTHS:
        raise ConfigError(f"--size auto chooses the size of a network, and '{family}' is none; leave it out")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError(f"the budget is {seconds:g} seconds; choose a number above 0")
    raise NotImplementedError


def throughput(
    family: str,
    config: Any,
    prepared: Prepared,
    *,
    device: str,
    context: Context,
    seed: int = 0,
    seconds: float = 1.0,
) -> "Throughput":
    """Tokens per second of training, of validation while training, and of evaluation, measured on this machine."""
    neural_family = families.get(family)
    from chainrule.neural.throughput import measure

    data = TrainingData(
        train=prepared.train,
        valid=None,
        vocabulary=prepared.tokenizer.vocabulary,
        names=prepared.tokenizer.names,
        context=context,
        seed=seed,
        device=device,
    )
    return measure(neural_family, data, config, seconds)
