"""`chainrule tokenizer`: train, encode, decode."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import Pieces, emit, emit_in_pieces, flush, flushed_lines, progress, say

if TYPE_CHECKING:
    from chainrule.tokenizers.tokenizer import Tokenizer

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
            help="word (splits punctuation), whitespace, char, byte, bpe, wordpiece or unigram (differs from run "
            "to run).  "
            "[default: bpe, or word with --vocab]",
        ),
    ] = None,
    vocab_size: options.VocabSize = None,
    min_count: options.MinCount = None,
    top_percent: options.TopPercent = None,
    vocab: options.Vocab = None,
    closed: options.Closed = False,
    unk: options.Unk = None,
    lowercase: options.Lowercase = False,
    locale: options.Locale = None,
    trace: Annotated[bool, typer.Option("--trace", help="bpe: print every merge with its count.")] = False,
    column: options.Column = None,
    errors: options.Errors = "strict",
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Train a tokenizer and save it.

    Example: chainrule tokenizer train corpus.txt --tokenizer bpe --vocab-size 1000 --trace --out runs/bpe

    chainrule tokenizer train --vocab words.txt --out runs/words
    """
    from chainrule import artifact
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
        locale=locale,
    )
    command = options.command_line()
    config = make(TokenizerConfig, wanted, "tokenizer")
    with options.writing(out, [vocab], force=force):
        with progress() as bar:
            made = training.train(corpus, config, bar)
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
    if text:
        options.say_splitting(config.kind, made.config.kind)


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
    from chainrule.text.corpus import Corpus, read_batches
    from chainrule.text.lines import FRAGMENT

    tokenizer = artifact.load_tokenizer(folder)
    for lines in read_batches(Corpus.of(file, reads_once=True)):
        for line in lines:
            if len(line) > FRAGMENT:
                _print_long(tokenizer, line, tokens, json)
                continue
            ids = tokenizer.encode(line).tolist()
            if json:
                emit({"text": line, "ids": ids, "tokens": tokenizer.tokens(ids)}, indent=None)
            else:
                print(" ".join(map(repr, tokenizer.tokens(ids)) if tokens else map(str, ids)))
        flush()


def _print_long(tokenizer: "Tokenizer", line: str, tokens: bool, json: bool) -> None:
    """The ids of a line that is cut as training and scoring cut it, printed in pieces."""
    import numpy as np

    from chainrule.text.lines import FRAGMENT, cut_lines
    from chainrule.tokenizers.encode import encode_fragments

    pieces = (line[first : first + FRAGMENT] for first in range(0, len(line), FRAGMENT))
    encoded = (
        [id_ for id_ in batch.ids.tolist() if id_ != tokenizer.eos]  # no text has it: it ends the line
        for batch in encode_fragments(cut_lines(pieces), tokenizer)
    )
    if json:
        kept = [np.array(ids, dtype=np.int32) for ids in encoded]
        names = (tokenizer.tokens(ids.tolist()) for ids in kept)
        emit_in_pieces({"text": line, "ids": Pieces(ids.tolist() for ids in kept), "tokens": Pieces(names)})
        return
    separator = ""
    for ids in filter(None, encoded):
        print(separator + " ".join(map(repr, tokenizer.tokens(ids)) if tokens else map(str, ids)), end="")
        separator = " "
    print()


@app.command()
def decode(folder: Folder, file: Lines = "-", json: options.Json = False) -> None:
    """Turn lines of ids into text.

    Example: echo "17 4 23" | chainrule tokenizer decode runs/bpe
    """
    from chainrule import artifact
    from chainrule.errors import InputError
    from chainrule.text.corpus import Corpus, read_batches

    tokenizer = artifact.load_tokenizer(folder)
    batches = read_batches(Corpus.of(file, reads_once=True))
    for number, line in enumerate(flushed_lines(batches), start=1):
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
