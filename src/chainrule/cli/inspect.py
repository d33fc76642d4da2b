"""`chainrule inspect`: analyse the internals of trained models."""

import os
import shutil
import sys
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from chainrule.inspection.report import Inspection

MARKS = ("manifest.json", "checkpoint")  # files by which a model folder or an unfinished run is recognized


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Options of the analyses."""

    only: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Sections, separated by commas: gradient_flow, recurrent_matrix, gates, attention, probability, "
            "training.  [default: all]",
            show_default=False,
        ),
    ] = ""
    tokens: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of tokens of the text to analyse.")] = (
        1000
    )
    lags: Annotated[
        int, typer.Option(min=1, max=10_000, help="Gradient flow: maximum distance to propagate back, in tokens.")
    ] = 100
    positions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Gradient flow: number of positions to propagate from.")
    ] = 64
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROPERTY",
            help="Find cells correlated with a text property (gates): a name, e.g. quotes, or /regex/. Repeatable.",
        ),
    ] = None
    device: options.Device = "auto"
    seed: options.Seed = 0


@options.expand_option_groups()
def inspect(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... [TEXT...]",
            help="Model folders, then text files, folders, globs, or - for stdin.",
            show_default=False,
        ),
    ],
    analysis: Analysis,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write an HTML report with all figures.")
    ] = None,
    threads: options.Threads = None,
    text_format: options.LineFormat,
    json: options.Json = False,
) -> None:
    """Analyse gradients, gates, attention, surprisal and training.

    Without TEXT, the built-in text is used (Pride and Prejudice). A translation model needs sentence pairs: two
    files, or one TSV.

    Examples: chainrule inspect runs/lstm test.txt --out lstm.html

    chainrule inspect runs/rnn runs/lstm runs/transformer test.txt --only gradient_flow --json
    """
    options.limit_threads(threads)
    models, text = split_arguments(arguments)
    if out is not None:
        _check_target(out, text)
    options.check_device(analysis.device)
    from chainrule.inspection.run import inspect as inspect_models

    corpus = text_format.corpus(text) if text else None
    settings = asdict(analysis) | {"track": analysis.track or ()}
    with progress() as bar:
        report = inspect_models(models, corpus, progress=bar, command=options.command_line(), **settings)
    if not report.sections:
        raise UsageError("none of the requested sections applies to these models; see --only")
    if out is not None:
        report.save(out)
    if json:
        emit(report.to_json())
    else:
        _print(report, with_findings=out is None)
    if out is not None:
        say(f"wrote {out}")


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments into model folders and text sources."""
    models = [name for name in arguments if _is_model(name)]
    text = [name for name in arguments if name not in models]
    for name in text:
        if os.path.isdir(name) and (inner := next(Path(name).glob("*/manifest.json"), None)):
            raise UsageError(f"{name} contains models but is not a model; give one of them, such as {inner.parent}")
    if not models and text[0] != "-" and not os.path.lexists(text[0]):
        raise NotFoundError(f"{text[0]} does not exist; give the folder of a model")
    if not models:
        raise UsageError(
            f"{', '.join(text)}: no model folder among them; give at least one folder with a manifest.json"
        )
    return models, text


def _is_model(name: str) -> bool:
    return os.path.isdir(name) and any(os.path.lexists(os.path.join(name, marker)) for marker in MARKS)


def _check_target(out: Path, text: list[str]) -> None:
    """Raise UsageError if `out` is a folder or the text itself, before any work is done."""
    if out.is_dir():
        raise UsageError(f"{out} is a folder; give a file, such as {out / 'inspect.html'}")
    if out.exists() and any(os.path.exists(name) and os.path.samefile(out, name) for name in text):
        raise UsageError(f"{out} is the text itself; choose another --out")


def _print(report: "Inspection", *, with_findings: bool) -> None:
    """Print the summary and, if no report was written, all findings by section."""
    for paragraph in report.paragraphs:
        _print_wrapped(paragraph)
    for section in report.sections if with_findings else ():
        print(f"\n{section.title}")
        for finding in section.sentences:
            _print_wrapped(finding, "  - ")


def _print_wrapped(text: str, bullet: str = "") -> None:
    """Print text wrapped to the terminal width, with control characters shown as symbols."""
    from chainrule.plots.html import BIDI_CONTROLS, CONTROL_PICTURES

    shown = text.translate({**CONTROL_PICTURES, **BIDI_CONTROLS})
    if sys.stdout.isatty():
        width = max(40, shutil.get_terminal_size().columns)
        shown = textwrap.fill(shown, width, subsequent_indent=" " * len(bullet), initial_indent=bullet)
        print(shown)
    else:
        print(f"{bullet}{shown}")
