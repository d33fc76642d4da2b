"""Render an inspection as one self-contained HTML page.

Untrusted text is escaped with `html.escape` and isolated with `<bdi>` or `dir="auto"`.
"""

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainrule.analysis import predictions
from chainrule.analysis.section import Figure, Section
from chainrule.plots import formatting
from chainrule.plots.html import bold, facts_html, render_page

if TYPE_CHECKING:
    from chainrule.inspection.result import Inspection, Subject

_OWN_NAME: Final = re.compile(r'( id="| href="#)')
_VIEW_BOX: Final = re.compile(r'<svg [^>]*viewBox="[-\d.]+ [-\d.]+ ([\d.]+) [\d.]+"')


def render(inspection: "Inspection") -> str:
    """Return the page, which works offline and in light and dark mode."""
    sections = "".join(_section(section, index) for index, section in enumerate(inspection.sections))
    return render_page(
        f"{formatting.join_words(list(inspection.names))}: inspection",
        f"{_header(inspection)}{sections}{_models(inspection)}{_reproduction(inspection)}",
        stylesheet=Path(__file__).with_name("page.css"),
        script=predictions.load_script() if '<script type="application/json">' in sections else "",
        images=True,  # heat maps inside the SVGs
    )


def verdict_html(inspection: "Inspection") -> str:
    """Return the summary; with several models, each paragraph begins with a model name."""
    verdict = inspection.verdict if len(inspection.names) > 1 else ()
    if not verdict:
        paragraphs = map(html.escape, inspection.paragraphs)
        return "".join(f'<p class="verdict" dir="auto">{text}</p>\n' for text in paragraphs)
    return "".join(
        f'<p class="verdict">{f"{bold(item.model)}: " if item.model else ""}{html.escape(item.text)}</p>\n'
        for item in verdict
    )


def _header(inspection: "Inspection") -> str:
    titles = {section.name: section.title for section in inspection.sections} | {"models": "Models"}
    entries = {**titles, "reproduction": "Reproduction"}
    links = "".join(
        f'<li><a href="#{html.escape(name)}">{html.escape(title)}</a></li>' for name, title in entries.items()
    )
    heading = formatting.join_words([f"<bdi>{html.escape(name)}</bdi>" for name in inspection.names])
    return (
        '<header>\n<p class="kicker">chainrule inspect</p>\n'
        f"<h1>{heading}</h1>\n{verdict_html(inspection)}"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n</header>\n'
    )


def _section(section: Section, index: int) -> str:
    """Render the findings as a list, then the figures."""
    findings = "".join(f'<li dir="auto">{html.escape(finding)}</li>\n' for finding in section.sentences)
    figures = "".join(_figure(figure, f"s{index}f{number}-") for number, figure in enumerate(section.figures))
    findings_html = f'<ul class="findings">\n{findings}</ul>\n' if findings else ""
    figures_html = f'<div class="figures">\n{figures}</div>\n' if figures else ""
    heading = f"<h2>{html.escape(section.title)}</h2>"
    return f'<section id="{html.escape(section.name)}">\n{heading}\n{findings_html}{figures_html}</section>\n'


def _figure(figure: Figure, prefix: str) -> str:
    kind = ' class="wide"' if figure.is_wide else ""
    view_box = _VIEW_BOX.match(figure.drawing)
    size = f' style="--natural:{float(view_box[1]):.0f}px"' if view_box else ""
    return (
        f'<figure{kind}><div class="drawing"{size}>{_prefix_ids(figure.drawing, prefix)}</div>'
        f"<figcaption>{figure.caption}</figcaption></figure>\n"
    )


def _prefix_ids(drawing: str, prefix: str) -> str:
    """Prefix the ids in an SVG, so that figures with equal titles do not clash.

    >>> _prefix_ids('<svg><path id="a"/><use href="#a"/></svg>', "f1-")
    '<svg><path id="f1-a"/><use href="#f1-a"/></svg>'
    """
    return _OWN_NAME.sub(rf"\g<1>{prefix}", drawing) if drawing.startswith("<svg") else drawing


def _models(inspection: "Inspection") -> str:
    articles = "".join(map(_subject, inspection.subjects))
    return (
        '<section id="models">\n<h2>Models</h2>\n'
        f'<p class="introduction">Text: <bdi>{html.escape(inspection.text)}</bdi>.</p>\n{articles}</section>\n'
    )


def _subject(subject: "Subject") -> str:
    facts = {
        "Family": subject.family,
        "Sizes": ", ".join(f"{name} {value}" for name, value in subject.sizes.items()),
        "Parameters": f"{subject.parameters:,}",
        "Tokenizer": subject.tokenizer,
        "Context": subject.context,
        "Trained on": subject.trained_on or "unknown",
        "Text read": subject.looked_at,
    }
    return f"<article><h3><bdi>{html.escape(subject.name)}</bdi></h3>{facts_html(facts)}</article>\n"


def _reproduction(inspection: "Inspection") -> str:
    facts = {
        "Time": formatting.format_duration(inspection.seconds),
        "Peak memory": "unknown"
        if inspection.peak_memory is None
        else formatting.format_size(inspection.peak_memory),
        "Versions": ", ".join(f"{name} {version}" for name, version in inspection.versions.items()) or "unknown",
    }
    for name, reason in inspection.left_out.items():
        facts[f"Left out: {name.replace('_', ' ')}"] = reason
    return (
        '<section id="reproduction">\n<h2>Reproduction</h2>\n'
        f'<pre><code dir="auto">{html.escape(inspection.command)}</code></pre>\n{facts_html(facts)}</section>\n'
    )
