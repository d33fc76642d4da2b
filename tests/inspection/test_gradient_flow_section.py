"""Gradient-flow section: sentences and numbers for small known networks."""

import json
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import chainrule
from chainrule.errors import MissingExtra
from chainrule.inspection.gradient_flow import describe_reach, gradient_bound, measure, section
from chainrule.inspection.report import Section
from chainrule.inspection.text_excerpt import Sample, take_sample
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.neural import feedforward, gru, lstm, rnn, transformer
from chainrule.neural.model import NeuralModel
from chainrule.neural.probes.measurements import GradientFlow
from chainrule.plots import figures
from chainrule.text.corpus import Corpus
from neural.small_networks import VOCABULARY, words

LINES = [" ".join(np.random.default_rng(i).choice(VOCABULARY, 12)) for i in range(12)]
NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rnn": (rnn, {"hidden": 8}),
    "lstm": (lstm, {"hidden": 8, "layers": 2}),
    "gru": (gru, {"hidden": 8}),
    "feedforward": (feedforward, {"hidden": 8, "order": 4}),
    "transformer": (transformer, {"hidden": 8, "heads": 2, "layers": 2, "window": 16}),
}


def sample(family: str, name: str = "", lines: list[str] | None = None, **settings: Any) -> Sample:
    """Random weights, reading one stream."""
    module, sizes = NETWORKS[family]
    tokenizer = words()
    config = module.Config(**{**sizes, **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = module.build(config, tokenizer.vocabulary, np.ones(tokenizer.vocab_size))
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, 0.0, 0.4)
    lm: Any = NeuralModel(network, tokenizer.vocabulary, "stream")
    model = Model(lm=lm, tokenizer=tokenizer, family=family, config=config)
    return take_sample(model, Corpus.from_lines(lines or LINES), name=name or family, tokens=1000)


def gradient_flow_section(*samples: Sample, **settings: Any) -> Section:
    result = section(samples, **{"lags": 20, "positions": 24, **settings})
    assert result is not None
    return result


def curve(values: Floats, what: Any = "h", name: str = "m") -> GradientFlow:
    return GradientFlow(name=name, what=what, norms=np.broadcast_to(values, (1, 5, len(values))))


def drawing() -> None:
    pytest.importorskip("matplotlib")


# Sentences.


@pytest.mark.parametrize(
    ("values", "message"),
    [
        # ½ every token: 2^−7 = 0.8 % is the first below 1 %.
        (
            0.5 ** np.arange(21.0),
            "half of the gradient is lost after 1.0 tokens, 99 % after 7 tokens; "
            "20 tokens back less than 0.001 % is left.",
        ),
        # 0.97^20 = 0.5438; 0.9^20 = 0.1216 and log 2 / −log 0.9 = 6.58
        (0.97 ** np.arange(21.0), "the gradient decays slowly: 20 tokens back 54 % of it is left."),
        (
            0.9 ** np.arange(21.0),
            "half of the gradient is lost after 6.6 tokens; "
            "20 tokens back, the largest lag measured, 12 % of it is left.",
        ),
        (np.ones(21), "the gradient does not decay: 20 tokens back 100 % of it is left."),
        (1.5 ** np.arange(11.0), "the gradient grows: 10 tokens back it is 57.7 times as large."),
        (np.array([1.0, 9.0, np.inf]), "the gradient overflows within 2 tokens."),
        (
            np.array([1.0, 0, 0]),
            "half of the gradient is lost within one token, 99 % after 1 token; "
            "2 tokens back less than 0.001 % is left.",
        ),
        (np.ones(1), "the gradient flow cannot be measured"),
        (np.zeros(9), "the gradient flow cannot be measured"),
    ],
)
def test_describe_reach_of_a_gradient(values: Floats, message: str) -> None:
    assert describe_reach(curve(values)).startswith(message)


def test_describe_reach_of_a_context_window() -> None:
    window = curve(np.array([1.0, 0.9, 1.1, 0, 0]), what="embedding")
    assert describe_reach(window) == "the gradient reaches back 3 tokens, the full context window of the model."


def test_describe_reach_of_every_layer() -> None:
    norms = np.stack([np.broadcast_to(rate ** np.arange(21.0), (5, 21)) for rate in (0.25, 0.5)])
    message = describe_reach(GradientFlow(name="m", what="h", norms=norms))
    assert message.startswith(
        "half of the gradient is lost after 1.0 tokens in layer 2 (after 0.5 tokens in layer 1), 99 %"
    )


def test_lstm_with_known_forget_gates_is_described() -> None:
    """σ(log 9) = 0.9 and no path through h: along the cell half is lost after log 2 / −log 0.9 = 6.6 tokens."""
    one = sample("lstm", layers=1, tie=False)
    network: Any = one.model.lm.network
    with torch.no_grad():
        network.layers[0].R.zero_()
        network.layers[0].W[8:16] = 0
        network.layers[0].b_R.zero_()
        network.layers[0].b_W[8:16] = math.log(9)
    result = gradient_flow_section(one)
    assert result.sentences[1] == (
        "lstm: along the cell of layer 1 half of the gradient is lost after 6.6 tokens; the mean product of its "
        "forget gates halves after 6.6 tokens."
    )
    (layer,) = result.data["lstm"]["c"]
    assert layer["half_life"] == pytest.approx(math.log(2) / -math.log(0.9), rel=1e-4)
    assert layer["reach"] is None  # 0.9^20 = 0.12
    assert_allclose(layer["forget"], 0.9 ** np.arange(21), rtol=1e-4)
    assert_allclose(layer["relative"], 0.9 ** np.arange(21), rtol=1e-4)


# The bound.


@pytest.mark.parametrize(("nonlinearity", "slope"), [("tanh", 1), ("relu", 1), ("leaky", 1), ("sigmoid", 0.25)])
def test_elman_bound_equals_the_power_method(nonlinearity: str, slope: float) -> None:
    """σ_max by the power method; the measured curve never exceeds it."""
    one = sample("rnn", layers=2, nonlinearity=nonlinearity)
    R = one.model.lm.network.layers[-1].R.detach().numpy().astype(float)
    v = np.ones(8)
    for _ in range(2000):
        v = R.T @ (R @ v)
        v /= np.linalg.norm(v)
    limit = gradient_bound(one, 6)
    assert limit is not None
    assert_allclose(limit, (slope * np.linalg.norm(R @ v)) ** np.arange(7), rtol=1e-6)
    (flow,) = measure(one, lags=6, positions=24)
    assert (flow.relative()[-1] <= limit * (1 + 1e-5)).all()
    says = "the gradient must vanish" if limit[1] < 1 else "the gradient can explode, but need not"
    assert says in gradient_flow_section(one).sentences[-1]


def test_other_models_have_no_gradient_bound() -> None:
    for one in (sample("lstm"), sample("transformer"), sample("rnn", attention="dot"), ngram()):
        assert gradient_bound(one, 9) is None


# The section.


def test_gradient_flow_of_every_family_on_one_axis() -> None:
    drawing()
    reported: list[str] = []
    result = gradient_flow_section(*map(sample, NETWORKS), progress=lambda what, done, total: reported.append(what))
    assert (result.name, result.title) == ("gradient_flow", "Gradient flow")
    assert [figure.name for figure in result.figures] == [
        "all",
        "rnn: by layer",
        "lstm: by layer",
        "lstm: along the cell",
        "gru: by layer",
        "feedforward: by distance",
        "transformer: by distance",
        "transformer: by layer",
    ]
    assert [finding.split(":")[0] for finding in result.sentences] == [*NETWORKS, "lstm", "rnn"]
    assert "the gradient reaches back 3 tokens, the full context window" in result.sentences[3]
    assert "Dotted" in result["rnn: by layer"].caption
    assert "Dashed" in result["lstm: along the cell"].caption
    assert all("24 positions" in figure.caption for figure in result.figures)
    assert sum(len(figure.drawing) for figure in result.figures) < 300_000
    assert "gradient flow of gru" in reported


def test_single_model_has_no_common_axis() -> None:
    drawing()
    assert [figure.name for figure in gradient_flow_section(sample("gru")).figures] == ["gru: by layer"]


def test_gradient_flow_data_and_arrays() -> None:
    result = gradient_flow_section(sample("lstm"))
    assert json.loads(json.dumps(result.data, allow_nan=False)) == result.data
    layers = result.data["lstm"]["h"]
    assert [layer["layer"] for layer in layers] == [1, 2]
    norms = result.arrays["lstm/h"]
    assert norms.shape == result.arrays["lstm/c/forget"].shape == (2, 24, 21)
    assert_allclose(layers[1]["mean"], norms[1].mean(axis=0), rtol=1e-5)
    assert_allclose(layers[1]["quartiles"][1], np.quantile(norms[1], 0.75, axis=0), rtol=1e-5)
    assert layers[0]["lags"] == list(range(21))
    again = gradient_flow_section(sample("lstm")).arrays["lstm/h"]
    assert np.array_equal(norms, again)
    assert not np.array_equal(norms, gradient_flow_section(sample("lstm"), seed=1).arrays["lstm/h"])


def ngram() -> Sample:
    model = chainrule.train("ngram", Corpus.from_lines(LINES), smoothing="witten-bell", order=2)
    return take_sample(model, Corpus.from_lines(LINES), name="ngram", tokens=99)


def test_non_neural_models_are_left_out_of_gradient_flow() -> None:
    assert measure(ngram()) == []
    assert section([ngram()]) is None
    result = gradient_flow_section(ngram(), sample("gru"))
    assert list(result.data) == ["gru"]


@pytest.mark.parametrize("family", NETWORKS)
def test_gradient_flow_section_of_one_token(family: str) -> None:
    result = gradient_flow_section(sample(family, lines=[""]))
    assert "the gradient flow cannot be measured" in result.sentences[0]
    json.dumps(result.data, allow_nan=False)


def test_names_are_escaped_in_gradient_flow_figures() -> None:
    drawing()
    result = gradient_flow_section(sample("gru", name="<b>x\x01"), sample("lstm", name="שלום"))
    for figure in result.figures:
        assert "<b>x" not in figure.drawing + figure.caption
        assert "\x01" not in figure.drawing + figure.caption


def test_gradient_flow_numbers_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with figures.allow_missing_matplotlib():
        result = gradient_flow_section(sample("gru"))
    assert all("pip install" in figure.drawing for figure in result.figures)
    assert result.data["gru"]["h"][0]["mean"][0] > 0
    with pytest.raises(MissingExtra):
        gradient_flow_section(sample("gru"))
