"""`chainrule train`: train a language model."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.cli.training_options import resume_hint

if TYPE_CHECKING:
    from chainrule.config import ConfigOverrides
    from chainrule.model import Model

FAMILIES = "Model family: ngram, feedforward, rnn, lstm, gru or transformer."  # a literal: the table loads slowly
SETTINGS = (
    *("vocab_size", "min_count", "top_percent", "vocab", "closed", "unk", "lowercase", "locale"),
    *("order", "smoothing", "prune", "entropy_prune", "layout", "bits"),
    *("hidden", "layers", "embedding", "dropout", "attention", "init"),
    *("bptt", "batch_size", "epochs", "max_seconds", "optimizer", "learning_rate", "clip", "precision"),
)
"""Options that set a configuration field of the same name; `tie` is handled apart because False is valid."""


def train(
    call: typer.Context,
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=FAMILIES)],
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Text files, folders, globs, or - for stdin.")
    ],
    out: Annotated[Path, typer.Option(help="Output model folder.")],
    valid: Annotated[list[str] | None, typer.Option(help="Validation text, evaluated during training.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Name of a recipe; see chainrule recipes.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings with tables [model], [training], [tokenizer], [run].")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Set any configuration field: key=value. Repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint in --out.")] = False,
    force: options.Force = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")] = False,
    tokenizer: options.Tokenizer = None,
    vocab_size: options.VocabSize = None,
    min_count: options.MinCount = None,
    top_percent: options.TopPercent = None,
    vocab: options.Vocab = None,
    closed: options.Closed = False,
    unk: options.Unk = None,
    lowercase: options.Lowercase = False,
    locale: options.Locale = None,
    context: options.RunContext = None,
    order: options.Order = None,
    smoothing: options.Smoothing = None,
    prune: options.Prune = None,
    entropy_prune: options.EntropyPrune = None,
    layout: options.Layout = None,
    bits: options.Quantize = None,
    memory: options.Memory = None,
    hidden: options.Hidden = None,
    layers: options.Layers = None,
    embedding: options.Embedding = None,
    dropout: options.Dropout = None,
    tie: options.Tie = None,
    attention: options.Attention = None,
    bptt: options.Bptt = None,
    batch_size: options.BatchSize = None,
    epochs: options.Epochs = None,
    max_seconds: options.MaxSeconds = None,
    patience: options.Patience = None,
    size: options.Size = None,
    optimizer: options.Optimizer = None,
    learning_rate: options.LearningRate = None,
    clip: options.Clip = None,
    init: options.Init = None,
    precision: options.Precision = None,
    seed: options.RunSeed = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    json: options.Json = False,
) -> None:
    """Train a language model and save it.

    Options override --set, which overrides --config, which overrides --recipe.

    Examples: chainrule train ngram corpus.txt --order 5 --out runs/ngram5

    chainrule train lstm corpus.txt --valid valid.txt --recipe small-lstm --out runs/lstm
    """
    options.limit_threads(threads)
    from chainrule import api
    from chainrule.config import RunConfig, build_config
    from chainrule.data.training_data import RunOptions
    from chainrule.text.corpus import Corpus

    start = time.perf_counter()
    settings = _resolve_settings(family, recipe, config, _command_line_settings(set_ or [], call.params), tokenizer)
    kind = settings.tokenizer.pop("kind", "word")
    _check_settings(family, settings)  # report errors before any work
    chosen: dict[str, Any] = settings.tokenizer | settings.model
    run = build_config(RunConfig, settings.run, "run")
    rules = options.corpus_options(column, errors, drop_blank_lines)
    inputs = options.input_files(call.params, settings, kind)
    lock = options.lock_output(out, inputs, force=force, resume=resume)
    with resume_hint(out), lock, progress() as bar:
        model = api.train(
            family,
            Corpus.of(text, **rules),
            valid=None if valid is None else Corpus.of(valid, **rules),
            tokenizer=str(kind) if tokenizer is None else tokenizer,
            memory=memory,
            size=size,
            options=RunOptions(
                context=run.context,
                seed=run.seed,
                device=options.check_device(device),
                progress=bar,
                announce=say,
                command=options.command_line(),
                out=out,
                resume=resume,
                force=force,
                tensorboard=tensorboard,
            ),
            **chosen,
        )
        model.save(out, force=force)
    if json:
        emit({"model": str(out), "family": family, "parameters": model.parameters, **model.metrics})
    say(f"saved {out}: {model.parameters:,} parameters, {time.perf_counter() - start:.1f} s in all")
    options.report_word_splitting(kind if tokenizer is None else tokenizer, model.tokenizer.config.kind)
    _show_run(model)
    if valid is not None:
        _show_validation(model)
    _advise(model)


def _command_line_settings(pairs: list[str], params: Mapping[str, Any]) -> "ConfigOverrides":
    """Merge the command-line options over --set."""
    from chainrule.api import split_settings
    from chainrule.config import ConfigOverrides, parse_overrides

    switches = {} if params["tie"] is None else {"tie": params["tie"]}
    if params["patience"] is not None:
        switches["stop_after"] = params["patience"]  # `patience` is a field of the plateau schedule
    if params["bits"] and params["layout"] is None:
        params = {**params, "layout": "small"}  # the only layout that supports quantization
    set_options = options.drop_unset(**{name: params[name] for name in SETTINGS})
    tokenizer_settings, model_settings = split_settings(parse_overrides(pairs) | set_options | switches)
    if "kind" in model_settings:
        tokenizer_settings["kind"] = model_settings.pop("kind")
    context = params["context"] and options.check_context(params["context"])
    run = {"context": context, "seed": params["seed"]}
    return ConfigOverrides(
        model=model_settings,
        tokenizer=tokenizer_settings,
        run={name: value for name, value in run.items() if value is not None},
    )


def _resolve_settings(
    family: str,
    recipe: str | None,
    config: Path | None,
    command_line_settings: "ConfigOverrides",
    tokenizer: str | None,
) -> "ConfigOverrides":
    """Merge the settings of recipe, --config and command line, in increasing priority."""
    from chainrule import recipes
    from chainrule.config import ConfigOverrides, overrides_from_tables, read_toml
    from chainrule.tokenizers.config import KINDS

    settings = ConfigOverrides()
    if recipe is not None:
        settings = recipes.read(recipe, family).choices
        if tokenizer is not None and tokenizer not in KINDS:
            settings.tokenizer.clear()  # a trained tokenizer cannot be configured
    if config is not None:
        settings |= overrides_from_tables(read_toml(config), config)
    return settings | command_line_settings


def _check_settings(family: str, settings: "ConfigOverrides") -> None:
    """Raise ConfigError for settings that the family or the tokenizer does not have."""
    from chainrule import families
    from chainrule.config import build_config
    from chainrule.tokenizers.config import TokenizerConfig

    if family in families.trainable():
        families.check_setting_names(family, settings.model)
        build_config(families.get(family).Config, settings.model, "model", family)
    else:
        settings.model.clear()  # `api.train` reports the unknown family
    build_config(TokenizerConfig, settings.tokenizer, "tokenizer")


def _show_run(model: "Model") -> None:
    """Print epochs, steps and the stopping reason of a neural model."""
    if "train_steps" in model.metrics:
        epochs, steps, reason = (model.metrics[f"train_{name}"] for name in ("epochs", "steps", "stopped"))
        say(f"trained {epochs:g} epochs, {steps:,} steps: {reason}")
        say(f"status: {model.metrics['status']}")


def _show_validation(model: "Model") -> None:
    """Print validation perplexity and bits per byte; infinite values are absent from the metrics."""
    perplexity = model.metrics.get("valid_perplexity")
    bits_per_byte = model.metrics.get("valid_bits_per_byte")
    if perplexity is None or bits_per_byte is None:
        say("validation: perplexity infinite (the model gives a token of the validation text probability 0)")
    else:
        say(f"validation: perplexity {perplexity:.2f}, {bits_per_byte:.4f} bits per byte")


def _advise(model: "Model") -> None:
    config = model.tokenizer.config
    if config.is_word_level and not (config.closed or model.metrics["train_oov"]):
        say("note: every word of the text is in the vocabulary, so the model never saw an unknown word;")
        say("      if new text will contain unknown words, train with --min-count 2")
