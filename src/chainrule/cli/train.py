"""`chainrule train`: one model."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.cli.learning import said_if_saved

if TYPE_CHECKING:
    from chainrule.config import Choices
    from chainrule.model import Model

FAMILIES = "ngram, feedforward, rnn, lstm, gru or transformer."  # in words: the table itself is slow to load
SETTINGS = (
    *("vocab_size", "min_count", "top_percent", "vocab", "closed", "unk", "lowercase", "locale"),
    *("order", "smoothing", "prune", "entropy_prune", "layout", "bits"),
    *("hidden", "layers", "embedding", "dropout", "attention", "init"),
    *("bptt", "batch_size", "epochs", "max_seconds", "optimizer", "learning_rate", "clip", "precision"),
)
"""The options that are settings by the same name; `tie` is one more, as its False is a choice, too."""


def train(
    call: typer.Context,
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=FAMILIES)],
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, globs, or - for stdin.")],
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    valid: Annotated[list[str] | None, typer.Option(help="Held-out text to measure on while training.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Settings by name; see chainrule recipes.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML: [model], [training], [tokenizer], [run].")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any setting, as key=value.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in --out.")] = False,
    force: options.Force = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write the curves for TensorBoard as well.")
    ] = False,
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
    """Train one model and save it.

    Options win over --set, --set over --config, --config over --recipe.

    Examples: chainrule train ngram corpus.txt --order 5 --out runs/ngram5

    chainrule train lstm corpus.txt --valid valid.txt --recipe small-lstm --out runs/lstm
    """
    options.use_threads(threads)
    from chainrule import api
    from chainrule.config import Run, make
    from chainrule.text.corpus import Corpus

    start = time.perf_counter()
    command = options.command_line()
    chosen = _choices(family, recipe, config, _typed(set_ or [], call.params), tokenizer)
    kind = chosen.tokenizer.pop("kind", "word")
    _check(family, chosen)  # a wrong name is answered here, before any work
    run = make(Run, chosen.run, "run")
    rules = options.text_rules(column, errors, drop_blank_lines)
    inputs = options.inputs_of(call.params, chosen, kind)
    writing = options.writing(out, inputs, force=force, resume=resume)
    with said_if_saved(out), writing, progress() as bar:
        model = api.train(
            family,
            Corpus.of(text, **rules),
            valid=None if valid is None else Corpus.of(valid, **rules),
            tokenizer=str(kind) if tokenizer is None else tokenizer,
            context=run.context,
            seed=run.seed,
            device=options.device(device),
            memory=memory,
            progress=bar,
            command=command,
            out=out,
            resume=resume,
            force=force,
            tensorboard=tensorboard,
            size=size,
            announce=say,
            recipe=None,  # it is among what was chosen
            **chosen.tokenizer,
            **chosen.model,
        )
        model.save(out, force=force)
    if json:
        emit({"model": str(out), "family": family, "parameters": model.parameters, **model.metrics})
    say(f"saved {out}: {model.parameters:,} parameters, {time.perf_counter() - start:.1f} s in all")
    options.say_splitting(kind if tokenizer is None else tokenizer, model.tokenizer.config.kind)
    _show_run(model)
    if valid is not None:
        _show_validation(model)
    _advise(model)


def _typed(pairs: list[str], given: Mapping[str, Any]) -> "Choices":
    """What the command line chooses: options, over --set."""
    from chainrule.api import split_settings
    from chainrule.config import Choices, parse_overrides

    switch = {} if given["tie"] is None else {"tie": given["tie"]}
    if given["patience"] is not None:
        switch["stop_after"] = given["patience"]  # `patience` is a setting of the plateau schedule
    if given["bits"] and given["layout"] is None:
        given = {**given, "layout": "small"}  # the only one that has them
    named = options.chosen(**{name: given[name] for name in SETTINGS})
    wanted, own = split_settings(parse_overrides(pairs) | named | switch)
    if "kind" in own:
        wanted["kind"] = own.pop("kind")
    context = given["context"] and options.context(given["context"])
    run = {"context": context, "seed": given["seed"]}
    return Choices(
        model=own, tokenizer=wanted, run={name: value for name, value in run.items() if value is not None}
    )


def _choices(
    family: str, recipe: str | None, config: Path | None, typed: "Choices", tokenizer: str | None
) -> "Choices":
    """All that was chosen, each source over the one before: recipe, file, command line."""
    from chainrule import recipes
    from chainrule.config import Choices, choices, read_toml
    from chainrule.tokenizers.config import KINDS

    chosen = Choices()
    if recipe is not None:
        found = recipes.read(recipe, family)
        chosen = found.choices
        if tokenizer is not None and tokenizer not in KINDS:
            chosen.tokenizer.clear()  # of a finished tokenizer nothing can be chosen any more
    if config is not None:
        chosen |= choices(read_toml(config), config)
    return chosen | typed


def _check(family: str, chosen: "Choices") -> None:
    """Refuse what the family or the tokenizer does not have."""
    from chainrule import families
    from chainrule.config import make
    from chainrule.tokenizers.config import TokenizerConfig

    if family in families.trainable():
        families.check_settings(family, chosen.model)
        make(families.get(family).Config, chosen.model, "model", family)
    else:
        chosen.model.clear()  # the family itself is what will be refused
    make(TokenizerConfig, chosen.tokenizer, "tokenizer")


def _show_run(model: "Model") -> None:
    """Epochs, steps and why training stopped; an n-gram model has none of them."""
    if "train_steps" in model.metrics:
        epochs, steps, reason = (model.metrics[f"train_{name}"] for name in ("epochs", "steps", "stopped"))
        say(f"trained {epochs:g} epochs, {steps:,} steps: {reason}")
        say(f"status: {model.metrics['status']}")


def _show_validation(model: "Model") -> None:
    """Perplexity and bits per byte of the validation text; infinite figures are not among the metrics."""
    perplexity = model.metrics.get("valid_perplexity")
    bits_per_byte = model.metrics.get("valid_bits_per_byte")
    if perplexity is None or bits_per_byte is None:
        say("validation: perplexity infinite (the model gives a token of the validation text probability 0)")
    else:
        say(f"validation: perplexity {perplexity:.2f}, {bits_per_byte:.4f} bits per byte")


def _advise(model: "Model") -> None:
    kept = model.tokenizer.config
    if kept.is_words and not (kept.closed or model.metrics["train_oov"]):
        say("note: every word of the text is in the vocabulary, so the model never met an unknown one;")
        say("      if new text will hold such words, --min-count 2 teaches it what they are like")
