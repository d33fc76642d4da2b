"""What the commands share in speaking to a person: data to stdout, all else to stderr, bars on a terminal only."""

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from chainrule.progress import Progress, ProgressLines
from chainrule.versions import SCHEMA_VERSION

BAR_WIDTH: Final = 20
"""Columns of a progress bar; long descriptions are shortened instead."""
BESIDE: Final = BAR_WIDTH + 26
"""Columns of all but the description: spinner, bar, percentage, two times and the blanks between them."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def emit(document: dict[str, Any], indent: int | None = 2) -> None:
    """Print one strict JSON document; what is not finite is null."""
    print(dumps(document, indent))


def dumps(document: dict[str, Any], indent: int | None = 2) -> str:
    """One strict JSON document with its schema version."""
    whole = {"schema_version": SCHEMA_VERSION} | document
    text = json.dumps(finite(whole), ensure_ascii=False, allow_nan=False, indent=indent)
    return _SURROGATES.sub("\ufffd", text)  # bytes of a file name that are not UTF-8


def finite(value: Any) -> Any:
    """The same value with null in place of every infinity and NaN."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Pieces:
    """A list of a JSON document that is written piece by piece, because it may be long."""

    def __init__(self, pieces: Iterable[list[Any]]) -> None:
        self.pieces = pieces


def emit_in_pieces(document: dict[str, Any]) -> None:
    """Print one strict JSON document on one line, as `emit` does, whose longest lists are `Pieces`."""
    opening = "{"
    for name, value in ({"schema_version": SCHEMA_VERSION} | document).items():
        print(f"{opening}{_strict(name)}: ", end="")
        opening = ", "
        if not isinstance(value, Pieces):
            print(_strict(value), end="")
            continue
        print("[", end="")
        separator = ""
        for piece in filter(None, value.pieces):
            print(separator + _strict(piece)[1:-1], end="")
            separator = ", "
        print("]", end="")
    print("}")


def _strict(value: Any) -> str:
    return _SURROGATES.sub("\ufffd", json.dumps(finite(value), ensure_ascii=False, allow_nan=False))


def flush() -> None:
    """Hand over what was printed: somebody may wait for it before the next line is written."""
    sys.stdout.flush()


def flushed_lines(batches: Iterable[list[str]]) -> Iterator[str]:
    """The lines one by one; at the end of a batch what was printed of them is handed over."""
    for lines in batches:
        yield from lines
        flush()


def say(message: str) -> None:
    """One line to stderr."""
    print(message, file=sys.stderr)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as a person wants to read it; takes the place of `warnings.showwarning`."""
    say(f"warning: {message}")


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar on stderr while the block runs if stderr is a terminal, else a line every 30 seconds."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield ProgressLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=BAR_WIDTH),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("starting", total=None)

        def draw(what: str, done: int, total: int | None) -> None:
            bars.update(task, description=shorten(what, console.width - BESIDE), completed=done, total=total)

        shown, warnings.showwarning = warnings.showwarning, _above(bars)
        try:
            yield draw
        finally:
            warnings.showwarning = shown


def shorten(text: str, width: int) -> str:
    """Cut a text to `width` characters, `…` at its end where it was longer."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _above(bars: Any) -> Any:
    """Warnings printed above a live bar instead of through it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        bars.console.print(f"warning: {message}", markup=False, highlight=False)

    return show
