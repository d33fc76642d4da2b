"""Console output: data and JSON on stdout, messages and progress bars on stderr."""

import json
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

from chainrule.progress import Progress, ProgressLines
from chainrule.storage.strict_json import replace_nonfinite
from chainrule.system import SCHEMA_VERSION

BAR_WIDTH: Final = 20
"""Columns of a progress bar; long descriptions are truncated to fit."""
FIXED_COLUMNS: Final = BAR_WIDTH + 26
"""Columns of everything but the description: spinner, bar, percentage, two times and the blanks between them."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def emit(document: dict[str, Any], indent: int | None = 2) -> None:
    """Print a strict JSON document; infinities and NaN become null."""
    print(dumps(document, indent))


def dumps(document: dict[str, Any], indent: int | None = 2) -> str:
    """Return a strict JSON document with `schema_version`."""
    return _strict({"schema_version": SCHEMA_VERSION} | document, indent)


class StreamedList:
    """A long list in a JSON document, written chunk by chunk."""

    def __init__(self, chunks: Iterable[list[Any]]) -> None:
        self.chunks = chunks


def emit_streamed(document: dict[str, Any]) -> None:
    """Print a strict JSON document on one line; values of type `StreamedList` are written chunk by chunk."""
    prefix = "{"
    for name, value in ({"schema_version": SCHEMA_VERSION} | document).items():
        print(f"{prefix}{_strict(name)}: ", end="")
        prefix = ", "
        if not isinstance(value, StreamedList):
            print(_strict(value), end="")
            continue
        print("[", end="")
        separator = ""
        for chunk in filter(None, value.chunks):
            print(separator + _strict(chunk)[1:-1], end="")
            separator = ", "
        print("]", end="")
    print("}")


def _strict(value: Any, indent: int | None = None) -> str:
    text = json.dumps(replace_nonfinite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    return _SURROGATES.sub("\ufffd", text)  # surrogates come from file names that are not UTF-8


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> None:
    """Print an aligned table: the first `names` columns left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [f"{cell:{'<' if i < names else '>'}{widths[i]}}" for i, cell in enumerate(row)]
        print("  ".join(cells).rstrip())


def flush() -> None:
    """Flush stdout, so that a program reading the output gets each batch immediately."""
    sys.stdout.flush()


def flushed_lines(batches: Iterable[list[str]]) -> Iterator[str]:
    """Yield the lines one by one and flush stdout after each batch."""
    for lines in batches:
        yield from lines
        flush()


def say(message: str) -> None:
    """Print a line to stderr."""
    print(message, file=sys.stderr)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line; replaces `warnings.showwarning`."""
    say(f"warning: {message}")


@contextmanager
def progress() -> Iterator[Progress]:
    """Show a progress bar on stderr if it is a terminal, otherwise print a line every 30 seconds."""
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
            bars.update(
                task, description=truncate(what, console.width - FIXED_COLUMNS), completed=done, total=total
            )

        previous_showwarning, warnings.showwarning = warnings.showwarning, _warn_above_bar(bars)
        try:
            yield draw
        finally:
            warnings.showwarning = previous_showwarning


def truncate(text: str, width: int) -> str:
    """Truncate a text to `width` characters, ending in `…`."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _warn_above_bar(bars: Any) -> Any:
    """Return a `showwarning` that prints above the live progress bar."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        bars.console.print(f"warning: {message}", markup=False, highlight=False)

    return show
