"""Input of model training: the options of a run, and the encoded texts."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from chainrule.config import RunConfig, to_json
from chainrule.data.encoded import EncodedText
from chainrule.errors import UsageError
from chainrule.lm import Vocabulary
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import verified_dir

RESUMABLE_CHANGES = ("max_seconds", "checkpoint_seconds")  # settings that may differ when a run is resumed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(RunConfig):
    """Options of a training run other than the settings of model and tokenizer."""

    device: str = "auto"  # of neural models: auto, cpu or cuda
    memory_limit: int | None = None  # in bytes (n-gram models); None: unlimited
    time_limit: float | None = None  # in seconds, in addition to `max_seconds` of the config (neural models)
    progress: Progress = silent  # also accepts True and False
    announce: Callable[[str], None] = lambda line: None  # receives one-line messages before training starts
    command: str = ""  # command line, stored in the model
    out: Path | None = None  # folder of the checkpoint, the training log and the finished model
    resume: bool = False  # continue from the checkpoint in `out`
    force: bool = False  # overwrite the contents of `out`
    tensorboard: bool = False  # write TensorBoard events next to `out`
    identity: Mapping[str, Any] = field(default_factory=dict)  # must be the same to resume a checkpoint

    def __post_init__(self) -> None:
        RunConfig.__post_init__(self)
        object.__setattr__(self, "progress", as_progress(self.progress))
        if self.out is not None:
            object.__setattr__(self, "out", Path(self.out))
        elif self.tensorboard:
            raise UsageError("events for TensorBoard are written beside the model: give out")

    @classmethod
    def merge(cls, base: Self | None, chosen: dict[str, Any]) -> Self:
        """Merge run options found in `chosen` over `base`, removing them from `chosen`."""
        return replace(base or cls(), **{f.name: chosen.pop(f.name) for f in fields(cls) if f.name in chosen})

    @property
    def tensorboard_dir(self) -> Path | None:
        """Folder of the TensorBoard events; it remains when the model replaces the run folder."""
        return self.out.with_name(self.out.name + ".tensorboard") if self.out and self.tensorboard else None

    def check_output(self) -> Self:
        """Return the options; raise if `out` may not be overwritten or cannot be resumed."""
        if self.out is not None and not self.resume:
            verified_dir.check_replace(self.out, {"command": self.command}, force=self.force)
        elif self.out is not None:
            verified_dir.require_not_finished(self.out)
            if not os.path.lexists(self.out / verified_dir.CHECKPOINT):
                self.announce(f"nothing to resume in {self.out}; starting from the beginning")
        return self

    def with_identity(self, kind: Mapping[str, str], config: Any, text: Any, tokenizer: Any, **more: Any) -> Self:
        """Add the identity of the run: family or task, settings, and digests of texts and tokenizers."""
        settings = {name: value for name, value in to_json(config).items() if name not in RESUMABLE_CHANGES}
        return replace(self, identity={**kind, "config": settings, "text": text, "tokenizer": tokenizer, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Training text, optional validation text and vocabulary of a language model, with the options of the run."""

    train: EncodedText
    valid: EncodedText | None
    vocabulary: Vocabulary
    names: Callable[[], Sequence[str]] | None = None  # tokens by id, for families that store them
    options: RunOptions = field(default_factory=RunOptions)
    summary: dict[str, Any] = field(default_factory=dict)  # filled in by the trainer: epochs, steps, stop reason
