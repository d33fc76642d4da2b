import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from chainrule.neural.layers.char_cnn import CharCNN

C, F = 12, 5
WORDS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0], [2, 3, 0, 0, 0], [2, 11, 11, 3, 0]])


def char_cnn(dropout: float = 0.0, width: int = 4) -> CharCNN:
    torch.manual_seed(3)
    layer = CharCNN(C, F, dropout, width)
    torch.nn.init.normal_(layer.filters.bias)
    return layer


def char_cnn_by_loops(layer: CharCNN, word: list[int]) -> Tensor:
    """By definition, one position and one filter at a time."""
    E, W, b = layer.embedding.weight, layer.filters.weight, layer.filters.bias
    around = [torch.zeros(E.shape[1]), *(E[character] for character in word), torch.zeros(E.shape[1])]
    features = torch.zeros(F)  # ReLU: never negative
    for place in range(len(word)):
        for f in range(F):
            z = b[f] + sum((W[f, :, k] * around[place + k]).sum() for k in range(3))
            features[f] = torch.maximum(features[f], z)
    return features


def test_char_cnn_features_worked_by_hand() -> None:
    # Width 1, one filter [1, 10, 100] with b = −1: z_l = e_{l−1} + 10 e_l + 100 e_{l+1} − 1.
    layer = CharCNN(4, 1, width=1)
    with torch.no_grad():
        layer.embedding.weight[1:] = torch.tensor([[1.0], [2.0], [-3.0]])
        layer.filters.weight[:] = torch.tensor([[[1.0, 10.0, 100.0]]])
        layer.filters.bias.fill_(-1)
    # 1 2: 0 + 10 + 200 − 1 = 209, 1 + 20 + 0 − 1 = 20. 2 3: 20 − 300 − 1, 2 − 30 − 1: both negative, ReLU 0.
    # 3 1: −30 + 100 − 1 = 69, −3 + 10 − 1 = 6. 3: −31, which ReLU makes 0.
    words = torch.tensor([[1, 2], [2, 3], [3, 1], [3, 0]])
    assert layer(words).flatten().tolist() == [209, 0, 69, 0]


def test_char_cnn_features_equal_plain_loops() -> None:
    layer = char_cnn()
    expected = torch.stack(
        [char_cnn_by_loops(layer, [character for character in word if character]) for word in WORDS.tolist()]
    )
    torch.testing.assert_close(layer(WORDS), expected)
    assert (expected > 0).any(dim=0).sum() > 1


def test_char_cnn_ignores_padding() -> None:
    layer = char_cnn()
    torch.testing.assert_close(layer(pad(WORDS, (0, 7))), layer(WORDS))


def test_char_cnn_words_are_independent() -> None:
    layer = char_cnn()
    together = layer(WORDS)
    for row, word in enumerate(WORDS):
        torch.testing.assert_close(layer(word[word > 0][None])[0], together[row])
    torch.testing.assert_close(layer(WORDS.flip(0)).flip(0), together)


def test_char_cnn_without_characters_is_zero() -> None:
    layer = char_cnn()
    features = layer(torch.tensor([[0, 0, 0], [2, 5, 3]]))
    assert (features[0] == 0).all()
    features.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_char_cnn_padding_row_stays_zero() -> None:
    layer = char_cnn()
    before = layer.embedding.weight.detach().clone()
    step = torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.1)
    layer(WORDS).sum().backward()
    step.step()
    assert (before[0] == 0).all()
    assert (layer.embedding.weight[0] == 0).all()
    assert (layer.embedding.weight[2] != before[2]).any()


def test_char_cnn_dropout_only_in_training() -> None:
    layer = char_cnn(dropout=0.5, width=32)
    learning = layer(WORDS)
    assert not torch.equal(learning, layer(WORDS))
    layer.eval()
    assert torch.equal(layer(WORDS), layer(WORDS))
    torch.testing.assert_close(layer(WORDS), char_cnn(width=32)(WORDS))


@pytest.mark.parametrize("width", [32, 8])
def test_char_cnn_shapes(width: int) -> None:
    layer = CharCNN(C, 7, width=width)
    assert layer(WORDS).shape == (4, 7)
    assert layer.embedding.weight.shape == (C, width)
    assert layer.filters.weight.shape == (7, width, 3)
