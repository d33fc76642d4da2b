"""`chainrule identify`: classify lines by the model that assigns them the highest probability."""

import contextlib
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, flush, progress
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.applications.identify import Identifier
    from chainrule.distributed.options import EngineOptions
    from chainrule.evaluation.classification import ClassificationReport
    from chainrule.text.corpus import Corpus

LINES_AT_ONCE = 1 << 14


@options.expand_option_groups(options.ENGINE | options.RESUME_JOB)
def identify(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... [FILE]",
            help="Two or more model folders, as FOLDER or NAME=FOLDER, then the file of lines (stdin if omitted).",
        ),
    ],
    *,
    labels: Annotated[
        bool, typer.Option("--labels", help="FILE contains label<TAB>text: print accuracy and confusion matrix.")
    ] = False,
    prior: Annotated[
        str | None, typer.Option(help="Prior weight of each model, e.g. 2,1,1.  [default: equal]")
    ] = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    text_format: options.TextFormat,
    json: options.Json = False,
    settings: dict[str, Any],
) -> None:
    """Print the model that assigns each line the highest probability.

    With one model per class, this identifies the language, author or genre of a text.

    Example: chainrule identify en=runs/english de=runs/german lines.txt
    """
    options.limit_threads(threads)
    folders, file = _split_arguments(models)
    engine = options.engine_options(settings)
    if labels and engine.uses_engine:
        raise UsageError("--labels evaluates in one process; leave out --workers and --on")

    from chainrule import api
    from chainrule.applications.identify import Identifier
    from chainrule.applications.line_scoring import read_batches_for

    weights = None if prior is None else [_number(weight) for weight in prior.split(",")]
    device_name = options.check_device(device)
    identifier = Identifier.of(
        {name: api.load(path, kind="language model", device=device_name) for name, path in folders.items()}, weights
    )
    corpus = None if labels else text_format.corpus(file, reads_once=not engine.uses_engine)
    if corpus is None:
        _print_figures(_evaluate(identifier, file, text_format.column or "text"), json)
    elif engine.uses_engine:
        source = _IdentifyLines(
            tuple((name, folder.absolute()) for name, folder in folders.items()), weights, device_name, json
        )
        _identify_on_engine(engine, identifier, corpus, source)
    else:
        for lines in read_batches_for(identifier.models, corpus):
            _print_lines(identifier, lines, json)


def _split_arguments(arguments: list[str]) -> tuple[dict[str, Path], str]:
    """Split the arguments into model folders by name and the input file; stdin if the last is a model."""
    *models, file = arguments if not _is_model(arguments[-1]) else [*arguments, "-"]
    folders: dict[str, Path] = {}
    for argument in models:
        name, equals, folder = argument.partition("=")
        path = Path(folder) if equals and not Path(argument).exists() else Path(argument)
        label = name if path != Path(argument) else path.resolve().name
        if label in folders:
            raise UsageError(f"two models are called '{label}'; give them names: NAME={path}")
        folders[label] = path
    return folders, file


def _is_model(argument: str) -> bool:
    return argument != "-" and (Path(argument).is_dir() or (not Path(argument).exists() and "=" in argument))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"the prior contains '{text}', which is not a number; give weights such as 2,1,1"
        ) from None


def _print_lines(identifier: "Identifier", lines: list[str], json: bool) -> None:
    for text, row in zip(lines, identifier.probabilities(lines).tolist(), strict=True):
        best = row.index(max(row))
        if json:
            probabilities = dict(zip(identifier.names, row, strict=True))
            emit({"text": text, "label": identifier.names[best], "probabilities": probabilities}, indent=None)
        else:
            print(f"{identifier.names[best]}\t{row[best]:.6f}\t{text}")
    flush()


@dataclass(frozen=True, slots=True)
class _IdentifyLines:
    """Identify lines in a worker process."""

    folders: tuple[tuple[str, Path], ...]
    prior: list[float] | None
    device: str
    json: bool

    def __call__(self, lines: list[str]) -> bytes:
        """Return what the command prints for these lines."""
        from chainrule.applications.identify import Identifier
        from chainrule.applications.line_jobs import load_in_worker

        models = {name: load_in_worker(folder, self.device) for name, folder in self.folders}
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            _print_lines(Identifier.of(models, self.prior), lines, self.json)
        return output.getvalue().encode()


def _identify_on_engine(
    engine: "EngineOptions", identifier: "Identifier", corpus: "Corpus", identify_lines: _IdentifyLines
) -> None:
    """Identify the lines of a corpus on an engine and print the result in the order of the text."""
    from chainrule.applications.line_jobs import check_context, identify_folder, map_lines
    from chainrule.distributed.start import start_engine

    check_context(identifier.models)
    models = {name: identify_folder(folder) for name, folder in identify_lines.folders}
    job = {"job": "identify", "models": models, "prior": identifier.prior, "json": identify_lines.json}
    with contextlib.ExitStack() as stack:
        with progress() as draw:
            running = stack.enter_context(start_engine(engine, corpus, job, draw))
            output = map_lines(running, corpus, "labels", identify_lines)
        options.write_to_stdout(output)


def _evaluate(identifier: "Identifier", file: str, column: str) -> "ClassificationReport":
    from chainrule.evaluation import classification
    from chainrule.text.labelled import read_labelled

    data = read_labelled(file, column=column)
    is_line = all(model.lm.context == "line" for model in identifier.models)
    predicted: list[str] = []
    with progress() as draw:
        for first in range(0, len(data), LINES_AT_ONCE if is_line else len(data)):
            last = first + LINES_AT_ONCE if is_line else len(data)
            predicted += identifier.identify(data.texts[first:last])
            draw("identifying", len(predicted), len(data))
    return classification.evaluate(data.labels, predicted, identifier.names)


def _print_figures(figures: "ClassificationReport", json: bool) -> None:
    document = {"lines": int(figures.support.sum()), "accuracy": figures.accuracy, "macro_f1": figures.macro_f1}
    counts = [dict(zip(figures.labels, row, strict=True)) for row in figures.confusion.tolist()]
    if json:
        emit(document | {"confusion": dict(zip(figures.labels, counts, strict=True))})
        return
    for name, value in document.items():
        print(f"{name:<10}{value:,}" if isinstance(value, int) else f"{name:<10}{value:.4f}")
    width = max(4, *(len(label) for label in figures.labels), math.ceil(math.log10(document["lines"] + 1)))
    print("\nrows: true label; columns: predicted label")
    print(" ".join(f"{name:>{width}}" for name in ("", *figures.labels)).rstrip())
    for label, row in zip(figures.labels, figures.confusion.tolist(), strict=True):
        print(" ".join(f"{cell:>{width}}" for cell in (label, *row)))
