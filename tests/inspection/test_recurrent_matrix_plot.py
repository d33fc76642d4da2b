"""Plots of recurrent matrices: well-formed, described, small, and correct positions."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from chainrule.inspection import recurrent_matrix
from chainrule.inspection.recurrent_matrix import gradient_bound
from chainrule.lm import Floats
from chainrule.neural.probes.measurements import Recurrence, Spectrum
from chainrule.plots import figures
from inspection.browser_page import browse

pytest.importorskip("matplotlib")


SVG = "{http://www.w3.org/2000/svg}"


def spectrum(R: Floats) -> Spectrum:
    return Spectrum(np.linalg.eigvals(R).astype(np.complex128), np.linalg.svd(R, compute_uv=False))


def layer(number: int = 1, width: int = 3) -> Recurrence:
    R = np.diag(np.linspace(-2, 1, width))
    drawn = {"orthogonal": spectrum(np.eye(width)), "small": spectrum(0.01 * np.eye(width))}
    return Recurrence(layer=number, spectra={"": spectrum(R)}, nonlinearity="tanh", random_spectra=drawn)


def test_plane_for_every_layer_and_random_matrix() -> None:
    drawn = recurrent_matrix.plot_eigenvalues([layer(1), layer(2)], title="Eigenvalues of <a>")
    root = ElementTree.fromstring(drawn)
    names = [element.text for element in root.iter(f"{SVG}text")]
    assert [name for name in names if name and name[0] in "los"] == [
        "layer 1",
        "layer 2",
        "orthogonal initialization",
        "small initialization",
    ]
    planes = list(root.iter(f"{SVG}svg"))
    assert len(planes) == 4
    assert "layer 1: largest modulus 2.00" in (planes[0].get("aria-label") or "")
    assert len({plane.get("aria-label") for plane in planes}) == 4
    # one dot per eigenvalue: two layers and two random matrices of three each
    assert drawn.count("h0") == 12
    assert "url(" not in drawn


def test_planes_wrap_into_even_rows(tmp_path: Path) -> None:
    """As a browser wraps them: at 150 pixels each five need 750, six 900 and nine 1,350."""
    rows = {
        (5, 1040): "5",
        (5, 700): "3+2",
        (5, 328): "2+2+1",
        (4, 1040): "4",
        (4, 560): "2+2",
        (6, 1040): "6",
        (6, 700): "3+3",
        (9, 1040): "5+4",
        (1, 328): "1",
    }
    pages = []
    for count, width in rows:
        layers = [replace(layer(number), random_spectra={}) for number in range(1, count + 1)]
        drawn = recurrent_matrix.plot_eigenvalues(layers, title="x")
        pages.append(f'<div class="page" style="width:{width}px">{drawn}</div>')
    script = (
        "onload = () => { document.title = [...document.querySelectorAll('.page')].map((page) => {"
        "const rows = new Map(); for (const each of page.firstChild.children) {"
        "const top = each.getBoundingClientRect().top; rows.set(top, (rows.get(top) || 0) + 1); }"
        "return [...rows.values()].join('+') }).join(' ') }"
    )
    page = f"<title></title>{''.join(pages)}<script>{script}</script>"
    row_sizes = browse(tmp_path, page, "--dump-dom").stdout.decode()
    assert re.findall(r"<title>([\d+ ]*)</title>", row_sizes)[0].split() == list(rows.values())


def test_dots_are_at_the_eigenvalues() -> None:
    """In the first plane −2, −½ and 1 are on one horizontal line, evenly spaced."""
    drawn = recurrent_matrix.plot_eigenvalues([layer()], title="x")
    points = [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", drawn)][:3]
    xs, ys = zip(*sorted(points), strict=True)
    assert len(set(ys)) == 1
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11)
    assert xs[2] - xs[0] > 50


def test_plot_of_a_wide_layer_is_small() -> None:
    rng = np.random.default_rng(0)
    wide = Recurrence(layer=1, spectra={"": spectrum(rng.normal(0, 0.05, (400, 400)))}, nonlinearity="tanh")
    assert len(recurrent_matrix.plot_eigenvalues([wide], title="x")) < 20_000


def test_compact_paths_keeps_other_shapes() -> None:
    path = ' d="M 1.2345 2.3456 \nL 1.2345 9.8765 \nL 3.4567 9.8765 \nz"'
    assert " ".join(figures.compact_paths(path).split()) == 'd="M 1.2 2.3 L 1.2 9.9 L 3.5 9.9 z"'
    assert figures.compact_paths(' d="M 1.234 2.345 \nL 1.234 2.345 \nM 5.01 6.02 \nL 5.01 6.02 \n"') == (
        ' d="M1.2 2.3h0M5.0 6.0h0"'
    )


def test_spectrum_table_has_all_numbers() -> None:
    table = recurrent_matrix.spectrum_table([layer()])
    assert re.findall(r"<td[^>]*>([^<]*)</td>", table)[:5] == ["layer 1, state", "3", "2.000", "2.000", "33 %"]
    assert table.count("<tr>") == 1 + 3


def test_vanishing_and_exploding_bounds_can_be_drawn() -> None:
    drawn = recurrent_matrix.plot_bounds(
        {"down": gradient_bound(0.1, 100), "up": gradient_bound(50.0, 100), "none": gradient_bound(0.0, 9)},
        title="B",
    )
    root = ElementTree.fromstring(drawn)
    assert "down: 0.1 per step; up: 50 per step" in (root.get("aria-label") or "")
    assert "nan" not in drawn
    assert "1e−08" in {element.text for element in root.iter(f"{SVG}text")}
