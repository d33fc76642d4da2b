"""The section of gates and states: cells set by hand are found, and odd texts and models do no harm."""

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
from chainrule.inspection.sample import Sample, take_sample
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
    """A network with random weights behind a tokenizer made of the text itself."""
    tokenizer = train.train(Corpus.from_lines(lines), TokenizerConfig(kind=kind, vocab_size=size))
    module = MODULES[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        config = module.Config(**{"hidden": 6, "embedding": 6, "tie": False, **chosen})
        network = module.build(config, tokenizer.vocabulary, None)
    lm = NeuralModel(network, tokenizer.vocabulary, context)
    model = Model(lm=lm, tokenizer=tokenizer, family=family, config=config)
    return take_sample(model, Corpus.from_lines(lines), name=name, tokens=tokens)


def layer_of(given: Sample) -> Any:
    return given.model.lm.network.layers[0]


def section(*given: Sample, **chosen: Any) -> Section:
    found = gates.section(given, **chosen)
    assert found is not None
    json.dumps(found.data, allow_nan=False)
    return found


def test_a_unit_that_is_on_inside_quotes_is_the_quote_cell() -> None:
    """h = tanh(20 · opens − 20 · closes + 3 h): a switch; unit 3 of six, the others random."""
    given = sample("rnn", QUOTED, kind="char", name="elman", tokens=1500)
    opens, closes = given.model.tokenizer.vocab["“"], given.model.tokenizer.vocab["”"]
    with torch.no_grad():
        embedding = given.model.lm.network.embedding
        embedding[:, 0] = 0.0
        embedding[opens, 0], embedding[closes, 0] = 1.0, -1.0
        layer_of(given).W[2] = torch.tensor([20.0, 0, 0, 0, 0, 0])
        layer_of(given).R[2] = torch.tensor([0, 0, 3.0, 0, 0, 0])
    found = section(given, track=["quotes", "/bank/"])
    best = found.data["elman"]["followers"]["quotes"]
    assert (best["layer"], best["cell"], best["is_found"]) == (1, 3, True)
    assert best["r_second_half"] > 0.99
    assert any(
        f.startswith("elman: cell 3 of layer 1 follows text inside quotes (r = 1.00") for f in found.sentences
    )
    assert "elman: quotes" in [figure.name for figure in found.figures]
    tracked = found.data["elman"]["tracked"]
    assert [tracked["quotes"][0]["cell"], len(tracked["quotes"])] == [3, 6]  # six cells are all there are
    assert "It follows <bdi>text inside quotes</bdi>: r = 1.00" in found["elman: track quotes"].caption
    assert "orange above the mean of this excerpt" in found["elman: track quotes"].caption


def test_a_caption_claims_nothing_that_was_not_found() -> None:
    """Cells that hold nothing but noughts follow no word."""
    given = sample("rnn", QUOTED, kind="char", name="still")
    with torch.no_grad():
        layer_of(given).W.zero_()
        layer_of(given).R.zero_()
    found = section(given, track=["/bank/"])
    assert not found.data["still"]["tracked"]["/bank/"][0]["is_found"]
    caption = found["still: track /bank/"].caption
    assert "No cell follows <bdi>matches of /bank/</bdi> significantly; this one is closest: r = " in caption
    assert "It follows" not in caption


def let_cell_two_count(given: Sample) -> None:
    """f = i = 1 and g = tanh(0.01), but f = i = 0 at `</s>`: c = 0.01 · tokens in the line."""
    with torch.no_grad():
        embedding = given.model.lm.network.embedding
        embedding[:, 0] = 0.0
        embedding[given.model.tokenizer.eos, 0] = 1.0
        layer = layer_of(given)
        for gate, (slope, bias) in enumerate([(-60.0, 30.0), (-60.0, 30.0), (0.0, 0.01), (0.0, 0.0)]):
            row = 6 * gate + 1
            layer.W[row] = torch.tensor([slope, 0, 0, 0, 0, 0])
            layer.R[row] = 0.0
            layer.b_W[row] = bias


def test_properties_that_go_together_are_told_once() -> None:
    """Where all words have three letters the length of the line in characters is four times that in tokens."""
    lines = [" ".join(RNG.choice(["cat", "dog", "sat", "ran"], RNG.integers(2, 19))) for _ in range(60)]
    given = sample("lstm", lines)
    let_cell_two_count(given)
    found = section(given)
    both = [found.data["net"]["followers"][name] for name in ("line-position", "line-tokens")]
    assert all(each["is_found"] for each in both)
    assert sum("in the line so far" in f or "the length of the line so far" in f for f in found.sentences) == 1
    names = [figure.name for figure in found.figures]
    assert ("net: line-position" in names) + ("net: line-tokens" in names) == 1


def test_models_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # one layer of six cells, six arrays, four bytes a number: 144 bytes a token, 40 tokens in all
    monkeypatch.setattr(activations, "MOST_BYTES", 144 * 40)
    one, two = sample("lstm", RAGGED, name="a"), sample("lstm", RAGGED, name="b")
    assert section(one).data["a"]["tokens"] == 40
    found = section(one, two)
    assert [found.data[name]["tokens"] for name in "ab"] == [20, 20]
    assert sum(values.nbytes for values in found.arrays.values()) <= activations.MOST_BYTES
    assert "Only the first 20 tokens were read" in found["a: distributions"].caption


def test_a_cell_that_counts_tokens_follows_the_line() -> None:
    given = sample("lstm", RAGGED)
    let_cell_two_count(given)
    found = section(given)
    counted, count = [], 0
    for token in given.tokens:
        count = 0 if token == "</s>" else count + 1
        counted.append(math.tanh(0.01) * count)
    np.testing.assert_allclose(found.arrays["net/layer 1/c"][:, 1], counted, rtol=1e-4, atol=1e-9)
    best = found.data["net"]["followers"]["line-tokens"]
    assert (best["cell"], best["is_found"]) == (2, True)
    assert best["r_second_half"] > 0.99
    # it keeps all but at line ends: −1 / ln(1 − share of `</s>`)
    share = np.mean([token == "</s>" for token in given.tokens])
    assert found.data["net"]["layers"][0]["memory"]["largest"] == pytest.approx(-1 / math.log(1 - share), rel=1e-3)


def test_forget_gates_of_nine_tenths_keep_nine_and_a_half_tokens() -> None:
    given = sample("lstm", RAGGED)
    with torch.no_grad():
        layer_of(given).W.zero_()
        layer_of(given).R.zero_()
        layer_of(given).b_W[6:12] = math.log(9.0)  # σ = 0.9
    found = section(given)
    layer = found.data["net"]["layers"][0]
    assert layer["memory"]["median"] == pytest.approx(-1 / math.log(0.9), rel=1e-5)  # 9.4912
    assert layer["gates"]["f"]["mean"] == pytest.approx(0.9, rel=1e-6)
    assert found.sentences[0].startswith(
        "net: the forget gates of layer 1 average 0.90, a time constant of 9.5 tokens; 0 % of them are nearly"
    )


def test_a_gate_that_never_closes_keeps_longer_than_was_read() -> None:
    given = sample("gru", RAGGED, tokens=50)
    with torch.no_grad():
        layer_of(given).b_W[6:12] = 1000.0  # z = 1 to the last bit
    found = section(given)
    assert found.data["net"]["layers"][0]["memory"]["largest"] is None
    assert (
        "the update gates of layer 1 average 1.00, a time constant of more than the 50 tokens read; 100 %"
        in (found.sentences[0])
    )


def test_models_without_gates_or_states_have_no_section() -> None:
    given = sample("lstm", RAGGED)
    for family in ("ngram", "transformer", "feedforward"):
        other = Model(lm=given.model.lm, tokenizer=given.model.tokenizer, family=family, config=None)
        assert gates.section([Sample(name="x", model=other, text=given.text, tokens=given.tokens)]) is None


@pytest.mark.parametrize("family", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("text", ["one letter", "an empty line", "right to left", "control characters"])
def test_nothing_fails_on_odd_texts(family: str, text: str) -> None:
    """Each by both tokenizers and in both contexts, which change places from text to text."""
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
        given = sample(family, made_of, kind=kind, context=context)
        read = take_sample(given.model, Corpus.from_lines(lines), name="net", tokens=40)
        found = section(read, track=["quotes"])
        assert found.data["net"]["tokens"] == len(read.tokens)
        for figure in found.figures:
            figure.drawing.encode()


@pytest.mark.parametrize("phi", ["tanh", "relu", "leaky", "sigmoid"])
def test_elman_nets_of_every_phi_and_width_one(phi: str) -> None:
    found = section(sample("rnn", RAGGED, hidden=1, embedding=1, nonlinearity=phi))
    assert found.data["net"]["layers"][0]["gates"] == {}
    assert found.data["net"]["layers"][0]["memory"] is None


@pytest.mark.parametrize(("phi", "said"), [("tanh", "saturated"), ("relu", "are zero"), ("sigmoid", "saturated")])
def test_saturation_is_told_where_there_is_some(phi: str, said: str) -> None:
    """b = −9: tanh and σ at their ends, a ReLU at 0, at every token; and b = 1 with no weights: none of it."""
    given = sample("rnn", RAGGED, nonlinearity=phi)
    words = [" % of the states of layer 1 are " + each for each in ("saturated", "zero")]
    for bias, share in ((-9.0, "100"), (1.0, None)):
        with torch.no_grad():
            layer_of(given).W.zero_()
            layer_of(given).R.zero_()
            layer_of(given).b_W.fill_(bias)
        told = [f for f in section(given).sentences if any(each in f for each in words)]
        assert len(told) == (share is not None)
        assert all(f.startswith(f"net: {share} % of the states of layer 1") and said in f for f in told)


def test_names_and_text_are_escaped() -> None:
    lines = [f"{line} <script> & " for line in QUOTED]
    found = section(sample("lstm", lines, kind="char", name="<a&b>"), track=["/<s/"])
    for figure in found.figures:
        assert "<script>" not in figure.drawing
        assert "<a&b>" not in figure.caption + figure.drawing
        assert figure.caption.startswith("<bdi>&lt;a&amp;b&gt;</bdi>: ")
    assert "<bdi>matches of /&lt;s/</bdi>" in found["<a&b>: track /<s/"].caption


def test_several_models_on_texts_of_their_own_tokens() -> None:
    found = section(sample("lstm", RAGGED, layers=2, name="a"), sample("gru", RAGGED, kind="char", name="b"))
    assert list(found.data) == ["a", "b"]
    assert {finding.split(":")[0] for finding in found.sentences} == {"a", "b"}
    assert len({figure.name for figure in found.figures}) == len(found.figures)
    assert found.arrays["a/layer 2/f"].shape == (found.data["a"]["tokens"], 6)


def test_what_cannot_be_tracked_is_said_or_refused() -> None:
    found = section(sample("rnn", RAGGED), track=["/zebra/"])
    assert "net: matches of /zebra/ cannot be tracked: too rare or too common in the" in found.sentences[0]
    with pytest.raises(UsageError, match="choose one of quotes"):
        gates.section([], track=["nonsense"])


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe", "wordpiece", "unigram"])
def test_the_running_text_is_the_text(kind: Kind) -> None:
    lines = ['the naïve "cat" sat', "on (the) שלום mats"]
    size = {"bpe": 300, "wordpiece": 560, "unigram": 300}.get(kind)
    given = sample("rnn", lines * 4, kind=kind, size=size, tokens=10_000)
    run = align_text(given, len(given.tokens))
    assert run.text == "\n".join(lines * 4) + "\n"
    assert len(run.first) == len(given.tokens)
    assert "".join(run.token_texts()) == run.text


def test_unknown_words_stand_as_in_the_text() -> None:
    given = sample("rnn", RAGGED)
    read = take_sample(given.model, Corpus.from_lines(["the zebra was"]), name="net", tokens=9)
    assert align_text(read, 4).text == "the zebra was\n"


def test_the_excerpt_is_of_the_second_half_where_something_happens() -> None:
    given = sample("rnn", QUOTED, kind="char", tokens=4000)
    run = align_text(given, len(given.tokens))
    values = np.zeros(len(given.tokens))
    values[-700::2] = 1.0
    part = choose_excerpt(values, run)
    assert part.start >= len(values) // 2
    assert part.stop == len(values)
    assert part.stop - part.start <= 700
    assert choose_excerpt(np.zeros(1), align_text(given, 1)) == slice(0, 1)
