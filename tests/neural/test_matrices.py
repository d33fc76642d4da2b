"""The recurrent matrices of networks: each gate's own, against numpy; first weights as they are drawn."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from chainrule.errors import ChainruleError
from chainrule.inspection import matrix
from chainrule.lm import Vocabulary
from chainrule.neural import gru, lstm, rnn
from chainrule.neural.matrices import first_weights, recurrences, spectrum

WORDS = Vocabulary(7, 0, 1, 2)


def build(module: Any, **chosen: Any) -> Any:
    torch.manual_seed(2)
    return module.build(module.Config(hidden=5, embedding=4, tie=False, **chosen), WORDS, None)


@pytest.mark.parametrize(("module", "names"), [(rnn, [""]), (lstm, list("ifgo")), (gru, list("rzn"))])
def test_every_gate_has_its_own_matrix(module: Any, names: list[str]) -> None:
    network = build(module, layers=2)
    found = recurrences(network)
    assert [each.layer for each in found] == [1, 2]
    for each, layer in zip(found, network.layers, strict=True):
        assert list(each.spectra) == names
        for i, one in enumerate(each.spectra.values()):
            R = layer.R.detach().numpy()[5 * i : 5 * i + 5]
            wanted = matrix.spectrum(R)
            assert_allclose(np.sort_complex(one.eigenvalues), np.sort_complex(wanted.eigenvalues), atol=1e-9)
            assert_allclose(one.singular_values, wanted.singular_values, atol=1e-9)
    assert found[0].nonlinearity == ("tanh" if module is rnn else "")


def test_phi_comes_with_an_elman_layer() -> None:
    (found,) = recurrences(build(rnn, nonlinearity="sigmoid"))
    assert found.gain == pytest.approx(found.main.norm / 4)


def test_first_weights_by_what_is_known_of_them() -> None:
    D = 200
    found = {name: spectrum(R) for name, R in first_weights(D).items()}
    assert list(found) == ["orthogonal", "xavier", "small"]
    # orthogonal: RᵀR = I
    assert_allclose(found["orthogonal"].singular_values, 1.0, atol=1e-5)
    assert_allclose(np.abs(found["orthogonal"].eigenvalues), 1.0, atol=1e-5)
    # entries of variance v: the radius tends to √(D v), σ_max to 2 √(D v) (circular law); Xavier's v = 1 / D
    assert found["xavier"].radius == pytest.approx(1.0, rel=0.15)
    assert found["xavier"].norm == pytest.approx(2.0, rel=0.1)
    # uniform within ± 0.1 / √D: v = 0.01 / (3 D)
    assert found["small"].norm == pytest.approx(2 * 0.1 / math.sqrt(3), rel=0.1)


def test_randomness_of_others_is_left_alone() -> None:
    torch.manual_seed(9)
    first = torch.rand(1)
    torch.manual_seed(9)
    one = first_weights(3)
    assert torch.equal(torch.rand(1), first)
    assert all(torch.equal(one[name], R) for name, R in first_weights(3).items())


def test_width_one_and_numbers_that_are_none() -> None:
    network = rnn.build(rnn.Config(hidden=1, embedding=1), WORDS, None)
    (found,) = recurrences(network)
    assert found.width == 1
    assert found.drawn["orthogonal"].radius == pytest.approx(1.0)
    with pytest.raises(ChainruleError, match="no finite number"):
        spectrum(torch.full((2, 2), math.nan))


def test_progress_goes_to_the_end() -> None:
    told: list[tuple[int, int | None]] = []
    recurrences(build(lstm, layers=3), lambda what, done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
