"""Comparison results: order and strict JSON."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from chainrule.comparison.results import Curve, Surprisal, rank_rows, rankable_rows
from chainrule.neural.probes.measurements import GradientFlow
from comparison.example_results import FLOOR, ngram_row, results

INTERFACE = (
    "name, family, parameters, size_bytes, train_seconds, train_tokens_per_second, "
    "perplexity, perplexity_per_word, bits_per_byte, sample"
)


def strict(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


def test_rows_are_sorted_with_unranked_last() -> None:
    middle, best, infinite, score = (
        ngram_row(2, "katz"),
        ngram_row(5, "kneser-ney"),
        ngram_row(3, "mle"),
        ngram_row(5, "stupid-backoff"),
    )
    assert score.bits_per_byte < best.bits_per_byte  # and yet it is not ranked
    assert rank_rows([infinite, middle, score, best]) == (best, middle, infinite, score)
    assert rankable_rows([infinite, middle, score, best]) == (best, middle)


@pytest.mark.parametrize("bits", [math.inf, math.nan])
def test_rows_without_a_finite_figure_are_not_ranked(bits: float) -> None:
    row = replace(ngram_row(1, "katz"), bits_per_byte=bits)
    assert row.is_ranked
    assert rankable_rows([row]) == ()
    assert [ranked.name for ranked in rank_rows([row, ngram_row(1, "laplace")])] == ["ngram-1-laplace", row.name]


def test_results_json_has_the_documented_keys_and_no_infinity() -> None:
    document = strict(results().to_json())
    assert document["schema_version"] == 1
    assert document["text"] == "The Python documentation"
    assert document["split"]["test_bytes"] == 154_000
    assert len(document["rows"]) == 50
    assert all(set(INTERFACE.split(", ")) <= set(row) for row in document["rows"])
    finite = [row["bits_per_byte"] for row in document["rows"] if row["is_ranked"]]
    assert finite == sorted(finite)
    assert not any(row["is_ranked"] for row in document["rows"][len(finite) :])


def test_infinite_figures_are_null_with_a_flag() -> None:
    infinite, finite = strict(ngram_row(3, "mle").to_json()), strict(ngram_row(3, "katz").to_json())
    assert (infinite["bits_per_byte"], infinite["perplexity"], infinite["infinite"]) == (None, None, True)
    assert finite["bits_per_byte"] > FLOOR[3]
    assert finite["infinite"] is False
    assert finite["facets"] == {"order": 3, "smoothing": "katz"}


def test_infinite_points_and_tokens_are_null() -> None:
    curve = strict(Curve(name="mle", tokens=(10, 20), bytes=(50, 100), bits_per_byte=(math.inf, 2.0)).to_json())
    assert (curve["bits_per_byte"], curve["infinite"]) == ([None, 2.0], True)
    reading = strict(Surprisal(name="mle", tokens=("i", "mice"), bits=(1.5, math.inf)).to_json())
    assert (reading["bits"], reading["infinite"]) == ([1.5, None], True)


def test_gradient_flow_json_is_relative_by_lag() -> None:
    """Two positions of norms 4, 2, 1: a half and a quarter; 4, 3, inf: overflow, and never a half."""
    norms = [np.array([[row, row]]) for row in ([4.0, 2.0, 1.0], [4.0, 3.0, math.inf])]
    flows = tuple(GradientFlow(name="rnn", what="h", norms=norm) for norm in norms)
    document = strict(replace(results(), flows=flows).to_json())
    assert document["gradient_flow"] == [
        {"name": "rnn", "relative": [1.0, 0.5, 0.25], "half_life": 1.0},
        {"name": "rnn", "relative": [1.0, 0.75, None], "half_life": None},
    ]
