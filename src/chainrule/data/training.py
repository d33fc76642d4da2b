"""What a run is told beside its settings, and what any family is trained on: nothing of how it is modelled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainrule.data.encoded import Encoded
from chainrule.lm import Context, Vocabulary
from chainrule.progress import Progress, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Where, how long and from which seed something is learnt."""

    seed: int = 0
    progress: Progress = silent
    device: str = "auto"  # for families that can compute elsewhere than on the processor
    memory: int | None = None  # bytes the process may take, for families that can do with less; None: any
    max_seconds: float | None = None  # a budget that families which learn step by step keep to
    place: Path | None = None  # a folder for checkpoints and the log of a run that takes long
    resume: bool = False  # go on from the checkpoint there
    tensorboard: Path | None = None  # a folder for TensorBoard's events
    identity: dict[str, Any] = field(default_factory=dict)  # what a checkpoint must have been made from
    summary: dict[str, Any] = field(default_factory=dict)  # filled in by a trainer: epochs, steps, why it stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData(Job):
    """One text to learn from, perhaps another to watch, and the rules of both."""

    train: Encoded
    valid: Encoded | None
    vocabulary: Vocabulary
    context: Context = "line"
    names: Callable[[], Sequence[str]] | None = None  # the spelling of each id, for families that keep it
