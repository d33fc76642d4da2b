"""`chainrule score`: log-probability of each line."""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import StreamedList, emit, emit_streamed, flush
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.evaluation.perplexity import TokenScorer
    from chainrule.model import Model

LINES_AT_ONCE = 4096


@options.expand_option_groups()
def score(
    model: options.ModelFolder,
    *,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines to score; - for stdin.")] = "-",
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Also print the log-probability of each token.")
    ] = False,
    unit: Annotated[
        str, typer.Option(help="Unit of the log-probabilities: nats (base e), bits (base 2) or log10.")
    ] = "nats",
    device: options.Device = "auto",
    text_format: options.TextFormat,
    json: options.Json = False,
) -> None:
    """Print the log-probability of each line, including its end.

    For a line with unknown words, a second figure in brackets includes the probability of their spellings.
    Use it to compare lines: without spellings, every unknown word costs only as much as <unk>.

    Example: echo "i love mice" | chainrule score runs/ngram5 --unit bits
    """
    from chainrule import api
    from chainrule.applications.line_scoring import MAX_ENGINE_LINE
    from chainrule.evaluation.perplexity import UNITS, TokenScorer
    from chainrule.text.corpus import read_batches

    if unit not in UNITS:
        raise UsageError(f"unit is '{unit}'; choose one of {', '.join(UNITS)}")
    scale = UNITS[unit]
    loaded = api.load(model, kind="language model", device=options.check_device(device))
    corpus = text_format.corpus(file, reads_once=True)
    scorer = TokenScorer(loaded.lm) if loaded.lm.context == "stream" else None  # a stream is scored as one text
    for batch in _batches(read_batches(corpus)):
        if len(batch[0]) > MAX_ENGINE_LINE:
            _print_long(loaded, batch[0], scorer, unit, per_token, json)
            flush()
            continue
        for result in loaded.scores(batch, scorer=scorer):
            values = [_convert(scale, log_prob) for log_prob in result.log_probs]
            total = _convert(scale, result.log_prob)
            if json:
                document = _document(unit, result.text, result, list(result.tokens), values)
                emit(document, indent=None)
                continue
            spelled = f" ({_convert(scale, result.log_prob_with_spelling):.6f} with spelling)" if result.oov else ""
            print(f"{total:.6f}{spelled}\t{result.text}")
            if per_token:
                for token, value in zip(result.tokens, values, strict=True):
                    print(f"{value:.6f}\t  {loaded.tokenizer.display_text(token)}")
        flush()


def _convert(scale: float, nats: float) -> float:
    return scale * nats + 0.0  # avoids −0


def _document(unit: str, text: str, result: Any, tokens: Any, log_probs: Any) -> dict[str, Any]:
    from chainrule.evaluation.perplexity import UNITS

    scale, spellings = UNITS[unit], result.log_prob_of_spellings
    return {
        "text": text,
        "log_prob": _convert(scale, result.log_prob),
        "unit": unit,
        "tokens": tokens,
        "log_probs": log_probs,
        "oov": result.oov,
        "infinite": result.log_prob == -math.inf,
        "log_prob_of_spellings": _convert(scale, spellings),
        "log_prob_with_spelling": _convert(scale, result.log_prob + spellings),
    }


def _batches(batches: Iterable[list[str]]) -> Iterator[list[str]]:
    """Regroup the lines into batches of at most `LINES_AT_ONCE`, with every long line in its own batch."""
    from chainrule.applications.line_scoring import MAX_ENGINE_LINE

    for lines in batches:
        begin = 0
        for i, line in enumerate(lines):
            if len(line) > MAX_ENGINE_LINE or i - begin == LINES_AT_ONCE:
                if i > begin:
                    yield lines[begin:i]
                begin = i
            if len(line) > MAX_ENGINE_LINE:
                yield [line]
                begin = i + 1
        if begin < len(lines):
            yield lines[begin:]


def _print_long(
    model: "Model", line: str, scorer: "TokenScorer | None", unit: str, per_token: bool, json: bool
) -> None:
    """Score and print a very long line chunk by chunk."""
    from chainrule.applications.line_scoring import score_long_line
    from chainrule.evaluation.perplexity import UNITS

    scale = UNITS[unit]
    result = score_long_line(model, line, scorer, keeps_tokens=per_token or json)
    total = _convert(scale, result.log_prob)
    tokens = (model.tokenizer.tokens(ids.tolist()) for ids in result.ids)
    values = ([_convert(scale, value) for value in log_probs.tolist()] for log_probs in result.log_probs)
    if json:
        document = _document(unit, line, result, StreamedList(tokens), StreamedList(values))
        emit_streamed(document)
        return
    spelled = _convert(scale, result.log_prob + result.log_prob_of_spellings)
    print(f"{total:.6f} ({spelled:.6f} with spelling)\t" if result.oov else f"{total:.6f}\t", end="")
    print(line)
    if per_token:
        for names, numbers in zip(tokens, values, strict=True):
            texts = map(model.tokenizer.display_text, names)
            print("\n".join(f"{value:.6f}\t  {text}" for text, value in zip(texts, numbers, strict=True)))
