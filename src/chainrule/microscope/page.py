"""The page of an inspection: one HTML file that needs nothing beside itself.

Lives here: the page around the sections. Not here: what a section says and draws (inspection/), the looks
(page.css).

Every text that is not ours passes `html.escape` and stands in an element that isolates its direction.
"""

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainrule.inspection import looks, reading
from chainrule.inspection.foreign import bold
from chainrule.inspection.section import Figure, Section
from chainrule.inspection.surprisal import CONTROL_PICTURES
from chainrule.microscope.verdict import headed, in_words
from chainrule.report import quantities

if TYPE_CHECKING:
    from chainrule.microscope.inspection import Inspection, Subject

_ALLOWED: Final = {ord("\n"), ord("\t")}
_UNPRINTABLE: Final = {code: picture for code, picture in CONTROL_PICTURES.items() if code not in _ALLOWED}
_OWN_NAME: Final = re.compile(r'( id="| href="#)')
_VIEW_BOX: Final = re.compile(r'<svg [^>]*viewBox="[-\d.]+ [-\d.]+ ([\d.]+) [\d.]+"')


def render(found: "Inspection") -> str:
    """The whole page; opens from disk, without network, in light or dark."""
    sections = "".join(_section(section, place) for place, section in enumerate(found.sections))
    script = _script(sections)
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{_head(found, script)}</head>\n<body>\n<main>\n'
        f"{_header(found)}{sections}{_models(found)}{_repetition(found)}</main>\n"
        f"{f'<script>{script}</script>' if script else ''}\n</body>\n</html>\n"
    )
    return page.translate(_UNPRINTABLE).encode("utf-8", "replace").decode("utf-8")


def verdict_html(found: "Inspection") -> str:
    """The words on top; of several models, each after its name."""
    if not found.verdict or len(found.names) == 1:
        words = in_words(found.verdict, found.names)
        return "".join(f'<p class="verdict" dir="auto">{html.escape(text)}</p>\n' for text in words)
    said = [headed(paragraph) for paragraph in found.verdict]
    return "".join(
        f'<p class="verdict">{bold(name) if name else ""}{html.escape(words)}</p>\n' for name, words in said
    )


def _head(found: "Inspection", script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    # Heat maps are pictures inside the drawings; nothing else may be loaded, and nothing sent.
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )
    style = looks.style(Path(__file__).with_name("page.css"))
    return (
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(quantities.listing(list(found.names)))}: a look inside</title>\n"
        f"<style>{style}</style>\n"
    )


def _script(sections: str) -> str:
    """The program that opens the panel of a token; empty where no figure brings data for it."""
    return reading.script() if '<script type="application/json">' in sections else ""


def _header(found: "Inspection") -> str:
    titles = {section.name: section.title for section in found.sections} | {"models": "The models"}
    entries = {**titles, "repetition": "How to repeat this"}
    links = "".join(
        f'<li><a href="#{html.escape(name)}">{html.escape(title)}</a></li>' for name, title in entries.items()
    )
    heading = quantities.listing([f"<bdi>{html.escape(name)}</bdi>" for name in found.names])
    return (
        '<header>\n<p class="kicker">chainrule inspect</p>\n'
        f"<h1>{heading}</h1>\n{verdict_html(found)}"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n</header>\n'
    )


def _section(section: Section, place: int) -> str:
    """Its findings as a list, then its figures."""
    findings = "".join(f'<li dir="auto">{html.escape(finding)}</li>\n' for finding in section.findings)
    figures = "".join(_figure(figure, f"s{place}f{number}-") for number, figure in enumerate(section.figures))
    said = f'<ul class="findings">\n{findings}</ul>\n' if findings else ""
    drawn = f'<div class="figures">\n{figures}</div>\n' if figures else ""
    heading = f"<h2>{html.escape(section.title)}</h2>"
    return f'<section id="{html.escape(section.name)}">\n{heading}\n{said}{drawn}</section>\n'


def _figure(figure: Figure, prefix: str) -> str:
    kind = ' class="wide"' if figure.is_wide else ""
    view_box = _VIEW_BOX.match(figure.drawing)
    size = f' style="--natural:{float(view_box[1]):.0f}px"' if view_box else ""
    return (
        f'<figure{kind}><div class="drawing"{size}>{_apart(figure.drawing, prefix)}</div>'
        f"<figcaption>{figure.caption}</figcaption></figure>\n"
    )


def _apart(drawing: str, prefix: str) -> str:
    """The same SVG with names of its own: two figures of one title have the same names inside.

    >>> _apart('<svg><path id="a"/><use href="#a"/></svg>', "f1-")
    '<svg><path id="f1-a"/><use href="#f1-a"/></svg>'
    """
    return _OWN_NAME.sub(rf"\g<1>{prefix}", drawing) if drawing.startswith("<svg") else drawing


def _models(found: "Inspection") -> str:
    articles = "".join(map(_subject, found.subjects))
    return (
        '<section id="models">\n<h2>The models</h2>\n'
        f'<p class="introduction">Looked at with: <bdi>{html.escape(found.text)}</bdi>.</p>\n{articles}</section>\n'
    )


def _subject(subject: "Subject") -> str:
    facts = {
        "Family": subject.family,
        "Sizes": ", ".join(f"{name} {value}" for name, value in subject.sizes.items()),
        "Parameters": f"{subject.parameters:,}",
        "Tokenizer": subject.tokenizer,
        "Context": subject.context,
        "Trained on": subject.trained_on or "unknown",
        "Looked at": subject.looked_at,
    }
    return f"<article><h3><bdi>{html.escape(subject.name)}</bdi></h3>{_facts(facts)}</article>\n"


def _repetition(found: "Inspection") -> str:
    facts = {
        "Time": quantities.duration(found.seconds),
        "Memory of the process": "unknown" if found.peak_memory is None else quantities.size(found.peak_memory),
        "Versions": ", ".join(f"{name} {version}" for name, version in found.versions.items()) or "unknown",
    }
    for name, reason in found.left_out.items():
        facts[f"Left out: {name.replace('_', ' ')}"] = reason
    return (
        '<section id="repetition">\n<h2>How to repeat this</h2>\n'
        f'<pre><code dir="auto">{html.escape(found.command)}</code></pre>\n{_facts(facts)}</section>\n'
    )


def _facts(facts: Mapping[str, str]) -> str:
    pairs = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd><bdi>{html.escape(fact)}</bdi></dd></div>"
        for name, fact in facts.items()
    )
    return f"<dl>{pairs}</dl>"
