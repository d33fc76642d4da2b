"""`chainrule inspect`: a look inside trained models, in words, as a page, as JSON."""

import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from chainrule.microscope.inspection import Inspection

MARKS = ("manifest.json", "checkpoint")  # what tells the folder of a model, or of a run, from one of texts


def inspect(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... [TEXT...]",
            help="Folders of models; then files, folders, globs, or - for stdin.",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with all figures.")] = None,
    only: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="gradient_flow, recurrent_matrix, gates, attention, probability, training, parted by commas.  "
            "[default: all]",
            show_default=False,
        ),
    ] = "",
    tokens: Annotated[int, typer.Option(min=1, max=1_000_000, help="How much of the text to look at.")] = 1000,
    lags: Annotated[
        int, typer.Option(min=1, max=10_000, help="Gradient flow: how far back to follow it, in tokens.")
    ] = 100,
    positions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Gradient flow: from how many tokens to follow it.")
    ] = 64,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROPERTY", help="Gates: find the cells that follow it: a name such as quotes, or /regex/."
        ),
    ] = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    json: options.Json = False,
) -> None:
    """Look inside models: gradients, gates, attention, surprisal.

    And how their training went.

    Without TEXT: on the embedded text, Pride and Prejudice. A translator
    reads pairs: two files, or one TSV.

    Examples: chainrule inspect runs/lstm test.txt --out lstm.html

    chainrule inspect runs/rnn runs/lstm runs/transformer test.txt --only gradient_flow --json
    """
    options.use_threads(threads)
    models, text = parted(given)
    if out is not None:
        _check_target(out, text)
    options.device(device)
    from chainrule.microscope.inspecting import inspect as look
    from chainrule.text.corpus import Corpus

    corpus = Corpus.of(text, **options.text_rules(column, errors, drop_blank_lines)) if text else None
    with progress() as bar:
        found = look(
            models,
            corpus,
            only=only,
            tokens=tokens,
            lags=lags,
            positions=positions,
            track=track or (),
            seed=seed,
            device=device,
            progress=bar,
            command=options.command_line(),
        )
    if not found.sections:
        raise UsageError("none of the sections asked for has anything to say of these models; see --only")
    if out is not None:
        found.save(out)
    if json:
        emit(found.to_json())
    else:
        _print(found, with_findings=out is None)
    if out is not None:
        say(f"wrote {out}")


def parted(given: list[str]) -> tuple[list[str], list[str]]:
    """The folders of models, and what is left: text."""
    models = [name for name in given if _is_model(name)]
    text = [name for name in given if name not in models]
    for name in text:
        if os.path.isdir(name) and (inner := next(Path(name).glob("*/manifest.json"), None)):
            raise UsageError(f"{name} holds models and is none; name one of them, such as {inner.parent}")
    if not models and text[0] != "-" and not os.path.lexists(text[0]):
        raise NotFoundError(f"{text[0]} does not exist; give the folder of a model")
    if not models:
        raise UsageError(
            f"{', '.join(text)}: no model folder among them; name at least one, with its manifest.json"
        )
    return models, text


def _is_model(name: str) -> bool:
    return os.path.isdir(name) and any(os.path.lexists(os.path.join(name, mark)) for mark in MARKS)


def _check_target(out: Path, text: list[str]) -> None:
    """Refuse now what could not be written after all the work, and what would overwrite the text."""
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file, such as {out / 'inspect.html'}")
    if out.exists() and any(os.path.exists(name) and os.path.samefile(out, name) for name in text):
        raise UsageError(f"{out} is the text itself; choose another --out")


def _print(found: "Inspection", *, with_findings: bool) -> None:
    """The verdict, and all findings by section where no page has them."""
    from chainrule.microscope.verdict import in_words

    for paragraph in in_words(found.verdict, found.names):
        _say_in_lines(paragraph)
    for section in found.sections if with_findings else ():
        print(f"\n{section.title}")
        for finding in section.findings:
            _say_in_lines(finding, "  - ")


def _say_in_lines(words: str, mark: str = "") -> None:
    """On a terminal in lines of its width; what a text could do to a terminal is shown as a symbol."""
    from chainrule.inspection.surprisal import CONTROL_PICTURES, TURNS

    shown = words.translate({**CONTROL_PICTURES, **TURNS})
    if sys.stdout.isatty():
        width = max(40, shutil.get_terminal_size().columns)
        shown = textwrap.fill(shown, width, subsequent_indent=" " * len(mark), initial_indent=mark)
        print(shown)
    else:
        print(f"{mark}{shown}")
