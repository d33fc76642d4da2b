"""What training any task shares: where the run is kept, what a checkpoint must fit, what the model came from."""

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from chainrule import config as settings
from chainrule import folder
from chainrule.api import tokenizer_choice
from chainrule.data.training import Job
from chainrule.errors import ChainruleWarning, ConfigError, UsageError
from chainrule.manifest import JSON
from chainrule.model import Origin
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.tokenizer import Tokenizer

Say = Callable[[str], None]
"""Whoever is told a line of what was found before learning begins."""

FREE = {"max_seconds", "checkpoint_seconds"}  # settings that may change between a run and its resumption


def unheard(line: str) -> None:
    """The line that nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What a person says of a run beside the settings of its model; all of it has defaults."""

    seed: int = 0
    device: str = "auto"
    progress: Progress = silent
    say: Say = unheard
    command: str = ""
    out: Path | None = None  # where the run is kept while it goes on
    resume: bool = False
    force: bool = False  # replace what `out` holds
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ConfigError(f"seed is {self.seed}; choose 0 or more")
        object.__setattr__(self, "progress", as_progress(self.progress))  # True and False are accepted, too

    @classmethod
    def of(cls, given: "Running | None", chosen: dict[str, Any]) -> "Running":
        """What was given, and over it what stands among the settings, which is taken out of them.

        Every task begins with this: what may not be replaced in `out`, or not be resumed, is refused here.
        """
        named = {field.name: chosen.pop(field.name) for field in fields(cls) if field.name in chosen}
        if named.get("out") is not None:
            named["out"] = Path(named["out"])
        made = replace(given or cls(), **named)
        if made.out is not None and not made.resume:
            folder.check_replace(made.out, {"command": made.command}, force=made.force)
        elif made.out is not None:
            folder.refuse_finished(made.out)
            if not os.path.lexists(made.out / folder.CHECKPOINT):
                made.say(f"nothing to resume in {made.out}; starting from the beginning")
        return made

    def job(
        self,
        task: str,
        config: Any,
        texts: Sequence[Sequence[str]],
        tokenizers: Mapping[str, Tokenizer],
        begun: str = "",
    ) -> Job:
        """The same for the loop.

        `begun` is the digest of weights learnt elsewhere that the run begins with, empty where there are none.
        """
        if self.tensorboard and self.out is None:
            raise UsageError("events for TensorBoard are written beside the model: give out")
        identity = {
            "task": task,
            "config": {name: value for name, value in settings.to_json(config).items() if name not in FREE},
            "text": [digest(lines) for lines in texts],
            "tokenizer": [digest([tokenizer.to_json()]) for tokenizer in tokenizers.values()],
            "seed": self.seed,
            **({"begun": begun} if begun else {}),
        }
        events = self.out.with_name(self.out.name + ".tensorboard") if self.tensorboard and self.out else None
        return Job(
            seed=self.seed,
            device=self.device,
            progress=self.progress,
            place=self.out,
            resume=self.resume,
            tensorboard=events,
            identity=identity,
        )

    def origin(self, task: str, name: str, sha256: str) -> Origin:
        """Where the model comes from; a finished model of another text in `out` is refused."""
        import numpy as np

        mark = Fingerprint(sha256, np.empty(0, np.uint64))
        command = self.command or f"chainrule.tasks.{task}.train(…)"
        if self.out is not None and not self.resume:
            facts: dict[str, JSON] = {"command": self.command, "training_text": {"sha256": sha256}}
            folder.check_replace(self.out, facts, force=self.force)
        return Origin.now(text=name, fingerprint=mark, command=command, seed=self.seed, run=self.out)


def digest(lines: Sequence[str]) -> str:
    """SHA-256 of texts, each behind its length, so that one that holds line breaks is not taken for two."""
    sha256 = hashlib.sha256()
    for line in lines:
        content = line.encode()
        sha256.update(f"{len(content)}\n".encode() + content)
    return sha256.hexdigest()


def make_tokenizer(
    lines: Sequence[str], tokenizer: str | Path, wanted: Mapping[str, object], progress: Progress | bool = silent
) -> Tokenizer:
    """A tokenizer of these lines, of a kind with its settings, or the one of a folder."""
    progress = as_progress(progress)
    choice = tokenizer_choice(tokenizer, wanted)
    if isinstance(choice, Path):
        from chainrule.artifact import load_tokenizer

        return load_tokenizer(choice)
    made = tokenizer_training.train(Corpus.from_lines(list(lines)), choice, progress)
    warn_of_unknown(made)
    return made


def warn_of_unknown(made: Tokenizer) -> None:
    """Say so where the vocabulary has no word but the unknown one."""
    if not made.known.keys() - {made.config.unk}:
        message = (
            f"the vocabulary is {made.config.unk} alone, as no word comes often enough: all are one to the model"
        )
        warnings.warn(f"{message}; lower min_count, {made.config.min_count} now", ChainruleWarning, stacklevel=3)
