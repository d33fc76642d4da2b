"""Recurrent-matrix section: which models, which sentences, and numbers that JSON can hold."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from chainrule.inspection import recurrent_matrix
from chainrule.lm import Vocabulary
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.model import NeuralModel

pytest.importorskip("matplotlib")

WORDS = Vocabulary(7, 0, 1, 2)
MODULES: dict[str, Any] = {"rnn": rnn, "lstm": lstm, "gru": gru}


def sample(family: str, name: str = "", **chosen: Any) -> Any:
    """A model with random weights; the section reads no text."""
    lm: Any = None
    if family in MODULES:
        torch.manual_seed(1)
        config = MODULES[family].Config(hidden=4, embedding=4, **chosen)
        lm = NeuralModel(MODULES[family].build(config, WORDS, None), WORDS, "stream")
    return SimpleNamespace(name=name or family, model=SimpleNamespace(family=family, lm=lm))


def test_models_without_recurrent_matrix_have_no_section() -> None:
    assert recurrent_matrix.section([sample("ngram"), sample("transformer")]) is None


def test_recurrent_matrix_section_of_a_rotation() -> None:
    """A quarter turn in each of two planes: eigenvalues ± i, nothing grows or shrinks."""
    elman = sample("rnn", "turn")
    R = np.kron(np.eye(2), [[0.0, -1.0], [1.0, 0.0]])
    with torch.no_grad():
        elman.model.lm.network.layers[0].R.copy_(torch.from_numpy(R))
    result = recurrent_matrix.section([elman])
    assert result is not None
    (layer,) = result.data["turn"]
    assert layer["gain"] == pytest.approx(1.0)
    assert layer["matrices"]["R"]["spectral_radius"] == pytest.approx(1.0)
    assert layer["matrices"]["R"]["largest_singular_value"] == pytest.approx(1.0)
    assert sorted(result.arrays["turn/layer 1/R/eigenvalues, imaginary"]) == pytest.approx([-1, -1, 1, 1])
    assert result.sentences == (
        "turn: the recurrent matrix of layer 1 has spectral radius 1.00 and largest singular value 1.00: "
        "σ_max · max φ′ = 1.00: the gradient need not vanish and cannot explode.",
    )


def test_recurrent_matrix_section_of_several_models() -> None:
    samples = [sample("lstm", layers=2), sample("ngram"), sample("rnn", "<b>", nonlinearity="sigmoid")]
    result = recurrent_matrix.section(samples)
    assert result is not None
    names = [figure.name for figure in result.figures]
    assert names == ["lstm: eigenvalues", "lstm: sizes", "<b>: eigenvalues", "<b>: sizes", "bound"]
    assert list(result.data) == ["lstm", "<b>"]
    assert list(result.data["lstm"][1]["matrices"]) == ["i", "f", "g", "o"]
    assert result.data["lstm"][0]["gain"] is None
    assert "max φ′ 0.25 for sigmoid" in result["bound"].caption
    assert "<bdi>&lt;b&gt;</bdi>: eigenvalues" in result["<b>: eigenvalues"].caption
    assert "<bdi>&lt;b&gt;</bdi>: norms of every recurrent" in result["<b>: sizes"].caption
    assert all("<b>" not in figure.caption + figure.drawing for figure in result.figures)
    json.dumps(result.data, allow_nan=False)
    assert [finding.split(":")[0] for finding in result.sentences] == ["lstm", "lstm", "<b>"]


def test_gated_models_have_no_bound_figure() -> None:
    result = recurrent_matrix.section([sample("gru")])
    assert result is not None
    assert [figure.name for figure in result.figures] == ["gru: eigenvalues", "gru: sizes"]
    assert "of the candidate" in result["gru: eigenvalues"].caption


def test_lower_layers_and_attention_have_no_bound_figure() -> None:
    """R₁ = 0.3 I and R₂ = 0.99 I: gradients return to the lower layer through the upper as well."""
    deep = sample("rnn", "deep", layers=2)
    with torch.no_grad():
        for layer, size in zip(deep.model.lm.network.layers, (0.3, 0.99), strict=True):
            layer.R.copy_(size * torch.eye(4))
    result = recurrent_matrix.section([deep, sample("rnn", "attentive", attention="dot")])
    assert result is not None
    lower, top, attentive = result.sentences
    assert (
        "along this layer alone σ_max · max φ′ = 0.30; gradients also return through the layers above it" in lower
    )
    assert "= 0.99 < 1: the gradient must vanish, after 10 tokens at most 0.9 of it" in top  # 0.99^10 = 0.904
    assert "gradients also return through attention to the past" in attentive
    drawn = result["bound"].drawing
    assert "deep, layer 2: 0.99 per step." in drawn
    assert "deep, layer 1" not in drawn
    assert "attentive" not in drawn
    assert "in the top layer" in result["bound"].caption
    assert [layer["is_bound"] for layer in result.data["deep"]] == [False, True]
    alone = recurrent_matrix.section([sample("rnn", "attentive", attention="dot")])
    assert alone is not None
    assert "bound" not in [figure.name for figure in alone.figures]
