"""On the GPU: a captured CUDA graph equals the eager step, and a run can be resumed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chainrule import api
from chainrule.neural import gru, lstm, rnn, transformer
from chainrule.training.batches import StreamBatches
from chainrule.training.config import TrainingConfig
from chainrule.training.step import CudaGraphStepper, EagerStepper, TrainingStep, next_token
from training.small_networks import VOCABULARY, entries, learn, lines

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
    pytest.mark.filterwarnings("ignore:the loss"),  # so short a run is advised to go on
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous"),
]
FAMILIES: dict[str, Any] = {"lstm": lstm, "gru": gru, "rnn": rnn, "transformer": transformer}


@pytest.mark.parametrize("family", FAMILIES)
def test_replayed_it_is_the_step_as_it_stands(family: str) -> None:
    gpu = torch.device("cuda")
    kind = FAMILIES[family]
    config = kind.Config(
        hidden=16,
        layers=2,
        dropout=0.0,
        training=TrainingConfig(batch_size=4, bptt=8, clip=0.25, learning_rate=1e-2),
    )
    ids = np.random.default_rng(2).integers(3, VOCABULARY.size, 400)
    weights = []
    for reader in (EagerStepper, CudaGraphStepper):
        torch.manual_seed(1)
        network = kind.build(config, VOCABULARY, None).to(gpu).train()
        step = TrainingStep(network, next_token, config.training, gpu)
        run: Any = reader(step, StreamBatches(ids, config.training, 0, gpu))
        for epoch in range(2):
            for _ in run.epoch(epoch, 0):
                pass
        weights.append(step.flat.weights.clone())
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-3, atol=1e-4)


def test_replayed_it_blames_as_the_step_as_it_stands() -> None:
    gpu = torch.device("cuda")
    config = lstm.Config(
        hidden=16,
        layers=2,
        dropout=0.0,
        training=TrainingConfig(batch_size=4, bptt=8, clip=0.25, learning_rate=1e-3),
    )
    ids = np.random.default_rng(2).integers(3, VOCABULARY.size, 400)
    found = []
    for reader in (EagerStepper, CudaGraphStepper):
        torch.manual_seed(1)
        network = lstm.build(config, VOCABULARY, None).to(gpu).train()
        step = TrainingStep(network, next_token, config.training, gpu)
        run: Any = reader(step, StreamBatches(ids, config.training, 0, gpu))
        steps = sum(1 for _ in run.epoch(0, 0))
        before = step.flat.weights.clone()
        next(iter(run.epoch(1, 0)))
        step.gradient_stats.record_update(before)
        assert step.gradient_stats.steps.tolist() == [steps + 1] * len(
            step.gradient_stats.names
        )  # warming up is not counted
        found.append(step.gradient_stats.flush())
    assert sum(found[0]["clipped_by"].values()) > 3
    assert found[1]["clipped_by"] == found[0]["clipped_by"]
    for part in ("gradient_norms", "update_ratio"):
        assert found[1][part] == pytest.approx(found[0][part], rel=0.02)


def test_a_model_of_the_gpu_opens_on_the_processor(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c d\nb c d e\nc d e a\n" * 40)
    made = api.train("lstm", text, context="stream", device="cuda", hidden=16, epochs=2, precision="fp16")
    made.save(tmp_path / "model")
    there, here = (api.load(tmp_path / "model", device=device) for device in ("cuda", "cpu"))
    assert here.lm.device.type == "cpu"
    assert here.score("a b c").log_prob == pytest.approx(there.score("a b c").log_prob, rel=1e-4)


@contextmanager
def stopped_after(steps: int) -> Iterator[None]:
    """A request to stop comes after so many replays."""
    real = CudaGraphStepper.epoch

    def counted(self: CudaGraphStepper, epoch: int, first: int) -> Iterator[None]:
        nonlocal steps
        for _ in real(self, epoch, first):
            steps -= 1
            if steps == 0:
                signal.raise_signal(signal.SIGTERM)
            yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaGraphStepper, "epoch", counted)
        yield


def test_a_run_on_the_gpu_can_be_taken_up(tmp_path: Path) -> None:
    """Dropout and all: the masks of the second part are those that the run would have drawn."""
    settings: dict[str, Any] = {"dropout": 0.3, "weight_dropout": 0.2, "hidden": 16, "device": "cuda"}
    whole = learn("lstm", "stream", **settings)
    with stopped_after(7), pytest.raises(SystemExit):
        learn("lstm", "stream", tmp_path, **settings)
    again = learn("lstm", "stream", tmp_path, resume=True, **settings)
    for name, weight in whole.network.state_dict().items():
        torch.testing.assert_close(again.network.state_dict()[name], weight, rtol=1e-4, atol=1e-5)


def test_half_precision_with_dropout_learns_as_full_does() -> None:
    """The same text by fp32 and by fp16, replayed: the losses are alike, and far below where they began."""
    found = {}
    for precision in ("fp32", "fp16"):
        settings: dict[str, Any] = {"hidden": 32, "epochs": 8, "learning_rate": 0.01, "dropout": 0.1}
        texts: dict[str, Any] = {"train": lines(200), "valid": lines(200, seed=2)}
        model = learn("lstm", "stream", device="cuda", precision=precision, **texts, **settings)
        found[precision] = [e["nats"] for e in entries(model.log) if e.get("event") == "validation"]
    assert found["fp16"][-1] < found["fp16"][0] - 0.2
    assert found["fp16"][-1] == pytest.approx(found["fp32"][-1], abs=0.1)
