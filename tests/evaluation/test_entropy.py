import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError
from chainrule.evaluation.entropy import cross_entropy, entropy, kl_divergence, perplexity

WEIGHTS = st.lists(st.floats(0.01, 1), min_size=2, max_size=6)


def test_the_worked_numbers() -> None:
    assert entropy([0.5, 0.3, 0.2]) == pytest.approx(1.4855, abs=5e-5)
    assert perplexity(entropy([0.1] * 10)) == pytest.approx(10)
    # Three words at 1/4 and 30,000 names sharing 1/4: 2^(1.5 + .25 log2 120000)
    names = [0.25] * 3 + [0.25 / 30000] * 30000
    assert perplexity(entropy(names)) == pytest.approx(52.64, abs=5e-3)
    assert entropy([1.0, 0.0]) == 0


def test_the_base_matches() -> None:
    nats = -sum(p * math.log(p) for p in (0.5, 0.3, 0.2))
    assert perplexity(entropy([0.5, 0.3, 0.2])) == pytest.approx(math.exp(nats))


@given(WEIGHTS, st.randoms())
def test_cross_entropy_is_entropy_and_divergence(weights: list[float], random: object) -> None:
    p = np.array(weights) / sum(weights)
    q = p[::-1]
    assert cross_entropy(p, q) == pytest.approx(entropy(p) + kl_divergence(p, q))
    assert kl_divergence(p, q) >= -1e-12
    assert kl_divergence(p, p) == 0


def test_zero_probability_costs_infinitely() -> None:
    assert cross_entropy([0.5, 0.5], [1.0, 0.0]) == math.inf
    assert cross_entropy([1.0, 0.0], [0.5, 0.5]) == 1


def test_invalid_distributions_are_rejected() -> None:
    with pytest.raises(InputError, match=r"p is not a distribution.*1\.1"):
        entropy([0.5, 0.6])
    with pytest.raises(InputError, match="2 outcomes and q has 3"):
        cross_entropy([0.5, 0.5], [0.2, 0.3, 0.5])
