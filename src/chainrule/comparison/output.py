"""The folder of a comparison: its report, its results and its models."""

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
    """The folder of a comparison: `report.html` and `results.json`, which describe the models under `models/`.

    The report of an earlier comparison is removed before its first model is replaced, so that a run that is
    interrupted leaves models without a report, never a report of other models.
    """

    def __init__(self, path: Path, command: str, force: bool, resume: bool = False) -> None:
        self.path, self.command, self.force, self.resume = path, command, force, resume
        self.models = path / "models"
        self._is_begun = False

    def check(self, text_sha256: str | None = None, training_sha256: str | None = None) -> None:
        """Refuse a model, another comparison, or the same one of another text, as far as the text is known."""
        if self.path.exists() and (not self.path.is_dir() or (self.path / manifest.NAME).exists()):
            raise UsageError(f"{self.path} is a file or a model; choose another --out")
        if (self.path / folder.CHECKPOINT).exists():
            raise UsageError(f"{self.path} holds an unfinished run; choose another --out")
        is_unfinished = (self.path / journal.NAME).exists()  # its report may be written already
        if self.resume and not is_unfinished and files.read_origin(self.path):
            raise UsageError(f"{self.path} holds a finished comparison; remove --resume, or choose another --out")
        if self.force or self.resume:
            return  # a journal is compared before it is continued
        for run in sorted(self.models.glob(f"*/{folder.CHECKPOINT}")):
            folder.check_replace(run.parent, {})
        earlier = files.read_origin(self.path)
        recorded = [facts for facts in map(folder.recorded, self._saved()) if facts is not None]
        commands = [folder.command_words(facts.get("command")) for facts in (*recorded, *earlier)]
        command = folder.command_words(self.command)
        if commands and (command is None or any(words != command for words in commands)):
            raise UsageError(f"{self.path} holds another comparison; {folder.REPLACE}")
        known = [(facts["text_sha256"], text_sha256) for facts in earlier]
        known += [(folder.text_sha256(facts), training_sha256) for facts in recorded]
        if any(now is not None and then != now for then, now in known):
            raise UsageError(f"{self.path} holds a comparison of another text; {folder.REPLACE}")

    def save(self, model: Model, name: str) -> None:
        """Save one model; before the first, remove the report and the models of another comparison.

        Files that other models of the comparison have too, such as the tokenizer and the speller, are hard links.
        """
        self.begin(None if model.origin.fingerprint is None else model.origin.fingerprint.sha256)
        path = self.models / name
        model.save(path, force=True)
        folder.share_files(path, [other for other in self._saved() if other != path])

    def discard(self, name: str) -> None:
        """Remove a model that is no longer needed, if it was saved."""
        if (self.models / name / manifest.NAME).exists():
            self._remove([self.models / name])

    def has_model(self, name: str) -> bool:
        """Whether a model of this name is saved; its files are verified when it is loaded."""
        return folder.recorded(self.models / name) is not None

    def write(self, results: Results) -> None:
        """Write the report and the results."""
        files.write(results, self.path)

    def remove_others(self, names: Set[str]) -> None:
        """Remove all models but those of these names."""
        self._remove([model for model in self._saved() if model.name not in names])
        with suppress(OSError):  # files of others may be there
            self.models.rmdir()

    def begin(self, training_sha256: str | None) -> None:
        """Remove what is left of another comparison, once."""
        if self._is_begun:
            return
        self._is_begun = True
        files.remove(self.path)
        wanted = (folder.command_words(self.command), training_sha256)
        others = []
        for path in self._saved():
            facts = folder.recorded(path) or {}
            if (folder.command_words(facts.get("command")), folder.text_sha256(facts)) != wanted:
                others.append(path)
        self._remove(others)

    def _saved(self) -> list[Path]:
        """The model folders under `models/`; what has no intact manifest is not ours to remove."""
        paths = sorted(path.parent for path in self.models.glob(f"*/{manifest.NAME}"))
        return [path for path in paths if folder.recorded(path) is not None]

    def _remove(self, models: Sequence[Path]) -> None:
        for model in models:
            folder.check_target(model)  # which refuses files of others in it
            try:
                shutil.rmtree(model)
            except OSError as error:
                raise ChainruleError(f"cannot remove {model}: {error.strerror}; remove it by hand") from error
