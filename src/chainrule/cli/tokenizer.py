"""`chainrule tokenizer`: train, encode, decode."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chainrule.tokenizers.trace import Merge

app = typer.Typer(help="Train a tokenizer, or use one.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A tokenizer or model folder.")]
Lines = Annotated[str, typer.Argument(metavar="[FILE]", help="Lines; - for stdin.")]


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="The tokenizer folder to write.")],
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT...", help="Files, folders, globs, or - for stdin.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="word, char, byte, bpe, wordpiece or unigram.  [default: bpe, or word with --vocab]",
        ),
    ] = None,
    vocab_size: options.VocabSize = None,
    min_count: options.MinCount = None,
    top_percent: options.TopPercent = None,
    vocab: options.Vocab = None,
    closed: options.Closed = False,
    unk: options.Unk = None,
    lowercase: options.Lowercase = False,
    trace: Annotated[bool, typer.Option("--trace", help="bpe: print every merge with its count.")] = False,
    column: options.Column = "text",
    errors: options.Errors = "strict",
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Train a tokenizer and save it.

    Example: chainrule tokenizer train corpus.txt --tokenizer bpe --vocab-size 1000 --trace --out runs/bpe

    chainrule tokenizer train --vocab words.txt --out runs/words
    """
    from chainrule import artifact, folder
    from chainrule.config import make
    from chainrule.errors import UsageError
    from chainrule.model import Origin
    from chainrule.text.corpus import Corpus
    from chainrule.text.fingerprint import fingerprint
    from chainrule.tokenizers import train as training
    from chainrule.tokenizers.config import TokenizerConfig
    from chainrule.tokenizers.trace import trace as merges

    if not text and (vocab is None or trace):
        raise UsageError("no text was given; name one to learn from, or the words with --vocab")
    corpus = Corpus.of(text, **options.text_rules(column, errors, False)) if text else Corpus()
    wanted = options.chosen(
        kind=tokenizer or ("bpe" if vocab is None else "word"),
        vocab_size=vocab_size,
        min_count=min_count,
        top_percent=top_percent,
        vocab=vocab,
        closed=closed,
        unk=unk,
        lowercase=lowercase,
    )
    command = options.command_line()
    with folder.writing(out, command, force=force):
        with progress() as bar:
            made = training.train(corpus, make(TokenizerConfig, wanted, "tokenizer"), bar)
        if trace:
            _print_merges(merges(corpus, made), json)
        names = text or [str(vocab)]
        mark = fingerprint(corpus if text else Corpus.of(names))
        artifact.save_tokenizer(
            made, out, Origin(text=", ".join(names), fingerprint=mark, command=command), force=force
        )
    if json and not trace:
        emit({"tokenizer": str(out), "kind": made.config.kind, "vocab_size": made.vocab_size})
    say(f"saved {out}: {made.vocab_size:,} ids, <s> and </s> among them")


def _print_merges(merges: "Iterable[Merge]", json: bool) -> None:
    for merge in merges:
        if json:
            document = {"pair": merge.pair, "count": merge.count, "symbol": merge.symbol}
            emit(document | {"vocab_size": merge.vocab_size}, indent=None)
        else:
            left, right = merge.pair
            print(f"{merge.vocab_size}\t{merge.count}\t{left!r} + {right!r} -> {merge.symbol!r}")


@app.command()
def encode(
    folder: Folder,
    file: Lines = "-",
    tokens: Annotated[bool, typer.Option("--tokens", help="Print tokens instead of ids.")] = False,
    json: options.Json = False,
) -> None:
    """Turn lines into ids, one line each.

    Example: echo "i love mice" | chainrule tokenizer encode runs/bpe
    """
    from chainrule import artifact
    from chainrule.text.corpus import Corpus

    tokenizer = artifact.load_tokenizer(folder)
    for line in Corpus.of(file):
        ids = tokenizer.encode(line).tolist()
        if json:
            emit({"text": line, "ids": ids, "tokens": tokenizer.tokens(ids)}, indent=None)
        else:
            print(" ".join(map(repr, tokenizer.tokens(ids)) if tokens else map(str, ids)))


@app.command()
def decode(folder: Folder, file: Lines = "-", json: options.Json = False) -> None:
    """Turn lines of ids into text.

    Example: echo "17 4 23" | chainrule tokenizer decode runs/bpe
    """
    from chainrule import artifact
    from chainrule.errors import InputError
    from chainrule.text.corpus import Corpus

    tokenizer = artifact.load_tokenizer(folder)
    for number, line in enumerate(Corpus.of(file), start=1):
        words = line.split()
        wrong = [w for w in words if not _is_below(w, tokenizer.vocab_size)]
        if wrong:
            last = tokenizer.vocab_size - 1
            raise InputError(f"line {number}: '{wrong[0][:40]}' is no id of this tokenizer; ids are 0 to {last}")
        ids = [int(w) for w in words]
        text = tokenizer.decode(ids)
        if json:
            emit({"ids": ids, "text": text}, indent=None)
        else:
            print(text)


def _is_below(word: str, limit: int) -> bool:
    """Whether this is a whole number from 0 to `limit` − 1; Python does not read thousands of digits."""
    return word.isascii() and word.isdigit() and len(word) <= 20 and int(word) < limit
