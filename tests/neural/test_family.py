"""Training, saving and loading of a network."""

import dataclasses
import json
import math
import re
import sys
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from chainrule import api, families
from chainrule.config import build_config
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.errors import ChainruleWarning, ConfigError, ModelFileError, UsageError
from chainrule.lm import Vocabulary
from chainrule.model import Model
from chainrule.storage import verified_dir
from chainrule.text.corpus import Corpus
from chainrule.training.batches import Window
from chainrule.training.config import TrainingConfig
from chainrule.training.device import exact_inference, select_device
from chainrule.training.step import TrainingStep

TEXT = ["the cat sees a dog", "a dog sees the cat", "", "the mouse runs"] * 6
SMALL: dict[str, Any] = {"hidden": 8, "epochs": 1, "batch_size": 4, "min_count": 2}
pytestmark = pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")


def train(family: str = "lstm", **settings: Any) -> Model:
    return api.train(family, Corpus.from_lines(TEXT), device="cpu", **SMALL | settings)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("family") / "model"
    train().save(place)
    return place


def rewritten(source: Path, target: Path, *, weights: bytes | None = None, **settings: Any) -> Path:
    """The same model with other settings or weights and a valid manifest."""

    def fill(root: Path) -> None:
        for path in source.iterdir():
            if path.name != "manifest.json":
                (root / path.name).write_bytes(path.read_bytes())
        config = json.loads((source / "config.json").read_text())
        config["model"] |= settings
        (root / "config.json").write_text(json.dumps(config))
        if weights is not None:
            (root / "model.safetensors").write_bytes(weights)

    verified_dir.write(target, fill, verified_dir.open_dir(source).facts)
    return target


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"hidden": 9},
            r"model.safetensors does not fit its config: embedding is \(\d+, 8\) and should be \(\d+, 9\)",
        ),
        ({"layers": 2}, r"does not fit its config: layers.1.R is absent and should be \(32, 8\)"),
        ({"learned_start": True}, r"does not fit its config: starts.0 is absent"),
        ({"tie": False}, r"does not fit its config: output.weight is absent"),
        ({"output": "sampled"}, r"does not fit its config: output.edges is absent"),
        ({"layers": 65536}, r"does not fit its config: 65536 layers of \d tensors"),
        ({"hidden": 60000}, r"the model would have 28,\d+,\d+,\d+ parameters"),
        ({"hidden": 10**12}, r"model.hidden is 1000000000000; choose 1 to 65536"),
        ({"layers": 10**6}, r"model.layers is 1000000; choose 1 to 65536"),
        ({"embedding": 60000, "tie": False}, r"does not fit its config"),
        ({"memory": 65536, "attention": "general"}, r"does not fit its config: past\.\S+ is absent"),
    ],
)
def test_config_that_does_not_match_the_weights_is_rejected(
    saved: Path, tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    changed = rewritten(saved, tmp_path / "other", **settings)
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    tracemalloc.start()
    sys.setprofile(count)
    try:
        with pytest.raises(ModelFileError, match=words):
            api.load(changed)
    finally:
        sys.setprofile(None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 50e6
    assert calls < 20_000  # 65,536 layers would take several calls per layer even to inspect


def test_mismatched_model_allocates_no_memory(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's memory is not Python's: everything built before the error is on the meta device."""
    built: list[str] = []
    lstm = families.get("lstm")
    real: Any = lstm.build  # type: ignore[attr-defined]

    def spy(*arguments: Any) -> Any:
        network = real(*arguments)
        built.append(next(network.parameters()).device.type)
        return network

    watched = dataclasses.replace(lstm, build=spy)  # type: ignore[type-var]
    monkeypatch.setattr(families, "get", lambda name: watched)
    with pytest.raises(ModelFileError):
        api.load(rewritten(saved, tmp_path / "other", hidden=4000))
    assert built == ["meta"]
    api.load(saved, device="cpu")
    assert built == ["meta", "meta", "cpu"]


@pytest.mark.parametrize("weights", [b"", b"no tensors at all", b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_invalid_weights_file_is_rejected(saved: Path, tmp_path: Path, weights: bytes) -> None:
    with pytest.raises(ModelFileError, match=r"model\.safetensors (is not a safetensors file|does not fit)"):
        api.load(rewritten(saved, tmp_path / "other", weights=weights))


def test_too_large_a_network_is_rejected_before_it_is_built() -> None:
    with pytest.raises(ConfigError, match=r"would have 28,\d+,\d+,\d+ parameters; the maximum is 8,589,934,592"):
        train(hidden=60000)


def test_same_seed_gives_the_same_weights(saved: Path) -> None:
    files = [families.get("lstm").files(train(seed=seed).lm)["model.safetensors"] for seed in (0, 0, 1)]
    assert files[0] == files[1] == (saved / "model.safetensors").read_bytes()
    assert files[0] != files[2]


def test_model_gives_the_same_results_on_any_device(saved: Path) -> None:
    """The files know no device: they load on the CPU, whatever `auto` selects."""
    on_cpu, on_default = api.load(saved, device="cpu"), api.load(saved)
    assert on_cpu.lm.device.type == "cpu"
    ids = np.array([on_cpu.lm.vocabulary.bos])
    log_p, _ = on_cpu.lm.step(on_cpu.lm.start(1), ids)
    again, _ = on_default.lm.step(on_default.lm.start(1), ids)
    np.testing.assert_allclose(log_p, again, rtol=1e-4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "setting",
    ["model.forget_bias", "model.init_range", "training.max_seconds", "training.learning_rate", "training.clip"],
)
def test_non_finite_settings_are_rejected(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(setting)} is "):
        build_config(families.get("lstm").Config, {setting.split(".")[1]: value}, "model")


def test_training_log_is_saved_with_the_model(saved: Path) -> None:
    lines = [json.loads(line) for line in (saved / "train_log.jsonl").read_text().splitlines()]
    assert lines[-1]["event"] == "end"
    assert api.load(saved).lm.log == (saved / "train_log.jsonl").read_bytes()


def test_tied_weights_are_saved_and_counted_once() -> None:
    tied, untied = train(), train(tie=False)
    V = tied.lm.vocabulary.size
    assert untied.parameters - tied.parameters == V * 8
    # E: 8V, an LSTM of 8: 4 · (8·8 + 8·8 + 8 + 8), b: V
    assert tied.parameters == 8 * V + 4 * (64 + 64 + 16) + V


@pytest.mark.parametrize("family", ["lstm", "transformer"])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_requires_a_gpu(family: str, precision: str) -> None:
    with pytest.raises(ConfigError, match=f"'{precision}', which requires a GPU; use fp32 on the CPU"):
        train(family, precision=precision)


def test_missing_gpu_is_reported() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UsageError, match="torch finds no GPU here; choose cpu"):
        api.train("lstm", Corpus.from_lines(TEXT), device="cuda", **SMALL)
    assert select_device("auto") == torch.device("cpu")


def test_exact_inference_disables_gradients() -> None:
    with exact_inference():
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def data(valid: list[int] | None, closed: bool) -> TrainingData:
    def encoded(ids: list[int]) -> EncodedText:
        return EncodedText(np.array(ids, dtype=np.int32), 1, 2, 0, 0, 0)

    return TrainingData(
        train=encoded([3, 4, 5, 1] * 10),
        valid=None if valid is None else encoded(valid),
        vocabulary=Vocabulary(6, 0, 1, 2, closed),
        options=RunOptions(device="cpu"),
    )


@pytest.mark.parametrize(
    ("valid", "closed", "validations"),
    [
        ([3, 4, 1], False, 1),
        ([3, 2, 1], True, 1),  # an unknown word is impossible in a closed vocabulary: training continues without it
        ([], False, 0),
        (None, False, 0),
    ],
)
def test_validation_runs_only_on_usable_text(valid: list[int] | None, closed: bool, validations: int) -> None:
    lstm = families.get("lstm")
    lm: Any = lstm.train(data(valid, closed), lstm.Config(hidden=8, training=TrainingConfig(epochs=1)))
    events = [json.loads(line).get("event") for line in lm.log.splitlines()]
    assert events.count("validation") == validations


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("bptt", [0, 2, 50])
def test_training_windows_never_exceed_bptt_or_window(
    monkeypatch: pytest.MonkeyPatch, context: Any, bptt: int
) -> None:
    widths: set[int] = set()
    real = TrainingStep.__call__

    def record_width(self: TrainingStep, window: Window, state: Any) -> Any:
        widths.add(window.inputs.shape[1])
        return real(self, window, state)

    monkeypatch.setattr(TrainingStep, "__call__", record_width)
    sizes: dict[str, Any] = {"hidden": 8, "heads": 2, "layers": 1, "window": 3, "bptt": bptt, "batch_size": 4}
    lines = Corpus.from_lines(["a b c d e f g h"] * 6)  # 9 tokens each
    api.train("transformer", lines, context=context, device="cpu", epochs=1, **sizes)
    assert widths == ({3} if bptt != 2 else {2} if context == "stream" else {1, 2})


def test_nce_loss_gives_no_unigram_diagnostic() -> None:
    with pytest.warns(ChainruleWarning) as warned:
        train(output="nce", samples=50, learning_rate=1e-6, clip=1e-9)
    assert not [w for w in warned if "frequencies" in str(w.message)]
    with pytest.warns(ChainruleWarning, match="above that of word frequencies"):
        train(learning_rate=1e-6, clip=1e-9)


def test_all_output_layers_round_trip(tmp_path: Path) -> None:
    for output in ("softmax", "sampled", "nce", "adaptive"):
        model = train("gru", output=output, samples=3, tie=output != "adaptive")
        model.save(tmp_path / output)
        loaded = api.load(tmp_path / output, device="cpu")
        ids = np.array([model.lm.vocabulary.bos])
        assert_array_equal(loaded.lm.step(loaded.lm.start(1), ids)[0], model.lm.step(model.lm.start(1), ids)[0])
