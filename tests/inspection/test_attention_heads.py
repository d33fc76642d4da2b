"""Attention statistics worked by hand, and independent of how a text is split."""

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


def test_head_statistics_worked_by_hand() -> None:
    """The first token has no choice and is left out of the means, but not of the curve.

    Distance: token 1 looks back 0.5·1, token 2 0.5·2 + 0.25·1 = 1.25; mean 0.875.
    Entropy: 1 bit and 0.5·1 + 2·0.25·2 = 1.5 bits; possible 1 and log2 3.
    Itself 0.5, 0.25; previous 0.5, 0.25; the first token is two back for token 2 alone: 0.5.
    """
    (head_,) = summarize([causal([WEIGHTS])])
    assert head_.distance == pytest.approx(0.875)
    assert head_.entropy == pytest.approx(1.25)
    assert head_.possible == pytest.approx((1 + np.log2(3)) / 2)
    assert head_.evenness == pytest.approx(1.25 / ((1 + np.log2(3)) / 2))
    assert (head_.itself, head_.previous, head_.first) == pytest.approx((0.375, 0.375, 0.5))
    assert_allclose(head_.by_distance, [1.75 / 3, 0.375, 0.5])
    assert head_.pairs.tolist() == [3, 2, 1]
    # Uniform weights: at 0 (1 + 1/2 + 1/3)/3, at 1 (1/2 + 1/3)/2, at 2 1/3.
    assert_allclose(attention_heads.uniform_curve(accumulate(causal([WEIGHTS]))), [11 / 18, 5 / 12, 1 / 3])


def test_heads_and_layers_are_summarized_separately() -> None:
    diagonal = np.eye(3).tolist()
    heads = summarize([causal([WEIGHTS, diagonal], layer=1), causal([diagonal, WEIGHTS], layer=0)])
    assert [(one_head.layer, one_head.head) for one_head in heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [one_head.itself for one_head in heads] == pytest.approx([1.0, 0.375, 0.375, 1.0])
    assert [one_head.name for one_head in heads][::3] == [attention_heads.ITSELF] * 2


def test_records_of_different_lengths_are_averaged_over_tokens() -> None:
    """A line of three tokens and one of two: means over tokens 1, 2 and 1."""
    short = causal([[[1.0, 0], [0.0, 1.0]]], first=3)
    (head_,) = summarize([causal([WEIGHTS]), short])
    assert head_.distance == pytest.approx((0.5 + 1.25 + 0) / 3)
    assert head_.itself == pytest.approx((0.5 + 0.25 + 1) / 3)
    assert head_.first == pytest.approx(0.5)  # in the second line the previous token is the first
    assert head_.pairs.tolist() == [5, 3, 1]


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
    weights: Floats = exponents / exponents.sum(axis=-1, keepdims=True)
    return weights


def test_summary_does_not_depend_on_splitting_rows() -> None:
    complete = causal(random_weights(np.random.default_rng(1), 2, 9).tolist())
    pieces = summarize([rows(complete, 0, 4), rows(complete, 4, 5), rows(complete, 5, 9)])
    for expected, actual in zip(summarize([complete]), pieces, strict=True):
        for name in ("distance", "entropy", "possible", "itself", "previous", "first"):
            assert getattr(expected, name) == pytest.approx(getattr(actual, name))
        assert_allclose(expected.by_distance, actual.by_distance)


def test_head_statistics_equal_plain_loops() -> None:
    alpha = random_weights(np.random.default_rng(2), 1, 7)
    (head_,) = summarize([causal(alpha.tolist())])
    pairs = [(t, s) for t in range(1, 7) for s in range(t + 1)]
    assert head_.distance == pytest.approx(sum(alpha[0, t, s] * (t - s) for t, s in pairs) / 6)
    assert head_.entropy == pytest.approx(-sum(alpha[0, t, s] * np.log2(alpha[0, t, s]) for t, s in pairs) / 6)
    assert head_.first == pytest.approx(alpha[0, 2:, 0].mean())
    assert head_.by_distance[3] == pytest.approx(np.diagonal(alpha[0], -3).mean())


def test_summary_of_a_single_token() -> None:
    (head_,) = summarize([causal([[[1.0]]])])
    assert (head_.distance, head_.entropy, head_.possible, head_.evenness) == (0, 0, 0, 0)
    assert (head_.itself, head_.previous, head_.first) == (1, 0, 0)
    assert head_.name == attention_heads.ITSELF


def test_tokens_without_visible_positions_are_not_counted() -> None:
    """The first token of a recurrent network has no past; its second sees one state and has no choice."""
    part = AttentionRecord(
        layer=0,
        weights=np.array([[[0.0, 0], [1.0, 0]]]),
        mask=np.tri(2, k=-1, dtype=bool),
        query_positions=np.arange(2),
        key_positions=np.arange(2),
        new_keys=(0, 2),
    )
    (head_,) = summarize([part])
    assert (head_.distance, head_.previous, head_.itself) == (1, 1, 0)
    assert head_.by_distance.tolist() == [0, 1]
    nothing = AttentionRecord(
        layer=0,
        weights=np.zeros((1, 1, 1)),
        mask=np.zeros((1, 1), dtype=bool),
        query_positions=np.arange(1),
        key_positions=np.arange(1),
        new_keys=(0, 1),
    )
    (head_,) = summarize([nothing])
    assert (head_.distance, head_.entropy, head_.itself) == (0, 0, 0)


def test_head_names_by_their_statistics() -> None:
    assert head(previous=0.92).name == attention_heads.PREVIOUS
    assert head(first=0.6, previous=0.4).name == attention_heads.FIRST
    assert head(itself=0.5).name == attention_heads.ITSELF
    assert head(first=0.49, previous=0.4).name == attention_heads.MIXED
    assert head(entropy=3.6).name == attention_heads.BROAD  # 0.9 of 4 bits
    assert head(entropy=3.59).name == attention_heads.MIXED


def test_representative_heads_have_different_names() -> None:
    broad, sharp, weak = head(entropy=3.9), head(previous=0.9, entropy=0.5), head(previous=0.6, entropy=1.5)
    mixed = head(entropy=3.0)
    assert select_representative([broad, weak, sharp, mixed], 3) == [sharp, mixed, broad]
    assert select_representative([broad, weak, sharp, mixed], 9) == [sharp, mixed, broad, weak]
    assert select_representative([], 2) == []


def test_entropy_is_in_bits() -> None:
    assert entropy(np.array([[0.25] * 4, [0, 1.0, 0, 0]])).tolist() == [2, 0]


def test_diagonal_distance_worked_by_hand() -> None:
    """Along the diagonal 0; reversed, 3 source tokens are 2, 0 and 2 away; a target half as long lies between
    two.
    """
    assert diagonal_distance(np.eye(3)) == pytest.approx(0)
    assert diagonal_distance(np.eye(3)[::-1]) == pytest.approx(4 / 3)
    # T = 1, S = 2: the middle is 1, both tokens' centres are half a token away.
    assert diagonal_distance(np.array([[0.3, 0.7]])) == pytest.approx(0.5)
    assert diagonal_distance(np.stack([np.eye(3), np.eye(3)[::-1]])[None]).shape == (1, 2)


def test_cross_attention_statistics_worked_by_hand() -> None:
    """One pair along the diagonal of 2 tokens, and one target token with uniform weights on 4: three queries.

    Entropy (0 + 0 + 2)/3; possible (1 + 1 + 2)/3; strongest (1 + 1 + 0.25)/3; distance from the diagonal: centres
    at 0.5, 1.5, 2.5, 3.5 are 1.5, 0.5, 0.5, 1.5 from 2, mean 1: (0 + 0 + 1)/3.
    """
    (head_,) = attention_heads.summarize_cross([np.eye(2)[None, None], np.full((1, 1, 1, 4), 0.25)])
    assert head_.entropy == pytest.approx(2 / 3)
    assert head_.possible == pytest.approx(4 / 3)
    assert head_.strongest == pytest.approx(0.75)
    assert head_.diagonal == pytest.approx(1 / 3)
    assert head_.as_json()["layer"] == 1
    words = attention_heads.describe_cross([head_])
    assert words[0].startswith("On average a target token puts 75 % of its attention on one source token")
    assert words[1] == "The mean distance of the weights from the diagonal is 0.3 source tokens."


def test_sharpest_cross_attention_head_is_described() -> None:
    sharp = np.stack([np.full((2, 2), 0.5), np.eye(2)])[None]
    heads = attention_heads.summarize_cross([sharp])
    assert [(one_head.layer, one_head.head, one_head.strongest) for one_head in heads] == [(0, 0, 0.5), (0, 1, 1.0)]
    assert (
        "Head 2 of layer 1 is the sharpest: 100 % of its weight is on one token."
        in attention_heads.describe_cross(heads)
    )


def test_describe_counts_heads_by_kind() -> None:
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
