"""Comparison report as a self-contained HTML page.

Untrusted text is escaped with `html.escape` and placed in elements that isolate its writing direction.
"""

import base64
import hashlib
import html
import math
from functools import partial
from pathlib import Path
from typing import Final

from chainrule.errors import MissingExtra
from chainrule.inspection import looks
from chainrule.inspection.surprisal import CONTROL_PICTURES, FULL_BITS, surprisal_html
from chainrule.report import figures, quantities
from chainrule.report.results import Results, Row, Sentence, Surprisal, rankable_rows
from chainrule.report.table import models_table

_TABLE_INTRODUCTION: Final = (
    "Best first by bits per byte, which does not depend on how the text was cut into tokens. "
    "A sample opens with a click."
)
_ALLOWED_CONTROLS: Final = {ord("\n"), ord("\t")}
_CONTROL_SYMBOLS: Final = {
    code: picture for code, picture in CONTROL_PICTURES.items() if code not in _ALLOWED_CONTROLS
}


def render_page(results: Results) -> str:
    """Render the page; it works offline and in light or dark mode."""
    sections = (
        _header(results),
        _section("Every model", _TABLE_INTRODUCTION, models_table(results.rows)),
        _figures(results),
        _sentences(results.sentences),
        _reproduction(results),
    )
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{_head(results)}</head>\n<body>\n<main>\n'
        f"{''.join(sections)}</main>\n<script>{_asset('sort.js')}</script>\n</body>\n</html>\n"
    )
    return page.translate(_CONTROL_SYMBOLS).encode("utf-8", "replace").decode("utf-8")


def summarize(rows: tuple[Row, ...]) -> str:
    """Summary sentence as HTML: the best model, its lead over the next model and over the unigram."""
    ranked_rows = rankable_rows(rows)
    if not ranked_rows:
        return (
            "None of these models can be ranked: each finds the test text impossible, or gives it "
            "a score that is not a probability."
        )
    best, *others = ranked_rows
    figure = f"<b>{quantities.format_bits(best.bits_per_byte)} bits per byte</b>"
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
    over = f"{_lead(best, unigram)} {_bold_name(unigram)}, the best model that looks at no context"
    return f"{words} ({_bold_name(others[0])}) and {over}.{ending}"


def _head(results: Results) -> str:
    digest = base64.b64encode(hashlib.sha256(_asset("sort.js").encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(results.text)}: language models compared</title>\n"
        f"<style>{looks.read_stylesheet(Path(__file__).with_name('style.css'))}</style>\n"
    )


def _header(results: Results) -> str:
    split = results.split
    test_size = quantities.format_size(split.test_bytes)
    lines, tokens = partial(quantities.format_count, noun="line"), partial(quantities.format_count, noun="token")
    models = quantities.format_count(len(results.rows), "model")
    facts = {
        "SHA-256 of the text": f"<code>{html.escape(results.text_sha256)}</code>",
        "Tokenizer": f"<bdi>{html.escape(results.tokenizer)}</bdi>",
        "Training text": f"{lines(split.train_lines)}, {tokens(split.train_tokens)}",
        "Validation text": lines(split.valid_lines),
        "Test text": f"{lines(split.test_lines)}, {tokens(split.test_tokens)}, {test_size}",
        "Split": "as given" if split.seed is None else f"drawn with seed {split.seed}",
        "Time": f"{quantities.format_duration(results.seconds)} for {models}",
    }
    if results.remarks:
        facts["Remarks"] = html.escape("; ".join(results.remarks))
    pairs = "".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in facts.items())
    return (
        '<header>\n<p class="kicker">chainrule compare</p>\n'
        f'<h1 dir="auto">{html.escape(results.text)}</h1>\n'
        f'<p class="verdict">{summarize(results.rows)}</p>\n<dl>{pairs}</dl>\n</header>\n'
    )


def _figures(results: Results) -> str:
    """Figure sections; without matplotlib, the install instruction."""
    try:
        order = figures.plot_by_order(results.rows)
        cost = figures.plot_smoothings(results.rows) + figures.plot_size(results.rows)
        cost += figures.plot_time(results.rows)
        growth = figures.plot_learning_curves(results.curves)
        reach = figures.plot_gradient_flow(results.flows)
    except MissingExtra as missing:
        return _section("Figures", "", f'<p class="note">{html.escape(str(missing))}</p>')
    return (
        _section("What context buys", "", _figure_grid(order))
        + _section("What smoothing, size and time buy", "", _figure_grid(cost))
        + _section("What more text buys", "", _figure_grid(growth))
        + _section("How far back networks can learn", "", _figure_grid(reach))
    )


def _sentences(sentences: tuple[Sentence, ...]) -> str:
    """Test sentences coloured by the surprisal of several models on one scale."""
    steps = [FULL_BITS * step / 4 for step in range(5)]
    legend = surprisal_html([f"{step:.0f}" for step in steps[:-1]] + [f"{FULL_BITS:.0f} bits or more"], steps)
    introduction = (
        "The deeper the colour, the less the model expected the token after all that stands before it. "
        "Each bit halves the probability; hover over a token for its bits."
    )
    blocks = "".join(
        f'<article><h3 dir="auto">{html.escape(sentence.text)}</h3>'
        f"{''.join(map(_surprisal_row, sentence.by_model))}</article>\n"
        for sentence in sentences
    )
    return _section("Where the surprise is", introduction, blocks and f'<div class="legend">{legend}</div>{blocks}')


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
    plan = f"<p>Networks as they were planned:</p>\n<pre>{plan}</pre>\n" if plan else ""
    return _section(
        "How to repeat this",
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
    return f"{quantities.format_percent(saved)} fewer than" if saved > 0 else "level with"


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
