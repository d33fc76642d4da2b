"""Output layers: from hidden states to a distribution over the vocabulary.

Each has a training `loss`, which may be an estimate, and exact `log_probs`.
"""

import numpy as np
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural.linear_loss import linear_cross_entropy
from chainrule.neural.settings import Architecture


class Output(nn.Module):
    """p(w | hidden) over V ids; `<s>`, and `<unk>` of a closed vocabulary, have probability 0."""

    is_capturable = True  # by a CUDA graph: shapes in `loss` do not depend on the targets

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """(N, D), (N,) -> mean of −log p(target), or of its training estimate."""
        raise NotImplementedError

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(N, D) -> (N, V) exact log p, `-inf` for impossible ids."""
        raise NotImplementedError

    def has_valid_buffers(self) -> bool:
        """Whether loaded buffers, such as word classes, have valid values."""
        return True


class Softmax(Output):
    """p = softmax(W h + b) over all words; W may be tied to the embedding (Press & Wolf 2017)."""

    def __init__(self, width: int, vocabulary: Vocabulary, tied: nn.Parameter | None, init_range: float) -> None:
        super().__init__()
        self.weight = tied if tied is not None else nn.Parameter(torch.empty(vocabulary.size, width))
        if tied is None:
            nn.init.uniform_(self.weight, -init_range, init_range)
        self.bias = nn.Parameter(torch.zeros(vocabulary.size))
        self.register_buffer("impossible", torch.from_numpy(~vocabulary.predictable), persistent=False)

    def masked_bias(self) -> Tensor:
        """(V,) b, `-inf` for impossible words."""
        return self.bias.masked_fill(self.impossible, -torch.inf)

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean of −log p(target), computed in chunks so that the N x V logits never exist at once."""
        return linear_cross_entropy(hidden, self.weight, self.masked_bias(), targets)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Log softmax over all words."""
        return torch.log_softmax(torch.addmm(self.masked_bias(), hidden, self.weight.t()), dim=-1)


def make_output(
    config: Architecture, width: int, vocabulary: Vocabulary, embedding: nn.Parameter, counts: Floats | None
) -> Output:
    """Create the configured output layer; `counts` (V,) are training word counts, None if they will be loaded."""
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
            raise ConfigError("an adaptive softmax cannot be tied to the embedding: add --no-tie")
        return AdaptiveSoftmax(width, vocabulary, numbers, config.cutoffs)
    return Softmax(width, vocabulary, tied, config.init_range)
