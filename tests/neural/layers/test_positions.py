"""Position encodings against their formulas, with Python's sine and complex numbers."""

import math

import pytest
import torch

from chainrule.neural.layers.positions import LearnedPositions, Rotation, angles, sinusoidal


@pytest.mark.parametrize("width", [2, 6, 7])
def test_sinusoidal_encoding_equals_the_formula(width: int) -> None:
    encoding = sinusoidal(torch.tensor([0, 1, 5, 127]), width, torch.float64)
    assert encoding.shape == (4, width)
    for row, pos in enumerate([0, 1, 5, 127]):
        for column in range(width):
            angle = pos / 10000 ** (2 * (column // 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert encoding[row, column].item() == pytest.approx(expected, abs=1e-12)


def test_sinusoidal_offset_is_a_rotation() -> None:
    # PE(pos + k) is a linear map of PE(pos): sin(a + b) = sin a cos b + cos a sin b, for each pair.
    start, end, step = (sinusoidal(torch.tensor(p), 8, torch.float64).view(4, 2) for p in (11, 14, 3))
    turned = start[:, 0] * step[:, 1] + start[:, 1] * step[:, 0]
    torch.testing.assert_close(turned, end[:, 0])


def test_learned_positions_are_clamped_to_the_table() -> None:
    learned = LearnedPositions(3, 2)
    learned.table.data = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    encoding = learned(torch.tensor([[1, 0], [2, 9]]))
    assert encoding.tolist() == [[[3.0, 4.0], [1.0, 2.0]], [[5.0, 6.0], [5.0, 6.0]]]


def test_rotary_rotates_a_pair_by_its_position() -> None:
    # d = 2 has one pair and the angle is the position: (1, 0) at 1 becomes (cos 1, sin 1).
    x = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(1, 3, 1, 2)
    turned = Rotation.at(torch.arange(3), 2, torch.float64).rotate(x)[0, :, 0]
    for pos in range(3):
        assert turned[pos].tolist() == pytest.approx([math.cos(pos), math.sin(pos)])


def test_rotary_equals_a_complex_product() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 4, 3, 6, generator=generator, dtype=torch.float64)
    positions = torch.tensor([[0, 1, 2, 3], [7, 8, 9, 10]])
    z = torch.complex(x[..., :3], x[..., 3:]) * torch.exp(1j * angles(positions, 6, torch.float64))[:, :, None]
    turned = Rotation.at(positions, 6, torch.float64).rotate(x)
    torch.testing.assert_close(turned, torch.cat([z.real, z.imag], dim=-1))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_rotary_products_depend_on_the_distance() -> None:
    generator = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=generator, dtype=torch.float64)

    def product(at_q: int, at_k: int) -> float:
        turned = (Rotation.at(torch.tensor([at]), 8, torch.float64).rotate(x) for x, at in ((q, at_q), (k, at_k)))
        a, b = turned
        return float((a * b).sum())

    assert product(5, 2) == pytest.approx(product(103, 100), abs=1e-12)
    assert product(3, 0) == pytest.approx(product(5, 2), abs=1e-12)
    assert abs(product(5, 2) - product(5, 3)) > 1e-3
    assert product(4, 4) == pytest.approx(float((q * k).sum()), abs=1e-12)


def test_rotary_keeps_the_dtype() -> None:
    x = torch.ones(1, 2, 1, 4, dtype=torch.bfloat16)
    assert Rotation.at(torch.arange(2), 4).rotate(x).dtype == torch.bfloat16
