"""Contextual vectors: independent of batching, and causal where required."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import chainrule
from chainrule.data.encoded import EncodedText
from chainrule.errors import ConfigError, InputError, UsageError
from chainrule.lm import Batch
from chainrule.neural.probes import activations
from chainrule.neural.probes import contextual as module
from chainrule.neural.probes.contextual import Layers, contextual
from chainrule.neural.probes.hidden_states import hidden_states
from chainrule.text.corpus import Corpus
from neural.adaptation_models import WINDOW
from neural.small_networks import ENCODERS, KINDS, LANGUAGE_MODELS, SENTENCES, network_of, reader, words

each_kind = pytest.mark.parametrize("kind", KINDS)


def alike(one: Layers, other: Layers, atol: float = 2e-6) -> None:
    assert one.words == other.words
    assert list(one.vectors) == list(other.vectors)
    for k, x in one.vectors.items():
        assert_allclose(x, other.vectors[k], atol=atol, rtol=0)


@each_kind
@pytest.mark.parametrize("at_once", [1, 12, 1 << 13])
def test_a_sentence_has_the_same_vectors_alone_and_beside_others(
    kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = reader(kind)
    alone = [contextual(model, [sentence])[0] for sentence in SENTENCES]
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", at_once)
    for one, other in zip(contextual(model, SENTENCES), alone, strict=True):
        alike(one, other)


@each_kind
def test_what_pads_a_row_has_no_influence(kind: str) -> None:
    """Whatever words stand behind a row's end."""
    network = network_of(reader(kind))
    ids = torch.tensor([[9, 1, 2, 3, 4], [9, 5, 6, 0, 0]])
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    other = torch.where(mask, ids, 7)
    with torch.no_grad():
        for one, two in zip(
            activations.layer_outputs(network, ids, mask),
            activations.layer_outputs(network, other, mask),
            strict=True,
        ):
            assert torch.equal(one[mask], two[mask])


@each_kind
def test_words_and_vectors_of_every_layer(kind: str) -> None:
    model = reader(kind)
    found = contextual(model, SENTENCES)
    network = network_of(model)
    assert [" ".join(each.words) for each in found] == SENTENCES
    for each in found:
        assert list(each.vectors) == list(range(network.config.layers + 1))
        assert all(x.shape[0] == len(each.words) and x.dtype == np.float32 for x in each.vectors.values())
    E = network.embedding if kind in LANGUAGE_MODELS else network.reader.embedding
    ids = [model.tokenizer.vocab[word] for word in SENTENCES[0].split()]
    assert_allclose(found[0].vectors[0], E.detach()[ids])


@each_kind
def test_one_layer_of_them(kind: str) -> None:
    model = reader(kind)
    for k in (0, 1):
        for one, other in zip(contextual(model, SENTENCES, layer=k), contextual(model, SENTENCES), strict=True):
            assert list(one.vectors) == [k]
            assert_allclose(one.vectors[k], other.vectors[k])


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_a_decoder_does_not_see_the_future(kind: str) -> None:
    model = reader(kind)
    one, other = contextual(model, ["the old bank of a", "the old bank was muddy"])
    for k in one.vectors:
        assert_allclose(one.vectors[k][:3], other.vectors[k][:3], atol=2e-6)
        assert not np.allclose(one.vectors[k][3], other.vectors[k][3], atol=1e-3)


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_does(kind: str) -> None:
    model = reader(kind)
    one, other = contextual(model, ["the old bank of a", "the old bank of muddy"])
    assert_allclose(one.vectors[0][:4], other.vectors[0][:4])
    for k in list(one.vectors)[1:]:
        for place in range(4):
            difference = np.abs(one.vectors[k][place] - other.vectors[k][place])
            assert difference.max() > 1e-4
            if kind.startswith("two-way"):  # its forward half does not
                assert difference[:4].max() < 2e-6


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_the_past_is_seen(kind: str) -> None:
    model = reader(kind)
    one, other = contextual(model, ["the bank was", "a bank was"])
    assert_allclose(one.vectors[0][1], other.vectors[0][1])
    assert np.abs(one.vectors[1][1] - other.vectors[1][1]).max() > 1e-3


@pytest.mark.parametrize("kind", [kind for kind in LANGUAGE_MODELS if kind != "feedforward"])
@pytest.mark.parametrize("context", ["line", "stream"])
def test_the_last_layer_predicts_what_the_contract_scores(kind: str, context: Any) -> None:
    """log p(w_{t+1} | w_1 … w_t) from a word's vector and the output layer alone."""
    model = reader(kind)
    model.lm.context = context
    sentence = "the old river of"
    (found,) = contextual(model, [sentence])
    top = found.vectors[max(found.vectors)]
    ids = model.tokenizer.encode(sentence)
    inputs, targets = np.append(model.tokenizer.bos, ids), np.append(ids, model.tokenizer.eos)
    batch = Batch(inputs[None], targets[None], np.ones((1, 5), dtype=bool))
    scores, _ = model.lm.score(batch, model.lm.start(1))
    with torch.no_grad():
        log_p = model.lm.network.output.log_probs(torch.from_numpy(top)).numpy()
    assert_allclose(log_p[np.arange(4), targets[1:]], scores[0, 1:], atol=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "transformer-learned-post"])
def test_a_decoder_starts_anew_where_its_window_ends(kind: str) -> None:
    """As where a text is scored: what is read before each token there is the token before it."""
    model = reader(kind)
    line = "the old river of the bank was a muddy river the old bank of a muddy river"
    ids = np.append(model.tokenizer.encode(line), model.tokenizer.eos)
    assert len(ids) > 2 * WINDOW
    expected = hidden_states(model.lm, EncodedText(ids, model.tokenizer.eos, model.tokenizer.unk, 0, 0, 0))[1:]
    for found in contextual(model, [line, "a river"])[:1]:
        assert_allclose(found.vectors[2], expected, atol=2e-6)


@pytest.mark.parametrize(
    ("line", "edges"),
    [
        # `<s>` w_1 … w_5 `</s>`: 6 steps in pieces of at most 3.
        ("the old bank of a", [(0, 3), (3, 6)]),
        # 7 steps: 3 pieces that begin at 0, ⌊7/3⌋, ⌊14/3⌋.
        ("the old bank of a river", [(0, 2), (2, 4), (4, 7)]),
        # 10 steps: at 0, ⌊10/4⌋, ⌊20/4⌋, ⌊30/4⌋; the third is shorter than the second and read before it.
        ("the old bank of a river was muddy old", [(0, 2), (2, 5), (5, 7), (7, 10)]),
    ],
)
def test_an_encoder_reads_long_sentences_in_pieces(line: str, edges: list[tuple[int, int]]) -> None:
    """A token that two pieces share is taken from the second."""
    model = reader("masked", longest=4)
    v = model.tokenizer.vocabulary
    ids = np.concatenate([[v.bos], model.tokenizer.encode(line), [v.eos]]).astype(np.int64)
    expected = np.zeros((len(ids), 8))
    for first, last in edges:
        piece = torch.from_numpy(ids[first : last + 1])[None]
        with torch.no_grad():
            expected[first : last + 1] = model.network.reader(
                piece, torch.ones_like(piece, dtype=torch.bool)
            ).hidden[0]
    found = contextual(model, [line])[0].vectors[2]
    assert_allclose(found, expected[1:-1], atol=2e-6)


@pytest.mark.parametrize("kind", ["lstm", "two-way-lstm", "masked"])
def test_a_word_is_the_mean_of_its_pieces(kind: str) -> None:
    """Characters: `a`, blank, `o`, `f`; the blank is of no word."""
    model = reader(kind, words("char"))
    network = network_of(model)
    v = model.tokenizer.vocabulary
    ids = [v.bos, *model.tokenizer.encode("a of").tolist(), *([] if kind == "lstm" else [v.eos])]
    with torch.no_grad():
        tokens = activations.layer_outputs(network, torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))
    (found,) = contextual(model, [["a", "of"]])
    for k, x in found.vectors.items():
        expected = tokens[k][0].numpy()
        assert_allclose(x, [expected[1], (expected[3] + expected[4]) / 2], atol=2e-6)


def test_words_or_lines() -> None:
    model = reader("lstm")
    one, two, three = contextual(model, ["the  old\tbank", ["the", "old", "bank"], ("the", "old", "bank")])
    alike(one, two)
    alike(one, three)


def test_a_sentence_without_words_has_no_vectors() -> None:
    assert contextual(reader("lstm"), []) == []
    (found,) = contextual(reader("masked"), [""])
    assert found.words == ()
    assert [x.shape for x in found.vectors.values()] == [(0, 8)] * 3


def test_what_cannot_be_read_is_refused() -> None:
    model = reader("lstm")
    with pytest.raises(UsageError, match=r"give a list of sentences"):
        contextual(model, "the old bank")
    for word in ("old bank", "", "old\n"):
        with pytest.raises(InputError, match=r"sentence 2: .* is not a word"):
            contextual(model, ["the", ["the", word]])
    with pytest.raises(InputError, match="not UTF-8"):
        contextual(model, ["the \udcff bank"])
    for layer in (-1, 3):
        with pytest.raises(ConfigError, match=rf"layer is {layer}; .* 0 \(the words' own vectors\) to 2"):
            contextual(model, ["the"], layer)


def test_models_without_layers_are_refused() -> None:
    ngram = chainrule.train("ngram", Corpus.from_lines(["a b", "b a c"]), smoothing="witten-bell", order=2)
    with pytest.raises(UsageError, match=r"this model \(ngram\) is neither"):
        contextual(ngram, ["a"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
@each_kind
def test_the_gpu_gives_the_same(kind: str) -> None:
    model = reader(kind)
    here = contextual(model, SENTENCES)
    network_of(model).to("cuda")
    for one, other in zip(here, contextual(model, SENTENCES), strict=True):
        alike(one, other, atol=1e-4)
