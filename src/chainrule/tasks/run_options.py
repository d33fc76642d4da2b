"""Options of a training run shared by all tasks: seed, device, output folder, resumption and provenance."""

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from chainrule import config as settings
from chainrule.api import resolve_tokenizer
from chainrule.config import check_seed
from chainrule.data.training_data import Job
from chainrule.errors import ChainruleWarning, UsageError
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import verified_dir
from chainrule.storage.manifest import JSON
from chainrule.storage.model_dir import Origin
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.tokenizer import Tokenizer

Announce = Callable[[str], None]
"""Callback that receives one-line messages before training starts."""

RESUMABLE_CHANGES = {
    "max_seconds",
    "checkpoint_seconds",
}  # settings that may change between a run and its resumption


def no_op(line: str) -> None:
    """Ignore the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a training run other than the model settings."""

    seed: int = 0
    device: str = "auto"
    progress: Progress = silent
    announce: Announce = no_op
    command: str = ""
    out: Path | None = None  # folder for checkpoints and the finished model
    resume: bool = False
    force: bool = False  # overwrite the contents of `out`
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_seed(self.seed)
        object.__setattr__(self, "progress", as_progress(self.progress))  # accepts True and False

    @classmethod
    def merge(cls, base: "RunOptions | None", chosen: dict[str, Any]) -> "RunOptions":
        """Merge run options found in `chosen` over `base`, removing them from `chosen`.

        Raises if `out` may not be overwritten or cannot be resumed.
        """
        overrides = {field.name: chosen.pop(field.name) for field in fields(cls) if field.name in chosen}
        if overrides.get("out") is not None:
            overrides["out"] = Path(overrides["out"])
        options = replace(base or cls(), **overrides)
        if options.out is not None and not options.resume:
            verified_dir.check_replace(options.out, {"command": options.command}, force=options.force)
        elif options.out is not None:
            verified_dir.require_not_finished(options.out)
            if not os.path.lexists(options.out / verified_dir.CHECKPOINT):
                options.announce(f"nothing to resume in {options.out}; starting from the beginning")
        return options

    def job(
        self,
        task: str,
        config: Any,
        texts: Sequence[Sequence[str]],
        tokenizers: Mapping[str, Tokenizer],
        initial_weights_digest: str = "",
    ) -> Job:
        """Create the training job, including the identity that a checkpoint must match.

        `initial_weights_digest` identifies pretrained weights; empty without any.
        """
        if self.tensorboard and self.out is None:
            raise UsageError("events for TensorBoard are written beside the model: give out")
        identity = {
            "task": task,
            "config": {
                name: value for name, value in settings.to_json(config).items() if name not in RESUMABLE_CHANGES
            },
            "text": [digest_texts(lines) for lines in texts],
            "tokenizer": [digest_texts([tokenizer.to_json()]) for tokenizer in tokenizers.values()],
            "seed": self.seed,
            **({"begun": initial_weights_digest} if initial_weights_digest else {}),
        }
        events = self.out.with_name(self.out.name + ".tensorboard") if self.tensorboard and self.out else None
        return Job(
            seed=self.seed,
            device=self.device,
            progress=self.progress,
            run_dir=self.out,
            resume=self.resume,
            tensorboard=events,
            identity=identity,
        )

    def origin(self, task: str, name: str, sha256: str) -> Origin:
        """Provenance of the model; raises if `out` holds a finished model of another text."""
        command = self.command or f"chainrule.tasks.{task}.train(…)"
        if self.out is not None and not self.resume:
            provenance: dict[str, JSON] = {"command": self.command, "training_text": {"sha256": sha256}}
            verified_dir.check_replace(self.out, provenance, force=self.force)
        return Origin.now(text=name, fingerprint=Fingerprint(sha256), command=command, seed=self.seed, run=self.out)


def digest_texts(lines: Sequence[str]) -> str:
    """SHA-256 of length-prefixed texts, so that line breaks inside a text are unambiguous."""
    sha256 = hashlib.sha256()
    for line in lines:
        content = line.encode()
        sha256.update(f"{len(content)}\n".encode() + content)
    return sha256.hexdigest()


def make_tokenizer(
    lines: Sequence[str],
    tokenizer: str | Path,
    tokenizer_settings: Mapping[str, object],
    progress: Progress | bool = silent,
) -> Tokenizer:
    """Train a tokenizer of the given kind on `lines`, or load it from a folder."""
    progress = as_progress(progress)
    choice = resolve_tokenizer(tokenizer, tokenizer_settings)
    if isinstance(choice, Path):
        from chainrule.model_folder import load_tokenizer

        return load_tokenizer(choice)
    trained = tokenizer_training.train(Corpus.from_lines(list(lines)), choice, progress)
    warn_if_all_unknown(trained)
    return trained


def warn_if_all_unknown(tokenizer: Tokenizer) -> None:
    """Warn if the vocabulary holds only the unknown word."""
    if not tokenizer.vocab.keys() - {tokenizer.config.unk}:
        message = f"the vocabulary is {tokenizer.config.unk} alone: no word is frequent enough, so all are unknown"
        warnings.warn(
            f"{message}; lower min_count, {tokenizer.config.min_count} now", ChainruleWarning, stacklevel=3
        )
