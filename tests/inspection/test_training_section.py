"""Training section: networks with a log, alone and side by side, and models without one."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from chainrule import api
from chainrule.errors import ChainruleWarning
from chainrule.inspection.text_excerpt import Sample, take_sample
from chainrule.inspection.training import section
from chainrule.model import Model
from chainrule.text.corpus import Corpus

pytest.importorskip("matplotlib")
LINES = ["a b c d", "b c d e", "c d e a"] * 20


def sample(model: Model, name: str) -> Sample:
    return take_sample(model, Corpus.from_lines(LINES[:2]), name=name, tokens=8)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """A small LSTM after 3 epochs of 15 steps, logged every other step; every step is clipped."""
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("\n".join(LINES) + "\n")
    settings: dict[str, Any] = {"hidden": 8, "epochs": 3, "batch_size": 4, "log_every": 2, "clip": 1e-4}
    with pytest.warns(ChainruleWarning):  # about the clipping
        model = api.train("lstm", text, valid=text, **settings)
    return sample(model, "lstm")


@pytest.fixture(scope="module")
def ngram(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("\n".join(LINES) + "\n")
    with pytest.warns(ChainruleWarning):  # about default discounts for so small a text
        return sample(api.train("ngram", text), "trigram")


def with_log(network: Sample, log: bytes, name: str = "lstm") -> Sample:
    """The same network with another log."""
    from chainrule.neural.model import NeuralModel

    lm = network.model.lm
    assert isinstance(lm, NeuralModel)
    other = NeuralModel(lm.network, lm.vocabulary, lm.context, log)
    model = Model(lm=other, tokenizer=network.model.tokenizer, family="lstm", config=network.model.config)
    return sample(model, name)


def old_log(*losses: float) -> bytes:
    """A log from before per-parameter statistics."""
    lines = [{"step": 10 * (i + 1), "epoch": 0, "loss": loss, "clipped": 0.0} for i, loss in enumerate(losses)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_training_section_has_all_figures(network: Sample) -> None:
    result = section([network])
    assert result is not None
    assert (result.name, result.title) == ("training", "Training")
    names = [figure.name for figure in result.figures]
    assert names == ["loss", "gradient-norm", "clipped-by", "update-ratio", "learning-rate"]
    assert result.sentences[0].startswith("100 % of the steps were clipped")
    for figure in result.figures:
        ElementTree.fromstring(figure.drawing)
        assert f"<desc>{figure.caption.split('.')[0][:20]}" in figure.drawing
    assert "clip = 0.0001" in result["gradient-norm"].caption


def test_training_section_data_and_arrays(network: Sample) -> None:
    result = section([network])
    assert result is not None
    data = json.loads(json.dumps(result.data, allow_nan=False))["lstm"]
    assert data["steps"] == result.arrays["lstm/step"][-1] > 20
    assert data["clipped_share"] == 1
    assert sum(data["clipped_by"].values()) == pytest.approx(1)
    assert data["validation"]["epoch"] == [1, 2, 3]
    assert data["curves"]["loss"][0] == result.arrays["lstm/step"].tolist()
    assert data["curves"]["loss"][1] == pytest.approx(result.arrays["lstm/loss"].tolist(), rel=1e-5)
    assert data["usual_update_ratio"].keys() == {n.split("/")[2] for n in result.arrays if "update_ratio" in n}
    assert len(result.arrays["lstm/update_ratio/layers.0.R"]) == len(result.arrays["lstm/step"])


def test_models_without_a_log_have_no_training_section(network: Sample, ngram: Sample) -> None:
    assert section([ngram]) is None
    assert section([with_log(network, b"")]) is None
    assert section([]) is None


def test_only_models_with_a_log_are_shown(network: Sample, ngram: Sample) -> None:
    result = section([ngram, network])
    assert result is not None
    assert set(result.data) == {"lstm"}
    assert "gradient-norm" in [figure.name for figure in result.figures]


def test_several_runs_share_the_loss_axis(network: Sample) -> None:
    calls: list[tuple[int, int | None]] = []
    falling = with_log(network, old_log(*[5.0] * 27, 4.0, 4.0, 4.0), "old␊<b>")
    result = section([falling, network], progress=lambda _, done, total: calls.append((done, total)))
    assert result is not None
    names = [figure.name for figure in result.figures]
    assert names == ["loss", "gradient-norm-2", "clipped-by-2", "update-ratio-2", "learning-rate"]
    assert result.sentences[0].startswith("old␊<b>: The loss was still falling at the end, 5.00 → 4.00")
    assert result.sentences[1].startswith(
        "lstm: 100 % of the steps"
    )  # more important findings first, whichever model they concern
    assert "old␊&lt;b&gt;" in result["loss"].drawing
    assert "<b>" not in result["loss"].caption
    assert "<bdi>old␊&lt;b&gt;</bdi>: training 4.00" in result["loss"].caption
    assert "Gradient norm of <bdi>lstm</bdi>" in result["gradient-norm-2"].caption
    assert calls == [(0, 2), (1, 2)]


@pytest.mark.parametrize("log", [old_log(3.0), old_log(3.0, 2.0), b'{"step": 1}\n', b'{"step": 1, "loss": null}\n'])
def test_training_section_of_a_short_log(network: Sample, log: bytes) -> None:
    result = section([with_log(network, log)])
    assert result is not None
    assert [figure.name for figure in result.figures] == ["loss", "learning-rate"]
    json.dumps(result.data, allow_nan=False)


def test_nce_loss_is_labelled(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n")
    settings: dict[str, Any] = {"output": "nce", "samples": 4, "hidden": 4, "epochs": 1, "clip": 0.0}
    result = section([sample(api.train("rnn", tmp_path / "text.txt", **settings), "noisy")])
    assert result is not None
    assert (
        "The training loss of <bdi>noisy</bdi> is that of noise-contrastive or sampled training"
        in result["loss"].caption
    )
    assert "perplexity" not in result["loss"].caption  # there is no validation, and the NCE loss has no perplexity
    assert "perplexity" not in result["loss"].drawing
