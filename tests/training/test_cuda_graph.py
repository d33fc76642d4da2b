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
from training.small_networks import VOCABULARY, entries, lines, train_briefly

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
    pytest.mark.filterwarnings("ignore:the loss"),  # so short a run gets the diagnostic to continue
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous"),
]
FAMILIES: dict[str, Any] = {"lstm": lstm, "gru": gru, "rnn": rnn, "transformer": transformer}


@pytest.mark.parametrize("family", FAMILIES)
def test_cuda_graph_step_equals_the_eager_step(family: str) -> None:
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


def test_cuda_graph_gradient_statistics_equal_eager_ones() -> None:
    gpu = torch.device("cuda")
    config = lstm.Config(
        hidden=16,
        layers=2,
        dropout=0.0,
        training=TrainingConfig(batch_size=4, bptt=8, clip=0.25, learning_rate=1e-3),
    )
    ids = np.random.default_rng(2).integers(3, VOCABULARY.size, 400)
    results = []
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
        )  # warm-up steps are not counted
        results.append(step.gradient_stats.flush())
    assert sum(results[0]["clipped_by"].values()) > 3
    assert results[1]["clipped_by"] == results[0]["clipped_by"]
    for part in ("gradient_norms", "update_ratio"):
        assert results[1][part] == pytest.approx(results[0][part], rel=0.02)


def test_gpu_model_loads_on_the_cpu(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c d\nb c d e\nc d e a\n" * 40)
    model = api.train("lstm", text, context="stream", device="cuda", hidden=16, epochs=2, precision="fp16")
    model.save(tmp_path / "model")
    on_gpu, on_cpu = (api.load(tmp_path / "model", device=device) for device in ("cuda", "cpu"))
    assert on_cpu.lm.device.type == "cpu"
    assert on_cpu.score("a b c").log_prob == pytest.approx(on_gpu.score("a b c").log_prob, rel=1e-4)


@contextmanager
def request_stop_after(steps: int) -> Iterator[None]:
    """Request a stop after this many replays."""
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


def test_gpu_run_resumes_exactly(tmp_path: Path) -> None:
    """With dropout: the masks after resuming are those the uninterrupted run would have drawn."""
    settings: dict[str, Any] = {"dropout": 0.3, "weight_dropout": 0.2, "hidden": 16, "device": "cuda"}
    whole = train_briefly("lstm", "stream", **settings)
    with request_stop_after(7), pytest.raises(SystemExit):
        train_briefly("lstm", "stream", tmp_path, **settings)
    again = train_briefly("lstm", "stream", tmp_path, resume=True, **settings)
    for name, weight in whole.network.state_dict().items():
        torch.testing.assert_close(again.network.state_dict()[name], weight, rtol=1e-4, atol=1e-5)


def test_fp16_with_dropout_trains_as_well_as_fp32() -> None:
    """The same text in fp32 and fp16 with CUDA graphs: similar losses, far below the initial ones."""
    result = {}
    for precision in ("fp32", "fp16"):
        settings: dict[str, Any] = {"hidden": 32, "epochs": 8, "learning_rate": 0.01, "dropout": 0.1}
        texts: dict[str, Any] = {"train": lines(200), "valid": lines(200, seed=2)}
        model = train_briefly("lstm", "stream", device="cuda", precision=precision, **texts, **settings)
        result[precision] = [e["nats"] for e in entries(model.log) if e.get("event") == "validation"]
    assert result["fp16"][-1] < result["fp16"][0] - 0.2
    assert result["fp16"][-1] == pytest.approx(result["fp32"][-1], abs=0.1)
