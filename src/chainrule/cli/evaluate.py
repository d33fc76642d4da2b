"""`chainrule evaluate`: perplexity and bits per byte of a model on a text."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.evaluation.perplexity import Evaluation


def evaluate(
    model: options.ModelFolder,
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Text files, folders, globs, or - for stdin.")
    ],
    valid: Annotated[
        list[str] | None, typer.Option(help="Validation text for tuning --temperature, --cache and --dynamic.")
    ] = None,
    train: Annotated[
        list[str] | None, typer.Option(help="Training text, for the gradient statistics of --dynamic.")
    ] = None,
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Neural models: also with a tuned softmax temperature.")
    ] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Neural models: also with a continuous cache.")] = False,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Neural models: also with dynamic evaluation.")
    ] = False,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Transformers: also with a sliding window of this stride, in tokens.")
    ] = None,
    device: options.Device = "auto",
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
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
    from chainrule.text.corpus import Corpus

    loaded = api.load(model, kind="language model", device=options.check_device(device))
    corpus, held_out, train_corpus = (
        None if part is None else Corpus.of(part, **options.corpus_options(column, errors, drop_blank_lines))
        for part in (text, valid, train)
    )
    assert corpus is not None
    with progress() as bar:
        adapted = (  # first, because it checks its arguments
            loaded.evaluate_adapted(
                corpus, held_out, list(adaptations), train=train_corpus, stride=stride, progress=bar
            )
            if adaptations
            else {}
        )
        result = loaded.evaluate(corpus, bar)
    document: dict[str, Any] = {
        "model": str(model),
        "family": loaded.family,
        "tokenizer": loaded.tokenizer.config.kind,
        "context": loaded.lm.context,
        "sentences": result.sentences,
        "tokens": result.tokens,
        "oov": result.oov,
        "words": result.words,
        "characters": result.characters,
        "bytes": result.bytes,
        "nats_per_token": result.nats_per_token,
        "bits_per_token": result.bits_per_token,
        "perplexity": result.perplexity,
        "perplexity_excluding_oov": result.perplexity_excluding_oov,
        "perplexity_per_word": result.perplexity_per_word,
        "bits_per_character": result.bits_per_character,
        "bits_per_byte": result.bits_per_byte,
        "infinite": result.infinite,
        "seconds": result.seconds,
        "tokens_per_second": result.tokens_per_second,
        "replaced": result.replaced,
        "is_normalized": loaded.lm.is_normalized,
        "is_upper_bound": result.is_upper_bound,
        "cause": result.cause,
    }
    adapted_figures = {kind: _figures(figures, settings) for kind, (figures, settings) in adapted.items()}
    if json:
        document |= {"adapted": adapted_figures} if adapted_figures else {}
        emit(document)
        return
    for name, value in document.items():
        if value is not None:
            print(f"{name:<26}{_readable(value)}")
    for kind, figures in adapted_figures.items():
        settings = ", ".join(f"{name} {value:.6g}" for name, value in figures["settings"].items())
        print(
            f"{'adapted: ' + kind:<26}perplexity {figures['perplexity']:.6g}, "
            f"bits_per_byte {figures['bits_per_byte']:.6g} ({settings})"
        )
    if not loaded.lm.is_normalized:
        print("These are scores, not probabilities: they do not compare with other models.")


def _check(kinds: list[str], valid: list[str] | None, train: list[str] | None) -> None:
    tuned = [kind for kind in kinds if kind != "stride"]
    if tuned and valid is None:
        raise UsageError(
            f"--{tuned[0]} has settings, and choosing them on the test text would be cheating: "
            "add --valid FILE to choose them on"
        )
    if valid is not None and not tuned:
        raise UsageError("--valid is for --temperature, --cache and --dynamic; add one of them, or leave it out")
    if train is not None and "dynamic" not in kinds:
        raise UsageError("--train is for the statistics of --dynamic; add that, or leave it out")


def _figures(result: "Evaluation", settings: dict[str, float]) -> dict[str, Any]:
    return {
        "perplexity": result.perplexity,
        "bits_per_byte": result.bits_per_byte,
        "nats_per_token": result.nats_per_token,
        "infinite": result.infinite,
        "settings": settings,
        "seconds": result.seconds,
    }


def _readable(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
