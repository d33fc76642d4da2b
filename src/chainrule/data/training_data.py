"""Input of model training: options of the run and the encoded texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chainrule.data.encoded import EncodedText
from chainrule.lm import Context, Vocabulary
from chainrule.progress import Progress, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Options of a training run."""

    seed: int = 0
    progress: Progress = silent
    device: str = "auto"  # neural families
    memory: int | None = None  # memory limit in bytes (n-gram models); None: unlimited
    max_seconds: float | None = None  # time limit (neural families)
    run_dir: Path | None = None  # folder for the checkpoint and the training log
    resume: bool = False  # continue from the checkpoint in that folder
    tensorboard: Path | None = None  # folder for TensorBoard events
    identity: dict[str, Any] = field(default_factory=dict)  # properties a checkpoint must share to be resumed
    summary: dict[str, Any] = field(default_factory=dict)  # filled in by the trainer: epochs, steps, stop reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData(Job):
    """Training text, optional validation text, vocabulary and context rule."""

    train: EncodedText
    valid: EncodedText | None
    vocabulary: Vocabulary
    context: Context = "line"
    names: Callable[[], Sequence[str]] | None = None  # tokens by id, for families that store them
