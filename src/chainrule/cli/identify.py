"""`chainrule identify`: which of several models a line belongs to."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, flush, progress
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.applications.identify import Identifier
    from chainrule.evaluation.classes import Classes

LINES_AT_ONCE = 1 << 14


def identify(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... [FILE]", help="Two models or more, FOLDER or NAME=FOLDER; then the lines."
        ),
    ],
    labels: Annotated[
        bool, typer.Option("--labels", help="FILE holds label, tab, text: print accuracy and confusion.")
    ] = False,
    prior: Annotated[str | None, typer.Option(help="How probable each is beforehand, as in 2,1,1.")] = None,
    column: options.Column = None,
    errors: options.Errors = "strict",
    threads: options.Threads = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Name the model that gives each line the highest probability.

    With a model for each class this identifies the language, the author or the kind of a text.

    Example: chainrule identify en=runs/english de=runs/german lines.txt
    """
    options.use_threads(threads)
    folders, file = _parted(models)

    from chainrule import api
    from chainrule.applications.identify import Identifier

    weights = None if prior is None else [_number(weight) for weight in prior.split(",")]
    where = options.device(device)
    found = Identifier.of({name: api.load(path, device=where) for name, path in folders.items()}, weights)
    if labels:
        _print_figures(_evaluate(found, file, column or "text"), json)
    else:
        _print_lines(found, file, options.text_rules(column, errors, False), json)


def _parted(given: list[str]) -> tuple[dict[str, Path], str]:
    """The folders by name, and the file: the last where it is neither a folder nor NAME=FOLDER, else stdin."""
    *models, file = given if not _is_model(given[-1]) else [*given, "-"]
    folders: dict[str, Path] = {}
    for each in models:
        name, equals, folder = each.partition("=")
        path = Path(folder) if equals and not Path(each).exists() else Path(each)
        label = name if path != Path(each) else path.resolve().name
        if label in folders:
            raise UsageError(f"two models are called '{label}'; give them names: NAME={path}")
        folders[label] = path
    return folders, file


def _is_model(given: str) -> bool:
    return given != "-" and (Path(given).is_dir() or (not Path(given).exists() and "=" in given))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"the prior holds '{text}', which is no number; give weights such as 2,1,1") from None


def _print_lines(identifier: "Identifier", file: str, rules: dict[str, str], json: bool) -> None:
    from chainrule.applications.lines import batches_for
    from chainrule.text.corpus import Corpus

    for lines in batches_for(identifier.models, Corpus.of(file, **rules, reads_once=True)):  # type: ignore[arg-type]
        for text, row in zip(lines, identifier.probabilities(lines).tolist(), strict=True):
            best = row.index(max(row))
            if json:
                shares = dict(zip(identifier.names, row, strict=True))
                emit({"text": text, "label": identifier.names[best], "probabilities": shares}, indent=None)
            else:
                print(f"{identifier.names[best]}\t{row[best]:.6f}\t{text}")
        flush()


def _evaluate(identifier: "Identifier", file: str, column: str) -> "Classes":
    from chainrule.evaluation import classes
    from chainrule.text.labelled import read_labelled

    data = read_labelled(file, column=column)
    is_line = all(model.lm.context == "line" for model in identifier.models)
    found: list[str] = []
    with progress() as draw:
        for first in range(0, len(data), LINES_AT_ONCE if is_line else len(data)):
            last = first + LINES_AT_ONCE if is_line else len(data)
            found += identifier.identify(data.texts[first:last])
            draw("identifying", len(found), len(data))
    return classes.evaluate(data.labels, found, identifier.names)


def _print_figures(figures: "Classes", json: bool) -> None:
    document = {"lines": int(figures.support.sum()), "accuracy": figures.accuracy, "macro_f1": figures.macro_f1}
    counts = [dict(zip(figures.labels, row, strict=True)) for row in figures.confusion.tolist()]
    if json:
        emit(document | {"confusion": dict(zip(figures.labels, counts, strict=True))})
        return
    for name, value in document.items():
        print(f"{name:<10}{value:,}" if isinstance(value, int) else f"{name:<10}{value:.4f}")
    width = max(4, *(len(label) for label in figures.labels), math.ceil(math.log10(document["lines"] + 1)))
    print("\nrows: the true label; columns: the one found")
    print(" ".join(f"{name:>{width}}" for name in ("", *figures.labels)).rstrip())
    for label, row in zip(figures.labels, figures.confusion.tolist(), strict=True):
        print(" ".join(f"{cell:>{width}}" for cell in (label, *row)))
