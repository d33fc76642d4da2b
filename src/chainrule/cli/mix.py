"""`chainrule mix`: linear interpolation of language models."""

from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say


@options.expand_option_groups()
def mix(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL MODEL...", help="Folders of trained models.")],
    held_out: Annotated[
        list[str], typer.Option(help="Text to fit the weights on; none of the models may have been trained on it.")
    ],
    out: options.Out,
    *,
    force: options.Force = False,
    device: options.Device = "auto",
    text_format: options.LineFormat,
    json: options.Json = False,
) -> None:
    """Interpolate models, with weights fitted on held-out text.

    Example: chainrule mix runs/ngram5 runs/lstm --held-out valid.txt --out runs/mix
    """
    from chainrule import api
    from chainrule.errors import UsageError

    if any(path.resolve() == out.resolve() for path in models):
        raise UsageError(f"{out} is one of the models to be mixed; choose another --out")
    corpus = text_format.corpus(held_out)
    command = options.command_line()
    with options.lock_output(out, [*models, *held_out], force=force), progress() as bar:
        loaded = [api.load(path, kind="language model", device=options.check_device(device)) for path in models]
        mixture = api.mix(loaded, held_out=corpus, progress=bar, command=command)
        mixture.save(out, force=force)
    weights = list(zip(map(str, models), mixture.config.weights, strict=True))
    perplexities = mixture.metrics["held_out_component_perplexities"]
    components = list(zip(weights, perplexities, strict=True))
    if json:
        shown = [{"model": name, "weight": weight, "perplexity": p} for (name, weight), p in components]
        emit({"model": str(out), "weights": shown, **mixture.metrics})
    else:
        print("weight\tperplexity\tmodel")
        for (name, weight), p in components:
            print(f"{weight:.4f}\t{_format_perplexity(p)}\t{name}")
        print(f"1.0000\t{_format_perplexity(mixture.metrics.get('held_out_perplexity'))}\t{out}")
    say(f"saved {out}")


def _format_perplexity(perplexity: float | None) -> str:
    return "infinite" if perplexity is None else f"{perplexity:.2f}"
