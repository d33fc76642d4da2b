"""Attention extraction: the extracted weights reproduce the output of each network."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from chainrule.lm import Context, Floats, Vocabulary
from chainrule.neural.encoders import seq2seq
from chainrule.neural.encoders.seq2seq import EncoderDecoder, PairConfig, PairNetwork, Seq2Seq
from chainrule.neural.model import NeuralModel
from chainrule.neural.probes import attention_weights
from chainrule.neural.probes.activations import capture_inputs, capture_outputs
from chainrule.neural.probes.attention_weights import (
    attention_heads,
    encoder_attention,
    has_attention,
    iter_attention,
    translation_attention,
)
from chainrule.neural.probes.hidden_states import hidden_states
from chainrule.neural.probes.measurements import AttentionRecord
from neural.adaptation_models import WINDOW, encoded, make, some_ids
from neural.small_networks import network_of, reader

VOCABULARY = Vocabulary(11, 0, 1, 2)
KINDS = ["dot", "scaled-dot", "general", "additive"]
TEXT = encoded(some_ids(41, lines=13))


def attention_from_scores(part: AttentionRecord) -> Floats:
    """softmax(qᵀk / divisor) over the visible positions, in NumPy."""
    assert part.queries is not None
    assert part.keys is not None
    scores = part.queries @ part.keys.transpose(0, 2, 1) / part.divisor
    exponents = np.where(part.mask, np.exp(scores - scores.max()), 0.0)
    exponentials: Floats = exponents / np.maximum(exponents.sum(axis=-1, keepdims=True), 1e-30)
    return exponentials


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("bias", [True, False])
def test_extracted_weights_times_values_equal_the_block_output(positions: str, norm: str, bias: bool) -> None:
    """Concat(α_h V_h) W^O, compared with the captured output of W^O."""
    model = make("transformer", positions=positions, norm=norm, bias=bias)
    network = model.network
    ids = torch.tensor([[5, 6, 7, 3, 3, 9]])
    with torch.no_grad():
        with capture_outputs([block.merge for block in network.blocks]) as expected:
            result, _ = attention_heads(network, ids, network.start(1))
        assert len(result) == len(expected) == 2
        for block, item, own in zip(network.blocks, result, expected, strict=True):
            alpha = item.weights()
            assert alpha.shape == (2, 6, 6)
            joined = (alpha @ item.values).transpose(0, 1).reshape(6, 8)
            torch.testing.assert_close(block.merge(joined), own[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("context", ["stream", "line"])
def test_transformer_attention_stays_within_its_window(context: Context) -> None:
    """Every position once per layer; lines of 13 tokens are windows of 6, 6 and 1."""
    model = make("transformer", context)
    parts = list(iter_attention(model, TEXT))
    for layer in (0, 1):
        mine = [part for part in parts if part.layer == layer]
        assert sorted(np.concatenate([part.query_positions for part in mine]).tolist()) == list(range(41))
        lengths = [6] * 6 + [5] if context == "stream" else [6, 6, 1] * 3 + [2]
        assert [part.weights.shape for part in mine] == [(2, T, T) for T in lengths]
    for part in parts:
        assert part.first == part.key_positions[0]
        assert part.weights.shape[2] <= WINDOW
        assert_allclose(part.weights.sum(axis=-1), 1, atol=1e-5)
        assert not np.triu(part.weights, 1).any()
        assert part.divisor == 2.0  # √4
        assert_allclose(attention_from_scores(part), part.weights, atol=1e-5)


def test_attention_records_do_not_depend_on_chunking(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("transformer")
    expected = list(iter_attention(model, TEXT))
    monkeypatch.setattr(attention_weights, "LARGEST_PIECE", 2 * 6 * 4)  # 4 rows of 2 heads, 6 keys
    pieces = list(iter_attention(model, TEXT))
    assert max(part.weights.shape[1] for part in pieces) == 4
    first = [part for part in pieces if part.layer == 0 and part.first == 0]
    assert_allclose(np.concatenate([part.weights for part in first], axis=1), expected[0].weights, atol=1e-6)
    assert [part.new_keys for part in first] == [(0, 4), (4, 6)]
    assert [part.query_positions.tolist() for part in first] == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize("context", ["stream", "line"])
@pytest.mark.parametrize("use", ["sum", "concat", "state"])
@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_attention_reproduces_its_context_vector(
    kind: str, use: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """a_t = Σ α h_l equals the network's attention at every position and through the memory between segments."""
    monkeypatch.setattr(attention_weights, "STEPS", 5)
    model = make("lstm", context, attention=kind, attention_use=use, memory=3, tie=False)
    past, own = model.network.past, list[Tensor]()
    name = "attend_step" if use == "state" else "forward"
    original = getattr(past, name)

    def record_attention(*arguments: Tensor) -> Any:
        result = original(*arguments)
        own.append(result[:, None] if use == "state" else result[0])
        return result

    setattr(past, name, record_attention)
    hidden_states(model, TEXT)
    expected: dict[int, Floats] = {}
    if context == "stream":
        expected = dict(enumerate(torch.cat(own, dim=1)[0].numpy()))
    delattr(past, name)
    recorded = list[int]()
    for part in iter_attention(model, TEXT):
        assert part.weights.shape[1] <= 5
        visible = np.minimum(part.query_positions - part.first, 3)
        assert part.mask.sum(axis=1).tolist() == visible.tolist()
        back = part.query_positions[:, None] - part.key_positions
        assert (back[part.mask] >= 1).all()
        assert (back[part.mask] <= 3).all()
        assert_allclose(part.weights.sum(axis=-1)[0], visible > 0, atol=1e-5)
        if kind == "additive":
            assert part.queries is None
        else:
            assert_allclose(attention_from_scores(part), part.weights, atol=1e-5)
            assert part.divisor == (math.sqrt(8) if kind == "scaled-dot" else 1.0)
        if kind in ("dot", "scaled-dot") and context == "stream":  # here keys are the states themselves
            assert part.keys is not None
            for t, row in zip(part.query_positions.tolist(), part.weights[0] @ part.keys[0], strict=True):
                assert_allclose(row, expected[t], atol=1e-5)
        recorded += part.query_positions.tolist()
    assert recorded == list(range(41))


@pytest.mark.parametrize("kind", ["general", "additive"])
@pytest.mark.parametrize("use", ["sum", "state"])
def test_recurrent_attention_values_are_the_states(kind: str, use: str) -> None:
    """h + a, the network's output, from the extracted weights."""
    network = make("lstm", attention=kind, attention_use=use, memory=3).network
    ids = torch.tensor([[5, 6, 7, 3, 3, 9]])
    with torch.no_grad():
        (result,), after = attention_heads(network, ids, network.start(1))
        expected = network(ids, network.start(1))
        built = result.queries + result.weights() @ result.values
    assert_allclose(built[0], expected.hidden[0], atol=1e-5)
    for one, other in zip(after, expected.state, strict=True):
        torch.testing.assert_close(one, other)


def test_attention_extraction_does_not_change_outputs() -> None:
    for family in ("transformer", "gru"):
        model = make(family)
        before = hidden_states(model, TEXT)
        list(iter_attention(model, TEXT))
        assert torch.equal(hidden_states(model, TEXT), before)
        assert all(not module._forward_pre_hooks for module in model.network.modules())
    with pytest.raises(RuntimeError, match="stopped"), capture_inputs(model.network.modules()):
        raise RuntimeError("stopped")
    assert all(not module._forward_pre_hooks for module in model.network.modules())


def test_has_attention_per_family() -> None:
    assert has_attention(make("transformer").network)
    assert has_attention(make("gru").network)
    assert not has_attention(make("lstm").network)
    assert not has_attention(make("feedforward").network)
    with pytest.raises(NotImplementedError):
        attention_heads(make("feedforward").network, torch.tensor([[5]]), ())


def test_attention_of_a_single_token() -> None:
    for family in ("transformer", "gru"):
        (part, *_) = iter_attention(make(family), encoded(np.array([1], dtype=np.int32)))
        assert part.weights.shape == (part.weights.shape[0], 1, 1)
        assert np.isfinite(part.weights).all()


@pytest.mark.parametrize("kind", ["masked", "masked-wider"])
def test_encoder_attention_is_bidirectional(kind: str) -> None:
    network = network_of(reader(kind))
    with torch.no_grad(), capture_outputs([block.merge for block in network.reader.encoder.blocks]) as own:
        network.reader(torch.tensor([[9, 1, 2, 3, 4]]), torch.ones(1, 5, dtype=torch.bool))
    parts = encoder_attention(network.reader, np.array([9, 1, 2, 3, 4]))
    assert [(part.layer, part.kind) for part in parts] == [(0, "encoder"), (1, "encoder")]
    for part in parts:
        assert part.mask.all()
        assert (part.weights > 0).all()
        assert_allclose(attention_from_scores(part), part.weights, atol=1e-5)
    block = network.reader.encoder.blocks[0]
    with torch.no_grad(), capture_inputs([block]) as calls:
        network.reader(torch.tensor([[9, 1, 2, 3, 4]]), torch.ones(1, 5, dtype=torch.bool))
        item = attention_weights.block_heads(block, *calls[0])
        joined = (torch.from_numpy(parts[0].weights) @ item.values).transpose(0, 1).reshape(5, 8)
        assert_allclose(block.merge(joined), own[0][0], atol=1e-5)
    assert encoder_attention(network_of(reader("two-way-gru")).reader, np.array([9, 1])) == []


def translator(**chosen: Any) -> PairNetwork:
    torch.manual_seed(1)
    config = PairConfig(**{"hidden": 8, "layers": 2, "dropout": 0.0, **chosen})
    network: PairNetwork = (EncoderDecoder if config.family == "transformer" else Seq2Seq)(config, 11, VOCABULARY)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.4)
    network.eval()
    return network


SOURCE, TARGET = np.array([5, 6, 7, 8, 1]), np.array([4, 9, 1])


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("family", ["gru", "lstm"])
def test_recurrent_translator_attention(family: str, attention: str) -> None:
    network = translator(family=family, attention=attention)
    (part,) = translation_attention(network, SOURCE, TARGET, VOCABULARY)
    assert part.kind == "cross"
    assert_allclose(part.weights, seq2seq.attention_alignment(network, SOURCE, TARGET, VOCABULARY)[0], atol=1e-6)
    assert part.weights.shape == (1, 3, 5)
    if attention == "additive":
        assert part.queries is None
    else:
        assert_allclose(attention_from_scores(part), part.weights, atol=1e-5)


def test_translator_without_attention_has_no_records() -> None:
    assert translation_attention(translator(attention="none"), SOURCE, TARGET, VOCABULARY) == []


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_transformer_translator_attention(norm: str, positions: str) -> None:
    network = translator(family="transformer", heads=2, norm=norm, positions=positions)
    parts = translation_attention(network, SOURCE, TARGET, VOCABULARY)
    kinds = [(part.kind, part.layer, part.weights.shape) for part in parts]
    assert kinds[:2] == [("encoder", 0, (2, 5, 5)), ("encoder", 1, (2, 5, 5))]
    assert kinds[2:4] == [("self", 0, (2, 3, 3)), ("cross", 0, (2, 3, 5))]
    assert kinds[4:] == [("self", 1, (2, 3, 3)), ("cross", 1, (2, 3, 5))]
    for part in parts:
        assert_allclose(attention_from_scores(part), part.weights, atol=1e-5)
    across = np.stack([part.weights for part in parts if part.kind == "cross"])
    assert_allclose(across, seq2seq.attention_alignment(network, SOURCE, TARGET, VOCABULARY), atol=1e-6)


def test_shift_inputs_by_context_rule() -> None:
    """A line model reads `<s>` where a line begins, a stream model `</s>`."""
    text = encoded(np.array([5, 6, 1, 7, 1], dtype=np.int32))
    line, stream = make("gru", "line"), make("gru", "stream")
    assert isinstance(line, NeuralModel)
    assert line.shift_inputs(text.ids).tolist() == [0, 5, 6, 0, 7]
    assert stream.shift_inputs(text.ids).tolist() == [1, 5, 6, 1, 7]
