"""Choose the size, dropout, learning rate and epochs of a neural model from the text, the machine and the budget.

`choose_size` follows a small table of measured rules (docs/sizing.md). It chooses the widest network that can
process enough training tokens within the budget: `EPOCHS` epochs, or `TOKENS_PER_WEIGHT` tokens for each weight
used in a prediction, whichever is less. The speed of the machine is measured by training candidates briefly.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chainrule import config as settings_reader
from chainrule import families
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.errors import ConfigError
from chainrule.lm import Context
from chainrule.neural.cells import CELLS
from chainrule.prepared_corpus import PreparedCorpus

if TYPE_CHECKING:
    from chainrule.neural.throughput import Throughput

EPOCHS: Final = 4.0
"""Epochs for which a network should at least have time."""
TOKENS_PER_WEIGHT: Final = 15.0
"""Training tokens per weight used in a prediction, for texts too long for `EPOCHS`."""
FEWEST_EPOCHS: Final = 2.0
"""Epochs below which the note says that the budget is too small."""
FEWEST_STEPS: Final = 200
"""Updates below which a network learns nothing useful."""
ENOUGH_STEPS: Final = 1_000
"""Updates below which the batch size is reduced."""
MAX_EPOCHS_FACTOR: Final = 2.5
"""Maximum epochs of a run, as a multiple of the usual number, even if time is left."""
VALIDATIONS: Final = 10
PATIENCE: Final = 4
"""Validations per run, and validations without improvement before early stopping."""
VALIDATION_SHARE: Final = 0.05
"""Share of the budget for all validations of a run."""
LARGEST_RESERVE: Final = 0.5
"""Largest share of the budget reserved for the final evaluation of the validation text."""
FEWEST_VALIDATION_TOKENS: Final = 2_000
LARGE_VOCABULARY: Final = {"cpu": 5_000, "cuda": 50_000}
"""Vocabulary size above which training uses a sampled softmax."""
SAMPLES: Final = 1024
FLOPS: Final = {"cpu": 7e10, "cuda": 5e12}
"""Initial estimate of floating-point operations per second, replaced by a measurement."""
PROBES: Final = 3
"""Maximum number of candidates to measure."""
LARGEST_PROBE_SHARE: Final = 0.1
"""Share of the budget after which no further candidate is measured."""

_RECURRENT: Final = tuple((width, 1) for width in (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024))
LADDERS: Final[Mapping[str, Sequence[tuple[int, int]]]] = {
    "feedforward": _RECURRENT[1:8],
    **dict.fromkeys(CELLS, _RECURRENT),
    "transformer": ((48, 1), (64, 2), (96, 2), (128, 2), (128, 3), (192, 3), (256, 4), (384, 6), (512, 6)),
}
"""Candidate (width, layers) pairs by family, smallest first."""

LARGEST_WIDTHS: Final = ((3e4, 128), (1e5, 192), (3e5, 384), (1e6, 768), (math.inf, 1024))
"""(tokens, width): widest recurrent network for texts of up to `tokens` tokens; half for other families."""
LARGEST_UNLIMITED: Final = {"cpu": 384, "cuda": 1024}
"""Widest recurrent network without a budget."""

LEARNING_RATES: Final = {
    **{name: (cell.learning_rate, 256) for name, cell in CELLS.items()},
    "feedforward": (2.5e-3, 192),
    "transformer": (2e-3, 128),
}
"""(rate, width): the learning rate at this width; it scales with 1 / sqrt(width)."""

DROPOUT: Final = {"characters": (0.07, 1.4, 0.6), "words": (0.15, 4.7, 0.65), "transformer": (0.05, 1.4, 0.3)}
"""(s, r0, largest) in dropout = clip(s log2(r / r0), 0, largest) with r = epochs x weights / tokens."""


@dataclass(frozen=True)
class SizedConfig:
    """A config chosen by `choose_size`, with its expected epochs and time."""

    config: Any  # the family's Config
    expected_seconds: float  # training, its validations and the final evaluation of the validation text
    expected_epochs: float
    note: str = ""  # how the budget constrained the size; empty if it did not
    family: str = ""
    tokens_per_second: float = 0.0  # of training

    @property
    def plan(self) -> str:
        """One line: sizes, epochs and time.

        `lstm: 256 units, sampled softmax, about 4.1 epochs in 600 s at 9,800 tokens/s`
        """
        config = self.config
        layers = (
            f"{config.layers} layers of {config.hidden} units" if config.layers > 1 else f"{config.hidden} units"
        )
        output = {"softmax": "full softmax", "nce": "noise-contrastive estimation"}.get(
            config.output, f"{config.output} softmax"
        )
        epochs = f"{self.expected_epochs:.2g}" if self.expected_epochs < 10 else f"{self.expected_epochs:.0f}"
        speed = f"about {epochs} epochs in {self.expected_seconds:,.0f} s at {self.tokens_per_second:,.0f} tokens/s"
        note = f" ({self.note})" if self.note else ""
        return f"{self.family}: {layers}, {output}, dropout {config.dropout:g}, {speed}{note}"


Measure = Callable[[Any], "Throughput"]
"""Function that measures the throughput of a config."""


def choose_size(
    family: str,
    prepared: PreparedCorpus,
    *,
    seconds: float | None,
    options: RunOptions,
    settings: Mapping[str, object] | None = None,
    measure: Measure | None = None,
) -> SizedConfig:
    """Choose the config of a network for a text, a machine and a budget.

    Args:
        family: A neural family.
        prepared: The text.
        seconds: Time for training and validation together; None: choose for convergence.
        options: Options of the run; the seed, used for measuring, does not affect the choice.
        settings: Fixed settings; the others are chosen.
        measure: Throughput of a config; by default `throughput` on this machine.

    Raises:
        ConfigError: the family is not neural, or a setting is invalid.

    """
    if family not in LADDERS:
        raise ConfigError(f"--size auto chooses the size of a network, but '{family}' is not one; leave it out")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError(f"the budget is {seconds:g} seconds; choose a number above 0")
    from chainrule.training.device import select_device

    families.get(family)
    chooser = _Chooser(
        family=family,
        text=_TextStatistics.of(prepared, options.context),
        seconds=seconds,
        device=select_device(options.device).type,
        settings=dict(settings or {}),
        measure=measure or _make_measure(family, prepared, options, seconds),
    )
    return chooser.choose()


def throughput(
    family: str, config: Any, prepared: PreparedCorpus, options: RunOptions, seconds: float = 1.0
) -> "Throughput":
    """Measure tokens per second of training, validation and evaluation on this machine."""
    neural_family: Any = families.get(family)
    from chainrule.neural.throughput import measure

    data = TrainingData(
        train=prepared.train,
        valid=None,
        vocabulary=prepared.tokenizer.vocabulary,
        names=prepared.tokenizer.stored_names,
        options=options,
    )
    return measure(neural_family, data, config, seconds)


def _make_measure(family: str, prepared: PreparedCorpus, options: RunOptions, seconds: float | None) -> Measure:
    """Return a function that measures for about a second, less if the budget is small."""
    probe = 1.0 if seconds is None else min(1.0, max(0.2, 0.01 * seconds))
    return lambda config: throughput(family, config, prepared, options, probe)


@dataclass(frozen=True, slots=True)
class _TextStatistics:
    """Statistics of the training text used by the rules."""

    tokens: int
    vocabulary: int
    valid_tokens: int
    line_tokens: float  # mean tokens per line; infinite for a stream
    is_characters: bool

    @classmethod
    def of(cls, prepared: PreparedCorpus, context: Context) -> "_TextStatistics":
        train, kind = prepared.train, prepared.tokenizer.config.kind
        return cls(
            tokens=train.tokens,
            vocabulary=prepared.tokenizer.vocab_size,
            valid_tokens=0 if prepared.valid is None else prepared.valid.tokens,
            line_tokens=train.tokens / max(1, train.lines) if context == "line" else math.inf,
            is_characters=kind in ("char", "byte"),
        )

    @property
    def usual_epochs(self) -> int:
        """Epochs to convergence: 40 for a small text, 12 for a million tokens, 6 for ten million or more."""
        epochs: float = 12 * (1e6 / max(1, self.tokens)) ** 0.35
        return round(min(40.0, max(6.0, epochs)))

    @property
    def largest_width(self) -> int:
        return next(width for limit, width in LARGEST_WIDTHS if self.tokens <= limit)


@dataclass(frozen=True, slots=True)
class _TimeBudget:
    """Division of the time budget in seconds; infinite if there is no budget."""

    run: float  # max_seconds of the run: parameter updates and the validations within it
    learning: float
    final: float  # evaluating the validation text after the run
    validation_tokens: int  # 0: the whole validation text


@dataclass(slots=True)
class _Chooser:
    """Choose among the candidate sizes of one family."""

    family: str
    text: _TextStatistics
    seconds: float | None
    device: str
    settings: dict[str, object]
    measure: Measure
    speeds: "dict[int, Throughput]" = dataclasses.field(default_factory=dict)  # of the candidates measured
    spent: float = 0.0  # seconds of measuring

    def choose(self) -> SizedConfig:
        ladder = self._ladder()
        flops = FLOPS[self.device]
        index = self._largest(ladder, flops)
        for _ in range(PROBES):
            if index in self.speeds:
                break
            config = self._config(ladder[index], self._tokens(ladder[index], flops))
            self.speeds[index] = self.measure(config)
            self.spent += self.speeds[index].seconds
            flops = self.speeds[index].training * self._flops(ladder[index])
            index = self._largest(ladder, flops)
            if self.seconds is not None and self.spent > LARGEST_PROBE_SHARE * self.seconds:
                break
        if index not in self.speeds:  # no time to measure it: scale the speed of its nearest neighbour
            nearest = min(self.speeds, key=lambda i: abs(i - index))
            ratio = min(2.0, self._flops(ladder[nearest]) / self._flops(ladder[index]))
            speed = self.speeds[nearest]
            self.speeds[index] = dataclasses.replace(
                speed,
                training=ratio * speed.training,
                validation=ratio * speed.validation,
                evaluation=ratio * speed.evaluation,
            )
        return self._sized(ladder, index)

    def _ladder(self) -> list[tuple[int, int]]:
        """Return the (width, layers) candidates for this text, or the sizes fixed by the settings."""
        largest = self.text.largest_width
        if self.seconds is None:
            largest = min(largest, LARGEST_UNLIMITED[self.device])
        cap = largest // (1 if self.family in CELLS else 2)
        steps = [step for step in LADDERS[self.family] if step[0] <= cap] or [LADDERS[self.family][0]]
        fixed = [self.settings.get(name) for name in ("hidden", "layers")]
        return list(dict.fromkeys((int(fixed[0] or width), int(fixed[1] or n)) for width, n in steps))  # type: ignore[call-overload]

    def _largest(self, ladder: Sequence[tuple[int, int]], flops: float) -> int:
        """Return the index of the largest candidate that processes enough tokens in time; 0 if none does."""
        if self.seconds is None:
            return len(ladder) - 1
        fitting = [i for i, step in enumerate(ladder) if self._tokens(step, flops, i) >= self._enough(step)]
        return max(fitting, default=0)

    def _enough(self, step: tuple[int, int]) -> float:
        return min(min(EPOCHS, self._usual_epochs()) * self.text.tokens, TOKENS_PER_WEIGHT * self._flops(step) / 6)

    def _tokens(self, step: tuple[int, int], flops: float, index: int = -1) -> float:
        """Return the number of tokens on which a candidate is trained within the budget."""
        if self.seconds is None:
            return float(self._usual_epochs() * self.text.tokens)
        speed = self.speeds[index].training if index in self.speeds else flops / self._flops(step)
        seconds = self._clock(self.speeds[index]).learning if index in self.speeds else self.seconds
        return speed * seconds

    def _usual_epochs(self) -> int:
        return int(str(self.settings.get("epochs", self.text.usual_epochs)))

    def _flops(self, step: tuple[int, int]) -> float:
        """Return the training FLOPs per token: 6 for each weight that takes part."""
        return 6.0 * (self._hidden_weights(step) + self._rows() * step[0])

    def _rows(self) -> int:
        """Return the rows of the output matrix evaluated per training token."""
        return SAMPLES if self._output() in ("sampled", "nce") else self.text.vocabulary

    def _output(self) -> str:
        is_large = self.text.vocabulary > LARGE_VOCABULARY[self.device]
        return str(self.settings.get("output", "sampled" if is_large else "softmax"))

    def _hidden_weights(self, step: tuple[int, int]) -> float:
        width, layers = step
        if self.family == "feedforward":
            return float((self._order() - 1 + layers - 1) * width**2)
        matrices = 2 * CELLS[self.family].layer.gates if self.family in CELLS else 12  # of width x width, by layer
        return float(matrices * layers * width**2)

    def _order(self) -> int:
        return int(str(self.settings.get("order", 10 if self.text.is_characters else 5)))

    def _dropout(self, step: tuple[int, int], epochs: float) -> float:
        """Return the dropout rate, which grows with epochs x weights / tokens; embeddings count for a tenth."""
        weights = self._hidden_weights(step) + 0.1 * self.text.vocabulary * step[0]
        ratio = max(1e-9, epochs * weights / max(1, self.text.tokens))
        units = "characters" if self.text.is_characters else "words"
        scale, start, largest = DROPOUT["transformer" if self.family == "transformer" else units]
        return round(20 * min(largest, max(0.0, scale * math.log2(ratio / start)))) / 20

    def _learning_rate(self, width: int) -> float:
        rate, at = LEARNING_RATES[self.family]
        return float(f"{min(1e-2, rate * math.sqrt(at / width)):.2g}")

    def _config(self, step: tuple[int, int], tokens: float, clock: _TimeBudget | None = None) -> Any:
        """Build the config of a candidate that is trained on `tokens` tokens."""
        width, layers = step
        epochs = tokens / max(1, self.text.tokens)
        chosen: dict[str, object] = {
            "hidden": width,
            "layers": layers,
            "dropout": self._dropout(step, epochs),
            "output": self._output(),
            "samples": SAMPLES,
            "learning_rate": self._learning_rate(width),
            "epochs": self._epochs(epochs),
            **self._batches(tokens),
        }
        if self.family == "feedforward":
            chosen["order"] = self._order()
        if chosen["output"] == "adaptive":
            chosen["tie"] = False
        if self.text.valid_tokens:
            chosen |= {"validations": VALIDATIONS, "stop_after": PATIENCE}
        if clock is not None and clock.run < math.inf:
            chosen |= {"max_seconds": max(round(clock.run, 3), 1e-3), "validation_tokens": clock.validation_tokens}
        config_kind = families.get(self.family).Config
        return settings_reader.build_config(config_kind, chosen | self.settings, "model", self.family)

    def _epochs(self, expected: float) -> int:
        """Return the number of epochs; with a budget, more than fit, so that the time limit ends the run."""
        usual = self.text.usual_epochs
        return (
            usual
            if self.seconds is None
            else min(max(usual, math.ceil(1.5 * expected)), round(MAX_EPOCHS_FACTOR * usual))
        )

    def _batches(self, tokens: float) -> dict[str, object]:
        """Return batch size and sequence length; the batch size is reduced if there would be too few updates."""
        window = 128 if self.text.is_characters else 64
        length = 100 if self.text.is_characters else 35 if self.family == "feedforward" else 50
        length = window if self.family == "transformer" else length
        batch = 64 if self.device == "cuda" else 16 if self.family in ("feedforward", "transformer") else 32
        while batch > 8 and tokens / (batch * min(length, self.text.line_tokens)) < ENOUGH_STEPS:
            batch //= 2
        sizes: dict[str, object] = {"batch_size": batch}
        return sizes | ({"window": window} if self.family == "transformer" else {"bptt": length})

    def _clock(self, speed: "Throughput") -> _TimeBudget:
        """Divide the budget between training, validations and the final evaluation."""
        if self.seconds is None:
            return _TimeBudget(math.inf, math.inf, self.text.valid_tokens / speed.evaluation, 0)
        final = min(self.text.valid_tokens / speed.evaluation, LARGEST_RESERVE * self.seconds)
        left = max(0.1 * self.seconds, self.seconds - self.spent - final)
        if not self.text.valid_tokens:
            return _TimeBudget(left, left, 0.0, 0)
        affordable = int(VALIDATION_SHARE * left * speed.validation / VALIDATIONS)
        tokens = max(FEWEST_VALIDATION_TOKENS, affordable)
        is_sampled = tokens < self.text.valid_tokens
        validation = (tokens if is_sampled else self.text.valid_tokens) / speed.validation
        run = max(0.1 * left, left - validation)  # the last validation follows the run
        return _TimeBudget(
            run, max(0.1 * run, run - (VALIDATIONS - 1) * validation), final, tokens if is_sampled else 0
        )

    def _sized(self, ladder: Sequence[tuple[int, int]], index: int) -> SizedConfig:
        step, speed = ladder[index], self.speeds[index]
        clock = self._clock(speed)
        tokens = self._tokens(step, 0.0, index)
        config = self._config(step, tokens, clock)
        epochs = min(tokens / max(1, self.text.tokens), config.training.epochs)
        seconds = self.seconds
        if seconds is None or epochs == config.training.epochs:
            seconds = epochs * self.text.tokens / speed.training + clock.final
        return SizedConfig(
            config=config,
            expected_seconds=seconds,
            expected_epochs=epochs,
            note=self._note(ladder, index, config, tokens, clock),
            family=self.family,
            tokens_per_second=speed.training,
        )

    def _note(
        self, ladder: Sequence[tuple[int, int]], index: int, config: Any, tokens: float, clock: _TimeBudget
    ) -> str:
        """Describe how the budget constrained the size."""
        if self.seconds is None:
            return ""
        epochs = tokens / max(1, self.text.tokens)
        length = min(
            config.training.bptt or getattr(config, "window", math.inf), self.text.line_tokens, self.text.tokens
        )
        steps = tokens / (config.training.batch_size * length)
        notes = []
        if steps < FEWEST_STEPS and epochs < FEWEST_EPOCHS:
            notes.append(f"cannot learn anything useful in {self.seconds:g} s: {steps:.0f} updates")
        elif index < len(ladder) - 1 and "hidden" not in self.settings:
            largest = ladder[-1][0]
            is_smallest = tokens < self._enough(ladder[index])
            end = ", the smallest size" if is_smallest and index == 0 else ""
            notes.append(f"scaled down from {largest} to {ladder[index][0]} units to fit {self.seconds:g} s{end}")
        if clock.final >= LARGEST_RESERVE * self.seconds:
            notes.append("evaluating the validation text takes half of the time: give a shorter one")
        return "; ".join(notes)
