"""`chainrule train`: one model."""

from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say


def train(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="ngram")],
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, globs, or - for stdin.")],
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    valid: Annotated[list[str] | None, typer.Option(help="Held-out text to measure on while training.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings in TOML: [model] and [tokenizer].")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any setting, as key=value.")] = None,
    tokenizer: options.Tokenizer = None,
    vocab_size: options.VocabSize = None,
    min_count: options.MinCount = None,
    top_percent: options.TopPercent = None,
    closed: options.Closed = False,
    unk: options.Unk = None,
    lowercase: options.Lowercase = False,
    context: options.ContextRule = "line",
    order: Annotated[int | None, typer.Option(help="ngram: words per n-gram.  [default: 5]")] = None,
    smoothing: Annotated[
        str | None,
        typer.Option(
            help="ngram: modified-kneser-ney, kneser-ney, absolute, witten-bell, "
            "jelinek-mercer, katz, add-k, laplace, mle, stupid-backoff."
        ),
    ] = None,
    prune: Annotated[
        str | None, typer.Option(help="ngram: drop n-grams counted this often or less, by order: 0,0,1.")
    ] = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    device: options.Device = "auto",
    column: options.Column = "text",
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    json: options.Json = False,
) -> None:
    """Train one model and save it.

    Example: chainrule train ngram corpus.txt --order 5 --out runs/ngram5
    """
    options.use_threads(threads)
    from chainrule import api, folder
    from chainrule.config import parse_overrides, read_toml
    from chainrule.text.corpus import Corpus

    folder.check_target(out)
    settings: dict[str, object] = {}
    for table in read_toml(config).values() if config else ():
        settings |= table
    settings |= parse_overrides(set_ or [])
    kind = settings.pop("kind", "word")
    settings |= options.chosen(
        vocab_size=vocab_size,
        min_count=min_count,
        top_percent=top_percent,
        closed=closed,
        unk=unk,
        lowercase=lowercase,
        order=order,
        smoothing=smoothing,
        prune=prune,
    )
    rules = options.text_rules(column, errors, drop_blank_lines)
    with progress() as bar:
        model = api.train(
            family,
            Corpus.of(text, **rules),
            valid=None if valid is None else Corpus.of(valid, **rules),
            tokenizer=tokenizer or str(kind),
            context=options.context(context),
            seed=seed,
            device=device,
            progress=bar,
            command=options.command_line(),
            **settings,
        )
        model.save(out)
    if json:
        emit({"model": str(out), "family": family, "parameters": model.parameters, **model.metrics})
    else:
        say(f"saved {out}: {model.parameters:,} parameters in {model.metrics['train_seconds']:.1f} s")
