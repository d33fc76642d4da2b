"""Several processes train the network that one process trains; they stop together and resume in any number."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from training.rank_cases import BY_SIZE, STOPPED_AT

SIZES = [1, 2, 4]


class Results:
    """Tensors by case and notes by rank, for each number of ranks; 0 is a process without a group."""

    def __init__(self, folder: Path) -> None:
        self.tensors = {size: load_file(folder / f"{size}.safetensors") for size in (0, *SIZES)}
        self.notes: dict[int, list[Any]] = {
            size: json.loads((folder / f"{size}.json").read_text()) for size in (0, *SIZES)
        }

        self.resumed = load_file(folder / "resumed.safetensors")

    def by_one(self, name: str) -> dict[str, Tensor]:
        """The tensors of a run that one process resumed at the end."""
        return {key.partition("/")[2]: tensor for key, tensor in self.resumed.items() if key.startswith(f"{name}/")}

    def case(self, size: int, name: str) -> dict[str, Tensor]:
        """The tensors of a case."""
        tensors = self.tensors[size].items()
        return {key.partition("/")[2]: tensor for key, tensor in tensors if key.startswith(f"{name}/")}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "training.rank_cases", str(folder)]
    tests = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=tests, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # only what a rank has to say
    return Results(folder)


@pytest.mark.parametrize(("size", "name"), [(size, name) for size in (2, 4) for name in BY_SIZE[size]])
def test_ranks_train_the_network_of_one_process(results: Results, name: str, size: int) -> None:
    """With dropout, in parts, with windows and batches in which a rank has no row, and with several optimizers."""
    one, several = results.case(0, name), results.case(size, name)
    assert several.keys() == one.keys()
    assert int(several["steps"]) == int(one["steps"]) > 8
    if name == "fp32":
        assert int(one["steps"]) > 100
        assert (several["losses"] - one["losses"])[:100].abs().max() < 1e-4
        return
    tolerance = 1e-6 if "adam" in name else 1e-10
    for key, tensor in one.items():
        limit = 1e-5 if key == "losses" else tolerance  # the statistics of the log are in the default precision
        torch.testing.assert_close(several[key], tensor, rtol=0, atol=limit, msg=lambda m, k=key: f"{k}: {m}")


@pytest.mark.parametrize("name", [*BY_SIZE[1], "resumed-0"])
def test_a_group_of_one_rank_gives_the_bits_of_a_process_without(results: Results, name: str) -> None:
    for key, tensor in results.case(0, name).items():
        assert torch.equal(results.case(1, name)[key], tensor), key


def test_rank_0_decides_about_the_plateau_and_early_stopping(results: Results) -> None:
    """Its validation losses are 2, 2.5, 1.5, 1.6, 1.7, 1.8; the other ranks have none."""
    for size in (0, 2):
        assert float(results.case(size, "plateau")["best"]) == 1.5


@pytest.mark.parametrize("size", [2, 4])
def test_all_reduce_of_the_flat_gradient_equals_ddp(results: Results, size: int) -> None:
    tensors = results.tensors[size]
    torch.testing.assert_close(tensors["own"], tensors["ddp"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [0, *SIZES])
def test_signal_to_one_rank_stops_all_at_the_same_step(results: Results, size: int) -> None:
    assert [note["signal"] for note in results.notes[size]] == [[143, STOPPED_AT]] * max(1, size)


@pytest.mark.parametrize("size", SIZES)
def test_nan_in_one_rank_stops_all_with_one_message(results: Results, size: int) -> None:
    messages = {note["diverged"] for note in results.notes[size]}
    assert len(messages) == 1
    assert messages.pop().startswith("training diverged at step 5: embedding has ")


@pytest.mark.parametrize(("written", "size"), [(0, 0), (2, 2), (4, 4)])
def test_run_resumed_by_as_many_ranks_gives_the_same_bits(results: Results, written: int, size: int) -> None:
    resumed, whole = results.case(size, f"resumed-{written}"), results.case(size, "lstm-stream")
    assert torch.equal(resumed["weights"], whole["weights"])
    assert torch.equal(resumed["losses"], whole["losses"])


@pytest.mark.parametrize(("written", "size"), [(0, 2), (0, 4), (2, 4), (2, 0), (4, 0)])
def test_run_is_resumed_by_another_number_of_ranks(results: Results, written: int, size: int) -> None:
    resumed = results.case(size, f"resumed-{written}") if size else results.by_one(f"resumed-{written}")
    whole = results.case(0, "lstm-stream")
    torch.testing.assert_close(resumed["weights"], whole["weights"], rtol=0, atol=1e-10)


def test_a_killed_rank_ends_the_others(results: Results) -> None:
    message = results.notes[4][0]["lost"]
    assert message.startswith("another process of this run ended or does not answer; ")
