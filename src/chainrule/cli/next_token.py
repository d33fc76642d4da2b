"""`chainrule next`: the distribution of the next token, or the words that an unfinished one may become."""

from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit


def next_token(
    model: options.ModelFolder,
    context: Annotated[str, typer.Argument(metavar="CONTEXT", help="What has been read, from the line's start.")],
    top: Annotated[int, typer.Option(help="How many to show.")] = 10,
    complete: Annotated[
        bool, typer.Option("--complete", help="Take what stands behind the last blank as the beginning of a word.")
    ] = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Show what may come next and how probable it is.

    Examples: chainrule next runs/ngram5 "the stock" --top 5;
    chainrule next runs/ngram5 "the stock mar" --complete
    """
    from chainrule import api

    loaded = api.load(model, device=options.device(device))
    document: dict[str, object] = {"context": context}
    if complete:
        from chainrule.applications.complete import Completer

        completer = Completer(loaded)
        found = [(each.word, each.probability) for each in completer.complete(context, top)]
        document["prefix"] = completer.part(context)[1]
    else:
        found = loaded.next(context, top)
    unk = None if loaded.tokenizer.unk is None else loaded.tokenizer.config.unk
    if json:
        entries = [{"token": token, "probability": p, "is_unknown": token == unk} for token, p in found]
        emit(document | {"next": entries})
        return
    for token, p in found:
        print(f"{p:.6f}\t{loaded.tokenizer.text_of(token)}" + (" (an unknown word)" if token == unk else ""))
