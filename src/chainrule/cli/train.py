"""`chainrule train`: train a language model."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chainrule import system
from chainrule.cli import options
from chainrule.cli.console import emit, say
from chainrule.cli.training_options import Run
from chainrule.config import RunConfig
from chainrule.errors import ChainruleError, LostRankError, UsageError
from chainrule.neural.cells import CELLS
from chainrule.neural.config import ModelConfig
from chainrule.ngram.config import Config as NgramConfig
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.training.config import TrainingConfig

if TYPE_CHECKING:
    from chainrule.model import Model

INTERRUPTED: Final = 130
FAMILIES = f"Model family: ngram, feedforward, {', '.join(CELLS)} or transformer."  # `families` loads slowly
SETTINGS = (
    options.options_from_fields(
        TokenizerConfig, "kind", "vocab_size", "min_count", "top_percent", "vocab", "closed", "unk"
    )
    | options.options_from_fields(TokenizerConfig, "lowercase", "locale")
    | options.options_from_fields(NgramConfig, "order", "smoothing", "prune", "entropy_prune", "layout", "bits")
    | options.options_from_fields(ModelConfig, "hidden", "layers", "embedding", "dropout", "tie")
    | {
        "attention": options.option(
            str, f"Attention over earlier states ({', '.join(CELLS)}): none, dot, scaled-dot, general or additive."
        )
    }
    | options.options_from_fields(
        TrainingConfig, "bptt", "batch_size", "accumulate", "epochs", "max_seconds", "stop_after", "optimizer"
    )
    | options.options_from_fields(TrainingConfig, "learning_rate", "clip")
    | options.options_from_fields(ModelConfig, "init")
    | options.options_from_fields(TrainingConfig, "precision")
    | options.options_from_fields(RunConfig, "context", "seed")
    | options.ENGINE
)

Size = Annotated[
    str | None,
    typer.Option(help="Neural models: 'auto' chooses layer sizes to fit the text, the machine and --max-seconds."),
]


@options.expand_option_groups(SETTINGS)
def train(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=FAMILIES)],
    text: options.Texts,
    *,
    run: Run,
    valid: Annotated[list[str] | None, typer.Option(help="Validation text, evaluated during training.")] = None,
    settings: dict[str, object],
    size: Size = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="ngram: memory limit for training, e.g. 512M, 2G or 80%; beyond it, counts are sorted on disk.  "
            "[default: 80%]"
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="ngram with --workers or --on: number of files of a sharded model."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="Neural models: number of processes on this machine, one for each GPU, which share every batch; "
            "for several machines start the command with torchrun.  [default: 1]",
        ),
    ] = None,
    text_format: options.LineFormat,
    json: options.Json = False,
) -> None:
    """Train a language model and save it.

    Options override --set, which overrides --config, which overrides --recipe.

    Examples: chainrule train ngram corpus.txt --order 5 --out runs/ngram5

    chainrule train lstm corpus.txt --valid valid.txt --recipe small-lstm --out runs/lstm

    chainrule train ngram corpus/ --workers 16 --work scratch --out runs/web
    """
    options.limit_threads(run.threads)
    if processes is not None:
        raise typer.Exit(_launch(family, processes, run.threads))
    with _one_report():
        _train(family, text, run, valid, settings, size, memory, shards, text_format, json)


def _launch(family: str, processes: int, threads: int | None) -> int:
    """Start the processes, each with this command without --processes; return their exit status."""
    if family == "ngram":
        raise UsageError("--processes is for networks; for an ngram model give --workers")
    if system.rank_and_size()[1]:
        raise UsageError("torchrun has started the processes already; leave out --processes")
    from chainrule.training import ranks

    return ranks.launch(processes, _without_option(sys.argv[1:], "--processes"), threads)


def _without_option(arguments: list[str], option: str) -> list[str]:
    """Remove an option and its value.

    >>> _without_option(["train", "--processes", "2", "lstm", "--processes=4", "--", "--processes"], "--processes")
    ['train', 'lstm', '--', '--processes']
    """
    remaining: list[str] = []
    for index, argument in enumerate(arguments):
        if argument == "--":
            return remaining + arguments[index:]
        is_value = index > 0 and arguments[index - 1] == option
        if not is_value and argument != option and not argument.startswith(f"{option}="):
            remaining.append(argument)
    return remaining


@contextmanager
def _one_report() -> Iterator[None]:
    """Report the end of several processes once: what all of them notice is reported by rank 0."""
    rank, size = system.rank_and_size()
    if not size:
        yield
        return
    from chainrule.training.diagnostics import Diverged

    if rank:  # nothing to save before the training starts
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    except LostRankError:
        if rank or system.LAUNCHER in os.environ:  # rank 0 or the launcher reports it
            raise SystemExit(system.LOST) from None
        raise
    except KeyboardInterrupt:
        if rank:
            raise SystemExit(INTERRUPTED) from None
        raise
    except (Diverged, UsageError) as error:  # raised by all
        if rank:
            raise SystemExit(error.exit_code) from None
        raise
    except ChainruleError as error:
        if rank:
            say(f"error: process {rank}: {error}")
            raise SystemExit(error.exit_code) from None
        raise


def _train(
    family: str,
    text: list[str],
    run: Run,
    valid: list[str] | None,
    settings: dict[str, object],
    size: str | None,
    memory: str | None,
    shards: int | None,
    text_format: options.LineFormat,
    json: bool,
) -> None:
    """Train in this process, which may be one of several."""
    from chainrule import api

    start = time.perf_counter()
    if system.rank_and_size()[0] and family != "ngram":
        api.follow(options.check_device(run.device))
    if settings.get("bits"):
        settings.setdefault("layout", "small")  # the only layout that supports quantization
    engine = None
    if settings.keys() & options.ENGINE.keys():
        engine = options.engine_options(settings, resume=run.resume)
        run = replace(run, resume=False)  # of the job in --work
    resolved = api.resolve_settings(family, run.recipe, run.config, run.set_ or (), settings)
    with run.start(*resolved.tokenizer_files, *(valid or ())) as bar:
        model = api.train(
            family,
            text_format.corpus(text),
            valid=None if valid is None else text_format.corpus(valid),
            memory=memory,
            size=size,
            settings=resolved,
            engine=engine,
            shards=shards,
            options=run.run_options(bar),
        )
        model.save(run.out, force=run.force)
    if json:
        emit({"model": str(run.out), "family": family, "parameters": model.parameters, **model.metrics})
    say(f"saved {run.out}: {model.parameters:,} parameters, {time.perf_counter() - start:.1f} s in all")
    options.report_word_splitting(resolved.tokenizer_kind, model.tokenizer.config.kind)
    _print_summary(model, has_validation=valid is not None)


def _print_summary(model: "Model", *, has_validation: bool) -> None:
    """Print how a neural model was trained, the validation results and advice about unknown words."""
    if "train_steps" in model.metrics:
        epochs, steps, reason = (model.metrics[f"train_{name}"] for name in ("epochs", "steps", "stopped"))
        say(f"trained {epochs:g} epochs, {steps:,} steps: {reason}")
        say(f"status: {model.metrics['status']}")
    perplexity, bits = (model.metrics.get(f"valid_{name}") for name in ("perplexity", "bits_per_byte"))
    if has_validation and (perplexity is None or bits is None):  # infinite values are not among the metrics
        say("validation: perplexity infinite (the model gives a token of the validation text probability 0)")
    elif has_validation:
        say(f"validation: perplexity {perplexity:.2f}, {bits:.4f} bits per byte")
    config = model.tokenizer.config
    if config.is_word_level and not (config.closed or model.metrics["train_oov"]):
        say("note: every word of the text is in the vocabulary, so the model never saw an unknown word;")
        say("      if new text will contain unknown words, train with --min-count 2")
