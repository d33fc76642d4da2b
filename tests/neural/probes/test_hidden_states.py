"""Hidden states of a text: each position once, and consistent with the model's scores."""

import numpy as np
import pytest
import torch

from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Context
from chainrule.neural.probes import hidden_states as hidden
from chainrule.neural.probes.hidden_states import context_spans, hidden_states, iter_hidden_states
from neural.adaptation_models import FAMILIES, encoded, make, some_ids


@pytest.mark.parametrize("context", ["stream", "line"])
@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_predict_the_scores(family: str, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden, "HIDDEN_CHUNK_TOKENS", 16)
    monkeypatch.setattr(hidden, "LARGEST_PIECE", 7 * 11)
    model, text = make(family, context), encoded(some_ids(41, lines=13))
    pieces = list(iter_hidden_states(model, text))
    assert sorted(torch.cat([positions for positions, _ in pieces]).tolist()) == list(range(41))
    assert max(len(positions) for positions, _ in pieces) <= 7
    with torch.no_grad():
        log_p = model.network.output.log_probs(hidden_states(model, text))
    log_probs = log_p[torch.arange(41), torch.from_numpy(text.ids.astype(np.int64))]
    np.testing.assert_allclose(log_probs, token_log_probs(model, text), rtol=1e-4, atol=1e-5)


def test_context_spans_worked_by_hand() -> None:
    stream = encoded(some_ids(10, lines=7))
    assert context_spans(stream, False, 4, None).tolist() == [[0, 0, 4], [4, 4, 8], [8, 8, 10]]
    # Stride 2: each window after the first shares 2 tokens with its predecessor and scores 2 new ones.
    assert context_spans(stream, False, 4, 2).tolist() == [[0, 0, 4], [2, 4, 6], [4, 6, 8], [6, 8, 10]]
    assert context_spans(stream, False, 4, 3).tolist() == [[0, 0, 4], [3, 4, 7], [6, 7, 10]]
    # Lines of 7 and 3 tokens.
    assert context_spans(stream, True, None, None).tolist() == [[0, 0, 7], [7, 7, 10]]
    assert context_spans(stream, True, 4, 2).tolist() == [[0, 0, 4], [2, 4, 6], [4, 6, 7], [7, 7, 10]]
