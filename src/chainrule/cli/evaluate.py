"""`chainrule evaluate`: perplexity, bits per byte and the rest."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.evaluation.perplexity import Evaluation


def evaluate(
    model: options.ModelFolder,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, globs, or - for stdin.")],
    valid: Annotated[
        list[str] | None, typer.Option(help="Validation text, to choose the settings below on.")
    ] = None,
    train: Annotated[list[str] | None, typer.Option(help="--dynamic: text for the gradients' statistics.")] = None,
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Networks: also with a softmax tempered.")
    ] = False,
    cache: Annotated[bool, typer.Option("--cache", help="Networks: also with a continuous cache.")] = False,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Networks: also learning while scoring.")] = False,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Transformers: also with the window slid on by so many tokens.")
    ] = None,
    device: options.Device = "auto",
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    json: options.Json = False,
) -> None:
    """Measure a model on a text.

    What adapts to the text (--temperature, --cache, --dynamic) is reported beside the model's own figures.

    Examples: chainrule evaluate runs/ngram5 test.txt

    chainrule evaluate runs/lstm test.txt --valid valid.txt --train train.txt --cache --dynamic
    """
    given = options.chosen(stride=stride, temperature=temperature, cache=cache, dynamic=dynamic)
    _check(list(given), valid, train)
    from chainrule import api
    from chainrule.text.corpus import Corpus

    loaded = api.load(model, device=options.device(device))
    corpus, held_out, learnt = (
        None if part is None else Corpus.of(part, **options.text_rules(column, errors, drop_blank_lines))
        for part in (text, valid, train)
    )
    assert corpus is not None
    with progress() as bar:
        adapted = (  # first: what it refuses, it refuses at once
            loaded.evaluate_adapted(corpus, held_out, list(given), train=learnt, stride=stride, progress=bar)
            if given
            else {}
        )
        found = loaded.evaluate(corpus, bar)
    document: dict[str, Any] = {
        "model": str(model),
        "family": loaded.family,
        "tokenizer": loaded.tokenizer.config.kind,
        "context": loaded.lm.context,
        "sentences": found.sentences,
        "tokens": found.tokens,
        "oov": found.oov,
        "words": found.words,
        "characters": found.characters,
        "bytes": found.bytes,
        "nats_per_token": found.nats_per_token,
        "bits_per_token": found.bits_per_token,
        "perplexity": found.perplexity,
        "perplexity_excluding_oov": found.perplexity_excluding_oov,
        "perplexity_per_word": found.perplexity_per_word,
        "bits_per_character": found.bits_per_character,
        "bits_per_byte": found.bits_per_byte,
        "infinite": found.infinite,
        "seconds": found.seconds,
        "tokens_per_second": found.tokens_per_second,
        "replaced": found.replaced,
        "is_normalized": loaded.lm.is_normalized,
        "is_upper_bound": found.is_upper_bound,
        "cause": found.cause,
    }
    shown = {kind: _figures(figures, settings) for kind, (figures, settings) in adapted.items()}
    if json:
        document |= {"adapted": shown} if shown else {}
        emit(document)
        return
    for name, value in document.items():
        if value is not None:
            print(f"{name:<26}{_readable(value)}")
    for kind, figures in shown.items():
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


def _figures(found: "Evaluation", settings: dict[str, float]) -> dict[str, Any]:
    return {
        "perplexity": found.perplexity,
        "bits_per_byte": found.bits_per_byte,
        "nats_per_token": found.nats_per_token,
        "infinite": found.infinite,
        "settings": settings,
        "seconds": found.seconds,
    }


def _readable(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
