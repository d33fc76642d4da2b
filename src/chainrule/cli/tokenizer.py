"""`chainrule tokenizer`: train a tokenizer, encode text, decode ids."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import StreamedList, emit, emit_streamed, flush, flushed_lines, progress, say
from chainrule.tokenizers.config import TokenizerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chainrule.tokenizers.tokenizer import Tokenizer
    from chainrule.tokenizers.train import Merge

app = typer.Typer(help="Train tokenizers, encode text, decode ids.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a tokenizer or a model.")]
Lines = Annotated[str, typer.Argument(metavar="[FILE]", help="Input file, one item per line; - for stdin.")]


SETTINGS = (
    {
        "kind": options.option(
            str,
            "Kind: word (splits punctuation), whitespace, char, byte, bpe, wordpiece or unigram (training is not "
            "reproducible).  [default: bpe, or word with --vocab]",
            "--tokenizer",
        )
    }
    | options.options_from_fields(
        TokenizerConfig, "vocab_size", "min_count", "top_percent", "vocab", "closed", "unk"
    )
    | options.options_from_fields(TokenizerConfig, "lowercase", "locale")
)


@app.command()
@options.expand_option_groups(SETTINGS)
def train(
    out: Annotated[Path, typer.Option(help="Output tokenizer folder.")],
    *,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT...", help="Text files, folders, globs, or - for stdin.")
    ] = None,
    settings: dict[str, Any],
    trace: Annotated[bool, typer.Option("--trace", help="bpe: print every merge and its count.")] = False,
    text_format: options.TextFormat,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Train a tokenizer and save it.

    Example: chainrule tokenizer train corpus.txt --tokenizer bpe --vocab-size 1000 --trace --out runs/bpe

    chainrule tokenizer train --vocab words.txt --out runs/words
    """
    from chainrule.config import build_config
    from chainrule.errors import UsageError
    from chainrule.storage.provenance import Origin
    from chainrule.text.corpus import Corpus
    from chainrule.text.fingerprint import fingerprint
    from chainrule.tokenizers import train as training
    from chainrule.tokenizers.tokenizer import save_tokenizer

    vocab = settings.get("vocab")
    if not text and (vocab is None or trace):
        raise UsageError("no text was given; give a training text, or a word list with --vocab")
    corpus = text_format.corpus(text) if text else Corpus()
    settings.setdefault("kind", "bpe" if vocab is None else "word")
    command = options.command_line()
    config = build_config(TokenizerConfig, settings, "tokenizer")
    with options.lock_output(out, [vocab], force=force):
        with progress() as bar:
            trained = training.train(corpus, config, bar)
        if trace:
            _print_merges(training.trace_merges(corpus, trained), json)
        names = text or [str(vocab)]
        text_fingerprint = fingerprint(corpus if text else Corpus.of(names))
        save_tokenizer(
            trained, out, Origin(text=", ".join(names), fingerprint=text_fingerprint, command=command), force=force
        )
    if json and not trace:
        emit({"tokenizer": str(out), "kind": trained.config.kind, "vocab_size": trained.vocab_size})
    say(f"saved {out}: {trained.vocab_size:,} ids, <s> and </s> among them")
    if text:
        options.report_word_splitting(config.kind, trained.config.kind)


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
    """Encode each line as token ids.

    Example: echo "i love mice" | chainrule tokenizer encode runs/bpe
    """
    from chainrule.text.corpus import Corpus, read_batches
    from chainrule.text.lines import FRAGMENT
    from chainrule.tokenizers.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder)
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
    """Encode a very long line in fragments, as training and scoring do, and print it chunk by chunk."""
    import numpy as np

    from chainrule.text.lines import FRAGMENT, cut_lines
    from chainrule.tokenizers.encode import encode_fragments

    fragments = (line[first : first + FRAGMENT] for first in range(0, len(line), FRAGMENT))
    encoded = (
        [
            id_ for id_ in batch.ids.tolist() if id_ != tokenizer.eos
        ]  # never part of the text: marks the end of the line
        for batch in encode_fragments(cut_lines(fragments), tokenizer)
    )
    if json:
        chunks = [np.array(ids, dtype=np.int32) for ids in encoded]
        names = (tokenizer.tokens(ids.tolist()) for ids in chunks)
        emit_streamed(
            {"text": line, "ids": StreamedList(ids.tolist() for ids in chunks), "tokens": StreamedList(names)}
        )
        return
    separator = ""
    for ids in filter(None, encoded):
        print(separator + " ".join(map(repr, tokenizer.tokens(ids)) if tokens else map(str, ids)), end="")
        separator = " "
    print()


@app.command()
def decode(folder: Folder, file: Lines = "-", json: options.Json = False) -> None:
    """Decode lines of token ids to text.

    Example: echo "17 4 23" | chainrule tokenizer decode runs/bpe
    """
    from chainrule.errors import InputError
    from chainrule.text.corpus import Corpus, read_batches
    from chainrule.tokenizers.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder)
    batches = read_batches(Corpus.of(file, reads_once=True))
    for number, line in enumerate(flushed_lines(batches), start=1):
        words = line.split()
        wrong = [w for w in words if not _is_below(w, tokenizer.vocab_size)]
        if wrong:
            last = tokenizer.vocab_size - 1
            raise InputError(
                f"line {number}: '{wrong[0][:40]}' is not an id of this tokenizer; ids are 0 to {last}"
            )
        ids = [int(w) for w in words]
        text = tokenizer.decode(ids)
        if json:
            emit({"ids": ids, "text": text}, indent=None)
        else:
            print(text)


def _is_below(word: str, limit: int) -> bool:
    """Whether `word` is an integer from 0 to `limit` − 1; Python refuses to parse thousands of digits."""
    return word.isascii() and word.isdigit() and len(word) <= 20 and int(word) < limit
