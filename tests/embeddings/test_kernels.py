"""NumPy kernels against independent derivations and against the compiled kernels."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chainrule import system
from chainrule.errors import ChainruleError
from embeddings import reference

Floats = NDArray[np.float32]
SETS = ["none", "avx2", "avx512"]


@pytest.fixture
def core() -> Any:
    return system.load_extension()


@pytest.fixture(params=SETS)
def simd(request: pytest.FixtureRequest, core: Any) -> str:
    if request.param not in core.kernel_names():
        pytest.skip(f"{request.param} does not run on this processor")
    return str(request.param)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def grid(rng: np.random.Generator, *shape: int) -> Floats:
    """Multiples of 1/16: sums of their products are exact in any order."""
    return (rng.integers(-8, 9, shape) / 16).astype(np.float32)


def test_random_generator_is_xorshift() -> None:
    # splitmix64's first value for seed 0 is known: 0xE220A8397B1DCDAF (already odd).
    random = reference.Random(0)
    assert random.state == 0xE220A8397B1DCDAF
    s = 0xE220A8397B1DCDAF
    s ^= (s << 13) % 2**64
    s ^= s >> 7
    s ^= (s << 17) % 2**64
    assert random.next() == (s >> 16) % 2**32


def test_random_below_is_uniform() -> None:
    random = reference.Random(5)
    drawn = [random.below(3) for _ in range(3000)]
    assert set(drawn) == {0, 1, 2}
    assert min(drawn.count(i) for i in range(3)) > 850  # 1000 expected, standard deviation 26
    assert random.below(1) == 0


@pytest.mark.parametrize("weights", [[1.0], [1, 1], [1, 2, 3, 0, 10], [5.0] * 7, list(range(1, 200))])
def test_noise_table_has_the_exact_distribution(weights: list[float]) -> None:
    noise = reference.Noise(weights)
    n = len(weights)
    chances = np.zeros(n)
    for i, (keep, other) in enumerate(zip(noise.keep, noise.other, strict=True)):
        chances[i] += keep / 2**32 / n
        chances[other] += (1 - keep / 2**32) / n
    assert chances == pytest.approx(np.array(weights) / sum(weights), abs=1e-9)


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, float("inf")]])
def test_noise_without_weights_is_rejected(weights: list[float]) -> None:
    with pytest.raises(ChainruleError, match="noise needs words"):
        reference.Noise(weights)


def test_skipgram_step_follows_the_gradient() -> None:
    rng = np.random.default_rng(0)
    x, y = grid(rng, 3, 8), grid(rng, 4, 8)
    e = 0.1 * (np.array([1, 0, 0, 0]) - sigmoid(x.astype(float) @ y.T))  # (3, 4)
    wanted_x, wanted_y = x + e @ y, y + e.T @ x
    product = x.astype(float) @ y.T
    loss = -np.log(sigmoid(product[:, 0])).sum() - np.log(sigmoid(-product[:, 1:])).sum()
    actual_loss = reference.window(x, y, [0, 1, 2], [0, 1, 2, 3], 0.1)
    assert actual_loss == pytest.approx(loss, abs=0.02 * 12)  # σ is looked up in cells of width 1/64
    assert x == pytest.approx(wanted_x, abs=2e-4 * 4)  # 1/512 · 0.1 · 4 targets
    assert y == pytest.approx(wanted_y, abs=2e-4 * 4)


def test_cbow_step_follows_the_gradient_of_the_mean() -> None:
    rng = np.random.default_rng(1)
    x, y = grid(rng, 3, 8), grid(rng, 4, 8)
    h = x.astype(float).mean(axis=0)
    e = 0.1 * (np.array([1, 0, 0, 0]) - sigmoid(y @ h))
    wanted_x, wanted_y = x + e @ y, y + e[:, None] * h
    reference.bag(x, y, [0, 1, 2], [0, 1, 2, 3], 0.1)
    assert x == pytest.approx(wanted_x, abs=2e-4 * 4)
    assert y == pytest.approx(wanted_y, abs=2e-4 * 4)


def test_glove_step_worked_by_hand() -> None:
    # w · v = 2, biases 1 and −1, log X = 1: the difference is 1; g = 0.1 · 0.5 · 1 = 0.05, sums 4: the root is 2.
    w, v = np.array([1, 2, 1], np.float32), np.array([2, 0, -1], np.float32)
    w_squares, v_squares = np.full(3, 4, np.float32), np.full(3, 4, np.float32)
    cost = reference.fit(w, v, w_squares, v_squares, 0.5, 1.0, 0.1)
    assert cost == pytest.approx(0.25)
    assert w == pytest.approx([1 - 0.05, 2, 1 - 0.025])
    assert v == pytest.approx([2 - 0.025, -0.05, -1 - 0.025])
    assert w_squares == pytest.approx([4.01, 4, 4.0025])
    assert v_squares == pytest.approx([4.0025, 4.01, 4.0025])


def sizes() -> list[tuple[int, int, int]]:
    """Dimensions, inputs, targets: edge cases and random ones."""
    rng = np.random.default_rng(2)
    drawn = np.stack([rng.integers(1, 300, 25), rng.integers(1, 21, 25), rng.integers(1, 20, 25)], axis=1)
    borders = [(1, 1, 1), (16, 1, 6), (17, 10, 7), (100, 10, 6), (1000, 2, 13)]
    return borders + [(int(a), int(b), int(c)) for a, b, c in drawn]


@pytest.mark.native
@pytest.mark.parametrize("is_bag", [False, True], ids=["window", "bag"])
def test_compiled_steps_equal_the_reference(core: Any, simd: str, is_bag: bool) -> None:
    for D, inputs, targets in sizes():
        rng = np.random.default_rng([D, inputs, targets])
        before, outputs = grid(rng, 15, D), grid(rng, 25, D)
        x = rng.integers(0, 15, inputs).astype(np.uint32)  # a row may occur twice
        y = rng.permutation(25)[:targets].astype(np.uint32)
        # Where products are not exact, a value at a cell boundary may fall to either side; a small rate
        rate = 0.1 if not is_bag and targets <= reference.GROUP else 0.003
        kernel = core.kernel_bag if is_bag else core.kernel_window
        made_x, made_y, loss = kernel(simd, before, outputs, x, y, rate)
        step = reference.bag if is_bag else reference.window
        expected = step(before, outputs, x.tolist(), y.tolist(), rate)
        assert made_x == pytest.approx(before, abs=1e-5)
        assert made_y == pytest.approx(outputs, abs=1e-5)
        assert loss == pytest.approx(expected, rel=1e-5, abs=0.04)


@pytest.mark.native
def test_compiled_glove_step_equals_the_reference(core: Any, simd: str) -> None:
    for D in (1, 14, 15, 16, 17, 50, 100, 333, 1000):
        rng = np.random.default_rng(D)
        pair = (rng.normal(size=(2, D + 1)) / np.sqrt(D)).astype(np.float32)
        squares = (1 + rng.random((2, D + 1))).astype(np.float32)
        weight, log_x, rate = (float(x) for x in rng.random(3).astype(np.float32))
        updated, sums, cost = core.kernel_fit(simd, pair, squares, weight, log_x, rate)
        expected = reference.fit(pair[0], pair[1], squares[0], squares[1], weight, log_x, rate)
        assert updated == pytest.approx(pair, abs=1e-5)
        assert sums == pytest.approx(squares, abs=1e-5)
        assert cost == pytest.approx(expected, abs=1e-5)


@pytest.mark.native
def test_kernels_reject_mismatched_arrays(core: Any) -> None:
    floats, index = np.zeros((2, 4), np.float32), np.zeros(1, np.uint32)
    for wrong, message in (
        (("sse9", floats, floats, index, index, 0.1), "choose auto"),
        (("none", floats.astype(float), floats, index, index, 0.1), "input must be an array of float32"),
        (("none", floats[0], floats, index, index, 0.1), "input has 1 axes, not 2"),
        (("none", np.zeros((4, 2), np.float32).T, floats, index, index, 0.1), "in a row in memory"),
        (("none", floats, floats, index + np.uint32(2), index, 0.1), "x contains a row index that is out of range"),
        (("none", floats, floats, index[:0], index, 0.1), "x is empty"),
        (("none", floats, np.zeros((2, 40), np.float32), index, index, 0.1), "the same number of columns"),
    ):
        with pytest.raises(ChainruleError, match=message):
            core.kernel_window(*wrong)
    with pytest.raises(ChainruleError, match="two rows"):
        core.kernel_fit("none", floats[:1], floats, 1.0, 1.0, 1.0)
