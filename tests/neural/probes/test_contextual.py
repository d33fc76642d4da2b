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


def assert_same_layers(first: Layers, second: Layers, atol: float = 2e-6) -> None:
    assert first.words == second.words
    assert list(first.vectors) == list(second.vectors)
    for k, x in first.vectors.items():
        assert_allclose(x, second.vectors[k], atol=atol, rtol=0)


@each_kind
@pytest.mark.parametrize("at_once", [1, 12, 1 << 13])
def test_contextual_vectors_do_not_depend_on_the_batch(
    kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = reader(kind)
    alone = [contextual(model, [sentence])[0] for sentence in SENTENCES]
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", at_once)
    for single, batched in zip(contextual(model, SENTENCES), alone, strict=True):
        assert_same_layers(single, batched)


@each_kind
def test_contextual_vectors_ignore_padding(kind: str) -> None:
    """Whatever ids follow a row's end."""
    network = network_of(reader(kind))
    ids = torch.tensor([[9, 1, 2, 3, 4], [9, 5, 6, 0, 0]])
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    padded = torch.where(mask, ids, 7)
    with torch.no_grad():
        for one, two in zip(
            activations.layer_outputs(network, ids, mask),
            activations.layer_outputs(network, padded, mask),
            strict=True,
        ):
            assert torch.equal(one[mask], two[mask])


@each_kind
def test_contextual_words_and_layers(kind: str) -> None:
    model = reader(kind)
    layers = contextual(model, SENTENCES)
    network = network_of(model)
    assert [" ".join(sentence_layers.words) for sentence_layers in layers] == SENTENCES
    for sentence_layers in layers:
        assert list(sentence_layers.vectors) == list(range(network.config.layers + 1))
        assert all(
            x.shape[0] == len(sentence_layers.words) and x.dtype == np.float32
            for x in sentence_layers.vectors.values()
        )
    E = network.embedding if kind in LANGUAGE_MODELS else network.reader.embedding
    ids = [model.tokenizer.vocab[word] for word in SENTENCES[0].split()]
    assert_allclose(layers[0].vectors[0], E.detach()[ids])


@each_kind
def test_single_layer_equals_that_of_all_layers(kind: str) -> None:
    model = reader(kind)
    for k in (0, 1):
        for single, complete in zip(
            contextual(model, SENTENCES, layer=k), contextual(model, SENTENCES), strict=True
        ):
            assert list(single.vectors) == [k]
            assert_allclose(single.vectors[k], complete.vectors[k])


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_language_model_vectors_are_causal(kind: str) -> None:
    model = reader(kind)
    first, second = contextual(model, ["the old bank of a", "the old bank was muddy"])
    for k in first.vectors:
        assert_allclose(first.vectors[k][:3], second.vectors[k][:3], atol=2e-6)
        assert not np.allclose(first.vectors[k][3], second.vectors[k][3], atol=1e-3)


@pytest.mark.parametrize("kind", ENCODERS)
def test_encoder_vectors_depend_on_the_future(kind: str) -> None:
    model = reader(kind)
    first, second = contextual(model, ["the old bank of a", "the old bank of muddy"])
    assert_allclose(first.vectors[0][:4], second.vectors[0][:4])
    for k in list(first.vectors)[1:]:
        for place in range(4):
            difference = np.abs(first.vectors[k][place] - second.vectors[k][place])
            assert difference.max() > 1e-4
            if kind.startswith("two-way"):  # its forward half does not
                assert difference[:4].max() < 2e-6


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_language_model_vectors_depend_on_the_past(kind: str) -> None:
    model = reader(kind)
    first, second = contextual(model, ["the bank was", "a bank was"])
    assert_allclose(first.vectors[0][1], second.vectors[0][1])
    assert np.abs(first.vectors[1][1] - second.vectors[1][1]).max() > 1e-3


@pytest.mark.parametrize("kind", [kind for kind in LANGUAGE_MODELS if kind != "feedforward"])
@pytest.mark.parametrize("context", ["line", "stream"])
def test_last_layer_vectors_predict_the_scores(kind: str, context: Any) -> None:
    """log p(w_{t+1} | w_1 … w_t) from a word's vector and the output layer alone."""
    model = reader(kind)
    model.lm.context = context
    sentence = "the old river of"
    (layers,) = contextual(model, [sentence])
    top = layers.vectors[max(layers.vectors)]
    ids = model.tokenizer.encode(sentence)
    inputs, targets = np.append(model.tokenizer.bos, ids), np.append(ids, model.tokenizer.eos)
    batch = Batch(inputs[None], targets[None], np.ones((1, 5), dtype=bool))
    scores, _ = model.lm.score(batch, model.lm.start(1))
    with torch.no_grad():
        log_p = model.lm.network.output.log_probs(torch.from_numpy(top)).numpy()
    assert_allclose(log_p[np.arange(4), targets[1:]], scores[0, 1:], atol=1e-5)


@pytest.mark.parametrize("kind", ["transformer", "transformer-learned-post"])
def test_decoder_vectors_restart_at_the_window(kind: str) -> None:
    """As in scoring: the token read before each token is its predecessor."""
    model = reader(kind)
    line = "the old river of the bank was a muddy river the old bank of a muddy river"
    ids = np.append(model.tokenizer.encode(line), model.tokenizer.eos)
    assert len(ids) > 2 * WINDOW
    expected = hidden_states(model.lm, EncodedText(ids, model.tokenizer.eos, model.tokenizer.unk, 0, 0, 0))[1:]
    for layers in contextual(model, [line, "a river"])[:1]:
        assert_allclose(layers.vectors[2], expected, atol=2e-6)


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
def test_encoder_reads_long_sentences_in_overlapping_pieces(line: str, edges: list[tuple[int, int]]) -> None:
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
    layers = contextual(model, [line])[0].vectors[2]
    assert_allclose(layers, expected[1:-1], atol=2e-6)


@pytest.mark.parametrize("kind", ["lstm", "two-way-lstm", "masked"])
def test_word_vector_is_the_mean_of_its_pieces(kind: str) -> None:
    """Characters: `a`, space, `o`, `f`; the space belongs to no word."""
    model = reader(kind, words("char"))
    network = network_of(model)
    v = model.tokenizer.vocabulary
    ids = [v.bos, *model.tokenizer.encode("a of").tolist(), *([] if kind == "lstm" else [v.eos])]
    with torch.no_grad():
        tokens = activations.layer_outputs(network, torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))
    (layers,) = contextual(model, [["a", "of"]])
    for k, x in layers.vectors.items():
        expected = tokens[k][0].numpy()
        assert_allclose(x, [expected[1], (expected[3] + expected[4]) / 2], atol=2e-6)


def test_contextual_accepts_lines_or_word_lists() -> None:
    model = reader("lstm")
    from_line, from_list, from_tuple = contextual(
        model, ["the  old\tbank", ["the", "old", "bank"], ("the", "old", "bank")]
    )
    assert_same_layers(from_line, from_list)
    assert_same_layers(from_line, from_tuple)


def test_sentence_without_words_has_no_vectors() -> None:
    assert contextual(reader("lstm"), []) == []
    (layers,) = contextual(reader("masked"), [""])
    assert layers.words == ()
    assert [x.shape for x in layers.vectors.values()] == [(0, 8)] * 3


def test_invalid_sentences_are_rejected() -> None:
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


def test_contextual_rejects_models_without_layers() -> None:
    ngram = chainrule.train("ngram", Corpus.from_lines(["a b", "b a c"]), smoothing="witten-bell", order=2)
    with pytest.raises(UsageError, match=r"this model \(ngram\) is neither"):
        contextual(ngram, ["a"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
@each_kind
def test_contextual_vectors_on_gpu_equal_cpu(kind: str) -> None:
    model = reader(kind)
    on_cpu = contextual(model, SENTENCES)
    network_of(model).to("cuda")
    for cpu_layers, gpu_layers in zip(on_cpu, contextual(model, SENTENCES), strict=True):
        assert_same_layers(cpu_layers, gpu_layers, atol=1e-4)
