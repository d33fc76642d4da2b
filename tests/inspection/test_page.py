"""Inspection page: well formed, self-contained, escaped; in a real browser light, dark and narrow."""

import base64
import hashlib
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from chainrule.inspection.report import Inspection, render
from inspection.browser_page import NAMESPACES, Outline, browse, widths
from inspection.example_models import HOSTILE, empty, full, hostile

PAGES = {"full": full, "hostile": hostile, "empty": empty}


@pytest.fixture(params=PAGES)
def example(request: pytest.FixtureRequest) -> Inspection:
    return PAGES[str(request.param)]()


def test_page_is_well_formed_with_unique_ids_and_valid_links(example: Inspection) -> None:
    page = Outline(render(example))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    links = [value for value in page.values("href") if not value.startswith("data:image/png;base64,")]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert {"#models", "#reproduction", *(f"#{name}" for name in example)} <= set(links)


def test_headings_are_nested_in_order(example: Inspection) -> None:
    page = Outline(render(example))
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == page.tags.count("main") == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_every_figure_has_a_caption(example: Inspection) -> None:
    whole = render(example)
    figures = re.findall(r"<figure.*?</figure>", whole, re.DOTALL)
    assert len(figures) == sum(len(section.figures) for section in example.sections)
    for figure in figures:
        assert re.search(r"<figcaption>.+</figcaption>", figure, re.DOTALL)
    drawn = re.findall(r"<svg [^>]*>.{0,200}", whole, re.DOTALL)
    assert all('role="img"' in svg and "<title>" in svg for svg in drawn)
    assert whole.count("<desc>") == len(drawn)


def test_figures_have_a_natural_width() -> None:
    assert re.findall(r'style="--natural:(\d+)px"><svg', render(full())) == ["460", "460", "900"]


def test_page_loads_nothing_from_outside(example: Inspection) -> None:
    whole = render(example)
    assert set(re.findall(r"https?://[^\s\"'<>)]+", whole)) <= NAMESPACES
    assert "url(" not in whole
    page = Outline(whole)
    assert not {"link", "iframe", "object", "img"} & set(page.tags)
    assert "src" not in {name for name, _ in page.attributes}


def test_content_policy_allows_only_the_page_script() -> None:
    page = Outline(render(full()))
    data, program = page.scripts
    assert data.startswith("{")
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    policy = next(value for value in page.values("content") if "default-src" in value)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'; ")
    assert f"; script-src 'sha256-{digest}';" in policy
    assert "script-src 'none'" in render(empty())
    assert Outline(render(hostile())).scripts == []


def test_untrusted_text_is_escaped_in_the_page() -> None:
    page = Outline(render(hostile()))
    assert "img" not in page.tags
    assert page.text.count(HOSTILE) > 10


def test_control_characters_do_not_break_the_page() -> None:
    example = empty()
    odd = Inspection(subjects=example.subjects, text="a\0b\x1bc\ud800d", sections=())
    whole = render(odd)
    assert "a␀b␛c?d" in whole
    whole.encode()


def test_page_states_command_versions_and_time() -> None:
    words = Outline(render(full())).text
    for fact in (
        "chainrule inspect runs/lstm runs/rnn test.txt --out page.html",
        "chainrule 0.1.0, python 3.11",
        "1 min 15 s",
        "1.2 GB",
        "layers 2, width 650",
        "19,780,400",
        "word, 10,000 ids",
        "train.txt",
        "1,000 tokens",
        "not applicable to these models",
    ):
        assert fact in words
    assert words.index("The signal halves every 4.2 tokens.") < words.index("lstm: the signal halves")


def test_page_is_deterministic_and_small() -> None:
    assert render(full()) == render(full())
    assert len(render(full()).encode()) < 150_000  # a curve takes some kilobytes, a map of 900 × 500 the most


def test_single_model_findings_have_no_name_prefix() -> None:
    flow = full().sections[0]
    one = Inspection(subjects=full().subjects[:1], text="t", sections=(flow,))
    assert '<p class="verdict" dir="auto">The signal halves every 4.2 tokens.' in render(one)
    assert '<p class="verdict"><b><bdi>lstm</bdi></b>: The signal' in render(full())


@pytest.mark.slow
def test_browser_console_is_empty(tmp_path: Path) -> None:
    """Policy violations, script errors and failed loads all appear in the console."""
    done = browse(tmp_path, render(full()), "--dump-dom")
    assert b"CONSOLE" not in done.stderr
    dom = done.stdout.decode()
    panel = dom[dom.index('class="read-panel"') :]
    assert "Top predictions" in panel  # the script ran
    refused = browse(tmp_path, render(full()).replace("script-src 'sha256-", "script-src 'sha256-x"), "--dump-dom")
    assert b"CONSOLE" in refused.stderr  # so a violation would have been detected


@pytest.mark.slow
def test_browser_renders_light_and_dark_schemes(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    paper = {}
    for name, scheme in (("dark", 0), ("light", 1)):
        shot = tmp_path / f"{name}.png"
        look = f"--blink-settings=preferredColorScheme={scheme}"
        browse(tmp_path, render(full()), look, "--window-size=1000,3000", f"--screenshot={shot}")
        pixels = np.rint(image.imread(shot)[..., :3] * 255).astype(int)
        colours, counts = np.unique(pixels @ [1 << 16, 1 << 8, 1], return_counts=True)
        paper[name] = list(int(colours[counts.argmax()]).to_bytes(3))
        assert len(colours) > 300  # edges of letters, curves, the map
        top = pixels[:400]  # heading and summary: ink on paper
        ink = np.abs(top - np.array(paper[name])).sum(axis=2).max()
        assert ink > 450
    assert paper["light"] == [0xFD, 0xFD, 0xFB]  # --paper of page.css
    assert paper["dark"] == [0x15, 0x17, 0x1A]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_page_does_not_overflow_on_a_phone(tmp_path: Path, name: str) -> None:
    assert widths(tmp_path, render(PAGES[name]())) == (360, 360)


@pytest.mark.slow
def test_overflow_would_be_detected(tmp_path: Path) -> None:
    page = render(empty()).replace("<main>", '<main><div style="width:700px">wide</div>')
    assert widths(tmp_path, page)[1] > 700
