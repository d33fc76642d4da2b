"""`chainrule generate`: text."""

import sys
from typing import Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit


def generate(
    model: options.ModelFolder,
    prompt: Annotated[str, typer.Option(help="Text to go on from.")] = "",
    strategy: Annotated[str | None, typer.Option(help="greedy, sample or beam.  [default: sample]")] = None,
    temperature: Annotated[float | None, typer.Option(help="p^(1/T); 0 is greedy.  [default: 1]")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k most probable.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample among the fewest whose mass reaches p.")] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Sample among those within this fraction of the best.")
    ] = None,
    beam_size: Annotated[int | None, typer.Option(help="Hypotheses kept.  [default: 5]")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="beam: score / length^p.  [default: 0]")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1 makes tokens already there less likely.  [default: 1]")
    ] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="No n-gram of this order twice.")] = None,
    unk: Annotated[
        str | None,
        typer.Option(
            help="<unk>: exclude (never drawn), spell (the speller writes a word), or keep.  [default: exclude]"
        ),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="At most this many.  [default: 100]")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given again.")] = None,
    num: Annotated[int, typer.Option(help="How many texts.")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="Print each piece as soon as it is there.")] = False,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Generate text, one line each.

    Example: chainrule generate runs/ngram5 --prompt "the stock" --top-p 0.9 --seed 1
    """
    from chainrule import api
    from chainrule.decoding.continuation import Continuation
    from chainrule.errors import UsageError

    if stream and (num != 1 or json):
        raise UsageError("--stream prints one text as it comes; leave out --num and --json")
    loaded = api.load(model, device=options.device(device))
    settings: dict[str, Any] = options.chosen(
        strategy=strategy,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        beam_size=beam_size,
        length_penalty=length_penalty,
        repetition_penalty=repetition_penalty,
        no_repeat_ngram=no_repeat_ngram,
        unk=unk,
        max_tokens=max_tokens,
        stop=tuple(stop) if stop else None,
        seed=seed,
    )
    if stream:
        sys.stdout.write(Continuation(loaded.tokenizer, prompt).prompt)
        for piece in loaded.stream(prompt, **settings):
            sys.stdout.write(piece)
            sys.stdout.flush()
        print()
        return
    for found in loaded.generate_several(prompt, num, **settings):
        if json:
            emit(
                {
                    "text": found.text,
                    "tokens": found.tokens,
                    "log_prob": found.log_prob,
                    "finish_reason": found.finish_reason,
                },
                indent=None,
            )
        else:
            print(found)
