"""Gates section: cells with known weights are found; unusual texts and models work."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from chainrule.errors import UsageError
from chainrule.inspection import gates
from chainrule.inspection.gates import align_text, choose_excerpt
from chainrule.inspection.report import Section
from chainrule.inspection.text_excerpt import Sample, take_sample
from chainrule.lm import Context
from chainrule.model import Model
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.model import NeuralModel
from chainrule.neural.probes import activations
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import train
from chainrule.tokenizers.config import Kind, TokenizerConfig

pytest.importorskip("matplotlib")

MODULES: dict[str, Any] = {"rnn": rnn, "lstm": lstm, "gru": gru}
RNG = np.random.default_rng(7)
WORDS = ["the", "old", "bank", "of", "a", "river", "was", "muddy", "and", "wide"]
SPOKEN = [
    "“" + " ".join(RNG.choice(WORDS, RNG.integers(1, 6))) + "”" if RNG.random() < 0.5 else word
    for word in RNG.choice(WORDS, 400)
]
QUOTED = [" ".join(SPOKEN[i : i + 8]) for i in range(0, 400, 8)]
RAGGED = [" ".join(RNG.choice(WORDS, RNG.integers(2, 19))) for _ in range(60)]


def sample(
    family: str,
    lines: list[str],
    *,
    kind: Kind = "word",
    context: Context = "stream",
    tokens: int = 1000,
    name: str = "net",
    size: int | None = None,
    **chosen: Any,
) -> Sample:
    """A network with random weights and a tokenizer trained on the text."""
    tokenizer = train.train(Corpus.from_lines(lines), TokenizerConfig(kind=kind, vocab_size=size))
    module = MODULES[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        config = module.Config(**{"hidden": 6, "embedding": 6, "tie": False, **chosen})
        network = module.build(config, tokenizer.vocabulary, None)
    lm = NeuralModel(network, tokenizer.vocabulary, context)
    model = Model(lm=lm, tokenizer=tokenizer, family=family, config=config)
    return take_sample(model, Corpus.from_lines(lines), name=name, tokens=tokens)


def layer_of(sample_: Sample) -> Any:
    return sample_.model.lm.network.layers[0]


def section(*samples: Sample, **chosen: Any) -> Section:
    result = gates.section(samples, **chosen)
    assert result is not None
    json.dumps(result.data, allow_nan=False)
    return result


def test_quote_cell_is_found() -> None:
    """h = tanh(20 · opens − 20 · closes + 3 h): a switch; unit 3 of six, the others random."""
    sample_ = sample("rnn", QUOTED, kind="char", name="elman", tokens=1500)
    opens, closes = sample_.model.tokenizer.vocab["“"], sample_.model.tokenizer.vocab["”"]
    with torch.no_grad():
        embedding = sample_.model.lm.network.embedding
        embedding[:, 0] = 0.0
        embedding[opens, 0], embedding[closes, 0] = 1.0, -1.0
        layer_of(sample_).W[2] = torch.tensor([20.0, 0, 0, 0, 0, 0])
        layer_of(sample_).R[2] = torch.tensor([0, 0, 3.0, 0, 0, 0])
    result = section(sample_, track=["quotes", "/bank/"])
    best = result.data["elman"]["followers"]["quotes"]
    assert (best["layer"], best["cell"], best["is_found"]) == (1, 3, True)
    assert best["r_second_half"] > 0.99
    assert any(
        f.startswith("elman: cell 3 of layer 1 follows text inside quotes (r = 1.00") for f in result.sentences
    )
    assert "elman: quotes" in [figure.name for figure in result.figures]
    tracked = result.data["elman"]["tracked"]
    assert [tracked["quotes"][0]["cell"], len(tracked["quotes"])] == [3, 6]  # all six cells
    assert "It follows <bdi>text inside quotes</bdi>: r = 1.00" in result["elman: track quotes"].caption
    assert "orange above the mean of this excerpt" in result["elman: track quotes"].caption


def test_caption_claims_no_cell_if_none_was_found() -> None:
    """Cells that are constantly zero correlate with nothing."""
    sample_ = sample("rnn", QUOTED, kind="char", name="still")
    with torch.no_grad():
        layer_of(sample_).W.zero_()
        layer_of(sample_).R.zero_()
    result = section(sample_, track=["/bank/"])
    assert not result.data["still"]["tracked"]["/bank/"][0]["is_found"]
    caption = result["still: track /bank/"].caption
    assert "No cell follows <bdi>matches of /bank/</bdi> significantly; this one is closest: r = " in caption
    assert "It follows" not in caption


def make_cell_two_count(sample_: Sample) -> None:
    """f = i = 1 and g = tanh(0.01), but f = i = 0 at `</s>`: c = 0.01 · tokens in the line."""
    with torch.no_grad():
        embedding = sample_.model.lm.network.embedding
        embedding[:, 0] = 0.0
        embedding[sample_.model.tokenizer.eos, 0] = 1.0
        layer = layer_of(sample_)
        for gate, (slope, bias) in enumerate([(-60.0, 30.0), (-60.0, 30.0), (0.0, 0.01), (0.0, 0.0)]):
            row = 6 * gate + 1
            layer.W[row] = torch.tensor([slope, 0, 0, 0, 0, 0])
            layer.R[row] = 0.0
            layer.b_W[row] = bias


def test_redundant_properties_are_reported_once() -> None:
    """If all words have three letters, the line length in characters is four times that in tokens."""
    lines = [" ".join(RNG.choice(["cat", "dog", "sat", "ran"], RNG.integers(2, 19))) for _ in range(60)]
    sample_ = sample("lstm", lines)
    make_cell_two_count(sample_)
    result = section(sample_)
    both = [result.data["net"]["followers"][name] for name in ("line-position", "line-tokens")]
    assert all(item["is_found"] for item in both)
    assert sum("in the line so far" in f or "the length of the line so far" in f for f in result.sentences) == 1
    names = [figure.name for figure in result.figures]
    assert ("net: line-position" in names) + ("net: line-tokens" in names) == 1


def test_models_share_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # one layer of six cells, six arrays, four bytes per number: 144 bytes per token, 40 tokens in all
    monkeypatch.setattr(activations, "MOST_BYTES", 144 * 40)
    one, two = sample("lstm", RAGGED, name="a"), sample("lstm", RAGGED, name="b")
    assert section(one).data["a"]["tokens"] == 40
    result = section(one, two)
    assert [result.data[name]["tokens"] for name in "ab"] == [20, 20]
    assert sum(values.nbytes for values in result.arrays.values()) <= activations.MOST_BYTES
    assert "Only the first 20 tokens were read" in result["a: distributions"].caption


def test_counting_cell_correlates_with_line_position() -> None:
    sample_ = sample("lstm", RAGGED)
    make_cell_two_count(sample_)
    result = section(sample_)
    counted, count = [], 0
    for token in sample_.tokens:
        count = 0 if token == "</s>" else count + 1
        counted.append(math.tanh(0.01) * count)
    np.testing.assert_allclose(result.arrays["net/layer 1/c"][:, 1], counted, rtol=1e-4, atol=1e-9)
    best = result.data["net"]["followers"]["line-tokens"]
    assert (best["cell"], best["is_found"]) == (2, True)
    assert best["r_second_half"] > 0.99
    # it keeps everything except at line ends: −1 / ln(1 − share of `</s>`)
    share = np.mean([token == "</s>" for token in sample_.tokens])
    assert result.data["net"]["layers"][0]["memory"]["largest"] == pytest.approx(-1 / math.log(1 - share), rel=1e-3)


def test_constant_forget_gates_have_a_known_time_constant() -> None:
    sample_ = sample("lstm", RAGGED)
    with torch.no_grad():
        layer_of(sample_).W.zero_()
        layer_of(sample_).R.zero_()
        layer_of(sample_).b_W[6:12] = math.log(9.0)  # σ = 0.9
    result = section(sample_)
    layer = result.data["net"]["layers"][0]
    assert layer["memory"]["median"] == pytest.approx(-1 / math.log(0.9), rel=1e-5)  # 9.4912
    assert layer["gates"]["f"]["mean"] == pytest.approx(0.9, rel=1e-6)
    assert result.sentences[0].startswith(
        "net: the forget gates of layer 1 average 0.90, a time constant of 9.5 tokens; 0 % of them are nearly"
    )


def test_open_update_gate_has_an_infinite_time_constant() -> None:
    sample_ = sample("gru", RAGGED, tokens=50)
    with torch.no_grad():
        layer_of(sample_).b_W[6:12] = 1000.0  # z = 1 exactly
    result = section(sample_)
    assert result.data["net"]["layers"][0]["memory"]["largest"] is None
    assert (
        "the update gates of layer 1 average 1.00, a time constant of more than the 50 tokens read; 100 %"
        in (result.sentences[0])
    )


def test_models_without_gates_have_no_section() -> None:
    sample_ = sample("lstm", RAGGED)
    for family in ("ngram", "transformer", "feedforward"):
        other = Model(lm=sample_.model.lm, tokenizer=sample_.model.tokenizer, family=family, config=None)
        assert gates.section([Sample(name="x", model=other, text=sample_.text, tokens=sample_.tokens)]) is None


@pytest.mark.parametrize("family", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("text", ["one letter", "an empty line", "right to left", "control characters"])
def test_gates_section_of_unusual_texts(family: str, text: str) -> None:
    """Each with both tokenizers and contexts, alternating from text to text."""
    odd = {
        "one letter": ["a"],
        "an empty line": [""],
        "right to left": ["שלום עולם", '"( 12 A.'],
        "control characters": ["a\x00b"] * 30,
    }
    lines = odd[text]
    kinds: tuple[Kind, ...] = ("char", "byte")
    contexts: tuple[Context, ...] = ("stream", "line")
    for kind, context in zip(kinds, contexts[:: (-1) ** list(odd).index(text)], strict=True):
        made_of = lines if "".join(lines) else ["x"]  # a tokenizer needs a character
        sample_ = sample(family, made_of, kind=kind, context=context)
        read = take_sample(sample_.model, Corpus.from_lines(lines), name="net", tokens=40)
        result = section(read, track=["quotes"])
        assert result.data["net"]["tokens"] == len(read.tokens)
        for figure in result.figures:
            figure.drawing.encode()


@pytest.mark.parametrize("phi", ["tanh", "relu", "leaky", "sigmoid"])
def test_gates_section_of_elman_networks_of_width_one(phi: str) -> None:
    result = section(sample("rnn", RAGGED, hidden=1, embedding=1, nonlinearity=phi))
    assert result.data["net"]["layers"][0]["gates"] == {}
    assert result.data["net"]["layers"][0]["memory"] is None


@pytest.mark.parametrize(("phi", "ending"), [("tanh", "saturated"), ("relu", "are zero"), ("sigmoid", "saturated")])
def test_saturation_is_reported_if_present(phi: str, ending: str) -> None:
    """b = −9: tanh and σ saturated, a ReLU at 0, at every token; b = 1 without weights: none of it."""
    sample_ = sample("rnn", RAGGED, nonlinearity=phi)
    words = [" % of the states of layer 1 are " + item for item in ("saturated", "zero")]
    for bias, share in ((-9.0, "100"), (1.0, None)):
        with torch.no_grad():
            layer_of(sample_).W.zero_()
            layer_of(sample_).R.zero_()
            layer_of(sample_).b_W.fill_(bias)
        reported = [f for f in section(sample_).sentences if any(item in f for item in words)]
        assert len(reported) == (share is not None)
        assert all(f.startswith(f"net: {share} % of the states of layer 1") and ending in f for f in reported)


def test_names_and_text_are_escaped_in_gates_section() -> None:
    lines = [f"{line} <script> & " for line in QUOTED]
    result = section(sample("lstm", lines, kind="char", name="<a&b>"), track=["/<s/"])
    for figure in result.figures:
        assert "<script>" not in figure.drawing
        assert "<a&b>" not in figure.caption + figure.drawing
        assert figure.caption.startswith("<bdi>&lt;a&amp;b&gt;</bdi>: ")
    assert "<bdi>matches of /&lt;s/</bdi>" in result["<a&b>: track /<s/"].caption


def test_gates_section_of_models_with_different_tokenizers() -> None:
    result = section(sample("lstm", RAGGED, layers=2, name="a"), sample("gru", RAGGED, kind="char", name="b"))
    assert list(result.data) == ["a", "b"]
    assert {finding.split(":")[0] for finding in result.sentences} == {"a", "b"}
    assert len({figure.name for figure in result.figures}) == len(result.figures)
    assert result.arrays["a/layer 2/f"].shape == (result.data["a"]["tokens"], 6)


def test_untrackable_property_is_reported_or_rejected() -> None:
    result = section(sample("rnn", RAGGED), track=["/zebra/"])
    assert "net: matches of /zebra/ cannot be tracked: too rare or too common in the" in result.sentences[0]
    with pytest.raises(UsageError, match="choose one of quotes"):
        gates.section([], track=["nonsense"])


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe", "wordpiece", "unigram"])
def test_aligned_text_equals_the_input(kind: Kind) -> None:
    lines = ['the naïve "cat" sat', "on (the) שלום mats"]
    size = {"bpe": 300, "wordpiece": 560, "unigram": 300}.get(kind)
    sample_ = sample("rnn", lines * 4, kind=kind, size=size, tokens=10_000)
    run = align_text(sample_, len(sample_.tokens))
    assert run.text == "\n".join(lines * 4) + "\n"
    assert len(run.first) == len(sample_.tokens)
    assert "".join(run.token_texts()) == run.text


def test_aligned_text_spells_unknown_words() -> None:
    sample_ = sample("rnn", RAGGED)
    read = take_sample(sample_.model, Corpus.from_lines(["the zebra was"]), name="net", tokens=9)
    assert align_text(read, 4).text == "the zebra was\n"


def test_excerpt_is_from_the_active_part_of_the_second_half() -> None:
    sample_ = sample("rnn", QUOTED, kind="char", tokens=4000)
    run = align_text(sample_, len(sample_.tokens))
    values = np.zeros(len(sample_.tokens))
    values[-700::2] = 1.0
    part = choose_excerpt(values, run)
    assert part.start >= len(values) // 2
    assert part.stop == len(values)
    assert part.stop - part.start <= 700
    assert choose_excerpt(np.zeros(1), align_text(sample_, 1)) == slice(0, 1)
