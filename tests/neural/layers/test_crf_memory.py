"""Memory use of the CRF during training."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from chainrule.neural.layers.crf import CRF


class Largest(TorchDispatchMode):
    """Watches how many numbers the largest tensor holds that an operation makes."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **kwargs or {})
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.numel())
        return made


def test_learning_holds_no_pair_of_tags_for_every_word() -> None:
    """B = 2, T = 50, K = 20: scores are 2 · 50 · 20 = 2,000 numbers, pairs of one word 800, of all words 40,000."""
    crf, s = CRF(20), torch.randn(2, 50, 20, requires_grad=True)
    log_z = crf.log_z(s, torch.ones(2, 50, dtype=torch.bool)).sum()
    with Largest() as watched:
        log_z.backward()
    assert 800 <= watched.size <= 2000
