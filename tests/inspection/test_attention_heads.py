"""What heads look at, worked by hand, and the same whatever the stretches a text is cut into."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.inspection import attention_heads
from chainrule.inspection.attention_heads import (
    Head,
    accumulate,
    diagonal_distance,
    entropy,
    select_representative,
    summarize,
)
from chainrule.lm import Floats
from chainrule.neural.probes.measurements import AttentionRecord


def causal(weights: list[list[list[float]]], first: int = 0, layer: int = 0) -> AttentionRecord:
    alpha = np.array(weights)
    T = alpha.shape[1]
    places = np.arange(first, first + T)
    return AttentionRecord(
        layer=layer,
        weights=alpha,
        mask=np.tri(T, dtype=bool),
        query_positions=places,
        key_positions=places,
        first=first,
        new_keys=(0, T),
    )


def head(**chosen: float) -> Head:
    usual = {"distance": 1.0, "entropy": 1.0, "possible": 4.0, "itself": 0.0, "previous": 0.0, "first": 0.0}
    empty = np.zeros(1)
    return Head(layer=0, head=int(chosen.pop("head", 0)), by_distance=empty, pairs=empty, **(usual | chosen))


WEIGHTS = [[1.0, 0, 0], [0.5, 0.5, 0], [0.5, 0.25, 0.25]]


def test_one_head_by_hand() -> None:
    """The first token has no choice and is left out of the means, not of the curve.

    Distance: token 1 looks back 0.5·1, token 2 0.5·2 + 0.25·1 = 1.25; mean 0.875.
    Entropy: 1 bit and 0.5·1 + 2·0.25·2 = 1.5 bits; possible 1 and log2 3.
    Itself 0.5, 0.25; previous 0.5, 0.25; the first stands two back for token 2 alone: 0.5.
    By distance: 0: (1 + 0.5 + 0.25)/3; 1: (0.5 + 0.25)/2; 2: 0.5.
    """
    (found,) = summarize([causal([WEIGHTS])])
    assert found.distance == pytest.approx(0.875)
    assert found.entropy == pytest.approx(1.25)
    assert found.possible == pytest.approx((1 + np.log2(3)) / 2)
    assert found.evenness == pytest.approx(1.25 / ((1 + np.log2(3)) / 2))
    assert (found.itself, found.previous, found.first) == pytest.approx((0.375, 0.375, 0.5))
    assert_allclose(found.by_distance, [1.75 / 3, 0.375, 0.5])
    assert found.pairs.tolist() == [3, 2, 1]
    # Equal shares: at 0 (1 + 1/2 + 1/3)/3, at 1 (1/2 + 1/3)/2, at 2 1/3.
    assert_allclose(attention_heads.uniform_curve(accumulate(causal([WEIGHTS]))), [11 / 18, 5 / 12, 1 / 3])


def test_heads_and_layers_stay_apart() -> None:
    diagonal = np.eye(3).tolist()
    found = summarize([causal([WEIGHTS, diagonal], layer=1), causal([diagonal, WEIGHTS], layer=0)])
    assert [(each.layer, each.head) for each in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [each.itself for each in found] == pytest.approx([1.0, 0.375, 0.375, 1.0])
    assert [each.name for each in found][::3] == [attention_heads.ITSELF] * 2


def test_stretches_of_different_lengths_add_up() -> None:
    """A line of three tokens and one of two: means over tokens 1, 2 and 1."""
    short = causal([[[1.0, 0], [0.0, 1.0]]], first=3)
    (found,) = summarize([causal([WEIGHTS]), short])
    assert found.distance == pytest.approx((0.5 + 1.25 + 0) / 3)
    assert found.itself == pytest.approx((0.5 + 0.25 + 1) / 3)
    assert found.first == pytest.approx(0.5)  # the second line's only choice stands one behind its first
    assert found.pairs.tolist() == [5, 3, 1]


def rows(part: AttentionRecord, first: int, last: int) -> AttentionRecord:
    places = part.query_positions[first:last]
    return AttentionRecord(
        layer=0,
        weights=part.weights[:, first:last],
        mask=part.mask[first:last],
        query_positions=places,
        key_positions=part.key_positions,
        new_keys=(first, last),
    )


def random_weights(rng: np.random.Generator, H: int, T: int) -> Floats:
    scores = np.where(np.tri(T, dtype=bool), rng.normal(size=(H, T, T)), -np.inf)
    exponents = np.exp(scores)
    found: Floats = exponents / exponents.sum(axis=-1, keepdims=True)
    return found


def test_rows_can_come_in_pieces() -> None:
    whole = causal(random_weights(np.random.default_rng(1), 2, 9).tolist())
    pieces = summarize([rows(whole, 0, 4), rows(whole, 4, 5), rows(whole, 5, 9)])
    for one, other in zip(summarize([whole]), pieces, strict=True):
        for name in ("distance", "entropy", "possible", "itself", "previous", "first"):
            assert getattr(one, name) == pytest.approx(getattr(other, name))
        assert_allclose(one.by_distance, other.by_distance)


def test_against_loops() -> None:
    alpha = random_weights(np.random.default_rng(2), 1, 7)
    (found,) = summarize([causal(alpha.tolist())])
    pairs = [(t, s) for t in range(1, 7) for s in range(t + 1)]
    assert found.distance == pytest.approx(sum(alpha[0, t, s] * (t - s) for t, s in pairs) / 6)
    assert found.entropy == pytest.approx(-sum(alpha[0, t, s] * np.log2(alpha[0, t, s]) for t, s in pairs) / 6)
    assert found.first == pytest.approx(alpha[0, 2:, 0].mean())
    assert found.by_distance[3] == pytest.approx(np.diagonal(alpha[0], -3).mean())


def test_one_token_is_no_choice_and_no_trouble() -> None:
    (found,) = summarize([causal([[[1.0]]])])
    assert (found.distance, found.entropy, found.possible, found.evenness) == (0, 0, 0, 0)
    assert (found.itself, found.previous, found.first) == (1, 0, 0)
    assert found.name == attention_heads.ITSELF


def test_what_sees_nothing_is_not_counted() -> None:
    """A recurrent network's first token has no past; its second sees one state and has no choice."""
    part = AttentionRecord(
        layer=0,
        weights=np.array([[[0.0, 0], [1.0, 0]]]),
        mask=np.tri(2, k=-1, dtype=bool),
        query_positions=np.arange(2),
        key_positions=np.arange(2),
        new_keys=(0, 2),
    )
    (found,) = summarize([part])
    assert (found.distance, found.previous, found.itself) == (1, 1, 0)
    assert found.by_distance.tolist() == [0, 1]
    nothing = AttentionRecord(
        layer=0,
        weights=np.zeros((1, 1, 1)),
        mask=np.zeros((1, 1), dtype=bool),
        query_positions=np.arange(1),
        key_positions=np.arange(1),
        new_keys=(0, 1),
    )
    (found,) = summarize([nothing])
    assert (found.distance, found.entropy, found.itself) == (0, 0, 0)


def test_names() -> None:
    assert head(previous=0.92).name == attention_heads.PREVIOUS
    assert head(first=0.6, previous=0.4).name == attention_heads.FIRST
    assert head(itself=0.5).name == attention_heads.ITSELF
    assert head(first=0.49, previous=0.4).name == attention_heads.MIXED
    assert head(entropy=3.6).name == attention_heads.BROAD  # 0.9 of 4 bits
    assert head(entropy=3.59).name == attention_heads.MIXED


def test_the_telling_ones_have_different_names() -> None:
    broad, sharp, weak = head(entropy=3.9), head(previous=0.9, entropy=0.5), head(previous=0.6, entropy=1.5)
    mixed = head(entropy=3.0)
    assert select_representative([broad, weak, sharp, mixed], 3) == [sharp, mixed, broad]
    assert select_representative([broad, weak, sharp, mixed], 9) == [sharp, mixed, broad, weak]
    assert select_representative([], 2) == []


def test_entropy_in_bits() -> None:
    assert entropy(np.array([[0.25] * 4, [0, 1.0, 0, 0]])).tolist() == [2, 0]


def test_distance_from_the_diagonal() -> None:
    """Along it 0; turned round 3 source tokens lie 2, 0 and 2 away; a target half as long stands between two."""
    assert diagonal_distance(np.eye(3)) == pytest.approx(0)
    assert diagonal_distance(np.eye(3)[::-1]) == pytest.approx(4 / 3)
    # T = 1, S = 2: the middle is 1, both tokens' middles are half a token away.
    assert diagonal_distance(np.array([[0.3, 0.7]])) == pytest.approx(0.5)
    assert diagonal_distance(np.stack([np.eye(3), np.eye(3)[::-1]])[None]).shape == (1, 2)


def test_heads_over_pairs_by_hand() -> None:
    """One pair along the diagonal of 2 tokens, one target token that sees 4 alike: three tokens look.

    Entropy (0 + 0 + 2)/3; possible (1 + 1 + 2)/3; strongest (1 + 1 + 0.25)/3; from the diagonal: middles at 0.5,
    1.5, 2.5, 3.5 lie 1.5, 0.5, 0.5, 1.5 from 2, the mean 1: (0 + 0 + 1)/3.
    """
    (found,) = attention_heads.summarize_cross([np.eye(2)[None, None], np.full((1, 1, 1, 4), 0.25)])
    assert found.entropy == pytest.approx(2 / 3)
    assert found.possible == pytest.approx(4 / 3)
    assert found.strongest == pytest.approx(0.75)
    assert found.diagonal == pytest.approx(1 / 3)
    assert found.as_json()["layer"] == 1
    words = attention_heads.describe_cross([found])
    assert words[0].startswith("On average a target token puts 75 % of its attention on one source token")
    assert words[1] == "The mean distance of the weights from the diagonal is 0.3 source tokens."


def test_the_sharpest_head_across() -> None:
    sharp = np.stack([np.full((2, 2), 0.5), np.eye(2)])[None]
    found = attention_heads.summarize_cross([sharp])
    assert [(each.layer, each.head, each.strongest) for each in found] == [(0, 0, 0.5), (0, 1, 1.0)]
    assert (
        "Head 2 of layer 1 is the sharpest: 100 % of its weight is on one token."
        in attention_heads.describe_cross(found)
    )


def test_heads_in_words() -> None:
    several = [head(previous=0.92), head(first=0.7, head=1), head(first=0.6, head=2), head(entropy=4.0, head=3)]
    words = attention_heads.describe(several)
    # distance 1 in all; entropies 1, 1, 1, 4
    assert words[0] == (
        "of its 4 heads 1 attends to the previous token, 2 attend to the first token and 1 has nearly uniform "
        "weights; the heads have a mean distance of 1.0 tokens and a mean entropy of 1.8 bits (uniform "
        "attention: 4.0)"
    )
    assert words[1] == "head 1 of layer 1 puts 92 % of its weight on the previous token"
    assert words[2] == "head 2 of layer 1 puts 70 % of its weight on the first token"
    assert attention_heads.describe([head()])[0].startswith("its head has a mean distance of 1.0 tokens")
    assert attention_heads.describe([head(previous=0.9)])[0].startswith(
        "its head attends to the previous token; it has"
    )
    mixed = attention_heads.describe([head(), head(head=1)])
    assert mixed[0].startswith("of its 2 heads none focuses on one particular token;")
    assert len(mixed) == 1
