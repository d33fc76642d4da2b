"""Finished rows and the models still needed by mixtures and figures."""

from collections.abc import Iterator, Sequence

from chainrule import artifact
from chainrule.comparison.journal import Journal
from chainrule.comparison.measurement import Measured
from chainrule.comparison.mixtures import choose_components, rank_by_validation
from chainrule.comparison.output import Output
from chainrule.comparison.settings import Settings
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.report.results import Row, is_unigram, rankable_rows


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
        """Add a finished row; save its model if needed and release models that no longer are."""
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
            self.models[name] = artifact.load(self.output.models / name, self.settings.device)
        return self.models[name]


def needed_names(rows: Sequence[Row]) -> set[str]:
    """Models needed by mixtures, figures and `keep best`: the best by tokenizer and family on either text."""
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
