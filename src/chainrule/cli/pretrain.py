"""`chainrule pretrain`: pre-train an encoder on plain text."""

import time
from typing import Annotated

import typer

from chainrule.cli import options, training_options
from chainrule.cli.console import emit, say

FAMILIES = "Encoder: rnn, lstm, gru (bidirectional language model) or transformer (masked language model)."


def pretrain(
    call: typer.Context,
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=FAMILIES)],
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Text files, folders, globs, or - for stdin.")
    ],
    out: training_options.Out,
    valid: Annotated[list[str] | None, typer.Option(help="Validation text, evaluated during training.")] = None,
    recipe: training_options.Recipe = None,
    config: training_options.Config = None,
    set_: training_options.Set = None,
    resume: training_options.Resume = False,
    force: options.Force = False,
    tensorboard: training_options.Tensorboard = False,
    tokenizer: options.Tokenizer = None,
    vocab_size: options.VocabSize = None,
    min_count: options.MinCount = None,
    lowercase: options.Lowercase = False,
    mask: Annotated[
        float | None, typer.Option(help="transformer: fraction of tokens to mask.  [default: 0.15]")
    ] = None,
    hidden: options.Hidden = None,
    layers: options.Layers = None,
    embedding: options.Embedding = None,
    dropout: options.Dropout = None,
    batch_size: options.BatchSize = None,
    epochs: options.Epochs = None,
    max_seconds: options.MaxSeconds = None,
    optimizer: options.Optimizer = None,
    learning_rate: options.LearningRate = None,
    clip: options.Clip = None,
    precision: options.Precision = None,
    seed: options.RunSeed = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    json: options.Json = False,
) -> None:
    """Pre-train an encoder on plain text, for tag and classify.

    Use the result with --pretrained. An rnn, lstm or gru predicts the next and the previous word (ELMo); a
    transformer predicts masked words (BERT).

    Examples: chainrule pretrain lstm corpus.txt --valid valid.txt --min-count 2 --out runs/encoder

    chainrule tag train lstm train.conll --valid dev.conll --pretrained runs/encoder --out runs/tagger

    chainrule classify train lstm train.tsv --valid dev.tsv --pretrained runs/encoder --out runs/classifier
    """
    options.limit_threads(threads)
    from chainrule import families
    from chainrule.errors import UsageError
    from chainrule.text.corpus import Corpus

    start = time.perf_counter()
    if family not in ("rnn", "lstm", "gru", "transformer"):
        raise UsageError(f"there is no encoder of family '{family}'; choose rnn, lstm, gru or transformer")
    task = families.get_task("pretrain")
    params = dict(call.params)
    settings = training_options.resolve_settings("pretrain", family, task.PretrainConfig, params, ("mask",))
    kind = str(settings.tokenizer.pop("kind", "word"))
    rules = options.corpus_options(column, errors, drop_blank_lines)
    with training_options.task_run(params, settings, kind) as run_options:
        encoder = task.train(
            family,
            Corpus.of(text, **rules),
            valid=None if valid is None else Corpus.of(valid, **rules),
            tokenizer=tokenizer or kind,
            options=run_options,
            **settings.tokenizer,
            **settings.model,
        )
        encoder.save(out, force=force)
    validation = encoder.validation
    if json:
        about = {"model": str(out), "task": "pretrain", "family": family, "parameters": encoder.parameters}
        emit(about | encoder.metrics | ({"validation": validation} if validation else {}))
    figures = ", ".join(f"{name} {of['perplexity']:.2f}" for name, of in validation.items())
    quality = f"validation perplexity {figures}, " if validation else ""
    say(f"saved {out}: {encoder.parameters:,} parameters, {quality}{time.perf_counter() - start:.1f} s in all")
