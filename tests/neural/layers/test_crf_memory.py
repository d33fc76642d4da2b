"""Memory use of the CRF during training."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from chainrule.neural.layers.crf import CRF


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that an operation creates."""

    size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **kwargs or {})
        for tensor in outputs if isinstance(outputs, tuple | list) else (outputs,):
            if isinstance(tensor, Tensor):
                self.size = max(self.size, tensor.numel())
        return outputs


def test_crf_backward_needs_no_pairwise_tensor_per_word() -> None:
    """B = 2, T = 50, K = 20: scores are 2 · 50 · 20 = 2,000 numbers, pairs of one word 800, of all words 40,000."""
    crf, s = CRF(20), torch.randn(2, 50, 20, requires_grad=True)
    log_z = crf.log_z(s, torch.ones(2, 50, dtype=torch.bool)).sum()
    with Largest() as watched:
        log_z.backward()
    assert 800 <= watched.size <= 2000
