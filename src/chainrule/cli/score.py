"""`chainrule score`: log-probability of each line."""

import contextlib
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import StreamedList, emit, emit_streamed, flush, progress
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.distributed.options import EngineOptions
    from chainrule.evaluation.perplexity import TokenScorer
    from chainrule.model import Model
    from chainrule.text.corpus import Corpus

LINES_AT_ONCE = 4096


@options.expand_option_groups(options.ENGINE | options.RESUME_JOB)
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
    settings: dict[str, Any],
) -> None:
    """Print the log-probability of each line, including its end.

    For a line with unknown words, a second figure in brackets includes the probability of their spellings.
    Use it to compare lines: without spellings, every unknown word costs only as much as <unk>.

    Example: echo "i love mice" | chainrule score runs/ngram5 --unit bits
    """
    from chainrule import api
    from chainrule.evaluation.perplexity import UNITS, TokenScorer
    from chainrule.text.corpus import read_batches

    if unit not in UNITS:
        raise UsageError(f"unit is '{unit}'; choose one of {', '.join(UNITS)}")
    engine = options.engine_options(settings)
    loaded = api.load(model, kind="language model", device=options.check_device(device))
    corpus = text_format.corpus(file, reads_once=not engine.uses_engine)
    form = _ScoreFormat(unit, per_token, json)
    if engine.uses_engine:
        _score_on_engine(engine, loaded, corpus, _ScoreLines(model.absolute(), device, form))
        return
    scorer = TokenScorer(loaded.lm) if loaded.lm.context == "stream" else None  # a stream is scored as one text
    _print_batches(loaded, read_batches(corpus), scorer, form)


@dataclass(frozen=True, slots=True)
class _ScoreFormat:
    """Output format of the scores."""

    unit: str
    per_token: bool
    json: bool


def _print_batches(
    model: "Model", lines: Iterable[list[str]], scorer: "TokenScorer | None", form: _ScoreFormat
) -> None:
    """Score batches of lines and print the scores."""
    from chainrule.applications.line_scoring import MAX_ENGINE_LINE
    from chainrule.evaluation.perplexity import UNITS

    scale = UNITS[form.unit]
    for batch in _batches(lines):
        if len(batch[0]) > MAX_ENGINE_LINE:
            _print_long(model, batch[0], scorer, form.unit, form.per_token, form.json)
            flush()
            continue
        for result in model.scores(batch, scorer=scorer):
            values = [_convert(scale, log_prob) for log_prob in result.log_probs]
            total = _convert(scale, result.log_prob)
            if form.json:
                document = _document(form.unit, result.text, result, list(result.tokens), values)
                emit(document, indent=None)
                continue
            spelled = f" ({_convert(scale, result.log_prob_with_spelling):.6f} with spelling)" if result.oov else ""
            print(f"{total:.6f}{spelled}\t{result.text}")
            if form.per_token:
                for token, value in zip(result.tokens, values, strict=True):
                    print(f"{value:.6f}\t  {model.tokenizer.display_text(token)}")
        flush()


@dataclass(frozen=True, slots=True)
class _ScoreLines:
    """Score lines in a worker process."""

    folder: Path
    device: str
    form: _ScoreFormat

    def __call__(self, lines: list[str]) -> bytes:
        """Return what the command prints for these lines."""
        from chainrule.applications.line_jobs import load_in_worker

        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            _print_batches(load_in_worker(self.folder, self.device), [lines], None, self.form)
        return output.getvalue().encode()


def _score_on_engine(engine: "EngineOptions", model: "Model", corpus: "Corpus", score_lines: _ScoreLines) -> None:
    """Score the lines of a corpus on an engine and print the scores in the order of the text."""
    from chainrule.applications.line_jobs import check_context, identify_folder, map_lines
    from chainrule.distributed.start import start_engine

    check_context([model])
    job = {"job": "score", "model": identify_folder(score_lines.folder), "format": str(score_lines.form)}
    with contextlib.ExitStack() as stack:
        with progress() as draw:
            running = stack.enter_context(start_engine(engine, corpus, job, draw))
            output = map_lines(running, corpus, "scores", score_lines)
        options.write_to_stdout(output)


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
