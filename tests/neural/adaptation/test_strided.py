"""Strided evaluation against reading each context separately, and disjoint windows."""

import numpy as np
import pytest
import torch

from chainrule.errors import UsageError
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Context
from chainrule.neural.adaptation import strided_log_probs
from neural.adaptation_models import WINDOW, WORDS, encoded, make, some_ids


@pytest.mark.parametrize("context", ["stream", "line"])
def test_strided_evaluation_at_full_stride_is_static(context: Context) -> None:
    model, text = make("transformer", context), encoded(some_ids(41, lines=13))
    np.testing.assert_allclose(
        strided_log_probs(model, text, WINDOW), token_log_probs(model, text), rtol=1e-4, atol=1e-5
    )


def test_strided_evaluation_at_stride_one_uses_full_windows() -> None:
    model, ids = make("transformer"), some_ids(20)
    read = np.concatenate([[WORDS.eos], ids[:-1]]).astype(np.int64)
    expected = []
    for t in range(20):
        context = torch.from_numpy(read[max(0, t - WINDOW + 1) : t + 1])[None]
        with torch.no_grad():
            last = model.network(context, model.network.start(1)).hidden[:, -1]
            expected.append(model.network.output.log_probs(last)[0, ids[t]].item())
    np.testing.assert_allclose(strided_log_probs(model, encoded(ids), 1), expected, rtol=1e-4, atol=1e-5)


def test_invalid_strides_are_rejected() -> None:
    text = encoded(some_ids(20))
    with pytest.raises(UsageError, match="this model has no window"):
        strided_log_probs(make("lstm"), text, 3)
    for stride in (0, WINDOW + 1):
        with pytest.raises(UsageError, match=f"choose 1 to {WINDOW}"):
            strided_log_probs(make("transformer"), text, stride)
