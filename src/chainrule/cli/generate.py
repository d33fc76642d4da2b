"""`chainrule generate` and `chainrule next`: continue a text by samples or hypotheses, or by its next token."""

import sys
from typing import Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit
from chainrule.decoding.settings import Decoding

SETTINGS = (
    options.options_from_fields(
        Decoding, "strategy", "temperature", "top_k", "top_p", "min_p", "beam_size", "length_penalty"
    )
    | options.options_from_fields(Decoding, "repetition_penalty", "no_repeat_ngram", "unk", "max_tokens")
    | {"stop": options.option(list[str], "Stop string; generation ends before it. Repeatable.")}
    | options.options_from_fields(Decoding, "seed")
)


@options.expand_option_groups(SETTINGS)
def generate(
    model: options.ModelFolder,
    *,
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "",
    settings: dict[str, Any],
    num: Annotated[int, typer.Option(help="Number of texts to generate.")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="Print tokens as they are generated.")] = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Generate text from a model.

    Example: chainrule generate runs/ngram5 --prompt "the stock" --top-p 0.9 --seed 1
    """
    from chainrule import api
    from chainrule.decoding.detokenizer import Continuation
    from chainrule.errors import UsageError

    if stream and (num != 1 or json):
        raise UsageError("--stream prints a single text; leave out --num and --json")
    loaded = api.load(model, kind="language model", device=options.check_device(device))
    settings["stop"] = tuple(settings.get("stop", ()))
    if stream:
        sys.stdout.write(Continuation(loaded.tokenizer, prompt).prompt)
        for piece in loaded.stream(prompt, **settings):
            sys.stdout.write(piece)
            sys.stdout.flush()
        print()
        return
    for generated in loaded.generate_several(prompt, num, **settings):
        if json:
            emit(
                {
                    "text": generated.text,
                    "tokens": generated.tokens,
                    "log_prob": generated.log_prob,
                    "finish_reason": generated.finish_reason,
                },
                indent=None,
            )
        else:
            print(generated)


def next_token(
    model: options.ModelFolder,
    context: Annotated[str, typer.Argument(metavar="CONTEXT", help="Text that precedes the token to predict.")],
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
