"""The output layer: from what a network made of the past to a distribution over what comes next.

Lives here: the full softmax and the choice among output layers. Each offers `loss` to learn by, which may be an
estimate, and `log_probs` to predict with, which is exact. Not here: sampled.py, adaptive.py.
"""

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural.linear_loss import linear_cross_entropy
from chainrule.neural.settings import Architecture


class Output(nn.Module):
    """p(w | hidden) over the V ids; `<s>`, and `<unk>` of a closed vocabulary, are impossible."""

    is_capturable = True  # in a CUDA graph: the shapes in `loss` are the same for any targets

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """(N, D), (N,) -> the mean of −log p(target), or of what stands in for it while learning."""
        raise NotImplementedError

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(N, D) -> (N, V) exact log p, `-inf` for what is impossible."""
        raise NotImplementedError

    def has_valid_buffers(self) -> bool:
        """Whether tensors that were loaded and are not weights, such as word classes, have possible values."""
        return True


class Softmax(Output):
    """p = softmax(W h + b) over all words; W may be the embedding itself (Press & Wolf 2017)."""

    def __init__(self, width: int, vocabulary: Vocabulary, tied: nn.Parameter | None, init_range: float) -> None:
        super().__init__()
        self.weight = tied if tied is not None else nn.Parameter(torch.empty(vocabulary.size, width))
        if tied is None:
            nn.init.uniform_(self.weight, -init_range, init_range)
        self.bias = nn.Parameter(torch.zeros(vocabulary.size))
        self.register_buffer("impossible", torch.from_numpy(~vocabulary.predictable), persistent=False)

    def masked_bias(self) -> Tensor:
        """(V,) b, `-inf` where a word is impossible."""
        return self.bias.masked_fill(self.impossible, -torch.inf)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The mean of −log p(target), computed in pieces so that N x V numbers never stand in memory at once."""
        return linear_cross_entropy(hidden, self.weight, self.masked_bias(), targets)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log softmax over all words."""
        return torch.log_softmax(torch.addmm(self.masked_bias(), hidden, self.weight.t()), dim=-1)


def make_output(
    config: Architecture, width: int, vocabulary: Vocabulary, embedding: nn.Parameter, counts: Floats | None
) -> Output:
    """The output layer the config asks for; `counts` (V,) of the training text, None where they will be loaded."""
    tied = embedding if config.tie else None
    if tied is not None and tied.shape[1] != width:
        raise ConfigError(
            f"model.tie needs the last layer as wide as the embedding, not {width} and {tied.shape[1]}; "
            "set them alike, or --no-tie"
        )
    numbers = torch.ones(vocabulary.size) if counts is None else torch.from_numpy(np.asarray(counts, np.float32))
    if config.output in ("sampled", "nce"):
        from chainrule.neural.sampled import NoiseContrastive, SampledSoftmax

        kind = SampledSoftmax if config.output == "sampled" else NoiseContrastive
        return kind(width, vocabulary, tied, config.init_range, numbers, config.samples)
    if config.output == "adaptive":
        from chainrule.neural.adaptive import AdaptiveSoftmax

        if tied is not None:
            raise ConfigError("an adaptive softmax has its own vectors for words: add --no-tie")
        return AdaptiveSoftmax(width, vocabulary, numbers, config.cutoffs)
    return Softmax(width, vocabulary, tied, config.init_range)
