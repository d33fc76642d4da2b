"""Finished rows and the models still needed by mixtures and figures."""

import shutil
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path

from chainrule import api
from chainrule.comparison import journal, page
from chainrule.comparison.journal import Journal
from chainrule.comparison.measurement import Measured
from chainrule.comparison.mixtures import choose_components, rank_by_validation
from chainrule.comparison.results import Row, is_unigram, rankable_rows
from chainrule.comparison.settings import Settings
from chainrule.errors import ChainruleError, UsageError
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.storage import verified_dir


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
        """Raise if the folder contains a model, another comparison, or a comparison of another text."""
        if self.path.exists() and (not self.path.is_dir() or (self.path / verified_dir.MANIFEST).exists()):
            raise UsageError(f"{self.path} is a file or a model; choose another --out")
        if (self.path / verified_dir.CHECKPOINT).exists():
            raise UsageError(f"{self.path} contains an unfinished run; choose another --out")
        is_unfinished = (self.path / journal.NAME).exists()  # even if its report has been written
        if self.resume and not is_unfinished and page.read_origin(self.path):
            raise UsageError(
                f"{self.path} contains a finished comparison; remove --resume, or choose another --out"
            )
        if self.force or self.resume:
            return  # the journal is checked when it is opened
        for run in sorted(self.models.glob(f"*/{verified_dir.CHECKPOINT}")):
            verified_dir.check_replace(run.parent, {})
        reports = page.read_origin(self.path)
        recorded = [record for record in map(verified_dir.read_facts, self._saved()) if record is not None]
        commands = [verified_dir.command_words(record.get("command")) for record in (*recorded, *reports)]
        command = verified_dir.command_words(self.command)
        if commands and (command is None or any(words != command for words in commands)):
            raise UsageError(f"{self.path} contains another comparison; {verified_dir.REPLACE_HINT}")
        digests = [(record["text_sha256"], text_sha256) for record in reports]
        digests += [(verified_dir.text_sha256(record), training_sha256) for record in recorded]
        if any(
            current_sha256 is not None and recorded_sha256 != current_sha256
            for recorded_sha256, current_sha256 in digests
        ):
            raise UsageError(f"{self.path} contains a comparison of another text; {verified_dir.REPLACE_HINT}")

    def save(self, model: Model, name: str) -> None:
        """Save one model; before the first, remove the report and the models of another comparison.

        Files shared with other models of the comparison, such as tokenizer and speller, are hard-linked.
        """
        self.begin(None if model.origin.fingerprint is None else model.origin.fingerprint.sha256)
        path = self.models / name
        model.save(path, force=True)
        verified_dir.share_files(path, [other for other in self._saved() if other != path])

    def discard(self, name: str) -> None:
        """Remove a saved model that is no longer needed."""
        if (self.models / name / verified_dir.MANIFEST).exists():
            self._remove([self.models / name])

    def has_model(self, name: str) -> bool:
        """Whether a model of this name is saved; files are verified on loading."""
        return verified_dir.read_facts(self.models / name) is not None

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
        page.remove(self.path)
        current = (verified_dir.command_words(self.command), training_sha256)
        outdated = []
        for path in self._saved():
            record = verified_dir.read_facts(path) or {}
            if (verified_dir.command_words(record.get("command")), verified_dir.text_sha256(record)) != current:
                outdated.append(path)
        self._remove(outdated)

    def _saved(self) -> list[Path]:
        """Model folders with an intact manifest; nothing else is ever removed."""
        paths = sorted(path.parent for path in self.models.glob(f"*/{verified_dir.MANIFEST}"))
        return [path for path in paths if verified_dir.read_facts(path) is not None]

    def _remove(self, models: Sequence[Path]) -> None:
        for model in models:
            verified_dir.check_writable_target(model)  # raises if it holds foreign files
            try:
                shutil.rmtree(model)
            except OSError as error:
                raise ChainruleError(f"cannot remove {model}: {error.strerror}; remove it by hand") from error


class Store:
    """Finished rows, the nats of their test lines, and the models still needed."""

    def __init__(self, settings: Settings, output: Output | None, journal: Journal) -> None:
        self.settings, self.output, self.journal = settings, output, journal
        self.rows: list[Row] = []
        self.line_nats: dict[str, Floats] = {}
        self.models: dict[str, Model] = {}
        if output is not None:
            self._forget_missing(output)

    def add(self, measured: Measured) -> None:
        """Add a finished row; save its model if needed, and release models that are no longer needed."""
        row, is_new = measured.row, measured.row.name not in self.journal.finished
        self.rows.append(row)
        self.line_nats[row.name] = measured.line_nats
        needed = needed_names(self.rows)
        if measured.model is not None:
            self.models[row.name] = measured.model
            if self.output is not None and is_new and (self.settings.keep == "all" or row.name in needed):
                self.output.save(measured.model, row.name)
        if is_new:
            self.journal.add(measured)
        for name in {row.name for row in self.rows} - needed:
            self.models.pop(name, None)
            if self.output is not None and self.settings.keep != "all":
                self.output.discard(name)

    def _forget_missing(self, output: Output) -> None:
        """Drop journal entries of needed models missing from the folder, so that they are trained again."""
        rows = [measured.row for measured in self.journal.finished.values()]
        names = {row.name for row in rows} if self.settings.keep == "all" else needed_names(rows)
        names |= {name for name, _ in self.journal.runs if name not in self.journal.finished}
        for name in names:
            if not output.has_model(name):
                self.journal.forget(name)

    def get(self, name: str) -> Model:
        """Return a needed model, loading it from the folder if this run did not train it."""
        if name not in self.models:
            assert self.output is not None
            self.models[name] = api.load(
                self.output.models / name, kind="language model", device=self.settings.device
            )
        return self.models[name]


def needed_names(rows: Sequence[Row]) -> set[str]:
    """Names of the models that mixtures, figures and `keep best` need.

    These are the best model of each tokenizer and family on the test text, the components of the mixtures, and for
    each tokenizer the best unigram model and the model with the best validation result.
    """
    names = {row.name for row in best_by(rows, "tokenizer", "family")}
    for tokenizer in {row.tokenizer for row in rows}:
        of_tokenizer = [row for row in rows if row.tokenizer == tokenizer]
        names.update(name for chosen in choose_components(of_tokenizer) for name in chosen)
        names.update(row.name for row in rankable_rows(filter(is_unigram, of_tokenizer))[:1])
        names.update(row.name for row in rank_by_validation(of_tokenizer)[:1])
    return names


def best_by(rows: Sequence[Row], *fields: str) -> Iterator[Row]:
    """Best row on the test text for each combination of `fields`, best first."""
    keys = set()
    for row in rankable_rows(rows):
        key = tuple(getattr(row, field) for field in fields)
        if key not in keys:
            keys.add(key)
            yield row


def kept_names(rows: Sequence[Row], keep: str) -> set[str]:
    """Names of the models to keep after the comparison."""
    if keep == "none":
        return set()
    if keep == "all":
        return {row.name for row in rows}
    return {row.name for row in best_by(rows, "family")}
