"""Options that several commands share, and the many of `train`, each described once."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.config import Choices

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a trained model.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a finished model or an unfinished run in --out.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
Column = Annotated[
    str | None,
    typer.Option(help="The text column of CSV, TSV, JSON Lines (text by default) and Parquet (likewise) files."),
]
Errors = Annotated[str, typer.Option(help="Bytes that are not UTF-8: 'strict' stops, 'replace' reads U+FFFD.")]
DropBlankLines = Annotated[bool, typer.Option("--drop-blank-lines", help="Leave out lines without words.")]

Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="word (splits punctuation), whitespace, char, byte, bpe, wordpiece, unigram (training is not "
        "reproducible, even with --seed), or a tokenizer folder.  [default: word]"
    ),
]
VocabSize = Annotated[int | None, typer.Option(help="Keep at most this many types (words, symbols).")]
MinCount = Annotated[int | None, typer.Option(help="Keep words seen at least this often.  [default: 1]")]
TopPercent = Annotated[float | None, typer.Option(help="Keep this percentage of the types, the most frequent.")]
Vocab = Annotated[
    str | None, typer.Option(help="word: a file of words, one a line: these and no others are known.")
]
Closed = Annotated[bool, typer.Option("--closed", help="No <unk>: unknown words are impossible.")]
Unk = Annotated[str | None, typer.Option(help="The corpus word for unknown words.  [default: <unk>]")]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Lower-case the text.")]
Locale = Annotated[
    str | None,
    typer.Option("--lowercase-locale", help="With --lowercase: tr or az, where I becomes ı and İ becomes i."),
]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Processor threads to use.  [default: all]")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda, for families that can use it.")]
ContextRule = Annotated[str, typer.Option(help="'line': each line starts anew; 'stream': it goes on.")]
RunContext = Annotated[
    str | None, typer.Option(help="'line': each line starts anew; 'stream': it goes on.  [default: line]")
]
RunSeed = Annotated[
    int | None,
    typer.Option(
        min=0, help="The same seed gives the same result, unless a unigram tokenizer is trained.  [default: 0]"
    ),
]

Order = Annotated[int | None, typer.Option(help="ngram (5 by default), feedforward: words per n-gram.")]
Smoothing = Annotated[
    str | None,
    typer.Option(
        help="ngram: modified-kneser-ney, kneser-ney, absolute, witten-bell, "
        "jelinek-mercer, katz, add-k, laplace, mle, stupid-backoff."
    ),
]
Prune = Annotated[str | None, typer.Option(help="ngram: drop n-grams counted this often or less, by order: 0,0,1.")]
EntropyPrune = Annotated[
    float | None, typer.Option(help="ngram: drop n-grams whose loss raises the perplexity by less, as in 1e-8.")
]
Layout = Annotated[
    str | None, typer.Option(help="ngram: fast, or small, the more compact model file.  [default: fast]")
]
Memory = Annotated[
    str | None,
    typer.Option(help="N-grams: work on disk rather than take more than this; 512M, 2G, 80%.  [default: 80%]"),
]
Quantize = Annotated[
    int | None, typer.Option("--quantize", help="ngram: 8: probabilities of 8 bits, in the small layout; 0: exact.")
]

Hidden = Annotated[int | None, typer.Option(help="Networks: width of the hidden layers.")]
Layers = Annotated[int | None, typer.Option(help="Networks: how many hidden layers.")]
Embedding = Annotated[int | None, typer.Option(help="Networks: width of the word vectors; 0: as the layers.")]
Dropout = Annotated[float | None, typer.Option(help="Networks: part of the outputs dropped in training.")]
Tie = Annotated[
    bool | None, typer.Option("--tie/--no-tie", help="Networks: one matrix to read and to predict words.")
]
Attention = Annotated[str | None, typer.Option(help="rnn, lstm, gru: none, dot, scaled-dot, general or additive.")]
Bptt = Annotated[int | None, typer.Option(help="Networks: tokens between two updates; 0: the whole line.")]
BatchSize = Annotated[int | None, typer.Option(help="Networks: lines, or columns of a stream, side by side.")]
Epochs = Annotated[int | None, typer.Option(help="Networks: times through the text.")]
Patience = Annotated[
    int | None,
    typer.Option(min=1, help="Networks: stop after so many validations without improvement; needs --valid."),
]
Size = Annotated[
    str | None, typer.Option(help="Networks: auto: sizes to suit the text, the machine and --max-seconds.")
]
MaxSeconds = Annotated[float | None, typer.Option(help="Networks: the time to learn in, at most.")]
Optimizer = Annotated[str | None, typer.Option(help="Networks: sgd, momentum, rmsprop, adam or adamw.")]
LearningRate = Annotated[float | None, typer.Option(help="Networks: the highest of the schedule.")]
Clip = Annotated[float | None, typer.Option(help="Networks: the gradient's largest norm; 0: any.")]
Init = Annotated[
    str | None, typer.Option(help="Networks: first weights xavier, he, orthogonal, uniform or normal.")
]
Precision = Annotated[str | None, typer.Option(help="Networks: compute in fp32, bf16 or fp16.")]


def command_line() -> str:
    """What was typed, to be kept with what came of it."""
    return shlex.join(["chainrule", *sys.argv[1:]]).encode(errors="replace").decode()


def writing(
    out: Path, inputs: Iterable[str | Path | None], *, force: bool, resume: bool = False
) -> AbstractContextManager[None]:
    """Hold the model folder that this command writes; `inputs` are all it reads besides the training text."""
    from chainrule import folder
    from chainrule.inputs import digests

    return folder.writing(out, command_line(), force=force, resume=resume, inputs=digests(inputs))


def inputs_of(given: Mapping[str, Any], chosen: "Choices", tokenizer: object) -> list[str | Path | None]:
    """What a `train` command reads besides the training text.

    `given` are its parameters, `chosen` its settings; `tokenizer` is the kind or the folder that the settings name.
    """
    valid = given.get("valid") or []
    files = [given.get(name) for name in ("config", "tokenizer", "pretrained", "vectors")]
    vocab = chosen.tokenizer.get("vocab")
    return [
        *files,
        *(str(name) for name in (vocab, tokenizer) if name),
        *([valid] if isinstance(valid, str) else valid),
    ]


def say_splitting(requested: object, kind: str) -> None:
    """Say on stderr which of `word` and `whitespace` the text led to, where `word` was requested."""
    from chainrule.cli.console import say
    from chainrule.tokenizers.punctuation import describe_choice

    message = describe_choice(requested, kind)
    if message:
        say(message)


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


def text_rules(column: str | None, errors: str, drop_blank_lines: bool) -> dict[str, Any]:
    """How text files are read, as `Corpus.of` takes it."""
    return {"column": column, "errors": errors, "drop_blank_lines": drop_blank_lines}
