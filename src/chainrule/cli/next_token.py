"""`chainrule next`: the distribution of the next token."""

from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit


def next_token(
    model: options.ModelFolder,
    context: Annotated[str, typer.Argument(metavar="CONTEXT", help="What has been read, from the line's start.")],
    top: Annotated[int, typer.Option(help="How many to show.")] = 10,
    json: options.Json = False,
) -> None:
    """Show what may come next and how probable it is.

    Example: chainrule next runs/ngram5 "the stock" --top 5
    """
    from chainrule import api

    found = api.load(model).next(context, top)
    if json:
        emit({"context": context, "next": [{"token": token, "probability": p} for token, p in found]})
        return
    for token, p in found:
        print(f"{p:.6f}\t{token}")
