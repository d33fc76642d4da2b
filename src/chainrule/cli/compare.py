"""`chainrule compare`: train every model family on one text and rank them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.errors import UsageError


def compare(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT...]", help="Text files, folders, globs, or - for stdin.")
    ] = None,
    text_name: Annotated[
        str | None,
        typer.Option(
            "--text",
            help="Built-in text used without TEXT: novel, or python (its language reference).  [default: novel]",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder for report, results and models.")] = Path("runs/compare"),
    families: Annotated[
        str, typer.Option(help="Model families to train, separated by commas.  [default: all]")
    ] = "",
    valid: Annotated[list[str] | None, typer.Option(help="Validation text.  [default: a part of TEXT]")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Test text.  [default: a part of TEXT]")] = None,
    tokenizer: options.Tokenizer = None,
    vocab_size: options.VocabSize = None,
    min_count: Annotated[
        int | None,
        typer.Option(help="Minimum word count; rarer words are replaced by <unk> in training.  [default: 2]"),
    ] = None,
    lowercase: options.Lowercase = False,
    context: options.ContextRule = "line",
    threads: options.Threads = None,
    device: options.Device = "auto",
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time budget of the whole comparison: 90s, 10m, 1h.  [default: 2m without --max-seconds]"
        ),
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Time budget of each family, in seconds.")] = None,
    tokenizers: Annotated[
        str, typer.Option(help="Tokenizers to compare in one table, separated by commas: word,char,bpe.")
    ] = "",
    seeds: Annotated[int, typer.Option(help="Number of seeds to train every neural model with.")] = 1,
    size: Annotated[
        str, typer.Option(help="Neural models: layer sizes: auto (chosen for text and budget) or fixed.")
    ] = "auto",
    keep: Annotated[str, typer.Option(help="Models to keep on disk: best (of each family), all or none.")] = "best",
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted comparison.")] = False,
    seed: options.Seed = 0,
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Train every family on one text and rank them by bits per byte.

    Without TEXT, a built-in novel is used; `--text python` uses the language reference of this Python.

    Example: chainrule compare corpus.txt --tokenizers word,char --budget 10m --out runs/compare
    """
    if tokenizers and tokenizer is not None:
        raise UsageError("--tokenizer and --tokenizers exclude each other; give one of them")
    if text and text_name is not None:
        raise UsageError("TEXT and --text exclude each other; give one of them")
    chosen_families, chosen_tokenizers = _names("--families", families), _names("--tokenizers", tokenizers)
    options.limit_threads(threads)
    from chainrule.cli.compare_table import print_table
    from chainrule.comparison.model_store import kept_names
    from chainrule.comparison.runner import compare as run_comparison
    from chainrule.text.corpus import Corpus
    from chainrule.text.splits import default_corpus

    rules = options.corpus_options(column, errors, drop_blank_lines)

    def corpus(sources: list[str] | None) -> Corpus | None:
        return Corpus.of(sources, **rules) if sources else None

    tokenizer_settings = options.drop_unset(vocab_size=vocab_size, min_count=min_count, lowercase=lowercase)
    with progress() as bar, _resume_hint(out):
        results = run_comparison(
            corpus(text) or default_corpus(text_name or "novel"),
            valid=corpus(valid),
            test=corpus(test),
            progress=bar,
            announce=say,
            families=chosen_families,
            tokenizers=chosen_tokenizers,
            tokenizer="word" if tokenizer is None else tokenizer,
            tokenizer_settings=tokenizer_settings,
            context=options.check_context(context),
            budget=budget,
            max_seconds=max_seconds,
            seeds=seeds,
            size=size,
            keep=keep,
            resume=resume,
            device=options.check_device(device),
            seed=seed,
            out=out,
            force=force,
            command=options.command_line(),
        )
    if json:
        emit(results.to_json())
    else:
        print_table(results)
    kept_count = len(kept_names(results.rows, keep))
    say(
        f"wrote {out / 'report.html'}, {out / 'results.json'}"
        + (f" and {kept_count} of {len(results.rows)} models under {out / 'models'}" if kept_count else "")
    )


def _names(option: str, text: str) -> tuple[str, ...]:
    """Split a comma-separated option value into distinct names."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if text and not names:
        raise UsageError(f"{option} is '{text}', which names nothing; give names separated by commas")
    return names


@contextmanager
def _resume_hint(out: Path) -> Iterator[None]:
    """If the block is interrupted, print how to resume."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if (out / "unfinished.jsonl").exists():
            say("interrupted; continue with the same command with --resume")
        raise
