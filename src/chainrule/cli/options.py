"""Command-line options shared by several commands, and helpers that check them."""

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
    from chainrule.config import ConfigOverrides

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a finished model or an unfinished run in --out.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same result.")]
Column = Annotated[
    str | None,
    typer.Option(
        help="Name of the text column in CSV, TSV, JSON Lines and Parquet files; the last two default to 'text'."
    ),
]
Errors = Annotated[
    str, typer.Option(help="How to treat invalid UTF-8: 'strict' raises an error, 'replace' reads U+FFFD.")
]
DropBlankLines = Annotated[bool, typer.Option("--drop-blank-lines", help="Ignore blank lines.")]

Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="Tokenizer: word (splits punctuation), whitespace, char, byte, bpe, wordpiece, unigram (training is "
        "not reproducible, even with --seed), or a tokenizer folder.  [default: word]"
    ),
]
VocabSize = Annotated[int | None, typer.Option(help="Maximum vocabulary size (number of token types).")]
MinCount = Annotated[
    int | None, typer.Option(help="Minimum count of a word; rarer words become <unk>.  [default: 1]")
]
TopPercent = Annotated[
    float | None, typer.Option(help="Keep only this percentage of the token types, the most frequent ones.")
]
Vocab = Annotated[
    str | None,
    typer.Option(help="Vocabulary file for the word tokenizer, one word per line; no other words are known."),
]
Closed = Annotated[
    bool, typer.Option("--closed", help="Closed vocabulary: no <unk> token; unknown words have probability 0.")
]
Unk = Annotated[str | None, typer.Option(help="Word that marks unknown words in the corpus.  [default: <unk>]")]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Lowercase the text.")]
Locale = Annotated[
    str | None,
    typer.Option("--lowercase-locale", help="Language of --lowercase: tr or az (I becomes ı, İ becomes i)."),
]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Number of CPU threads.  [default: all]")]
Device = Annotated[str, typer.Option(help="Device of neural models: auto, cpu or cuda.")]
ContextRule = Annotated[
    str,
    typer.Option(help="'line' resets the context at every line; 'stream' carries it over from the line before."),
]
RunContext = Annotated[
    str | None,
    typer.Option(
        help="'line' resets the context at every line; 'stream' carries it over from the line before.  "
        "[default: line]"
    ),
]
RunSeed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Random seed; the same seed gives the same result, except when a unigram tokenizer is trained.  "
        "[default: 0]",
    ),
]

Order = Annotated[
    int | None, typer.Option(help="ngram, feedforward: order of the model (n); n-gram models default to 5.")
]
Smoothing = Annotated[
    str | None,
    typer.Option(
        help="ngram: smoothing method: modified-kneser-ney, kneser-ney, absolute, witten-bell, "
        "jelinek-mercer, katz, add-k, laplace, mle or stupid-backoff."
    ),
]
Prune = Annotated[
    str | None,
    typer.Option(help="ngram: count threshold per order, e.g. 0,0,1; n-grams with this count or less are dropped."),
]
EntropyPrune = Annotated[
    float | None,
    typer.Option(
        help="ngram: entropy pruning: drop n-grams whose removal raises perplexity by less than this fraction, "
        "e.g. 1e-8."
    ),
]
Layout = Annotated[
    str | None,
    typer.Option(help="ngram: model file layout: fast (hash table) or small (compact).  [default: fast]"),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="ngram: memory limit for training, e.g. 512M, 2G or 80%; beyond it, counts are sorted on disk.  "
        "[default: 80%]"
    ),
]
Quantize = Annotated[
    int | None,
    typer.Option(
        "--quantize", help="ngram: bits per probability: 8 (requires the small layout) or 0 (no quantization)."
    ),
]

Hidden = Annotated[int | None, typer.Option(help="Neural models: size of the hidden layers.")]
Layers = Annotated[int | None, typer.Option(help="Neural models: number of hidden layers.")]
Embedding = Annotated[int | None, typer.Option(help="Neural models: embedding size; 0 uses the hidden size.")]
Dropout = Annotated[float | None, typer.Option(help="Neural models: dropout probability.")]
Tie = Annotated[
    bool | None, typer.Option("--tie/--no-tie", help="Neural models: tie input embeddings and output weights.")
]
Attention = Annotated[
    str | None,
    typer.Option(help="rnn, lstm, gru: attention over earlier states: none, dot, scaled-dot, general or additive."),
]
Bptt = Annotated[
    int | None, typer.Option(help="Neural models: truncated back-propagation length in tokens; 0 uses whole lines.")
]
BatchSize = Annotated[int | None, typer.Option(help="Neural models: lines (or parallel streams) per batch.")]
Epochs = Annotated[int | None, typer.Option(help="Neural models: maximum number of epochs.")]
Patience = Annotated[
    int | None,
    typer.Option(
        min=1, help="Neural models: early stopping after this many validations without improvement; needs --valid."
    ),
]
Size = Annotated[
    str | None,
    typer.Option(help="Neural models: 'auto' chooses layer sizes to fit the text, the machine and --max-seconds."),
]
MaxSeconds = Annotated[float | None, typer.Option(help="Neural models: maximum training time in seconds.")]
Optimizer = Annotated[
    str | None, typer.Option(help="Neural models: optimizer: sgd, momentum, rmsprop, adam or adamw.")
]
LearningRate = Annotated[float | None, typer.Option(help="Neural models: peak learning rate.")]
Clip = Annotated[float | None, typer.Option(help="Neural models: maximum gradient norm; 0 disables clipping.")]
Init = Annotated[
    str | None,
    typer.Option(help="Neural models: weight initialization: xavier, he, orthogonal, uniform or normal."),
]
Precision = Annotated[str | None, typer.Option(help="Neural models: arithmetic precision: fp32, bf16 or fp16.")]


def command_line() -> str:
    """Return the command line, for the provenance record of the output."""
    return shlex.join(["chainrule", *sys.argv[1:]]).encode(errors="replace").decode()


def lock_output(
    out: Path, inputs: Iterable[str | Path | None], *, force: bool, resume: bool = False
) -> AbstractContextManager[None]:
    """Lock the output folder; `inputs` are the files read besides the training text (their digests are stored)."""
    from chainrule.storage import verified_dir
    from chainrule.storage.verified_dir import input_digests

    return verified_dir.lock_for_writing(
        out, command_line(), force=force, resume=resume, inputs=input_digests(inputs)
    )


def input_files(
    params: Mapping[str, Any], settings: "ConfigOverrides", tokenizer: object
) -> list[str | Path | None]:
    """Return the files that a `train` command reads besides the training text.

    `tokenizer` is the kind or folder named in the settings.
    """
    valid = params.get("valid") or []
    files = [params.get(name) for name in ("config", "tokenizer", "pretrained", "vectors")]
    vocab = settings.tokenizer.get("vocab")
    return [
        *files,
        *(str(name) for name in (vocab, tokenizer) if name),
        *([valid] if isinstance(valid, str) else valid),
    ]


def report_word_splitting(requested: object, kind: str) -> None:
    """If `word` was requested, print on stderr whether `word` or `whitespace` splitting was chosen."""
    from chainrule.cli.console import say
    from chainrule.tokenizers.punctuation import describe_choice

    message = describe_choice(requested, kind)
    if message:
        say(message)


def limit_threads(number: int | None) -> None:
    """Limit the threads of all libraries; they read these variables when they are first loaded."""
    if number is not None:
        for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(number)


def drop_unset(**values: object) -> dict[str, object]:
    """Drop options that were not set: None and False."""
    return {name: value for name, value in values.items() if value is not None and value is not False}


def check_context(value: str) -> Any:
    """Return the context rule; raise UsageError if it is unknown."""
    if value not in ("line", "stream"):
        raise UsageError(f"context is '{value}'; choose line or stream")
    return value


def check_device(value: str) -> str:
    """Return the device name; raise UsageError if it is unknown."""
    if value not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device is '{value}'; choose auto, cpu or cuda")
    return value


def corpus_options(column: str | None, errors: str, drop_blank_lines: bool) -> dict[str, Any]:
    """Return the keyword arguments of `Corpus.of` for these options."""
    return {"column": column, "errors": errors, "drop_blank_lines": drop_blank_lines}
