"""Render an inspection as one self-contained HTML page.

Untrusted text is escaped with `html.escape` and isolated with `<bdi>` or `dir="auto"`.
"""

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainrule.analysis import predictions
from chainrule.analysis.section import Figure, Section
from chainrule.comparison import formatting
from chainrule.inspection.report import format_paragraphs, split_heading
from chainrule.plots import html as looks
from chainrule.plots.html import CONTROL_PICTURES, bold

if TYPE_CHECKING:
    from chainrule.inspection.report import Inspection, Subject

_ALLOWED: Final = {ord("\n"), ord("\t")}
_UNPRINTABLE: Final = {code: picture for code, picture in CONTROL_PICTURES.items() if code not in _ALLOWED}
_OWN_NAME: Final = re.compile(r'( id="| href="#)')
_VIEW_BOX: Final = re.compile(r'<svg [^>]*viewBox="[-\d.]+ [-\d.]+ ([\d.]+) [\d.]+"')


def render(inspection: "Inspection") -> str:
    """Return the page, which works offline and in light and dark mode."""
    sections = "".join(_section(section, index) for index, section in enumerate(inspection.sections))
    script = _script(sections)
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{_head(inspection, script)}</head>\n<body>\n<main>\n'
        f"{_header(inspection)}{sections}{_models(inspection)}{_reproduction(inspection)}</main>\n"
        f"{f'<script>{script}</script>' if script else ''}\n</body>\n</html>\n"
    )
    return page.translate(_UNPRINTABLE).encode("utf-8", "replace").decode("utf-8")


def verdict_html(inspection: "Inspection") -> str:
    """Return the summary; with several models, each paragraph begins with a model name."""
    if not inspection.verdict or len(inspection.names) == 1:
        words = format_paragraphs(inspection.verdict, inspection.names)
        return "".join(f'<p class="verdict" dir="auto">{html.escape(text)}</p>\n' for text in words)
    paragraphs = [split_heading(paragraph) for paragraph in inspection.verdict]
    return "".join(
        f'<p class="verdict">{bold(name) if name else ""}{html.escape(words)}</p>\n' for name, words in paragraphs
    )


def _head(inspection: "Inspection", script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    # Heat maps are data: images in the SVGs; everything else is blocked.
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )
    style = looks.read_stylesheet(Path(__file__).with_name("page.css"))
    return (
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(formatting.join_words(list(inspection.names)))}: inspection</title>\n"
        f"<style>{style}</style>\n"
    )


def _script(sections: str) -> str:
    """Return the script of the token panels; empty if no figure needs it."""
    return predictions.load_script() if '<script type="application/json">' in sections else ""


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
    findings = "".join(f'<li dir="auto">{html.escape(finding)}</li>\n' for finding in section.findings)
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
    return f"<article><h3><bdi>{html.escape(subject.name)}</bdi></h3>{_facts(facts)}</article>\n"


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
        f'<pre><code dir="auto">{html.escape(inspection.command)}</code></pre>\n{_facts(facts)}</section>\n'
    )


def _facts(facts: Mapping[str, str]) -> str:
    pairs = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd><bdi>{html.escape(fact)}</bdi></dd></div>"
        for name, fact in facts.items()
    )
    return f"<dl>{pairs}</dl>"
