"""`chainrule tokenizer`: train a tokenizer, encode text, decode ids."""

import contextlib
import io
from dataclasses import dataclass
from functools import lru_cache
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
@options.expand_option_groups(SETTINGS | options.ENGINE | options.RESUME_JOB)
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

    With --workers or --on, several processes count the words or characters; the tokenizer is the same.

    Example: chainrule tokenizer train corpus.txt --tokenizer bpe --vocab-size 1000 --trace --out runs/bpe

    chainrule tokenizer train --vocab words.txt --out runs/words
    """
    from chainrule.config import build_config
    from chainrule.errors import UsageError
    from chainrule.storage.provenance import Origin
    from chainrule.text.corpus import Corpus
    from chainrule.text.fingerprint import fingerprint_in_background
    from chainrule.tokenizers import train as training
    from chainrule.tokenizers.tokenizer import save_tokenizer

    engine = options.engine_options(settings)
    vocab = settings.get("vocab")
    if not text and (vocab is None or trace):
        raise UsageError("no text was given; give a training text, or a word list with --vocab")
    corpus = text_format.corpus(text) if text else Corpus()
    settings.setdefault("kind", "bpe" if vocab is None else "word")
    command = options.command_line()
    config = build_config(TokenizerConfig, settings, "tokenizer")
    names = text or [str(vocab)]
    with options.lock_output(out, [vocab], force=force):
        source = corpus if text else Corpus.of(names, expects_lines=False)
        with progress() as bar, fingerprint_in_background(source) as fingerprint:
            if engine.uses_engine:
                from chainrule.applications.encode import train_tokenizer_on

                trained = train_tokenizer_on(engine, corpus, config, bar)
            else:
                trained = training.train(corpus, config, bar)
        if trace:
            _print_merges(training.trace_merges(corpus, trained), json)
        origin = Origin(text=", ".join(names), fingerprint=fingerprint.result(), command=command)
        save_tokenizer(trained, out, origin, force=force)
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
@options.expand_option_groups(options.ENGINE | options.RESUME_JOB)
def encode(
    folder: Folder,
    *,
    file: Lines = "-",
    tokens: Annotated[bool, typer.Option("--tokens", help="Print tokens instead of ids.")] = False,
    json: options.Json = False,
    settings: dict[str, Any],
) -> None:
    """Encode each line as token ids.

    Example: echo "i love mice" | chainrule tokenizer encode runs/bpe
    """
    from chainrule.text.corpus import Corpus, read_batches
    from chainrule.tokenizers.tokenizer import load_tokenizer

    engine = options.engine_options(settings)
    tokenizer = load_tokenizer(folder)
    corpus = Corpus.of(file, reads_once=not engine.uses_engine)
    if not engine.uses_engine:
        for lines in read_batches(corpus):
            _print_ids(tokenizer, lines, tokens, json)
        return
    from chainrule.applications.line_jobs import identify_folder, map_lines
    from chainrule.distributed.start import start_engine

    job = {"job": "tokenizer encode", "tokenizer": identify_folder(folder), "tokens": tokens, "json": json}
    with contextlib.ExitStack() as stack:
        with progress() as draw:
            running = stack.enter_context(start_engine(engine, corpus, job, draw))
            output = map_lines(running, corpus, "ids", _EncodeLines(folder.absolute(), tokens, json))
        options.write_to_stdout(output)


@dataclass(frozen=True, slots=True)
class _EncodeLines:
    """Encode lines in a worker process."""

    folder: Path
    tokens: bool
    json: bool

    def __call__(self, lines: list[str]) -> bytes:
        """Return what the command prints for these lines."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            _print_ids(_load_in_worker(self.folder), lines, self.tokens, self.json)
        return output.getvalue().encode()


@lru_cache(maxsize=1)
def _load_in_worker(folder: Path) -> "Tokenizer":
    """Load a tokenizer once in each worker process."""
    from chainrule.tokenizers.tokenizer import load_tokenizer

    return load_tokenizer(folder)


def _print_ids(tokenizer: "Tokenizer", lines: list[str], tokens: bool, json: bool) -> None:
    from chainrule.text.lines import FRAGMENT

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
