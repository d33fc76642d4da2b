"""Word map: projections against their definitions, and the page against hostile words and in a browser."""

import base64
import hashlib
import json
import math
import re
import shutil
import subprocess
import tracemalloc
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.errors import ConfigError, InputError
from chainrule.lm import Floats
from chainrule.plots import word_map
from chainrule.plots.word_map import (
    SCRIPTS,
    MapConfig,
    WordMap,
    affinities,
    conditional_probabilities,
    divergence,
    gradient,
    make_map,
    nearest_neighbors,
    pca,
    render_page,
    tsne,
)

HOSTILE = ("</script><script>alert(1)</script>", "<!--", "]]>", '"\\', "&lt;b>", "\u2028", "\0", "\udc80", "שלום")


def unit_rows(rows: int, width: int, seed: int = 0) -> Floats:
    drawn = np.random.default_rng(seed).normal(size=(rows, width))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


def squared_distance(Y: Floats, i: int, j: int) -> float:
    return float(((Y[i] - Y[j]) ** 2).sum())


def cost(P: Floats, Y: Floats) -> float:
    """KL(P‖Q) as in the paper, pair by pair."""
    pairs = [(i, j) for i in range(len(Y)) for j in range(len(Y)) if i != j]
    w = {pair: 1 / (1 + squared_distance(Y, *pair)) for pair in pairs}
    Z = sum(w.values())
    return sum(float(P[pair]) * math.log(float(P[pair]) / (w[pair] / Z)) for pair in pairs)


@pytest.fixture
def six_points() -> tuple[Floats, Floats]:
    """P of six points and positions for them, in double precision."""
    rng = np.random.default_rng(5)
    return affinities(rng.normal(size=(6, 4)), 1.5), rng.normal(size=(6, 2))


def test_divergence_equals_its_definition(six_points: tuple[Floats, Floats]) -> None:
    assert_allclose(divergence(*six_points), cost(*six_points), rtol=1e-12)


def test_gradient_equals_finite_differences(six_points: tuple[Floats, Floats]) -> None:
    P, Y = six_points
    h = 1e-6
    expected = np.empty_like(Y)
    for at in np.ndindex(Y.shape):
        step = np.zeros_like(Y)
        step[at] = h
        expected[at] = (cost(P, Y + step) - cost(P, Y - step)) / (2 * h)
    assert_allclose(gradient(P, Y), expected, rtol=1e-6, atol=1e-8)


def test_exaggeration_multiplies_only_the_affinities(six_points: tuple[Floats, Floats]) -> None:
    P, Y = six_points
    w = np.array([[1 / (1 + squared_distance(Y, i, j)) * (i != j) for j in range(6)] for i in range(6)])
    Q = w / w.sum()
    expected = [sum(4 * (12 * P[i, j] - Q[i, j]) * w[i, j] * (Y[i] - Y[j]) for j in range(6)) for i in range(6)]
    assert_allclose(gradient(P, Y, 12.0), expected, rtol=1e-10)


def test_gradient_in_blocks_equals_the_formula() -> None:
    # 100 rows are several blocks; eq. 5 evaluated at once.
    rng = np.random.default_rng(3)
    P, Y = affinities(rng.normal(size=(100, 5)), 10.0), rng.normal(size=(100, 2))
    apart = Y[:, None] - Y
    w = 1 / (1 + (apart**2).sum(axis=2)) - np.eye(100)
    expected = 4 * (((P - w / w.sum()) * w)[..., None] * apart).sum(axis=1)
    assert_allclose(gradient(P, Y), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("perplexity", [2.0, 5.0, 12.0])
def test_conditional_probabilities_have_the_requested_perplexity(perplexity: float, scale: float) -> None:
    rows = np.random.default_rng(1).normal(size=(40, 3)) * math.sqrt(scale)
    squared = ((rows[:, None] - rows) ** 2).sum(axis=2)
    p = conditional_probabilities(squared, np.arange(40), perplexity)
    assert_array_equal(np.diag(p), 0.0)
    assert_allclose(p.sum(axis=1), 1.0)
    for i, row in enumerate(p):
        assert math.exp(-sum(v * math.log(v) for v in row if v > 0)) == pytest.approx(perplexity, rel=1e-4)
        assert_array_equal(np.argsort(-row)[:5], np.argsort(squared[i] + 1e30 * (np.arange(40) == i))[:5])


def test_affinities_are_a_symmetric_distribution() -> None:
    P = affinities(unit_rows(300, 10), 20.0)
    assert P.dtype == np.float32
    assert_array_equal(P, P.T)
    assert_array_equal(np.diag(P), 0.0)
    assert float(P.sum(dtype=np.float64)) == pytest.approx(1.0, rel=1e-5)
    assert (P.sum(axis=1) > 1 / (2 * 300) * 0.999).all()  # p_i ≥ 1 / 2N for every word


def test_affinities_are_the_mean_of_both_directions() -> None:
    """600 words are three blocks; p_ij = (p_j|i + p_i|j) / 2N evaluated at once."""
    rows = np.random.default_rng(4).normal(size=(600, 4))
    norms = (rows**2).sum(axis=1)
    p = conditional_probabilities(np.maximum(norms[:, None] + norms - 2 * rows @ rows.T, 0), np.arange(600), 20.0)
    assert_allclose(affinities(rows, 20.0), (p + p.T) / 1200, rtol=1e-6, atol=1e-15)


def test_affinities_memory_is_one_number_per_pair() -> None:
    rows = unit_rows(2000, 4)
    tracemalloc.start()
    P = affinities(rows, 20.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert P.nbytes == 16_000_000
    assert (
        peak - P.nbytes < 1.25 * 256 * 2000 * 8 * 4
    )  # plus blocks of 256 rows, about four of them in double precision


def test_tsne_separates_two_distant_clusters() -> None:
    rng = np.random.default_rng(2)
    centres = np.repeat([[5.0] + [0.0] * 9, [-5.0] + [0.0] * 9], 25, axis=0)
    rows = (centres + rng.normal(size=(50, 10)) * 0.5).astype(np.float32)
    Y = tsne(rows, MapConfig(perplexity=10.0))
    apart = np.sqrt(((Y[:, None] - Y) ** 2).sum(axis=2)) + np.diag(np.full(50, np.inf))
    is_first = np.arange(50) < 25
    assert_array_equal(is_first[apart.argmin(axis=1)], is_first)
    within = apart[is_first[:, None] == is_first]
    assert apart[:25, 25:].min() > within[np.isfinite(within)].max()
    assert divergence(affinities(rows, 10.0), Y) < divergence(affinities(rows, 10.0), pca(rows))


@pytest.mark.parametrize(("rows", "width"), [(60, 7), (7, 60), (9, 9)])
def test_pca_equals_the_svd(rows: int, width: int) -> None:
    X = np.random.default_rng(rows).normal(size=(rows, width)) * np.geomspace(9, 1, width)
    U, S, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    expected = U[:, :2] * S[:2]
    projected = pca(X)
    assert_allclose(np.abs(projected), np.abs(expected), rtol=1e-7, atol=1e-9)
    assert_allclose(projected[:, 0] @ projected[:, 1], 0.0, atol=1e-7)
    assert (projected.max(axis=0) >= -projected.min(axis=0)).all()  # the farthest point is on the positive side


def test_nearest_neighbors_are_sorted_by_cosine() -> None:
    rows = unit_rows(600, 8)
    neighbors, cosines = nearest_neighbors(rows, 5)
    for i in (0, 255, 256, 599):
        by_cosine = sorted((j for j in range(600) if j != i), key=lambda j: -float(rows[i] @ rows[j]))
        assert neighbors[i].tolist() == by_cosine[:5]
        assert_allclose(cosines[i], [rows[i] @ rows[j] for j in by_cosine[:5]], rtol=1e-5)
    assert nearest_neighbors(rows[:3], 8)[0].shape == (3, 2)  # there are only two others


def test_map_shows_the_most_frequent_words() -> None:
    rows = unit_rows(5, 3)
    counts = np.array([2, 9, 4, 9, 1], dtype=np.uint64)
    word_map_ = make_map(list("abcde"), rows, counts, MapConfig(words=3, method="pca", neighbors=1))
    assert word_map_.words == ("b", "d", "c")  # 9, 9, 4: ties in the given order
    assert word_map_.counts == (9, 9, 4)
    assert_array_equal(word_map_.positions, pca(rows[[1, 3, 2]]))
    assert word_map_.neighbors.max() <= 2  # among the words shown
    uncounted = make_map(list("abcde"), rows, None, MapConfig(words=2, method="pca"))
    assert uncounted.words == ("a", "b")
    assert uncounted.counts is None


def test_same_seed_gives_the_same_map() -> None:
    rows = unit_rows(40, 6)
    words = [f"w{i}" for i in range(40)]

    def positions(seed: int) -> bytes:
        return make_map(words, rows, None, MapConfig(iterations=60, seed=seed)).positions.tobytes()

    assert positions(1) == positions(1)
    assert positions(1) != positions(2)


@pytest.mark.parametrize("method", ["tsne", "pca"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 40])
def test_map_of_few_words_and_equal_vectors(rows: int, method: Any) -> None:
    for vectors in (np.zeros((rows, 3)), np.ones((rows, 1)), np.eye(rows)):
        word_map_ = make_map(
            ["word"] * rows, vectors.astype(np.float32), None, MapConfig(method=method, iterations=60)
        )
        assert word_map_.positions.shape == (rows, 2)
        assert np.isfinite(word_map_.positions).all()
        assert "NaN" not in render_page(word_map_, "few")


def test_map_reports_progress_to_the_end() -> None:
    calls: list[tuple[str, int, int | None]] = []
    config = MapConfig(iterations=50)
    make_map(["word"] * 20, unit_rows(20, 4), None, config, lambda *step: calls.append(step))
    assert calls[0] == ("measuring neighbourhoods", 20, 20)
    assert [done for _, done, _ in calls[1:]] == list(range(1, 51))
    assert re.fullmatch(r"placing the words, KL \d+\.\d\d", calls[-1][0])


def test_invalid_map_input_is_rejected() -> None:
    rows = unit_rows(3, 2)
    with pytest.raises(InputError, match=r"2 words needs a vector for each, not an array of shape \(3, 2\)"):
        make_map(["a", "b"], rows)
    with pytest.raises(InputError, match="a map of 0 words"):
        make_map([], rows[:0])
    rows[1, 0] = np.nan
    with pytest.raises(InputError, match="vector of 'b' is not finite"):
        make_map(["a", "b", "c"], rows)
    with pytest.raises(ConfigError, match=r"map\.perplexity is 0\.5"):
        MapConfig(perplexity=0.5)
    with pytest.raises(ConfigError, match=r"map\.words is 10001; choose 1 to 10,000"):
        MapConfig(words=10_001)
    with pytest.raises(ConfigError, match=r"map\.neighbors is -1"):
        MapConfig(neighbors=-1)


class Scripts(HTMLParser):
    """The scripts of a page, as a browser parses them, and all attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.inside = tag == "script"
        if self.inside:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found[-1] += data


def hostile_map() -> WordMap:
    counts = np.arange(len(HOSTILE), 0, -1)
    return make_map(HOSTILE, unit_rows(len(HOSTILE), 4), counts, MapConfig(method="pca", neighbors=3))


def test_words_cannot_break_out_of_the_script_element() -> None:
    parsed = Scripts(render_page(hostile_map(), "<i>&"))
    assert len(parsed.found) == 2  # the data and the program, nothing started by a word
    data = json.loads(parsed.found[0])
    printable = [*HOSTILE[:6], "␀", "?", HOSTILE[8]]  # characters that HTML cannot contain are shown as symbols
    assert data["words"] == printable
    assert "<i>" not in render_page(hostile_map(), "<i>&")


def test_page_data_matches_the_map() -> None:
    word_map_ = hostile_map()
    data = json.loads(Scripts(render_page(word_map_, "t")).found[0])
    assert data["counts"] == list(range(9, 0, -1))
    assert data["neighbors"] == word_map_.neighbors.ravel().tolist()
    assert_allclose(np.array(data["cosines"]) / 1000, word_map_.cosines.ravel(), atol=0.0005)
    # Distances keep their ratios: the unit is 1 / 100,000 of the longer side.
    places = np.column_stack([data["x"], data["y"]])
    unit = np.ptp(word_map_.positions, axis=0).max() / 100_000
    assert_allclose((places - places[0]) * unit, word_map_.positions - word_map_.positions[0], atol=1.5 * unit)


def test_page_loads_nothing_from_outside() -> None:
    text = render_page(hostile_map(), "t")
    parsed = Scripts(text)
    policy = next(value for name, value in parsed.attributes if name == "content" and "default-src" in str(value))
    digest = base64.b64encode(hashlib.sha256(parsed.found[1].encode()).digest()).decode()
    assert str(policy).startswith(f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';")
    assert not {"src", "href"} & {name for name, _ in parsed.attributes}
    assert not re.search(r"https?://|url\(|@import|\bimport\b", text)


def test_page_scripts_are_short_files() -> None:
    files = [Path(word_map.__file__).with_name(name) for name in SCRIPTS]
    assert sorted(files) == sorted(files[0].parent.glob("word_map*.js"))
    assert all(len(file.read_text().splitlines()) <= 400 for file in files)


def test_page_of_two_thousand_words_is_below_a_megabyte() -> None:
    words = [f"extraordinarily-{i:04}" for i in range(2000)]  # 20 letters each
    word_map_ = make_map(words, unit_rows(2000, 10), np.arange(2_002_000, 2000, -1000), MapConfig(method="pca"))
    assert len(render_page(word_map_, "t").encode()) < 1_000_000


def dom_in_chromium(file: Path, address: str) -> str:
    """The document after the page's program has run."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    switches = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom")
    profile = f"--user-data-dir={file.parent / 'profile'}"
    command = [browser, *switches, profile, f"{file.as_uri()}{address}"]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()


@pytest.mark.slow
def test_browser_shows_the_word_in_the_address(tmp_path: Path) -> None:
    word_map_ = hostile_map()
    file = tmp_path / "map.html"
    file.write_text(render_page(word_map_, "t"), encoding="utf-8")
    dom = dom_in_chromium(file, "#word=%3C!--")
    panel = dom[dom.index('<section id="panel"') : dom.index('<section id="about"')]
    assert not panel.startswith('<section id="panel" hidden')
    assert "<bdi>&lt;!--</bdi>" in panel
    assert "rank 2, seen 8 times" in panel
    printable = [*HOSTILE[:6], "␀", "?", HOSTILE[8]]
    escaped = [
        printable[j].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for j in word_map_.neighbors[1]
    ]
    assert re.findall("<bdi>(.*?)</bdi><span>", panel) == escaped
    assert [float(cosine.replace("−", "-")) for cosine in re.findall("<span>(.*?)</span>", panel)] == pytest.approx(
        word_map_.cosines[1].tolist(), abs=0.0006
    )
