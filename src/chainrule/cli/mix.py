"""`chainrule mix`: models of any families into one."""

from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say


def mix(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL MODEL...", help="Folders of trained models.")],
    held_out: Annotated[list[str], typer.Option(help="Text that none of them was trained on.")],
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    force: options.Force = False,
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Interpolate models, with weights fitted to a held-out text.

    Example: chainrule mix runs/ngram5 runs/lstm --held-out valid.txt --out runs/mix
    """
    from chainrule import api
    from chainrule.errors import UsageError
    from chainrule.text.corpus import Corpus

    if any(path.resolve() == out.resolve() for path in models):
        raise UsageError(f"{out} is one of the models to be mixed; choose another --out")
    corpus = Corpus.of(held_out, **options.text_rules(column, errors, drop_blank_lines))
    command = options.command_line()
    with options.writing(out, [*models, *held_out], force=force), progress() as bar:
        loaded = [api.load(path, device=options.device(device)) for path in models]
        made = api.mix(loaded, held_out=corpus, progress=bar, command=command)
        made.save(out, force=force)
    weights = list(zip(map(str, models), made.config.weights, strict=True))
    perplexities = made.metrics["held_out_component_perplexities"]
    components = list(zip(weights, perplexities, strict=True))
    if json:
        shown = [{"model": name, "weight": weight, "perplexity": p} for (name, weight), p in components]
        emit({"model": str(out), "weights": shown, **made.metrics})
    else:
        print("weight\tperplexity\tmodel")
        for (name, weight), p in components:
            print(f"{weight:.4f}\t{_shown(p)}\t{name}")
        print(f"1.0000\t{_shown(made.metrics.get('held_out_perplexity'))}\t{out}")
    say(f"saved {out}")


def _shown(perplexity: float | None) -> str:
    return "infinite" if perplexity is None else f"{perplexity:.2f}"
