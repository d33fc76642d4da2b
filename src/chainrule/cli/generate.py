"""`chainrule generate`: generate text from a language model."""

import sys
from typing import Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit


def generate(
    model: options.ModelFolder,
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "",
    strategy: Annotated[
        str | None, typer.Option(help="Decoding strategy: greedy, sample or beam.  [default: sample]")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; 0 is greedy.  [default: 1]")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Top-k sampling: the k most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Nucleus sampling: the smallest set of tokens with total probability p.")
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Min-p sampling: tokens with at least this fraction of the highest probability."),
    ] = None,
    beam_size: Annotated[int | None, typer.Option(help="Beam size.  [default: 5]")] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(help="Length penalty a: hypotheses are ranked by log p / length^a.  [default: 0]"),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Values above 1 make tokens that already occurred less likely.  [default: 1]"),
    ] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="Never repeat an n-gram of this order.")] = None,
    unk: Annotated[
        str | None,
        typer.Option(
            help="Treatment of <unk>: exclude (never generated), spell (replaced by a spelling), or keep.  "
            "[default: exclude]"
        ),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum number of tokens.  [default: 100]")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop string; generation ends before it. Repeatable.")
    ] = None,
    num: Annotated[int, typer.Option(help="Number of texts to generate.")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="Print tokens as they are generated.")] = False,
    seed: Annotated[int | None, typer.Option(help="Random seed; the same seed gives the same text.")] = None,
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
    settings: dict[str, Any] = options.drop_unset(
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
