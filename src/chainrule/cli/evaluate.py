"""`chainrule evaluate`: perplexity and bits per byte of a model on a text."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.evaluation.perplexity import Evaluation
    from chainrule.model import Model

FIGURES = (
    *("sentences", "tokens", "oov", "words", "characters", "bytes", "nats_per_token", "bits_per_token"),
    *("perplexity", "perplexity_excluding_oov", "perplexity_per_word", "bits_per_character", "bits_per_byte"),
    *("infinite", "seconds", "tokens_per_second", "replaced"),
)
ADAPTED_FIGURES = ("perplexity", "bits_per_byte", "nats_per_token", "infinite")


@options.expand_option_groups()
def evaluate(
    model: options.ModelFolder,
    text: options.Texts,
    *,
    valid: Annotated[
        list[str] | None, typer.Option(help="Validation text for tuning --temperature, --cache and --dynamic.")
    ] = None,
    train: Annotated[
        list[str] | None, typer.Option(help="Training text, for the gradient statistics of --dynamic.")
    ] = None,
    temperature: Annotated[
        bool,
        typer.Option("--temperature", help="Neural models: also report results with a tuned softmax temperature."),
    ] = False,
    cache: Annotated[
        bool, typer.Option("--cache", help="Neural models: also report results with a continuous cache.")
    ] = False,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Neural models: also report results with dynamic evaluation.")
    ] = False,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1, help="Transformers: also report results with a sliding window of this stride, in tokens."
        ),
    ] = None,
    device: options.Device = "auto",
    text_format: options.LineFormat,
    json: options.Json = False,
) -> None:
    """Evaluate a model on a text.

    Results with adaptation (--temperature, --cache, --dynamic) are reported in addition to the plain ones.

    Examples: chainrule evaluate runs/ngram5 test.txt

    chainrule evaluate runs/lstm test.txt --valid valid.txt --train train.txt --cache --dynamic
    """
    adaptations = options.drop_unset(stride=stride, temperature=temperature, cache=cache, dynamic=dynamic)
    _check(list(adaptations), valid, train)
    from chainrule import api

    loaded = api.load(model, kind="language model", device=options.check_device(device))
    corpus = text_format.corpus(text)
    held_out, train_corpus = (None if part is None else text_format.corpus(part) for part in (valid, train))
    with progress() as bar:
        run: dict[str, Any] = {"train": train_corpus, "stride": stride, "progress": bar}
        # First, because it checks its arguments.
        adapted = loaded.evaluate_adapted(corpus, held_out, list(adaptations), **run) if adaptations else {}
        result = loaded.evaluate(corpus, bar)
    adapted_figures = _adapted_figures(adapted)
    document = _document(str(model), loaded, result)
    if json:
        emit(document | ({"adapted": adapted_figures} if adapted_figures else {}))
        return
    _print(document, adapted_figures)
    if not loaded.lm.is_normalized:
        print("These are scores, not probabilities: they are not comparable with those of other models.")


def _adapted_figures(adapted: dict[str, tuple[Any, dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """Return the figures of each kind of adaptation, with its settings and its time."""
    return {
        kind: {name: getattr(figures, name) for name in ADAPTED_FIGURES}
        | {"settings": settings, "seconds": figures.seconds}
        for kind, (figures, settings) in adapted.items()
    }


def _print(document: dict[str, Any], adapted_figures: dict[str, dict[str, Any]]) -> None:
    for name, value in document.items():
        if value is not None:
            print(f"{name:<26}{_readable(value)}")
    for kind, figures in adapted_figures.items():
        settings = ", ".join(f"{name} {value:.6g}" for name, value in figures["settings"].items())
        print(
            f"{'adapted: ' + kind:<26}perplexity {figures['perplexity']:.6g}, "
            f"bits_per_byte {figures['bits_per_byte']:.6g} ({settings})"
        )


def _document(name: str, model: "Model", result: "Evaluation") -> dict[str, Any]:
    return {
        "model": name,
        "family": model.family,
        "tokenizer": model.tokenizer.config.kind,
        "context": model.lm.context,
        **{figure: getattr(result, figure) for figure in FIGURES},
        "is_normalized": model.lm.is_normalized,
        "is_upper_bound": result.is_upper_bound,
        "cause": result.cause,
    }


def _check(kinds: list[str], valid: list[str] | None, train: list[str] | None) -> None:
    tuned = [kind for kind in kinds if kind != "stride"]
    if tuned and valid is None:
        raise UsageError(
            f"--{tuned[0]} has hyperparameters, which must not be tuned on the test text: add --valid FILE"
        )
    if valid is not None and not tuned:
        raise UsageError("--valid is for --temperature, --cache and --dynamic; add one of them, or leave it out")
    if train is not None and "dynamic" not in kinds:
        raise UsageError("--train is for the statistics of --dynamic; add that, or leave it out")


def _readable(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
