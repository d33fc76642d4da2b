"""Options that several commands share, each described once."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from chainrule.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a trained model.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
Column = Annotated[str, typer.Option(help="The text column of JSON Lines and Parquet files.")]
Errors = Annotated[str, typer.Option(help="Bytes that are not UTF-8: 'strict' stops, 'replace' reads U+FFFD.")]
DropBlankLines = Annotated[bool, typer.Option("--drop-blank-lines", help="Leave out lines without words.")]

Tokenizer = Annotated[
    str | None,
    typer.Option(help="word, char, byte, bpe, wordpiece, unigram, or the folder of one.  [default: word]"),
]
VocabSize = Annotated[int | None, typer.Option(help="Keep at most this many types (words, symbols).")]
MinCount = Annotated[int | None, typer.Option(help="Keep words seen at least this often.  [default: 1]")]
TopPercent = Annotated[float | None, typer.Option(help="Keep this percentage of the types, the most frequent.")]
Closed = Annotated[bool, typer.Option("--closed", help="No <unk>: unknown words are impossible.")]
Unk = Annotated[str | None, typer.Option(help="The corpus word for unknown words.  [default: <unk>]")]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Lower-case the text.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Processor threads to use.  [default: all]")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda, for families that can use it.")]
ContextRule = Annotated[str, typer.Option(help="'line': each line starts anew; 'stream': it goes on.")]


def command_line() -> str:
    """What was typed, to be kept with what came of it."""
    return shlex.join(["chainrule", *sys.argv[1:]]).encode(errors="replace").decode()


def use_threads(number: int | None) -> None:
    """Bound the threads of every library; they read this when they are first loaded."""
    if number is not None:
        for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(number)


def chosen(**values: object) -> dict[str, object]:
    """The options a person gave: not None and not an unset switch."""
    return {name: value for name, value in values.items() if value is not None and value is not False}


def context(value: str) -> Any:
    """The context rule, checked."""
    if value not in ("line", "stream"):
        raise UsageError(f"context is '{value}'; choose line or stream")
    return value


def device(value: str) -> str:
    """Where to compute, checked."""
    if value not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device is '{value}'; choose auto, cpu or cuda")
    return value


def text_rules(column: str, errors: str, drop_blank_lines: bool) -> dict[str, Any]:
    """How text files are read, as `Corpus.of` takes it."""
    return {"column": column, "errors": errors, "drop_blank_lines": drop_blank_lines}
