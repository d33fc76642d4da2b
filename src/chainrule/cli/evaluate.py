"""`chainrule evaluate`: perplexity, bits per byte and the rest."""

from typing import Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress


def evaluate(
    model: options.ModelFolder,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, globs, or - for stdin.")],
    column: options.Column = "text",
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    json: options.Json = False,
) -> None:
    """Measure a model on a text.

    Example: chainrule evaluate runs/ngram5 test.txt
    """
    from chainrule import api
    from chainrule.text.corpus import Corpus

    loaded = api.load(model)
    with progress() as bar:
        found = loaded.evaluate(Corpus.of(text, **options.text_rules(column, errors, drop_blank_lines)), bar)
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
    if json:
        emit(document)
        return
    for name, value in document.items():
        if value is not None:
            print(f"{name:<26}{_readable(value)}")
    if not loaded.lm.is_normalized:
        print("These are scores, not probabilities: they do not compare with other models.")


def _readable(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
