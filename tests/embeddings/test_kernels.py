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
    return system.load()


@pytest.fixture(params=SETS)
def simd(request: pytest.FixtureRequest, core: Any) -> str:
    if request.param not in core.kernel_names():
        pytest.skip(f"{request.param} does not run on this processor")
    return str(request.param)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def grid(rng: np.random.Generator, *shape: int) -> Floats:
    """Multiples of 1/16: their products are summed without rounding, in whatever order."""
    return (rng.integers(-8, 9, shape) / 16).astype(np.float32)


def test_the_generator_is_xorshift() -> None:
    # splitmix64's first value for seed 0 is known: 0xE220A8397B1DCDAF (odd already).
    random = reference.Random(0)
    assert random.state == 0xE220A8397B1DCDAF
    s = 0xE220A8397B1DCDAF
    s ^= (s << 13) % 2**64
    s ^= s >> 7
    s ^= (s << 17) % 2**64
    assert random.next() == (s >> 16) % 2**32


def test_numbers_below() -> None:
    random = reference.Random(5)
    drawn = [random.below(3) for _ in range(3000)]
    assert set(drawn) == {0, 1, 2}
    assert min(drawn.count(i) for i in range(3)) > 850  # 1000 expected, standard deviation 26
    assert random.below(1) == 0


@pytest.mark.parametrize("weights", [[1.0], [1, 1], [1, 2, 3, 0, 10], [5.0] * 7, list(range(1, 200))])
def test_noise_has_exactly_its_distribution(weights: list[float]) -> None:
    noise = reference.Noise(weights)
    n = len(weights)
    chances = np.zeros(n)
    for i, (keep, other) in enumerate(zip(noise.keep, noise.other, strict=True)):
        chances[i] += keep / 2**32 / n
        chances[other] += (1 - keep / 2**32) / n
    assert chances == pytest.approx(np.array(weights) / sum(weights), abs=1e-9)


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, float("inf")]])
def test_noise_of_nothing(weights: list[float]) -> None:
    with pytest.raises(ChainruleError, match="noise needs words"):
        reference.Noise(weights)


def test_window_is_a_step_down_the_gradient() -> None:
    rng = np.random.default_rng(0)
    x, y = grid(rng, 3, 8), grid(rng, 4, 8)
    e = 0.1 * (np.array([1, 0, 0, 0]) - sigmoid(x.astype(float) @ y.T))  # (3, 4)
    wanted_x, wanted_y = x + e @ y, y + e.T @ x
    product = x.astype(float) @ y.T
    loss = -np.log(sigmoid(product[:, 0])).sum() - np.log(sigmoid(-product[:, 1:])).sum()
    found = reference.window(x, y, [0, 1, 2], [0, 1, 2, 3], 0.1)
    assert found == pytest.approx(loss, abs=0.02 * 12)  # σ is looked up in cells 1/64 wide
    assert x == pytest.approx(wanted_x, abs=2e-4 * 4)  # 1/512 · 0.1 · 4 targets
    assert y == pytest.approx(wanted_y, abs=2e-4 * 4)


def test_bag_is_a_step_of_the_mean() -> None:
    rng = np.random.default_rng(1)
    x, y = grid(rng, 3, 8), grid(rng, 4, 8)
    h = x.astype(float).mean(axis=0)
    e = 0.1 * (np.array([1, 0, 0, 0]) - sigmoid(y @ h))
    wanted_x, wanted_y = x + e @ y, y + e[:, None] * h
    reference.bag(x, y, [0, 1, 2], [0, 1, 2, 3], 0.1)
    assert x == pytest.approx(wanted_x, abs=2e-4 * 4)
    assert y == pytest.approx(wanted_y, abs=2e-4 * 4)


def test_fit_by_hand() -> None:
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
    """Dimensions, inputs, targets: the borders, and some at random."""
    rng = np.random.default_rng(2)
    drawn = np.stack([rng.integers(1, 300, 25), rng.integers(1, 21, 25), rng.integers(1, 20, 25)], axis=1)
    borders = [(1, 1, 1), (16, 1, 6), (17, 10, 7), (100, 10, 6), (1000, 2, 13)]
    return borders + [(int(a), int(b), int(c)) for a, b, c in drawn]


@pytest.mark.native
@pytest.mark.parametrize("is_bag", [False, True], ids=["window", "bag"])
def test_compiled_steps_are_the_same(core: Any, simd: str, is_bag: bool) -> None:
    for D, inputs, targets in sizes():
        rng = np.random.default_rng([D, inputs, targets])
        before, outputs = grid(rng, 15, D), grid(rng, 25, D)
        x = rng.integers(0, 15, inputs).astype(np.uint32)  # a row may come twice
        y = rng.permutation(25)[:targets].astype(np.uint32)
        # Where products cannot be exact, a value on the border of two cells may fall to either side; a small rate
        # makes that less than 1e-5: 1/256 · rate · |y| with |y| ≤ 1/2.
        rate = 0.1 if not is_bag and targets <= reference.GROUP else 0.003
        kernel = core.kernel_bag if is_bag else core.kernel_window
        made_x, made_y, loss = kernel(simd, before, outputs, x, y, rate)
        step = reference.bag if is_bag else reference.window
        wanted = step(before, outputs, x.tolist(), y.tolist(), rate)
        assert made_x == pytest.approx(before, abs=1e-5)
        assert made_y == pytest.approx(outputs, abs=1e-5)
        assert loss == pytest.approx(wanted, rel=1e-5, abs=0.04)


@pytest.mark.native
def test_compiled_fit_is_the_same(core: Any, simd: str) -> None:
    for D in (1, 14, 15, 16, 17, 50, 100, 333, 1000):
        rng = np.random.default_rng(D)
        pair = (rng.normal(size=(2, D + 1)) / np.sqrt(D)).astype(np.float32)
        squares = (1 + rng.random((2, D + 1))).astype(np.float32)
        weight, log_x, rate = (float(x) for x in rng.random(3).astype(np.float32))
        made, sums, cost = core.kernel_fit(simd, pair, squares, weight, log_x, rate)
        wanted = reference.fit(pair[0], pair[1], squares[0], squares[1], weight, log_x, rate)
        assert made == pytest.approx(pair, abs=1e-5)
        assert sums == pytest.approx(squares, abs=1e-5)
        assert cost == pytest.approx(wanted, abs=1e-5)


@pytest.mark.native
def test_kernels_refuse_what_does_not_fit(core: Any) -> None:
    floats, one = np.zeros((2, 4), np.float32), np.zeros(1, np.uint32)
    for wrong, message in (
        (("sse9", floats, floats, one, one, 0.1), "choose auto"),
        (("none", floats.astype(float), floats, one, one, 0.1), "input must be an array of float32"),
        (("none", floats[0], floats, one, one, 0.1), "input has 1 axes, not 2"),
        (("none", np.zeros((4, 2), np.float32).T, floats, one, one, 0.1), "in a row in memory"),
        (("none", floats, floats, one + np.uint32(2), one, 0.1), "x names a row that is not there"),
        (("none", floats, floats, one[:0], one, 0.1), "x names no row"),
        (("none", floats, np.zeros((2, 40), np.float32), one, one, 0.1), "as many columns"),
    ):
        with pytest.raises(ChainruleError, match=message):
            core.kernel_window(*wrong)
    with pytest.raises(ChainruleError, match="two rows"):
        core.kernel_fit("none", floats[:1], floats, 1.0, 1.0, 1.0)
