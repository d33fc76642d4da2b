"""`chainrule score`: the log-probability of each line."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit
from chainrule.errors import UsageError

UNITS = {"nats": 1.0, "bits": 1 / math.log(2), "log10": 1 / math.log(10)}
"""What a natural logarithm is multiplied by to become one of base e, 2 or 10."""
LINES_AT_ONCE = 4096


def score(
    model: options.ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines to score; - for stdin.")] = "-",
    per_token: Annotated[bool, typer.Option("--per-token", help="Also each token's share.")] = False,
    unit: Annotated[str, typer.Option(help="nats (base e), bits (base 2) or log10.")] = "nats",
    column: options.Column = "text",
    errors: options.Errors = "strict",
    json: options.Json = False,
) -> None:
    """Score each line, its end included.

    A line with unknown words has a second figure in brackets, which counts how those words are spelled.
    Compare lines by that one: without spelling, any unknown word is as cheap as <unk>.

    Example: echo "i love mice" | chainrule score runs/ngram5 --unit bits
    """
    from chainrule import api
    from chainrule.text.corpus import Corpus

    if unit not in UNITS:
        raise UsageError(f"unit is '{unit}'; choose one of {', '.join(UNITS)}")
    loaded = api.load(model)
    lines = Corpus.of(file, **options.text_rules(column, errors, False)).read()
    at_once = LINES_AT_ONCE if loaded.lm.context == "line" else None  # a stream is one piece
    for batch in _batches(lines, at_once):
        for found in loaded.scores(batch):
            values = [_in(unit, log_prob) for log_prob in found.log_probs]
            total = _in(unit, found.log_prob)
            if json:
                document = {
                    "text": found.text,
                    "log_prob": total,
                    "unit": unit,
                    "tokens": list(found.tokens),
                    "log_probs": values,
                    "oov": found.oov,
                    "infinite": found.infinite,
                    "log_prob_of_spellings": _in(unit, found.log_prob_of_spellings),
                    "log_prob_with_spelling": _in(unit, found.log_prob_with_spelling),
                }
                emit(document, indent=None)
                continue
            spelled = f" ({_in(unit, found.log_prob_with_spelling):.6f} with spelling)" if found.oov else ""
            print(f"{total:.6f}{spelled}\t{found.text}")
            if per_token:
                for token, value in zip(found.tokens, values, strict=True):
                    print(f"{value:.6f}\t  {token}")


def _in(unit: str, nats: float) -> float:
    return UNITS[unit] * nats + 0.0  # −0 bits are 0


def _batches(lines: Iterator[str], at_once: int | None) -> Iterator[list[str]]:
    while batch := list(islice(lines, at_once)):
        yield batch
