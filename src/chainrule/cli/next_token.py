"""`chainrule next`: most probable next tokens, or completions of a partial word."""

from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit


def next_token(
    model: options.ModelFolder,
    context: Annotated[str, typer.Argument(metavar="CONTEXT", help="Text of the line so far.")],
    top: Annotated[int, typer.Option(help="Number of tokens to print.")] = 10,
    complete: Annotated[bool, typer.Option("--complete", help="Complete the word that CONTEXT ends with.")] = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Print the most probable next tokens.

    Examples: chainrule next runs/ngram5 "the stock" --top 5;
    chainrule next runs/ngram5 "the stock mar" --complete
    """
    from chainrule import api

    loaded = api.load(model, kind="language model", device=options.check_device(device))
    document: dict[str, object] = {"context": context}
    if complete:
        from chainrule.applications.complete import Completer

        completer = Completer(loaded)
        candidates = [(completion.word, completion.probability) for completion in completer.complete(context, top)]
        document["prefix"] = completer.split_prefix(context)[1]
    else:
        candidates = loaded.next(context, top)
    unk = None if loaded.tokenizer.unk is None else loaded.tokenizer.config.unk
    if json:
        entries = [{"token": token, "probability": p, "is_unknown": token == unk} for token, p in candidates]
        emit(document | {"next": entries})
        return
    for token, p in candidates:
        print(f"{p:.6f}\t{loaded.tokenizer.display_text(token)}" + (" (an unknown word)" if token == unk else ""))
