"""`chainrule recipes`: list and print tested configurations."""

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
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Recipe to print as TOML.")] = None,
    json: options.Json = False,
) -> None:
    """List the recipes for --recipe, or print one.

    Examples: chainrule recipes

    chainrule recipes small-lstm > mine.toml     (edit it, then train with --config mine.toml)
    """
    from chainrule import recipes as library

    if name is None:
        _list([library.read(recipe) for recipe in library.names()], json)
    elif json:
        emit(_about(library.read(name)) | library.read(name).tables)
    else:
        print(library.path(name).read_text(encoding="utf-8"), end="")


def _list(recipes_read: "list[Recipe]", json: bool) -> None:
    if json:
        emit({"recipes": [_about(recipe) for recipe in recipes_read]})
        return
    _print_table(recipes_read)
    say("chainrule recipes NAME prints a recipe and the command that uses it")


def _about(recipe: "Recipe") -> dict[str, Any]:
    about = dataclasses.asdict(recipe)
    del about["tables"]
    return about


def _print_table(rows: "list[Recipe]") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in COLUMNS:
        table.add_column(column, no_wrap=column in ("name", "task", "family"))
    for recipe in rows:
        table.add_row(*(str(getattr(recipe, column)) for column in COLUMNS))
    console.print(table, markup=False, highlight=False)
