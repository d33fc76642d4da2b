"""`chainrule train`: one model."""

import time
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
    from chainrule import api, families, folder
    from chainrule.config import make, parse_overrides, read_toml
    from chainrule.text.corpus import Corpus
    from chainrule.tokenizers.config import TokenizerConfig

    start = time.perf_counter()
    folder.check_target(out)
    tables = read_toml(config) if config else {}
    given = parse_overrides(set_ or []) | options.chosen(
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
    wanted, own = api.split_settings(given)
    wanted, own = tables.get("tokenizer", {}) | wanted, tables.get("model", {}) | own
    kind = str(own.pop("kind", wanted.pop("kind", "word")))
    if family in families.trainable():
        make(families.get(family).Config, own, "model")  # a wrong name is answered here, before any work
    make(TokenizerConfig, wanted, "tokenizer")
    rules = options.text_rules(column, errors, drop_blank_lines)
    with folder.hold(out), progress() as bar:
        model = api.train(
            family,
            Corpus.of(text, **rules),
            valid=None if valid is None else Corpus.of(valid, **rules),
            tokenizer=kind if tokenizer is None else tokenizer,
            context=options.context(context),
            seed=seed,
            device=options.device(device),
            progress=bar,
            command=options.command_line(),
            **wanted,
            **own,
        )
        model.save(out)
    if json:
        emit({"model": str(out), "family": family, "parameters": model.parameters, **model.metrics})
    say(f"saved {out}: {model.parameters:,} parameters, {time.perf_counter() - start:.1f} s in all")
    if model.tokenizer.config.kind == "word" and not (model.tokenizer.config.closed or model.metrics["train_oov"]):
        say("note: every word of the text is in the vocabulary, so the model never met an unknown one;")
        say("      if new text will hold such words, --min-count 2 teaches it what they are like")
