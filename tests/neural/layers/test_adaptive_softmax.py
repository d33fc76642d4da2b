import pytest
import torch
from torch import Tensor

from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.neural.layers.output import AdaptiveSoftmax, by_frequency, choose_cutoffs


def vocabulary(size: int, bos: int = 0) -> Vocabulary:
    return Vocabulary(size=size, bos=bos, eos=size - 1, unk=None)


def layer_of(size: int, width: int = 8, cutoffs: tuple[int, ...] = (), bos: int = 3) -> AdaptiveSoftmax:
    torch.manual_seed(size)
    counts = torch.randint(0, 9, (size,)).float()
    layer = AdaptiveSoftmax(width, vocabulary(size, bos), counts, cutoffs)
    layer.double()
    return layer


def hidden(rows: int, width: int = 8) -> Tensor:
    torch.manual_seed(7)
    return torch.randn(rows, width, dtype=torch.float64)


def test_by_frequency_worked_by_hand() -> None:
    # Counts 5 (id 4), 2 (ids 0 and 3, lower first), 0 (id 2); id 1 has most but is impossible, so it is last.
    counts = torch.tensor([2.0, 9, 0, 2, 5])
    assert by_frequency(counts, torch.tensor([False, True, False, False, False])).tolist() == [1, 4, 3, 2, 0]


def test_by_frequency_keeps_id_order_for_ties() -> None:
    impossible = torch.zeros(5_000, dtype=torch.bool)
    assert torch.equal(by_frequency(torch.ones(5_000), impossible), torch.arange(5_000))


@pytest.mark.parametrize(
    ("classes", "cutoffs"),
    [
        (2, (1,)),
        (3, (1,)),
        (9, (4,)),
        (3_999, (1_999,)),  # more than 2,000 would leave fewer words after it than before
        (4_000, (2_000,)),
        (9_999, (2_000,)),
        (33_277, (2_000, 10_000)),
        (267_734, (2_000, 10_000, 50_000)),
    ],
)
def test_default_cutoffs_by_vocabulary_size(classes: int, cutoffs: tuple[int, ...]) -> None:
    assert choose_cutoffs(classes) == cutoffs


def test_adaptive_log_probs_equal_a_second_derivation() -> None:
    # 9 possible words, cutoffs 3 and 5: head of 3 words and 2 clusters, tails of 2 and 4 words.
    layer, h = layer_of(10, cutoffs=(3, 5)), hidden(4)
    log_p = layer.log_probs(h)
    head = torch.log_softmax(h @ layer.layer.head.weight.t() + layer.layer.head.bias, dim=1)  # (4, 5)
    assert head.shape == (4, 5)
    for word, c in enumerate(layer.classes.tolist()):
        if word == 3:  # <s>
            expected = torch.full((4,), -torch.inf, dtype=torch.float64)
        elif c < 3:
            expected = head[:, c]
        else:
            cluster, first = (0, 3) if c < 5 else (1, 5)
            down, up = (part.weight for part in layer.layer.tail[cluster])
            tail = torch.log_softmax(h @ down.t() @ up.t(), dim=1)
            expected = head[:, 3 + cluster] + tail[:, c - first]
        torch.testing.assert_close(log_p[:, word], expected)


@pytest.mark.parametrize(
    ("size", "width", "cutoffs"),
    [(4, 1, ()), (5, 2, (1, 2, 3)), (10, 8, ()), (10, 3, (8,)), (50, 16, (5, 20)), (4_100, 8, ())],
)
def test_adaptive_loss_is_exact_for_any_clusters(size: int, width: int, cutoffs: tuple[int, ...]) -> None:
    layer = layer_of(size, width, cutoffs)
    targets = torch.tensor([word for word in range(size) if word != 3][-60:])
    h = hidden(len(targets), width)
    log_p = layer.log_probs(h)
    assert (log_p.exp().sum(dim=1) - 1).abs().max() < 1e-12
    assert torch.isneginf(log_p).any(dim=0).nonzero().flatten().tolist() == [3]
    torch.testing.assert_close(layer.loss(h, targets), -log_p[torch.arange(len(targets)), targets].mean())
    for row in range(0, len(targets), 7):  # also one token at a time
        alone = layer.loss(h[row : row + 1], targets[row : row + 1])
        torch.testing.assert_close(alone, -log_p[row, targets[row]])


def test_frequent_words_are_in_the_head() -> None:
    counts = torch.arange(100.0)  # the higher the id, the more frequent
    layer = AdaptiveSoftmax(8, vocabulary(100), counts, (10, 40))
    assert layer.classes[99].item() == 0
    assert (layer.classes < 10).nonzero().flatten().tolist() == list(range(90, 100))
    assert layer.classes[0].item() == 99  # <s>: the class after the last
    assert [part[0].weight.shape[0] for part in layer.layer.tail] == [4, 2]  # 8/2, 8/4: 8/16 would be empty


def test_wide_tails_are_narrowed_by_four() -> None:
    layer = AdaptiveSoftmax(200, vocabulary(100), torch.ones(100), (10, 40))
    assert [part[0].weight.shape[0] for part in layer.layer.tail] == [50, 12]


def test_training_raises_probabilities_of_rare_and_frequent_words() -> None:
    layer, h = layer_of(40, cutoffs=(6, 15)).float(), hidden(39).float()
    targets = torch.tensor([word for word in range(40) if word != 3])
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss = layer.loss(h, targets)
        loss.backward()
        optimizer.step()
    # log 39 = 3.66 before; each row has its own vector, in tails of 4 and 2 dimensions
    assert layer.loss(h, targets).item() < 1.5


@pytest.mark.parametrize(
    ("cutoffs", "message"),
    [
        ((5, 3), "3 follows 5"),
        ((4, 4), "4 follows 4"),
        ((0, 4), "0 follows 0"),
        ((-2,), "-2 follows 0"),
        ((2, 9), "ends with 9, but only 9 words"),
        ((2, 1000), "ends with 1000, but only 9 words.*choose 8 or less"),
    ],
)
def test_invalid_cutoffs_are_rejected(cutoffs: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AdaptiveSoftmax(8, vocabulary(10), torch.ones(10), cutoffs)


def test_more_clusters_than_dimensions_are_allowed() -> None:
    layer = layer_of(10, width=1, cutoffs=(1, 2, 3, 4, 5, 6, 7, 8))
    assert (layer.log_probs(hidden(2, 1)).exp().sum(dim=1) - 1).abs().max() < 1e-12


def test_adaptive_softmax_requires_two_words() -> None:
    with pytest.raises(ConfigError, match=r"2 words or more, not 1.*--output softmax"):
        AdaptiveSoftmax(8, vocabulary(2), torch.ones(2), ())


def test_adaptive_softmax_ignores_autocast() -> None:
    layer, h = layer_of(20).float(), hidden(5).float()
    targets = torch.tensor([1, 2, 5, 9, 19])
    loss, log_p = layer.loss(h, targets), layer.log_probs(h)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer.loss(h, targets), loss)
        assert torch.equal(layer.log_probs(h), log_p)
        assert layer.loss(h.bfloat16(), targets).dtype == torch.float32  # as passed by preceding layers
