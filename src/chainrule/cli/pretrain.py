"""`chainrule pretrain`: pre-train an encoder on plain text."""

from typing import Annotated

import typer

from chainrule.cli import options, training_options
from chainrule.neural.cells import CELLS, ENCODER_FAMILIES

FAMILIES = f"Encoder: {', '.join(CELLS)} (bidirectional language model) or transformer (masked language model)."


SETTINGS = training_options.TASK_SETTINGS | {
    "mask": options.option(float, "transformer: fraction of tokens to mask.  [default: 0.15]")
}


@options.expand_option_groups(SETTINGS)
def pretrain(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=FAMILIES)],
    text: options.Texts,
    *,
    run: training_options.Run,
    valid: Annotated[list[str] | None, typer.Option(help="Validation text, evaluated during training.")] = None,
    settings: dict[str, object],
    text_format: options.LineFormat,
    json: options.Json = False,
) -> None:
    """Pre-train an encoder on plain text, for tag and classify.

    Use the result with --pretrained. An rnn, lstm or gru predicts the next and the previous word (ELMo); a
    transformer predicts masked words (BERT).

    Examples: chainrule pretrain lstm corpus.txt --valid valid.txt --min-count 2 --out runs/encoder

    chainrule tag train lstm train.conll --valid dev.conll --pretrained runs/encoder --out runs/tagger

    chainrule classify train lstm train.tsv --valid dev.tsv --pretrained runs/encoder --out runs/classifier
    """
    options.limit_threads(run.threads)
    from chainrule.errors import UsageError

    if family not in ENCODER_FAMILIES:
        raise UsageError(f"there is no encoder of family '{family}'; choose {', '.join(CELLS)} or transformer")
    encoder, seconds = training_options.train_task(
        "pretrain", family, text, run, settings, inputs=valid or (), text_format=text_format, valid=valid
    )
    validation = encoder.validation
    figures = ", ".join(f"{name} {of['perplexity']:.2f}" for name, of in validation.items())
    quality = f", validation perplexity {figures}" if validation else ""
    about = {"task": "pretrain", "family": family}
    training_options.report_training(run, encoder, seconds, about, validation, quality, json)
