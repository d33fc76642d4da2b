"""Adaptive softmax (Grave et al. 2017): frequent words in a small head, rare words in narrower clusters.

Wraps `torch.nn.AdaptiveLogSoftmaxWithLoss`, ordering words by frequency. Both `loss` and `log_probs` are exact.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.neural.output import Output

USUAL_CUTOFFS = (2_000, 10_000, 50_000)
NARROWING = 4  # ratio between the widths of successive clusters


def choose_cutoffs(classes: int) -> tuple[int, ...]:
    """Return the default cutoffs that leave at least half of the words in the clusters, or the midpoint.

    >>> choose_cutoffs(9), choose_cutoffs(9_999), choose_cutoffs(33_000)
    ((4,), (2000,), (2000, 10000))
    """
    return tuple(cut for cut in USUAL_CUTOFFS if 2 * cut <= classes) or (classes // 2,)


def check_cutoffs(cutoffs: tuple[int, ...], classes: int) -> None:
    """Raise ConfigError unless the cutoffs ascend from 1 to below the number of words."""
    if classes < 2:
        raise ConfigError(f"an adaptive softmax needs 2 words or more, not {classes}: choose --output softmax")
    for before, cut in zip((0, *cutoffs), cutoffs, strict=False):
        if cut <= before:
            raise ConfigError(f"model.cutoffs must ascend from 1, but {cut} follows {before}; sort them")
    if cutoffs and cutoffs[-1] >= classes:
        raise ConfigError(
            f"model.cutoffs ends with {cutoffs[-1]}, but only {classes} words can be predicted; "
            f"choose {classes - 1} or less, or leave it empty"
        )


def by_frequency(counts: Tensor, impossible: Tensor) -> Tensor:
    """(V,) counts, (V,) bool -> (V,) class of each id: 0 is the most frequent, ties by id, impossible ids last."""
    order = counts.double().masked_fill(impossible, -1).argsort(descending=True, stable=True)
    return order.argsort()  # the inverse permutation


class AdaptiveSoftmax(Output):
    """log p(w) = log p(cluster of w) + log p(w | cluster); a frequent word is a class of the head."""

    is_capturable = False  # the rows of a cluster depend on the targets

    def __init__(self, width: int, vocabulary: Vocabulary, counts: Tensor, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        self.predictable = vocabulary.predictable
        impossible = torch.from_numpy(~vocabulary.predictable)
        C = vocabulary.size - int(impossible.sum())
        check_cutoffs(cutoffs, C)
        cutoffs = cutoffs or choose_cutoffs(C)
        # The last cluster needs a width of at least 1: reduce the ratio for a narrow layer.
        narrowing = max(n for n in range(1, NARROWING + 1) if n ** len(cutoffs) <= width)
        self.layer = nn.AdaptiveLogSoftmaxWithLoss(width, C, cutoffs, div_value=narrowing, head_bias=True)
        # (V,) id -> class, C for impossible ids; saved because it defines the meaning of the weight rows
        self.register_buffer("classes", by_frequency(counts, impossible).clamp(max=C))

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean of −log p(target), in fp32, since the torch layer does not support mixed precision."""
        with torch.autocast(hidden.device.type, enabled=False):
            nats: Tensor = self.layer(hidden.to(self.layer.head.weight.dtype), self.classes[targets]).loss
        return nats

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(N, D) -> (N, V) log p, reordered from frequency classes to ids."""
        with torch.autocast(hidden.device.type, enabled=False):
            by_class = self.layer.log_prob(hidden.to(self.layer.head.weight.dtype))  # (N, C)
        return functional.pad(by_class, (0, 1), value=-torch.inf)[:, self.classes]  # (N, V)

    def has_valid_buffers(self) -> bool:
        """Whether the possible words map one-to-one to the classes 0 … C − 1 and the others to C."""
        C = self.layer.n_classes
        expected = torch.arange(len(self.classes)).clamp(max=C)
        is_possible = torch.from_numpy(self.predictable)
        classes = self.classes.cpu()
        return bool(torch.equal(classes.sort().values, expected) and ((classes < C) == is_possible).all())
