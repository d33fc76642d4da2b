"""`chainrule recipes`: settings that are known to work."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, say

if TYPE_CHECKING:
    from chainrule.recipes import Recipe

COLUMNS = ("name", "task", "family", "text", "expected", "time", "hardware")


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this one, as TOML.")] = None,
    json: options.Json = False,
) -> None:
    """List what can follow --recipe, or print one.

    Examples: chainrule recipes

    chainrule recipes small-lstm > mine.toml     then change it, and train with --config mine.toml
    """
    from chainrule import recipes as shelf

    if name is None:
        _list([shelf.read(each) for each in shelf.names()], json)
    elif json:
        emit(_about(shelf.read(name)) | shelf.read(name).tables)
    else:
        print(shelf.path(name).read_text(encoding="utf-8"), end="")


def _list(found: "list[Recipe]", json: bool) -> None:
    if json:
        emit({"recipes": [_about(recipe) for recipe in found]})
        return
    _print_table(found)
    say("chainrule recipes NAME prints one, with the command that follows it")


def _about(recipe: "Recipe") -> dict[str, Any]:
    about = dataclasses.asdict(recipe)
    del about["tables"]
    return about


def _print_table(found: "list[Recipe]") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in COLUMNS:
        table.add_column(column, no_wrap=column in ("name", "task", "family"))
    for recipe in found:
        table.add_row(*(str(getattr(recipe, column)) for column in COLUMNS))
    console.print(table, markup=False, highlight=False)
