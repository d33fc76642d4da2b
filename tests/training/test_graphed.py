"""On the GPU: a step replayed as a CUDA graph is the step as it stands; a run can be taken up there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chainrule import api
from chainrule.neural import gru, lstm, rnn, transformer
from chainrule.training.batches import Stream
from chainrule.training.objective import next_token
from chainrule.training.step import Eager, Graphed, Step
from training.small import VOCABULARY

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous"),
]
FAMILIES: dict[str, Any] = {"lstm": lstm, "gru": gru, "rnn": rnn, "transformer": transformer}


@pytest.mark.parametrize("family", FAMILIES)
def test_replayed_it_is_the_step_as_it_stands(family: str) -> None:
    gpu = torch.device("cuda")
    kind = FAMILIES[family]
    config = kind.Config(hidden=16, layers=2, dropout=0.0, batch_size=4, bptt=8, clip=0.25, learning_rate=1e-2)
    ids = np.random.default_rng(2).integers(3, VOCABULARY.size, 400)
    weights = []
    for reader in (Eager, Graphed):
        torch.manual_seed(1)
        network = kind.build(config, VOCABULARY, None).to(gpu).train()
        step = Step(network, next_token, config, gpu)
        run: Any = reader(step, Stream(ids, config, 0, gpu))
        for epoch in range(2):
            for _ in run.epoch(epoch, 0):
                pass
        weights.append(step.flat.weights.clone())
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-3, atol=1e-4)


def test_a_model_of_the_gpu_opens_on_the_processor(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c d\nb c d e\nc d e a\n" * 40)
    made = api.train("lstm", text, context="stream", device="cuda", hidden=16, epochs=2, precision="fp16")
    made.save(tmp_path / "model")
    there, here = (api.load(tmp_path / "model", device=device) for device in ("cuda", "cpu"))
    assert here.lm.device.type == "cpu"  # type: ignore[attr-defined]
    assert here.score("a b c").log_prob == pytest.approx(there.score("a b c").log_prob, rel=1e-4)
