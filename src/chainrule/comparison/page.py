"""Comparison report as a self-contained HTML page.

Untrusted text is escaped with `html.escape` and placed in elements that isolate its writing direction.
"""

import html
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from chainrule.comparison import figures
from chainrule.comparison.results import (
    Results,
    Row,
    Sentence,
    Surprisal,
    find_wins,
    group_rows,
    is_rankable,
    rank_rows,
    rankable_rows,
)
from chainrule.errors import MissingExtra
from chainrule.plots import formatting
from chainrule.plots import html as page
from chainrule.plots.html import FULL_BITS, Markup, facts_html, surprisal_html
from chainrule.storage.atomic import atomic_file, flush, write_error

HEADINGS = {
    "rank": ("", "Rank"),
    "model": ("Model", "Name of the model"),
    "tokenizer": ("Tokenizer", "Kind of tokenizer"),
    "bits": ("Bits / byte", "Bits per byte of the test text; lower is better"),
    "behind": ("vs best", "How many more bits than the best model"),
    "perplexity": ("Perplexity", "Perplexity per token"),
    "word-perplexity": ("Per word", "Perplexity per word"),
    "size": ("Size", "Size on disk"),
    "time": ("Training", "Time to train"),
    "epochs": ("Epochs", "How often the training text was read (networks)"),
    "status": ("Status", "How training ended"),
    "sample": ("Sample", "Text drawn from the model"),
}
"""Title and description of each column by CSS class."""
TEXT_COLUMNS = ("model", "tokenizer", "status", "sample")
MAX_SAMPLE_LENGTH = 1200  # characters shown


class Cell(NamedTuple):
    """Displayed content, sort value and tooltip of a table cell."""

    shown: str
    value: float | str
    tooltip: str = ""

    def to_html(self, column: str) -> str:
        """Render the cell; numbers are right-aligned."""
        is_number = not isinstance(self.value, str)
        value = ("Infinity" if self.value == math.inf else f"{self.value:.9g}") if is_number else self.value
        title = f' title="{html.escape(self.tooltip)}"' if self.tooltip else ""
        kind = f"{column} number" if is_number else column
        return f'<td class="{kind}"{title} data-value="{html.escape(str(value))}">{self.shown}</td>'


def models_table(rows: Sequence[Row]) -> str:
    """Render all rows; unranked rows are in a separate table body, so that sorting keeps them last."""
    ordered = rank_rows(rows)
    rankable = rankable_rows(rows)
    best = rankable[0].bits_per_byte if rankable else math.nan
    wins = find_wins(rows)
    columns = _columns(rows)
    bodies = []
    rank = 1
    for group in group_rows(rows):
        bodies.append(_row(columns, rank, group, best, wins.get(group[0].name, ())))
        rank += len(group)
    unranked = [_row(columns, 0, (row,), best) for row in ordered if not is_rankable(row)]
    heads = "".join(map(_heading, columns))
    separator = f'<tbody class="parting"><tr><th colspan="{len(columns)}">Not ranked</th></tr></tbody>'
    return (
        '<div class="wide" role="region" aria-label="All models" tabindex="0"><table class="sortable">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(bodies)}</tbody>"
        + (f'{separator}<tbody class="unranked">{"".join(unranked)}</tbody>' if unranked else "")
        + "</table></div>"
        + _footnotes(rows)
    )


def _columns(rows: Sequence[Row]) -> list[str]:
    """Columns to show; the tokenizer column only if rows differ in it."""
    has_several = len({row.tokenizer for row in rows}) > 1
    return [name for name in HEADINGS if name != "tokenizer" or has_several]


def _heading(column: str) -> str:
    title, description = HEADINGS[column]
    kind = column if column in TEXT_COLUMNS else f"{column} number"
    return f'<th scope="col" class="{kind}" title="{description}">{title}</th>'


def _footnotes(rows: Sequence[Row]) -> str:
    notes = []
    if any(row.is_still_falling for row in rows):
        notes.append("* Still improving when its time ran out: more time would lower it.")
    if any(row.sd is not None for row in rows):
        notes.append("± Standard deviation over several seeds; the figures are means over the seeds.")
    return "".join(f'<p class="note">{note}</p>' for note in notes)


def _row(columns: Sequence[str], rank: int, group: tuple[Row, ...], best: float, wins: Sequence[str] = ()) -> str:
    row = group[0]
    excess = row.bits_per_byte / best - 1 if rank and best else math.inf
    behind = f"+{formatting.format_percent(excess)}" if rank > 1 and math.isfinite(excess) else ""
    rate = f"{row.train_tokens_per_second:,.0f} tokens a second"
    epochs = "" if row.epochs is None else f"{row.epochs:.3g}"
    steps = "" if row.steps is None else f"{row.steps:,} steps"
    cells = {
        "rank": Cell(str(rank) if rank else "–", rank or math.inf),
        "model": Cell(_name(group, wins), row.name),
        "tokenizer": Cell(html.escape(row.tokenizer), row.tokenizer),
        "bits": Cell(_bits(row), row.bits_per_byte),
        "behind": Cell(behind, excess, row.difference.describe() if row.difference else ""),
        "perplexity": Cell(formatting.format_perplexity(row.perplexity), row.perplexity),
        "word-perplexity": Cell(formatting.format_perplexity(row.perplexity_per_word), row.perplexity_per_word),
        "size": Cell(formatting.format_size(row.size_bytes), row.size_bytes, f"{row.parameters:,} parameters"),
        "time": Cell(formatting.format_duration(row.train_seconds), row.train_seconds, rate),
        "epochs": Cell(epochs, -1 if row.epochs is None else row.epochs, steps),
        "status": Cell(_status(row), row.status),
        "sample": Cell(_sample(row.sample), row.sample[:40]),
    }
    return f"<tr>{''.join(cells[column].to_html(column) for column in columns)}</tr>"


def _name(group: tuple[Row, ...], wins: Sequence[str]) -> str:
    """Model name with family, wins and notes."""
    row = group[0]
    names_family = row.name.startswith(row.family)
    family = "" if names_family else f' <span class="aside">{html.escape(row.family)}</span>'
    best = f' <span class="mark">best of {html.escape(formatting.join_words(list(wins)))}</span>' if wins else ""
    note = f'<span class="note" dir="auto">{html.escape(row.note)}</span>' if row.note else ""
    if row.difference is not None:
        note += (
            f'<span class="note" title="{html.escape(row.difference.describe())}">{row.difference.short()}</span>'
        )
    return f"<bdi>{html.escape(row.name)}</bdi>{family}{best}{note}{_group_details(group)}"


def _group_details(group: tuple[Row, ...]) -> str:
    """Collapsible list of the other models of a group."""
    if len(group) == 1:
        return ""
    lines = "".join(
        f"<li><bdi>{html.escape(row.name)}</bdi> {formatting.format_bits(row.bits_per_byte)}</li>"
        for row in group[1:]
    )
    spread = formatting.format_percent(group[-1].bits_per_byte / group[0].bits_per_byte - 1)
    summary = f"<summary>and {len(group) - 1} more within {spread}</summary>"
    return f'<details class="group">{summary}<ul>{lines}</ul></details>'


def _bits(row: Row) -> str:
    asterisk = '<span title="still improving when its time ran out">*</span>' if row.is_still_falling else ""
    deviation = "" if row.sd is None else f'<span class="note">± {row.sd:.3f}</span>'
    return f"{formatting.format_bits(row.bits_per_byte)}{asterisk}{deviation}"


def _status(row: Row) -> str:
    advice = "".join(f'<span class="note">{html.escape(words)}</span>' for words in row.advice)
    status = "" if row.status == "complete" else html.escape(row.status)
    return f"{status}{advice}"


def _sample(sample: str) -> str:
    """Collapsible sample text."""
    if not sample.strip():
        return '<span class="aside">nothing</span>'
    text = sample[:MAX_SAMPLE_LENGTH] + ("…" if len(sample) > MAX_SAMPLE_LENGTH else "")
    return f'<details><summary dir="auto">{html.escape(text)}</summary></details>'


_TABLE_INTRODUCTION: Final = (
    "Best first by bits per byte, which does not depend on the tokenizer. Click to open a sample."
)


def render_page(results: Results) -> str:
    """Render the page; it works offline and in light or dark mode."""
    sections = (
        _header(results),
        _section("Every model", _TABLE_INTRODUCTION, models_table(results.rows)),
        _figures(results),
        _sentences(results.sentences),
        _reproduction(results),
    )
    folder = Path(__file__).parent
    return page.render_page(
        f"{results.text}: language models compared",
        "".join(sections),
        stylesheet=folder / "style.css",
        script=(folder / "sort.js").read_text(encoding="utf-8"),
    )


def summarize(rows: tuple[Row, ...]) -> str:
    """Summary sentence as HTML: the best model, its lead over the next model and over the unigram."""
    ranked_rows = rankable_rows(rows)
    if not ranked_rows:
        return (
            "None of these models can be ranked: each gives the test text probability 0 or "
            "a score that is not a probability."
        )
    best, *others = ranked_rows
    figure = f"<b>{formatting.format_bits(best.bits_per_byte)} bits per byte</b>"
    if not others:
        return f"{_bold_name(best)} is the only model ranked: {figure}."
    words = f"{_bold_name(best)} predicts this text best: {figure}, {_lead(best, others[0])} the next"
    if best.difference is not None and best.difference.is_tie:
        words = words.replace("predicts this text best:", "stands first, in a statistical tie with the next:")
    unigram = next((row for row in others if row.facets.get("order") == 1), None)
    subject = "One of its components" if best.components else "It"
    ending = f" {subject} was still improving when its time ran out." if best.is_still_falling else ""
    if unigram is None or unigram is others[0]:
        return f"{words}, {_bold_name(others[0])}.{ending}"
    over = f"{_lead(best, unigram)} {_bold_name(unigram)}, the best model without context"
    return f"{words} ({_bold_name(others[0])}) and {over}.{ending}"


def _header(results: Results) -> str:
    split = results.split
    test_size = formatting.format_size(split.test_bytes)
    lines, tokens = partial(formatting.format_count, noun="line"), partial(formatting.format_count, noun="token")
    models = formatting.format_count(len(results.rows), "model")
    facts = {
        "SHA-256 of the text": Markup(f"<code>{html.escape(results.text_sha256)}</code>"),
        "Tokenizer": results.tokenizer,
        "Training text": f"{lines(split.train_lines)}, {tokens(split.train_tokens)}",
        "Validation text": lines(split.valid_lines),
        "Test text": f"{lines(split.test_lines)}, {tokens(split.test_tokens)}, {test_size}",
        "Split": "as given" if split.seed is None else f"drawn with seed {split.seed}",
        "Time": f"{formatting.format_duration(results.seconds)} for {models}",
    }
    if results.remarks:
        facts["Remarks"] = "; ".join(results.remarks)
    return (
        '<header>\n<p class="kicker">chainrule compare</p>\n'
        f'<h1 dir="auto">{html.escape(results.text)}</h1>\n'
        f'<p class="verdict">{summarize(results.rows)}</p>\n{facts_html(facts)}\n</header>\n'
    )


def _figures(results: Results) -> str:
    """Figure sections; without matplotlib, the install instruction."""
    try:
        order = figures.plot_by_order(results.rows)
        cost = figures.plot_smoothings(results.rows) + figures.plot_costs(results.rows)
        growth = figures.plot_learning_curves(results.curves)
        reach = figures.plot_gradient_flow(results.flows)
    except MissingExtra as missing:
        return _section("Figures", "", f'<p class="note">{html.escape(str(missing))}</p>')
    return (
        _section("Effect of context", "", _figure_grid(order))
        + _section("Effect of smoothing, size and time", "", _figure_grid(cost))
        + _section("Effect of more text", "", _figure_grid(growth))
        + _section("How far back networks can learn", "", _figure_grid(reach))
    )


def _sentences(sentences: tuple[Sentence, ...]) -> str:
    """Test sentences coloured by the surprisal of several models on one scale."""
    steps = [FULL_BITS * step / 4 for step in range(5)]
    legend = surprisal_html([f"{step:.0f}" for step in steps[:-1]] + [f"{FULL_BITS:.0f} bits or more"], steps)
    introduction = (
        "A deeper colour means a higher surprisal of the token given the preceding tokens. "
        "Each bit halves the probability; hover over a token for its bits."
    )
    blocks = "".join(
        f'<article><h3 dir="auto">{html.escape(sentence.text)}</h3>'
        f"{''.join(map(_surprisal_row, sentence.by_model))}</article>\n"
        for sentence in sentences
    )
    return _section(
        "Surprisal of test sentences", introduction, blocks and f'<div class="legend">{legend}</div>{blocks}'
    )


def _surprisal_row(surprisal: Surprisal) -> str:
    total = sum(surprisal.bits)
    cost = f"{total:.1f} bits" if math.isfinite(total) else "∞ bits"
    return (
        f'<div class="reading"><p class="reader"><bdi>{html.escape(surprisal.name)}</bdi> '
        f'<span class="aside">{cost}</span></p>{surprisal_html(surprisal.tokens, surprisal.bits)}</div>'
    )


def _reproduction(results: Results) -> str:
    versions = ", ".join(
        f"{html.escape(name)} {html.escape(version)}" for name, version in results.versions.items()
    )
    plan = html.escape("\n".join(results.plan))
    plan = f"<p>Planned networks:</p>\n<pre>{plan}</pre>\n" if plan else ""
    return _section(
        "Reproduction",
        "Run this on the same text, with these versions.",
        f"<pre><code>{html.escape(results.command)}</code></pre>\n<p>{versions}</p>\n" + plan,
    )


def _section(title: str, introduction: str, content: str) -> str:
    """A titled section; empty without content."""
    opening = f'<p class="introduction">{introduction}</p>\n' if introduction else ""
    return f"<section>\n<h2>{title}</h2>\n{opening}{content}\n</section>\n" if content else ""


def _figure_grid(figures_html: list[str]) -> str:
    return f'<div class="figures">{"".join(figures_html)}</div>' if figures_html else ""


def _bold_name(row: Row) -> str:
    return f"<b><bdi>{html.escape(row.name)}</bdi></b>"


def _lead(best: Row, other: Row) -> str:
    saved = 1 - best.bits_per_byte / other.bits_per_byte if other.bits_per_byte else 0.0
    return f"{formatting.format_percent(saved)} fewer than" if saved > 0 else "level with"


RESULTS, REPORT = "results.json", "report.html"


def write(results: Results, out: Path) -> None:
    """Render both files, then write them, creating the folder if needed."""
    document = json.dumps(results.to_json(), ensure_ascii=False, allow_nan=False, indent=2)
    page = render_page(results)
    with atomic_file(out / RESULTS) as file:
        file.write(f"{document}\n".encode())
    with atomic_file(out / REPORT) as file:
        file.write(page.encode())


def remove(out: Path) -> None:
    """Remove both files, the report first, and flush the directory to disk."""
    try:
        for name in (REPORT, RESULTS):
            (out / name).unlink(missing_ok=True)
        if out.exists():
            flush(out)
    except OSError as error:
        raise write_error(out, error) from error


def read_origin(out: Path) -> list[dict[str, Any]]:
    """`command` and `text_sha256` of the comparison in a folder, None if missing; empty without a comparison.

    >>> read_origin(Path("no/such/folder"))
    []
    """
    if not any((out / name).exists() for name in (RESULTS, REPORT)):
        return []
    try:
        content = json.loads((out / RESULTS).read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    results = content if isinstance(content, dict) else {}
    return [{name: results.get(name) for name in ("command", "text_sha256")}]
