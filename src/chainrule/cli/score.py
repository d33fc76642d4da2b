"""`chainrule score`: the log-probability of each line."""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import Pieces, emit, emit_in_pieces, flush
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.evaluation.scores import TokenScorer
    from chainrule.model import Model

UNITS = {"nats": 1.0, "bits": 1 / math.log(2), "log10": 1 / math.log(10)}
"""What a natural logarithm is multiplied by to become one of base e, 2 or 10."""
LINES_AT_ONCE = 4096


def score(
    model: options.ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines to score; - for stdin.")] = "-",
    per_token: Annotated[bool, typer.Option("--per-token", help="Also each token's share.")] = False,
    unit: Annotated[str, typer.Option(help="nats (base e), bits (base 2) or log10.")] = "nats",
    column: options.Column = None,
    errors: options.Errors = "strict",
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Score each line, its end included.

    A line with unknown words has a second figure in brackets, which counts how those words are spelled.
    Compare lines by that one: without spelling, any unknown word is as cheap as <unk>.

    Example: echo "i love mice" | chainrule score runs/ngram5 --unit bits
    """
    from chainrule import api
    from chainrule.applications.lines import LONG
    from chainrule.evaluation.scores import TokenScorer
    from chainrule.text.corpus import Corpus, read_batches

    if unit not in UNITS:
        raise UsageError(f"unit is '{unit}'; choose one of {', '.join(UNITS)}")
    loaded = api.load(model, device=options.device(device))
    corpus = Corpus.of(file, **options.text_rules(column, errors, False), reads_once=True)
    scorer = TokenScorer(loaded.lm) if loaded.lm.context == "stream" else None  # a stream is one piece
    for batch in _batches(read_batches(corpus)):
        if len(batch[0]) > LONG:
            _print_long(loaded, batch[0], scorer, unit, per_token, json)
            flush()
            continue
        for found in loaded.scores(batch, scorer=scorer):
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
                    print(f"{value:.6f}\t  {loaded.tokenizer.text_of(token)}")
        flush()


def _in(unit: str, nats: float) -> float:
    return UNITS[unit] * nats + 0.0  # −0 bits are 0


def _batches(batches: Iterable[list[str]]) -> Iterator[list[str]]:
    """The lines in lists of at most `LINES_AT_ONCE`, one that is long by itself."""
    from chainrule.applications.lines import LONG

    for lines in batches:
        first = 0
        for last, line in enumerate(lines):
            if len(line) > LONG or last - first == LINES_AT_ONCE:
                if last > first:
                    yield lines[first:last]
                first = last
            if len(line) > LONG:
                yield [line]
                first = last + 1
        if first < len(lines):
            yield lines[first:]


def _print_long(
    model: "Model", line: str, scorer: "TokenScorer | None", unit: str, per_token: bool, json: bool
) -> None:
    """The same of a line that is scored, and printed, in pieces."""
    from chainrule.applications.lines import score_long_line

    found = score_long_line(model, line, scorer, keeps_tokens=per_token or json)
    total = _in(unit, found.log_prob)
    tokens = (model.tokenizer.tokens(ids.tolist()) for ids in found.ids)
    values = ([_in(unit, value) for value in log_probs.tolist()] for log_probs in found.log_probs)
    if json:
        document: dict[str, Any] = {
            "text": line,
            "log_prob": total,
            "unit": unit,
            "tokens": Pieces(tokens),
            "log_probs": Pieces(values),
            "oov": found.oov,
            "infinite": found.log_prob == -math.inf,
            "log_prob_of_spellings": _in(unit, found.log_prob_of_spellings),
            "log_prob_with_spelling": _in(unit, found.log_prob + found.log_prob_of_spellings),
        }
        emit_in_pieces(document)
        return
    spelled = _in(unit, found.log_prob + found.log_prob_of_spellings)
    print(f"{total:.6f} ({spelled:.6f} with spelling)\t" if found.oov else f"{total:.6f}\t", end="")
    print(line)
    if per_token:
        for names, numbers in zip(tokens, values, strict=True):
            texts = map(model.tokenizer.text_of, names)
            print("\n".join(f"{value:.6f}\t  {text}" for text, value in zip(texts, numbers, strict=True)))
