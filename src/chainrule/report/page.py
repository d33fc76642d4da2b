"""The report of a comparison: one HTML page that needs nothing beside itself.

Every text that is not ours passes `html.escape` and stands in an element that isolates its direction.
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
from chainrule.report.results import Results, Row, Sentence, Surprisal, contenders
from chainrule.report.table import models_table

_TABLE_INTRODUCTION: Final = (
    "Best first by bits per byte, which does not depend on how the text was cut into tokens. "
    "A sample opens with a click."
)
_ALLOWED: Final = {ord("\n"), ord("\t")}
_UNPRINTABLE: Final = {code: picture for code, picture in CONTROL_PICTURES.items() if code not in _ALLOWED}


def render(results: Results) -> str:
    """The whole page; opens from disk, without network, in light or dark."""
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
    return page.translate(_UNPRINTABLE).encode("utf-8", "replace").decode("utf-8")


def verdict(rows: tuple[Row, ...]) -> str:
    """The outcome in words, as HTML: the best model, its lead over the next and over the unigram."""
    first = contenders(rows)
    if not first:
        return (
            "None of these models can be ranked: each finds the test text impossible, or gives it "
            "a score that is not a probability."
        )
    best, *others = first
    figure = f"<b>{quantities.bits(best.bits_per_byte)} bits per byte</b>"
    if not others:
        return f"{_named(best)} is the only model ranked: {figure}."
    words = f"{_named(best)} predicts this text best: {figure}, {_lead(best, others[0])} the next"
    if best.difference is not None and best.difference.is_tie:
        words = words.replace("predicts this text best:", "stands first, in a statistical tie with the next:")
    unigram = next((row for row in others if row.facets.get("order") == 1), None)
    subject = "One of its components" if best.components else "It"
    ending = f" {subject} was still improving when its time ran out." if best.is_still_falling else ""
    if unigram is None or unigram is others[0]:
        return f"{words}, {_named(others[0])}.{ending}"
    over = f"{_lead(best, unigram)} {_named(unigram)}, the best model that looks at no context"
    return f"{words} ({_named(others[0])}) and {over}.{ending}"


def _head(results: Results) -> str:
    digest = base64.b64encode(hashlib.sha256(_asset("sort.js").encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(results.text)}: language models compared</title>\n"
        f"<style>{looks.style(Path(__file__).with_name('style.css'))}</style>\n"
    )


def _header(results: Results) -> str:
    split = results.split
    test_size = quantities.size(split.test_bytes)
    lines, tokens = partial(quantities.count, noun="line"), partial(quantities.count, noun="token")
    facts = {
        "SHA-256 of the text": f"<code>{html.escape(results.text_sha256)}</code>",
        "Tokenizer": f"<bdi>{html.escape(results.tokenizer)}</bdi>",
        "Training text": f"{lines(split.train_lines)}, {tokens(split.train_tokens)}",
        "Validation text": lines(split.valid_lines),
        "Test text": f"{lines(split.test_lines)}, {tokens(split.test_tokens)}, {test_size}",
        "Split": "as given" if split.seed is None else f"drawn with seed {split.seed}",
        "Time": f"{quantities.duration(results.seconds)} for {quantities.count(len(results.rows), 'model')}",
    }
    if results.remarks:
        facts["Remarks"] = html.escape("; ".join(results.remarks))
    pairs = "".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in facts.items())
    return (
        '<header>\n<p class="kicker">chainrule compare</p>\n'
        f'<h1 dir="auto">{html.escape(results.text)}</h1>\n'
        f'<p class="verdict">{verdict(results.rows)}</p>\n<dl>{pairs}</dl>\n</header>\n'
    )


def _figures(results: Results) -> str:
    """Pairs of figures; without matplotlib, the line that installs it."""
    try:
        order = figures.by_order(results.rows)
        cost = figures.smoothing_bars(results.rows) + figures.size_and_quality(results.rows)
        cost += figures.time_and_quality(results.rows)
        growth = figures.learning_curves(results.curves)
        reach = figures.gradient_flow(results.flows)
    except MissingExtra as missing:
        return _section("Figures", "", f'<p class="note">{html.escape(str(missing))}</p>')
    return (
        _section("What context buys", "", _pair(order))
        + _section("What smoothing, size and time buy", "", _pair(cost))
        + _section("What more text buys", "", _pair(growth))
        + _section("How far back networks can learn", "", _pair(reach))
    )


def _sentences(sentences: tuple[Sentence, ...]) -> str:
    """The same sentences under several models, coloured on one scale."""
    steps = [FULL_BITS * step / 4 for step in range(5)]
    legend = surprisal_html([f"{step:.0f}" for step in steps[:-1]] + [f"{FULL_BITS:.0f} bits or more"], steps)
    introduction = (
        "The deeper the colour, the less the model expected the token after all that stands before it. "
        "Each bit halves the probability; hover over a token for its bits."
    )
    blocks = "".join(
        f'<article><h3 dir="auto">{html.escape(sentence.text)}</h3>'
        f"{''.join(map(_reading, sentence.by_model))}</article>\n"
        for sentence in sentences
    )
    return _section("Where the surprise is", introduction, blocks and f'<div class="legend">{legend}</div>{blocks}')


def _reading(surprisal: Surprisal) -> str:
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
    """A titled section, or nothing where there is nothing to show."""
    opening = f'<p class="introduction">{introduction}</p>\n' if introduction else ""
    return f"<section>\n<h2>{title}</h2>\n{opening}{content}\n</section>\n" if content else ""


def _pair(drawn: list[str]) -> str:
    return f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""


def _named(row: Row) -> str:
    return f"<b><bdi>{html.escape(row.name)}</bdi></b>"


def _lead(best: Row, other: Row) -> str:
    saved = 1 - best.bits_per_byte / other.bits_per_byte if other.bits_per_byte else 0.0
    return f"{quantities.share(saved)} fewer than" if saved > 0 else "level with"


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
