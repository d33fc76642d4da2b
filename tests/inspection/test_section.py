"""Sections and figures: in a notebook and as files."""

from pathlib import Path

import numpy as np
import pytest

from chainrule.errors import UsageError
from chainrule.inspection.report import Figure, Finding, Section, round_for_json

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><title>One dot</title></svg>'


def section() -> Section:
    dot = Figure(name="dot", drawing=SVG, caption="A dot.")
    table = Figure(name="table", drawing="<table></table>", caption="A table.")
    return Section(name="gates", title="Gates <1>", findings=(Finding(None, "it is 1 < 2."),), figures=(dot, table))


def test_section_html_representation() -> None:
    html = section()._repr_html_()
    assert "<h3>Gates &lt;1&gt;</h3><p>it is 1 &lt; 2.</p>" in html
    assert html.count("<figure>") == 2
    assert repr(section()) == "<Gates <1>: it is 1 < 2.>"
    assert section()["table"].drawing == "<table></table>"
    with pytest.raises(KeyError, match="there is no figure 'tables'; there are dot, table"):
        section()["tables"]


def test_figure_is_saved_as_a_file(tmp_path: Path) -> None:
    section()["dot"].save(tmp_path / "dot.svg")
    saved = (tmp_path / "dot.svg").read_text(encoding="utf-8")
    assert "<title>One dot</title>" in saved
    assert "prefers-color-scheme:dark" in saved
    section()["table"].save(tmp_path / "table.html")
    assert (tmp_path / "table.html").read_text(encoding="utf-8") == "<table></table>"
    with pytest.raises(UsageError, match=r"flow.png: this figure is written as SVG; choose a name in .svg"):
        section()["dot"].save("flow.png")


def test_round_for_json_replaces_non_finite_numbers() -> None:
    assert round_for_json(np.array([1 / 3, np.nan, -np.inf, 2e9])) == [0.333333, None, None, 2e9]
