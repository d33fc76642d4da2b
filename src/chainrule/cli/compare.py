"""`chainrule compare`: train every model family on one text and rank them."""

import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.comparison.settings import Settings
from chainrule.errors import UsageError
from chainrule.plots import formatting
from chainrule.tokenizers.config import TokenizerConfig

if TYPE_CHECKING:
    from chainrule.comparison.results import Results, Row

TOKENIZER_SETTINGS = ("vocab_size", "lowercase")
BEST = "† best of its family or tokenizer"
STILL_FALLING = "* still improving when its time ran out: more time would lower it"

PIPED_WIDTH: Final = 100
MIN_SAMPLE: Final = 10
"""Minimum width of the sample column; if less is left, the column is omitted."""
MIN_NAME: Final = 16
TEXT_COLUMNS: Final = ("model", "tokenizer", "sample")

SETTINGS = (
    options.options_from_fields(Settings, "families", "tokenizer", "tokenizers")
    | options.options_from_fields(TokenizerConfig, *TOKENIZER_SETTINGS)
    | {
        "min_count": options.option(
            int, "Minimum word count; rarer words are replaced by <unk> in training.  [default: 2]"
        ),
        "budget": options.option(
            str, "Time budget of the whole comparison: 90s, 10m, 1h.  [default: 2m without --max-seconds]"
        ),
    }
    | options.options_from_fields(Settings, "context", "max_seconds", "seeds", "size", "keep", "resume")
)


@options.expand_option_groups(SETTINGS)
def compare(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT...]", help="Text files, folders, globs, or - for stdin.")
    ] = None,
    *,
    text_name: Annotated[
        str | None,
        typer.Option(
            "--text",
            help="Built-in text to use if TEXT is omitted: novel, or python (the Python language reference).  "
            "[default: novel]",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder for report, results and models.")] = Path("runs/compare"),
    valid: Annotated[list[str] | None, typer.Option(help="Validation text.  [default: a part of TEXT]")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Test text.  [default: a part of TEXT]")] = None,
    settings: dict[str, Any],
    threads: options.Threads = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    force: options.Force = False,
    text_format: options.LineFormat,
    json: options.Json = False,
) -> None:
    """Train every family on one text and rank them by bits per byte.

    Without TEXT, a built-in novel is used; `--text python` uses the language reference of this Python.

    Example: chainrule compare corpus.txt --tokenizers word,char --budget 10m --out runs/compare
    """
    _prepare_settings(settings)
    if text and text_name is not None:
        raise UsageError("TEXT and --text exclude each other; give one of them")
    options.limit_threads(threads)
    from chainrule.comparison.model_store import kept_names
    from chainrule.comparison.runner import compare as run_comparison
    from chainrule.text.splits import default_corpus

    valid_text, test_text = (text_format.corpus(sources) if sources else None for sources in (valid, test))
    with progress() as bar, _resume_hint(out):
        results = run_comparison(
            text_format.corpus(text) if text else default_corpus(text_name or "novel"),
            valid=valid_text,
            test=test_text,
            progress=bar,
            announce=say,
            device=options.check_device(device),
            seed=seed,
            out=out,
            force=force,
            command=options.command_line(),
            **settings,
        )
    if json:
        emit(results.to_json())
    else:
        print_results(results)
    kept_count = len(kept_names(results.rows, settings.get("keep", "best")))
    models = f" and {kept_count} of {len(results.rows)} models under {out / 'models'}" if kept_count else ""
    say(f"wrote {out / 'report.html'}, {out / 'results.json'}{models}")


def _prepare_settings(settings: dict[str, Any]) -> None:
    """Check the options and convert them to the fields of `Settings`."""
    if settings.get("tokenizers") and "tokenizer" in settings:
        raise UsageError("--tokenizer and --tokenizers exclude each other; give one of them")
    for name in ("families", "tokenizers"):
        settings[name] = _names(f"--{name}", settings.get(name, ""))
    if (context := settings.get("context", "line")) not in ("line", "stream"):
        raise UsageError(f"context is '{context}'; choose line or stream")
    settings["tokenizer_settings"] = {
        name: settings.pop(name) for name in ("min_count", *TOKENIZER_SETTINGS) if name in settings
    }


def _names(option: str, text: str) -> tuple[str, ...]:
    """Split a comma-separated option value into distinct names."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if text and not names:
        raise UsageError(f"{option} is '{text}', which contains no names; give names separated by commas")
    return names


@contextmanager
def _resume_hint(out: Path) -> Iterator[None]:
    """If the block is interrupted, print how to resume."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if (out / "unfinished.jsonl").exists():
            say("interrupted; continue with the same command with --resume")
        raise


def print_results(results: "Results", width: int | None = None) -> None:
    """Print a summary line, the table with one row per model or group of models, and footnotes.

    `width` defaults to the terminal width, or to 100 columns if stdout is not a terminal.
    """
    from rich.console import Console

    if width is None and not sys.stdout.isatty():
        width = PIPED_WIDTH
    console = Console(file=sys.stdout, width=width)
    split = results.split
    console.print(
        f"{results.text}: {split.train_tokens:,} training and {split.test_tokens:,} test tokens, "
        f"tokenizer {results.tokenizer}, text sha256 {results.text_sha256[:12]}",
        highlight=False,
        markup=False,
    )
    for line in _table(results, console.width):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in _footnotes(results):
        console.print(line, markup=False, highlight=False)


def _table(results: "Results", width: int) -> Iterator[str]:
    """Yield the lines of the table, headings first, at most `width` columns wide unless the numbers need more.

    To fit, samples are truncated, then omitted, then model names are truncated.
    """
    from rich.cells import cell_len

    columns = _columns(results)
    widths = {heading: max(map(cell_len, (heading, *cells))) for heading, cells in columns.items()}
    spare = width - sum(widths.values()) - len(widths) + 1  # one blank between columns
    sample_width = min(widths["sample"], widths["sample"] + spare)
    if sample_width < MIN_SAMPLE:
        spare += widths.pop("sample") + 1
        del columns["sample"]
        widths["model"] = min(widths["model"], max(MIN_NAME, widths["model"] + spare))
    else:
        widths["sample"] = sample_width
    for cells in zip(*([heading, *column] for heading, column in columns.items()), strict=True):
        line = (_aligned(cell, heading, widths[heading]) for cell, heading in zip(cells, widths, strict=True))
        yield " ".join(line).rstrip()


def _aligned(cell: str, heading: str, width: int) -> str:
    """Pad a cell to the width of its column: text left-aligned, numbers right-aligned."""
    from rich.cells import cell_len, set_cell_size

    if heading not in TEXT_COLUMNS:
        return cell.rjust(width)
    if cell_len(cell) <= width:
        return set_cell_size(cell, width)
    name, suffix = _split_name(cell) if heading == "model" else (cell, "")
    return set_cell_size(name, max(0, width - cell_len(suffix) - 1)) + "…" + suffix


def _split_name(cell: str) -> tuple[str, str]:
    """Split a cell into the model name and its suffix (number of further models in the row, † mark)."""
    name = re.sub(r"(?: and \d+ more)?(?: †)?$", "", cell)
    return name, cell[len(name) :]


def _columns(results: "Results") -> dict[str, list[str]]:
    """Return the cells of each column by heading, without empty columns."""
    from chainrule.comparison.results import find_wins, group_rows, is_rankable, rank_rows

    shown = group_rows(results.rows)
    lines = [(group[0], group) for group in shown]
    lines += [(row, (row,)) for row in rank_rows(results.rows) if not is_rankable(row)]
    rows = [row for row, _ in lines]
    marks = find_wins(results.rows)
    columns = {
        "model": [_name(group, row.name in marks) for row, group in lines],
        "tokenizer": _tokenizers(rows),
        "bits/byte": [_bits(row) for row in rows],
        "sd": ["" if row.sd is None else f"{row.sd:.3f}" for row in rows],
        "perplexity": [formatting.format_perplexity(row.perplexity) for row in rows],
        "size": [formatting.format_size(row.size_bytes) for row in rows],
        "sec": [f"{row.train_seconds:.2f}" for row in rows],
        "epochs": ["" if row.epochs is None else f"{row.epochs:.3g}" for row in rows],
        "sample": [row.sample.replace("\n", " ") if row.is_ranked else f"({row.note})" for row in rows],
    }
    return {name: cells for name, cells in columns.items() if any(cells) or name == "sample"}


def _tokenizers(rows: "list[Row]") -> list[str]:
    """Return the tokenizer of each row; empty strings if all rows share one, named in the summary line."""
    names = [row.tokenizer for row in rows]
    return names if len(set(names)) > 1 else [""] * len(names)


def _name(group: "tuple[Row, ...]", is_best: bool) -> str:
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return f"{group[0].name}{more}{' †' if is_best else ''}"


def _bits(row: "Row") -> str:
    """Format bits per byte: `*` if training ran out of time, brackets for unnormalized scores."""
    text = formatting.format_bits(row.bits_per_byte)
    if not row.is_ranked and not math.isinf(row.bits_per_byte):
        return f"({text})"
    return f"{text}{'*' if row.is_still_falling else ''}"


def _footnotes(results: "Results") -> Iterator[str]:
    from chainrule.comparison.results import find_wins, rank_rows, rankable_rows

    best = rankable_rows(results.rows)[:1]
    if best and best[0].difference is not None:
        yield f"{best[0].name}: {best[0].difference.describe()}"
    if find_wins(results.rows):
        yield BEST
    falling = [row for row in rank_rows(results.rows) if row.is_still_falling]
    if falling:
        yield STILL_FALLING
    yield from (f"  {row.name}: {row.status}" for row in falling if row.family != "mixture")
    yield from results.remarks
