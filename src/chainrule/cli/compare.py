"""`chainrule compare`: the main job."""

from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.cli.table import print_table


def compare(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT...]", help="Files, folders, globs, or - for stdin.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where report, results and models go.")] = Path("runs/compare"),
    families: Annotated[str, typer.Option(help="Which to train, parted by commas.  [default: all]")] = "",
    valid: Annotated[list[str] | None, typer.Option(help="Validation text; else a part of TEXT.")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Test text; else a part of TEXT.")] = None,
    tokenizer: options.Tokenizer = None,
    vocab_size: options.VocabSize = None,
    min_count: Annotated[
        int | None,
        typer.Option(
            help="Keep words seen this often; from 2 on all families learn of unknown words.  [default: 2]"
        ),
    ] = None,
    lowercase: options.Lowercase = False,
    context: options.ContextRule = "line",
    threads: options.Threads = None,
    device: options.Device = "auto",
    max_seconds: Annotated[float | None, typer.Option(help="Time for each family.")] = None,
    seed: options.Seed = 0,
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Train every family on one text and rank them by bits per byte.

    Without TEXT: on the embedded text, the Python language reference.

    Example: chainrule compare corpus.txt --out runs/compare
    """
    options.use_threads(threads)
    from chainrule import comparison
    from chainrule.text.corpus import Corpus

    rules = options.text_rules(column, errors, drop_blank_lines)

    def corpus(sources: list[str] | None) -> Corpus | None:
        return Corpus.of(sources, **rules) if sources else None

    wanted = options.chosen(vocab_size=vocab_size, min_count=min_count, lowercase=lowercase)
    with progress() as bar:
        results = comparison.compare(
            corpus(text),
            valid=corpus(valid),
            test=corpus(test),
            progress=bar,
            families=tuple(dict.fromkeys(name for name in families.split(",") if name)),
            tokenizer="word" if tokenizer is None else tokenizer,
            tokenizer_settings=wanted,
            context=options.context(context),
            max_seconds=max_seconds,
            device=options.device(device),
            seed=seed,
            out=out,
            force=force,
            command=options.command_line(),
        )
    if json:
        emit(results.to_json())
    else:
        print_table(results)
    say(
        f"wrote {out / 'report.html'}, {out / 'results.json'} and {len(results.rows)} models under {out / 'models'}"
    )
