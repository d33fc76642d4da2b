"""Comparison report as a self-contained HTML page.

Untrusted text is escaped with `html.escape` and placed in elements that isolate its writing direction.
"""

import html
import json
import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from chainrule.comparison.results import (
    Curve,
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
from chainrule.inspection import gradient_flow
from chainrule.neural.probes.measurements import GradientFlow
from chainrule.plots import figures
from chainrule.plots import html as page
from chainrule.plots.formatting import (
    format_bits,
    format_count,
    format_duration,
    format_percent,
    format_perplexity,
    format_size,
    join_words,
)
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


class TableCell(NamedTuple):
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
    behind = f"+{format_percent(excess)}" if rank > 1 and math.isfinite(excess) else ""
    rate = f"{row.train_tokens_per_second:,.0f} tokens a second"
    epochs = "" if row.epochs is None else f"{row.epochs:.3g}"
    steps = "" if row.steps is None else f"{row.steps:,} steps"
    cells = {
        "rank": TableCell(str(rank) if rank else "–", rank or math.inf),
        "model": TableCell(_name(group, wins), row.name),
        "tokenizer": TableCell(html.escape(row.tokenizer), row.tokenizer),
        "bits": TableCell(_bits(row), row.bits_per_byte),
        "behind": TableCell(behind, excess, row.difference.describe() if row.difference else ""),
        "perplexity": TableCell(format_perplexity(row.perplexity), row.perplexity),
        "word-perplexity": TableCell(format_perplexity(row.perplexity_per_word), row.perplexity_per_word),
        "size": TableCell(format_size(row.size_bytes), row.size_bytes, f"{row.parameters:,} parameters"),
        "time": TableCell(format_duration(row.train_seconds), row.train_seconds, rate),
        "epochs": TableCell(epochs, -1 if row.epochs is None else row.epochs, steps),
        "status": TableCell(_status(row), row.status),
        "sample": TableCell(_sample(row.sample), row.sample[:40]),
    }
    return f"<tr>{''.join(cells[column].to_html(column) for column in columns)}</tr>"


def _name(group: tuple[Row, ...], wins: Sequence[str]) -> str:
    """Model name with family, wins and notes."""
    row = group[0]
    names_family = row.name.startswith(row.family)
    family = "" if names_family else f' <span class="aside">{html.escape(row.family)}</span>'
    best = f' <span class="mark">best of {html.escape(join_words(list(wins)))}</span>' if wins else ""
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
        f"<li><bdi>{html.escape(row.name)}</bdi> {format_bits(row.bits_per_byte)}</li>" for row in group[1:]
    )
    spread = format_percent(group[-1].bits_per_byte / group[0].bits_per_byte - 1)
    summary = f"<summary>and {len(group) - 1} more within {spread}</summary>"
    return f'<details class="group">{summary}<ul>{lines}</ul></details>'


def _bits(row: Row) -> str:
    asterisk = '<span title="still improving when its time ran out">*</span>' if row.is_still_falling else ""
    deviation = "" if row.sd is None else f'<span class="note">± {row.sd:.3f}</span>'
    return f"{format_bits(row.bits_per_byte)}{asterisk}{deviation}"


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


Points = dict[str, list[tuple[float, float]]]

BITS = "bits per byte"
ORDER = "n-gram order (tokens seen at once)"


def plot_by_order(rows: Iterable[Row]) -> list[str]:
    """Bits per byte and perplexity by n-gram order, one line per smoothing; needs at least two orders."""
    faceted = [row for row in rows if has_order(row)]
    best = rankable_rows(faceted)
    lines = _order_lines(best, "bits_per_byte")
    if not lines:
        return []
    title, description = "by order and smoothing", f"Lowest: {best[0].name} with"
    bits, perplexity = (
        format_bits(best[0].bits_per_byte),
        format_perplexity(best[0].perplexity),
    )
    drawing = figures.plot_by_facet(
        lines, title=f"Bits per byte {title}", facet=ORDER, quantity=BITS, description=f"{description} {bits}."
    )
    by_bits = _figure(drawing, _order_caption(lines) + _describe_omitted(faceted))
    if len({row.tokenizer for row in best}) > 1:
        return [by_bits]  # perplexities of different tokens cannot be compared
    drawing = figures.plot_by_facet(
        _order_lines(best, "perplexity"),
        title=f"Perplexity {title}",
        facet=ORDER,
        quantity="perplexity per token (log scale)",
        is_log_y=True,
        description=f"{description} {perplexity}.",
    )
    caption = (
        "The same models by perplexity, the number of equally likely tokens that would be as hard to predict: "
        f"{perplexity} for the best model. It depends on the tokenizer."
    )
    return [by_bits, _figure(drawing, caption)]


def plot_smoothings(rows: Iterable[Row]) -> list[str]:
    """Bar chart of the smoothings at the order of the best n-gram; needs at least two."""
    faceted = [row for row in rows if has_order(row)]
    best = rankable_rows(faceted)
    best = tuple(row for row in best if row.tokenizer == best[0].tokenizer)
    order = best[0].facets["order"] if best else None
    values = {str(row.facets["smoothing"]): row.bits_per_byte for row in best[::-1] if row.facets["order"] == order}
    values = dict(sorted(values.items(), key=lambda item: item[1]))
    if len(values) < 2:
        return []
    (first, low), *_, (last, high) = values.items()
    saved = 1 - low / high if high else 0.0
    drawing = figures.plot_bars(
        values,
        title=f"Smoothings at order {order}",
        quantity=BITS,
        description=f"From {first}, {format_bits(low)}, to {last}, {format_bits(high)}.",
    )
    caption = (
        f"Smoothings at order {order}, the order of the best n-gram model. All use the same counts and differ "
        f"in the probability they reserve for unseen n-grams. <b>{html.escape(first)}</b> needs "
        f"{format_percent(saved)} fewer bits than {html.escape(last)}."
    )
    at_order = [row for row in faceted if row.facets["order"] == order and row.tokenizer == best[0].tokenizer]
    return [_figure(drawing, caption + _describe_omitted(at_order))]


def plot_costs(rows: Sequence[Row]) -> list[str]:
    """Scatter plots of size on disk and of training time against bits per byte; need at least two models."""
    best = rankable_rows(rows)
    if len(best) < 2:
        return []
    sizes, seconds = [row.size_bytes for row in best], [row.train_seconds for row in best]
    falling = sum(row.is_still_falling for row in best)
    unfinished = (
        f" {falling} of the models were still improving when their training time ran out." if falling else ""
    )
    reading = "Lower and further left is better. Solid dots are Pareto-optimal: no"
    omitted = _describe_omitted(rows)
    return [
        _figure(
            _plot_cost(best, [max(size, 1) for size in sizes], "Size", "size of the model", "B"),
            f"{reading} other model is both at most as large and at least as good. The best model takes "
            f"{format_size(sizes[0])}, the smallest {format_size(min(sizes))}.{omitted}",
        ),
        _figure(
            _plot_cost(best, [max(time, 1e-3) for time in seconds], "Training time", "time to train", "s"),
            f"{reading} model trained in less time is better. The best model took {format_duration(seconds[0])}, "
            f"the fastest {format_duration(min(seconds))}.{unfinished}{omitted}",
        ),
    ]


def _plot_cost(rows: Sequence[Row], costs: Sequence[float], name: str, label: str, unit: str) -> str:
    dots = [
        figures.Dot(row.name, row.family, cost, row.bits_per_byte) for row, cost in zip(rows, costs, strict=True)
    ]
    description = f"{len(dots)} models; {len(figures.pareto_front(dots))} are Pareto-optimal."
    title = f"{name} against quality"
    return figures.plot_cost_quality(
        dots, title=title, cost=label, unit=unit, quantity=BITS, description=description
    )


def plot_learning_curves(curves: Sequence[Curve]) -> list[str]:
    """Bits per byte by training-text size; a curve needs at least two finite points."""
    finite = {curve.name: _finite_points(curve) for curve in curves}
    drawn = {name: points for name, points in finite.items() if len(points) > 1}
    if not drawn:
        return []
    drawn = dict(sorted(drawn.items(), key=lambda item: item[1][-1][1]))
    name, points = next(iter(drawn.items()))
    (before, was), (after, now) = points[-2:]
    step = "doubling" if 1.95 < after / before < 2.05 else f"step, to {after / before:.3g} times the text,"
    change = f"{format_percent(abs(1 - now / was))} in bits" if was else f"{format_bits(now)} bits per byte"
    title = "Bits per byte by amount of training text"
    ending = f"{name} is lowest at the full size, with {format_bits(now)}."
    caption = (
        "Each line is one model trained on increasing amounts of the same text; a line that still falls at its "
        f"right end would gain from more text. The last {step} "
        f"{'saved' if now <= was else 'cost'} <b>{html.escape(name)}</b> {change}."
    )
    missing = [html.escape(curve.name) for curve in curves if curve.name not in drawn]
    if missing:
        caption += f" Not drawn, with fewer than two finite points: {join_words(missing)}."
    doubled = {
        curve.name: (2.0 * curve.bytes[-1], curve.doubled_bits)
        for curve in curves
        if curve.name in drawn and curve.doubled_bits is not None
    }
    if name in doubled:
        caption += (
            f" With twice the text, <b>{html.escape(name)}</b> would reach about {format_bits(doubled[name][1])}: "
            "an extrapolation by a + b n<sup>−c</sup>, fitted to the last points (dashed)."
        )
    drawing = figures.plot_learning_curves(
        drawn, title=title, quantity=BITS, description=ending, extrapolated=doubled
    )
    return [_figure(drawing, caption)]


def plot_gradient_flow(flows: Sequence[GradientFlow]) -> list[str]:
    """Gradient norm by lag for all networks on one axis."""
    drawn = [flow for flow in flows if flow.lags > 1]
    if not drawn:
        return []
    half_lives = ((flow.name, flow.half_life(flow.layers - 1)) for flow in drawn)
    finite = {name: value for name, value in half_lives if value is not None and math.isfinite(value)}
    caption = (
        "Backpropagation of the loss of one prediction through the test text: the mean gradient norm relative to "
        "lag 0, with respect to the state of the top layer in recurrent networks (in an LSTM also its cell) and to "
        "the word vectors in others; the interquartile range over positions is shaded. Where a line is low, the "
        "network can hardly learn from tokens that far back."
    )
    if finite:
        longest = max(finite, key=finite.__getitem__)
        name = html.escape(longest)
        caption += f" The half-life is longest in <b>{name}</b>: {finite[longest]:.1f} tokens."
    title = "Gradient flow by lag"
    ends = "; ".join(f"{flow.name} ends at {flow.relative()[-1][-1]:.2g}" for flow in drawn)
    return [_figure(gradient_flow.plot_gradient_flow(drawn, title=title, description=ends), caption)]


def has_order(row: Row) -> bool:
    """Whether the row has an n-gram order and a smoothing."""
    return isinstance(row.facets.get("order"), int) and "smoothing" in row.facets


def _order_lines(best: Sequence[Row], quantity: str) -> Points:
    """Points of one line per smoothing and tokenizer, best line first; the best row for each order."""
    cells: dict[tuple[str, float], float] = {}
    is_labelled = len({row.tokenizer for row in best}) > 1
    for row in best:
        name = f"{row.tokenizer if is_labelled else ''} {row.facets['smoothing']}".strip()
        cells.setdefault((name, float(row.facets["order"])), getattr(row, quantity))
    lines: Points = {}
    for (smoothing, order), value in cells.items():
        lines.setdefault(smoothing, []).append((order, value))
    return {smoothing: sorted(points) for smoothing, points in lines.items() if len(points) > 1}


def _order_caption(lines: Points) -> str:
    first, points = next(iter(lines.items()))
    (low, start), (high, end) = points[0], points[-1]
    rises = {name: line[-1][1] - min(value for _, value in line) for name, line in lines.items()}
    turned = [name for name, rise in rises.items() if rise > 0]
    caption = (
        f"Lower is better. <b>{html.escape(first)}</b> goes from {format_bits(start)} at order {low:.0f} "
        f"to {format_bits(end)} at order {high:.0f}."
    )
    if turned:
        caption += (
            f" More context is not always better: {len(turned)} of {len(lines)} smoothings get worse "
            f"before their last order, {html.escape(max(turned, key=rises.__getitem__))} most of all."
        )
    return caption


def _describe_omitted(rows: Sequence[Row]) -> str:
    """Caption sentence that lists the rows not drawn, n-grams by smoothing."""
    drawn = {str(row.facets["smoothing"]) for row in rows if is_rankable(row) and has_order(row)}
    orders: dict[str, list[str]] = {}
    for row in rows:
        if not is_rankable(row):
            name = str(row.facets["smoothing"]) if has_order(row) else row.name
            orders.setdefault(name, []).extend([str(row.facets["order"])] if name in drawn else [])
    names = [
        html.escape(name) + (f" (order {join_words(omitted)})" if omitted else "")
        for name, omitted in orders.items()
    ]
    return f" Not drawn, because infinite or not a probability: {join_words(names)}." if names else ""


def _finite_points(curve: Curve) -> list[tuple[float, float]]:
    pairs = zip(curve.bytes, curve.bits_per_byte, strict=True)
    return [(size, value) for size, value in pairs if size > 0 and math.isfinite(value)]


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


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
    figure = f"<b>{format_bits(best.bits_per_byte)} bits per byte</b>"
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
    test_size = format_size(split.test_bytes)
    lines, tokens = partial(format_count, noun="line"), partial(format_count, noun="token")
    models = format_count(len(results.rows), "model")
    facts = {
        "SHA-256 of the text": Markup(f"<code>{html.escape(results.text_sha256)}</code>"),
        "Tokenizer": results.tokenizer,
        "Training text": f"{lines(split.train_lines)}, {tokens(split.train_tokens)}",
        "Validation text": lines(split.valid_lines),
        "Test text": f"{lines(split.test_lines)}, {tokens(split.test_tokens)}, {test_size}",
        "Split": "as given" if split.seed is None else f"drawn with seed {split.seed}",
        "Time": f"{format_duration(results.seconds)} for {models}",
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
        order = plot_by_order(results.rows)
        cost = plot_smoothings(results.rows) + plot_costs(results.rows)
        growth = plot_learning_curves(results.curves)
        reach = plot_gradient_flow(results.flows)
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
    return f"{format_percent(saved)} fewer than" if saved > 0 else "level with"


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
    """`command` and `text_sha256` of the comparison in a folder, None if missing; empty if there is none.

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
