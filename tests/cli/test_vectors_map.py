"""`chainrule vectors map`: from a vector file to a page."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule.embeddings.formats import write_vectors
from cli.command import run_error, run_ok, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Thirty words; those of each half are similar."""
    rng = np.random.default_rng(0)
    middle = np.repeat([[3.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]], 15, axis=0)
    words = [f"left{i}" for i in range(15)] + [f"right{i}" for i in range(15)]
    write_vectors(tmp_path / "vectors.txt", words, (middle + rng.normal(size=(30, 4)) * 0.3).astype(np.float32))
    return tmp_path / "vectors.txt"


def data(page: Path) -> dict[str, Any]:
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert match is not None
    document = json.loads(match[1])
    assert isinstance(document, dict)
    return document


def test_vectors_map_separates_clusters(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "map.html"
    outcome = run_ok("vectors", "map", file, "--out", out, "--perplexity", 5)
    assert outcome.out == ""
    assert f"saved {out}: 30 of 30 words" in outcome.err
    assert "<title>vectors.txt: word map</title>" in out.read_text(encoding="utf-8")
    page_data = data(out)
    assert page_data["counts"] is None  # a vector file has no counts
    near = np.array(page_data["neighbors"]).reshape(30, 8)
    assert_halves(near < 15)
    places = np.column_stack([page_data["x"], page_data["y"]])
    apart = ((places[:, None] - places) ** 2).sum(axis=2) + np.diag(np.full(30, 1 << 60))
    assert_halves(apart.argmin(axis=1)[:, None] < 15)


def assert_halves(is_left: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
    assert is_left[:15].all()
    assert not is_left[15:].any()


def test_vectors_map_options(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "map.html"
    run_ok("vectors", "map", file, "--out", out, "--words", 12, "--method", "pca", "--neighbors", 0)
    assert data(out)["words"] == [f"left{i}" for i in range(12)]
    assert data(out)["neighbors"] == []
    assert "principal components" in out.read_text(encoding="utf-8")


def test_vectors_map_depends_on_the_seed(file: Path, tmp_path: Path) -> None:
    pages = [tmp_path / f"{name}.html" for name in "abc"]
    for page, seed in zip(pages, (4, 4, 5), strict=True):
        run_ok("vectors", "map", file, "--out", page, "--seed", seed)
    a, b, c = (page.read_bytes() for page in pages)
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--method", "umap", "map.method is 'umap'; choose one of tsne, pca"),
        ("--words", 0, "map.words is 0; choose 1 to 10,000"),
        ("--neighbors", -1, "map.neighbors is -1; choose 0 or more"),
        ("--perplexity", 0, "map.perplexity is 0.0; choose 1 or more"),
        ("--perplexity", "nan", "map.perplexity is nan; choose 1 or more"),
    ],
)
def test_vectors_map_rejects_invalid_settings(
    file: Path, tmp_path: Path, option: str, value: object, message: str
) -> None:
    assert message in run_error(2, "vectors", "map", file, "--out", tmp_path / "map.html", option, value)
    assert list(tmp_path.iterdir()) == [file]


def test_vectors_map_writes_no_page_on_failure(file: Path, tmp_path: Path) -> None:
    assert "exists and is not a file" in run_error(2, "vectors", "map", file, "--out", tmp_path)
    run_error(4, "vectors", "map", tmp_path / "nowhere.txt", "--out", tmp_path / "map.html")
    assert list(tmp_path.iterdir()) == [file]


def test_vectors_map_of_a_folder_has_counts(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", "a b a c a b\n" * 9)
    folder = tmp_path / "learnt"
    run_ok("vectors", "train", text, "--dimensions", 4, "--threads", 1, "--out", folder)
    run_ok("vectors", "map", folder, "--out", tmp_path / "map.html")
    page_data = data(tmp_path / "map.html")
    assert (page_data["words"], page_data["counts"]) == (["a", "b", "c"], [27, 18, 9])


def test_vectors_map_rejects_one_hot_vectors(tmp_path: Path) -> None:
    text = write(tmp_path / "text.txt", "a b a c a b\n" * 9)
    run_ok("vectors", "train", text, "--method", "one-hot", "--out", tmp_path / "one-hot")
    message = run_error(2, "vectors", "map", tmp_path / "one-hot", "--out", tmp_path / "map.html")
    assert "all equidistant" in message
