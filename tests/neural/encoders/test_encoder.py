"""Encoders: invariance to padding, reading directions, gradients at every word."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.config import build_config, flatten
from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.neural.encoders.classifier import ClassifyConfig
from chainrule.neural.encoders.encoder import (
    EncoderConfig,
    RecurrentEncoder,
    TextEncoder,
    add_boundaries,
    architecture,
    reversed_positions,
)
from chainrule.neural.encoders.pretraining import PretrainConfig
from chainrule.neural.encoders.seq2seq import PairConfig
from chainrule.neural.encoders.tagger import TagConfig

SMALL = EncoderConfig(hidden=8, embedding=6, layers=2, dropout=0.0)
KINDS: dict[str, EncoderConfig] = {
    **{f"{family}": replace(SMALL, family=family) for family in ("rnn", "lstm", "gru")},
    "lstm-apart": replace(SMALL, directions="apart"),
    "lstm-forward": replace(SMALL, directions="forward"),
    "transformer": replace(SMALL, family="transformer", heads=2),
    "transformer-post": replace(SMALL, family="transformer", heads=2, norm="post", embedding=0),
    "transformer-rotary": replace(SMALL, family="transformer", heads=2, positions="rotary"),
    "transformer-learned": replace(SMALL, family="transformer", heads=2, positions="learned"),
}
LENGTHS = torch.tensor([5, 1, 3])
MASK = torch.arange(5) < LENGTHS[:, None]
IDS = torch.randint(1, 9, (3, 5), generator=torch.Generator().manual_seed(2))


def reader(kind: str, features: int = 0) -> TextEncoder:
    torch.manual_seed(1)
    encoder: TextEncoder = TextEncoder(KINDS[kind], 9, features).eval()
    return encoder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("features", [0, 3])
def test_encoder_output_does_not_depend_on_padding(kind: str, features: int) -> None:
    net = reader(kind, features)
    extra = torch.randn(3, 5, features) if features else None
    hidden, last = net(IDS, MASK, extra)
    assert (hidden[~MASK] == 0).all()
    for b, length in enumerate(LENGTHS.tolist()):
        alone = net(
            IDS[b : b + 1, :length], MASK[b : b + 1, :length], None if extra is None else extra[b : b + 1, :length]
        )
        torch.testing.assert_close(hidden[b, :length], alone.hidden[0])
        torch.testing.assert_close(last[b], alone.last[0])


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_states_depend_on_all_visible_words(kind: str) -> None:
    net = reader(kind)
    config = KINDS[kind]
    hidden, _ = net(IDS, MASK)
    changed_ids = IDS.clone()
    changed_ids[0, 2] = (IDS[0, 2] + 1) % 9
    changed = ((net(changed_ids, MASK).hidden - hidden).abs() > 1e-7).any(dim=-1)[0].tolist()
    assert changed == ([False, False, True, True, True] if config.directions == "forward" else [True] * 5)


def test_separate_directions_are_independent() -> None:
    net = reader("lstm-apart")
    hidden, last = net(IDS, MASK)
    changed_ids = IDS.clone()
    changed_ids[0, 2] = (IDS[0, 2] + 1) % 9
    changed = ((net(changed_ids, MASK).hidden - hidden).abs() > 1e-7)[0]  # (5, 8)
    assert changed[:, :4].any(dim=-1).tolist() == [False, False, True, True, True]
    assert changed[:, 4:].any(dim=-1).tolist() == [True, True, True, False, False]
    torch.testing.assert_close(last[0], torch.cat([hidden[0, 4, :4], hidden[0, 0, 4:]]))
    torch.testing.assert_close(last[2], torch.cat([hidden[2, 2, :4], hidden[2, 0, 4:]]))


@pytest.mark.parametrize("family", ["rnn", "lstm", "gru"])
def test_single_encoder_layer_equals_torch(family: str) -> None:
    """torch.nn's bidirectional layer over packed sequences, with the same weights."""
    torch.manual_seed(3)
    ours = RecurrentEncoder(6, replace(SMALL, family=family, layers=1)).eval()
    theirs: Any = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[family](
        6, 4, batch_first=True, bidirectional=True
    )
    with torch.no_grad():
        for layer, ending in ((ours.forwards[0], ""), (ours.backwards[0], "_reverse")):
            for name, weight in (
                ("weight_ih", layer.W),
                ("weight_hh", layer.R),
                ("bias_ih", layer.b_W),
                ("bias_hh", layer.b_R),
            ):
                getattr(theirs, f"{name}_l0{ending}").copy_(weight)
    x = torch.randn(3, 5, 6)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(ours(x, MASK).hidden, expected)


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_loaded_word_vectors_are_scaled_to_unit_variance(kind: str) -> None:
    net = reader(kind)
    vectors = np.random.default_rng(1).normal(3.0, 7.0, (9, 6)).astype(np.float32)
    net.load_word_vectors(vectors)
    read = net.embedding.detach().numpy() * net.scale
    assert read.std() == pytest.approx(1.0, rel=1e-5)
    assert_allclose(read, vectors / vectors.std(), rtol=1e-5)
    net.load_word_vectors(np.zeros((9, 6), dtype=np.float32))
    assert_array_equal(net.embedding.detach().numpy(), 0)


@pytest.mark.parametrize("shape", [(9, 5), (1, 6), (6,)])
def test_word_vectors_of_another_shape_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"the word vectors are \(.*\), but the encoder reads \(9, 6\)"):
        reader("lstm").load_word_vectors(np.ones(shape, dtype=np.float32))


def test_reversed_positions_worked_by_hand() -> None:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert reversed_positions(mask).tolist() == [[2, 1, 0, 3], [0, 1, 2, 3]]


def test_add_boundaries() -> None:
    vocabulary = Vocabulary(9, 7, 8, 0)
    assert add_boundaries(np.array([3, 1], dtype=np.int32), vocabulary).tolist() == [7, 3, 1, 8]
    assert add_boundaries(np.array([], dtype=np.int32), vocabulary).tolist() == [7, 8]
    assert add_boundaries(np.array([3], dtype=np.int32), vocabulary).dtype == np.int64


def test_largest_matmul_of_encoders_worked_by_hand() -> None:
    """LSTM: four gates of 4 cells per direction, at each of 5 rows; blocks: 8 · 32 at each of 5 · 3 positions."""
    assert reader("lstm").largest_matmul(5, 3) == 4 * 4 * 4 * 5
    assert reader("lstm-forward").largest_matmul(5, 3) == 4 * 8 * 8 * 5
    assert reader("transformer").largest_matmul(5, 3) == 8 * 32 * 5 * 3


def test_architecture_lists_what_two_encoders_must_share() -> None:
    recurrent = replace(SMALL, directions="apart", weight_dropout=0.1, longest=17)
    assert architecture(recurrent) == {
        "family": "lstm",
        "hidden": 8,
        "layers": 2,
        "embedding": 6,
        "directions": "apart",
    }
    blocks = replace(SMALL, family="transformer", heads=2, embedding=0, attention_dropout=0.3)
    shape = architecture(blocks)
    assert (shape["embedding"], shape["feedforward"], shape["heads"]) == (8, 32, 2)  # 0 stands for these
    assert shape.keys() & {"directions", "attention_dropout", "longest"} == set()
    assert architecture(replace(blocks, positions="learned", longest=17)) == shape | {
        "positions": "learned",
        "longest": 17,
    }


@pytest.mark.parametrize("kind", [TagConfig, ClassifyConfig, PairConfig, PretrainConfig])
@pytest.mark.parametrize("setting", [{"bptt": 35}, {"samples": 10}, {"cutoffs": [5]}, {"tie": False}])
def test_settings_without_effect_are_rejected(kind: type[EncoderConfig], setting: dict[str, Any]) -> None:
    """Texts are read completely and outputs are full softmaxes; only models that predict words can tie vectors."""
    if "tie" in setting and kind in (PairConfig, PretrainConfig):
        assert not build_config(kind, setting, "model").tie
        return
    (name,) = setting
    section = "training" if name == "bptt" else "model"
    with pytest.raises(ConfigError, match=f"{section}.{name} has no effect in this task; leave it"):
        build_config(kind, setting, "model")
    build_config(kind, {name: flatten(kind())[name]}, "model")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"family": "lstm", "heads": 2}, "heads is not a setting of family 'lstm'"),
        ({"family": "transformer", "directions": "apart"}, "directions is not a setting of family 'transformer'"),
        ({"family": "gru", "hidden": 7}, "choose an even number"),
        ({"family": "transformer", "hidden": 10, "heads": 4}, "cannot be divided"),
        ({"longest": 0}, "longest is 0"),
        ({"weight_dropout": 1.0}, "weight_dropout is 1"),
    ],
)
def test_conflicting_encoder_settings_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EncoderConfig(**settings)
