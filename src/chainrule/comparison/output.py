"""Output folder of a comparison: report, results and models."""

import shutil
from collections.abc import Sequence, Set
from contextlib import suppress
from pathlib import Path

from chainrule import folder, manifest
from chainrule.comparison import journal
from chainrule.errors import ChainruleError, UsageError
from chainrule.model import Model
from chainrule.report import files
from chainrule.report.results import Results


class Output:
    """Output folder with `report.html`, `results.json` and the models under `models/`.

    The report of an earlier comparison is removed before its first model is replaced, so that an interrupted run
    may leave models without a report but never a report of other models.
    """

    def __init__(self, path: Path, command: str, force: bool, resume: bool = False) -> None:
        self.path, self.command, self.force, self.resume = path, command, force, resume
        self.models = path / "models"
        self._is_begun = False

    def check(self, text_sha256: str | None = None, training_sha256: str | None = None) -> None:
        """Raise if the folder holds a model, another comparison, or a comparison of another text."""
        if self.path.exists() and (not self.path.is_dir() or (self.path / manifest.NAME).exists()):
            raise UsageError(f"{self.path} is a file or a model; choose another --out")
        if (self.path / folder.CHECKPOINT).exists():
            raise UsageError(f"{self.path} holds an unfinished run; choose another --out")
        is_unfinished = (self.path / journal.NAME).exists()  # even if its report has been written
        if self.resume and not is_unfinished and files.read_origin(self.path):
            raise UsageError(f"{self.path} holds a finished comparison; remove --resume, or choose another --out")
        if self.force or self.resume:
            return  # the journal is checked when it is opened
        for run in sorted(self.models.glob(f"*/{folder.CHECKPOINT}")):
            folder.check_replace(run.parent, {})
        reports = files.read_origin(self.path)
        recorded = [record for record in map(folder.read_facts, self._saved()) if record is not None]
        commands = [folder.command_words(record.get("command")) for record in (*recorded, *reports)]
        command = folder.command_words(self.command)
        if commands and (command is None or any(words != command for words in commands)):
            raise UsageError(f"{self.path} holds another comparison; {folder.REPLACE_HINT}")
        digests = [(record["text_sha256"], text_sha256) for record in reports]
        digests += [(folder.text_sha256(record), training_sha256) for record in recorded]
        if any(
            current_sha256 is not None and recorded_sha256 != current_sha256
            for recorded_sha256, current_sha256 in digests
        ):
            raise UsageError(f"{self.path} holds a comparison of another text; {folder.REPLACE_HINT}")

    def save(self, model: Model, name: str) -> None:
        """Save one model; before the first, remove the report and the models of another comparison.

        Files shared with other models of the comparison, such as tokenizer and speller, are hard-linked.
        """
        self.begin(None if model.origin.fingerprint is None else model.origin.fingerprint.sha256)
        path = self.models / name
        model.save(path, force=True)
        folder.share_files(path, [other for other in self._saved() if other != path])

    def discard(self, name: str) -> None:
        """Remove a saved model that is no longer needed."""
        if (self.models / name / manifest.NAME).exists():
            self._remove([self.models / name])

    def has_model(self, name: str) -> bool:
        """Whether a model of this name is saved; files are verified on loading."""
        return folder.read_facts(self.models / name) is not None

    def write(self, results: Results) -> None:
        """Write the report and the results."""
        files.write(results, self.path)

    def remove_others(self, names: Set[str]) -> None:
        """Remove all models except those named."""
        self._remove([model for model in self._saved() if model.name not in names])
        with suppress(OSError):  # the folder may hold other files
            self.models.rmdir()

    def begin(self, training_sha256: str | None) -> None:
        """Remove the remains of another comparison, once."""
        if self._is_begun:
            return
        self._is_begun = True
        files.remove(self.path)
        current = (folder.command_words(self.command), training_sha256)
        outdated = []
        for path in self._saved():
            record = folder.read_facts(path) or {}
            if (folder.command_words(record.get("command")), folder.text_sha256(record)) != current:
                outdated.append(path)
        self._remove(outdated)

    def _saved(self) -> list[Path]:
        """Model folders with an intact manifest; nothing else is ever removed."""
        paths = sorted(path.parent for path in self.models.glob(f"*/{manifest.NAME}"))
        return [path for path in paths if folder.read_facts(path) is not None]

    def _remove(self, models: Sequence[Path]) -> None:
        for model in models:
            folder.check_writable_target(model)  # raises if it holds foreign files
            try:
                shutil.rmtree(model)
            except OSError as error:
                raise ChainruleError(f"cannot remove {model}: {error.strerror}; remove it by hand") from error
