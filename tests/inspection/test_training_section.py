"""The section on training: of networks with a log, alone and side by side, and of models without one."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from chainrule import api
from chainrule.errors import ChainruleWarning
from chainrule.inspection.sample import Sample, take_sample
from chainrule.inspection.training import section
from chainrule.model import Model
from chainrule.text.corpus import Corpus

pytest.importorskip("matplotlib")
LINES = ["a b c d", "b c d e", "c d e a"] * 20


def sample(model: Model, name: str) -> Sample:
    return take_sample(model, Corpus.from_lines(LINES[:2]), name=name, tokens=8)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """A small LSTM after 3 epochs of 15 steps, with a line every other step; every step is clipped."""
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("\n".join(LINES) + "\n")
    settings: dict[str, Any] = {"hidden": 8, "epochs": 3, "batch_size": 4, "log_every": 2, "clip": 1e-4}
    with pytest.warns(ChainruleWarning):  # that clip sets the step's length
        model = api.train("lstm", text, valid=text, **settings)
    return sample(model, "lstm")


@pytest.fixture(scope="module")
def ngram(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("\n".join(LINES) + "\n")
    with pytest.warns(ChainruleWarning):  # of discounts that so small a text does not give
        return sample(api.train("ngram", text), "trigram")


def relogged(network: Sample, log: bytes, name: str = "lstm") -> Sample:
    """The same network with another log."""
    from chainrule.neural.model import NeuralModel

    lm = network.model.lm
    assert isinstance(lm, NeuralModel)
    other = NeuralModel(lm.network, lm.vocabulary, lm.context, log)
    model = Model(lm=other, tokenizer=network.model.tokenizer, family="lstm", config=network.model.config)
    return sample(model, name)


def old_log(*losses: float) -> bytes:
    """A log from before matrices were told apart."""
    lines = [{"step": 10 * (i + 1), "epoch": 0, "loss": loss, "clipped": 0.0} for i, loss in enumerate(losses)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_a_network_and_all_its_figures(network: Sample) -> None:
    found = section([network])
    assert found is not None
    assert (found.name, found.title) == ("training", "Training")
    names = [figure.name for figure in found.figures]
    assert names == ["loss", "gradient-norm", "clipped-by", "update-ratio", "learning-rate"]
    assert found.sentences[0].startswith("100 % of the steps were clipped")
    for figure in found.figures:
        ElementTree.fromstring(figure.drawing)
        assert f"<desc>{figure.caption.split('.')[0][:20]}" in figure.drawing
    assert "clip = 0.0001" in found["gradient-norm"].caption


def test_numbers_for_json_and_for_python(network: Sample) -> None:
    found = section([network])
    assert found is not None
    data = json.loads(json.dumps(found.data, allow_nan=False))["lstm"]
    assert data["steps"] == found.arrays["lstm/step"][-1] > 20
    assert data["clipped_share"] == 1
    assert sum(data["clipped_by"].values()) == pytest.approx(1)
    assert data["validation"]["epoch"] == [1, 2, 3]
    assert data["curves"]["loss"][0] == found.arrays["lstm/step"].tolist()
    assert data["curves"]["loss"][1] == pytest.approx(found.arrays["lstm/loss"].tolist(), rel=1e-5)
    assert data["usual_update_ratio"].keys() == {n.split("/")[2] for n in found.arrays if "update_ratio" in n}
    assert len(found.arrays["lstm/update_ratio/layers.0.R"]) == len(found.arrays["lstm/step"])


def test_of_models_without_a_log_there_is_nothing_to_say(network: Sample, ngram: Sample) -> None:
    assert section([ngram]) is None
    assert section([relogged(network, b"")]) is None
    assert section([]) is None


def test_those_with_a_log_are_shown_among_others(network: Sample, ngram: Sample) -> None:
    found = section([ngram, network])
    assert found is not None
    assert set(found.data) == {"lstm"}
    assert "gradient-norm" in [figure.name for figure in found.figures]


def test_several_share_the_axis_of_the_loss(network: Sample) -> None:
    told: list[tuple[int, int | None]] = []
    falling = relogged(network, old_log(*[5.0] * 27, 4.0, 4.0, 4.0), "old␊<b>")
    found = section([falling, network], progress=lambda _, done, total: told.append((done, total)))
    assert found is not None
    names = [figure.name for figure in found.figures]
    assert names == ["loss", "gradient-norm-2", "clipped-by-2", "update-ratio-2", "learning-rate"]
    assert found.sentences[0].startswith("old␊<b>: The loss was still falling at the end, 5.00 → 4.00")
    assert found.sentences[1].startswith("lstm: 100 % of the steps")  # the more telling first, whoever it is of
    assert "old␊&lt;b&gt;" in found["loss"].drawing
    assert "<b>" not in found["loss"].caption
    assert "<bdi>old␊&lt;b&gt;</bdi>: training 4.00" in found["loss"].caption
    assert "Gradient norm of <bdi>lstm</bdi>" in found["gradient-norm-2"].caption
    assert told == [(0, 2), (1, 2)]


@pytest.mark.parametrize("log", [old_log(3.0), old_log(3.0, 2.0), b'{"step": 1}\n', b'{"step": 1, "loss": null}\n'])
def test_a_log_of_little_is_shown_for_what_it_is(network: Sample, log: bytes) -> None:
    found = section([relogged(network, log)])
    assert found is not None
    assert [figure.name for figure in found.figures] == ["loss", "learning-rate"]
    json.dumps(found.data, allow_nan=False)


def test_a_loss_against_noise_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n")
    settings: dict[str, Any] = {"output": "nce", "samples": 4, "hidden": 4, "epochs": 1, "clip": 0.0}
    found = section([sample(api.train("rnn", tmp_path / "text.txt", **settings), "noisy")])
    assert found is not None
    assert (
        "The training loss of <bdi>noisy</bdi> is that of noise-contrastive or sampled training"
        in found["loss"].caption
    )
    assert "perplexity" not in found["loss"].caption  # there is no validation, and the loss has none
    assert "perplexity" not in found["loss"].drawing
