"""`chainrule train` stopped, killed and resumed, as processes run by a shell."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chainrule.training import checkpoint
from cli.command import call, english, run_error, run_ok, trained, write

NETWORK = (
    "--hidden",
    8,
    "--set",
    "log_every=1",
    "--batch-size",
    4,
    "--bptt",
    3,
    "--threads",
    1,
    "--device",
    "cpu",
    "--min-count",
    2,
)
OFTEN = ("--set", "checkpoint_seconds=0")  # which also makes a run slow enough to be stopped in the middle


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("resume") / "text.txt", english(40))


@pytest.fixture(scope="module")
def valid(text: Path) -> Path:
    return write(text.with_name("valid.txt"), english(6, seed=8))


def words(out: Path, text: Path, *more: object, epochs: int = 12) -> list[str]:
    arguments = ["train", "lstm", text, "--out", out, "--epochs", epochs, *NETWORK, *more]
    return [str(word) for word in arguments]


def weights(model: Path) -> bytes:
    return (model / "model.safetensors").read_bytes()


SIGNAL_ITSELF = """
import os, signal, sys
from chainrule.cli.signals import main
from chainrule.training import checkpoint

number, saves_left = int(sys.argv[1]), int(sys.argv[2])
save = checkpoint.save

def save_and_signal(*arguments):
    global saves_left
    save(*arguments)
    saves_left -= 1
    if saves_left == 0:
        os.kill(os.getpid(), number)

checkpoint.save = save_and_signal
sys.argv = ["chainrule", *sys.argv[3:]]
sys.exit(main())
"""
"""The command line in argv[3:], which sends itself the signal argv[1] after it has saved argv[2] checkpoints."""


def start(arguments: list[str], number: signal.Signals, saves: int = 3) -> subprocess.Popen[bytes]:
    """Start a command that sends itself a signal; SIGINT is delivered even if this process ignores it."""
    return subprocess.Popen(
        [sys.executable, "-c", SIGNAL_ITSELF, str(int(number)), str(saves), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run_stopped(arguments: list[str], number: signal.Signals) -> tuple[int, str]:
    """Exit status and stderr of a run that sent itself this signal during training."""
    with start(arguments, number) as process:
        _, err = process.communicate()
    return process.returncode, err.decode()


@pytest.mark.parametrize(
    ("number", "status", "context"), [(signal.SIGINT, 130, "line"), (signal.SIGTERM, 143, "stream")]
)
def test_stopped_run_resumes_exactly(
    tmp_path: Path, text: Path, valid: Path, number: signal.Signals, status: int, context: str
) -> None:
    more = ("--valid", valid, "--context", context)
    out = tmp_path / "m"
    code, err = run_stopped(words(out, text, *more, *OFTEN), number)
    assert code == status
    assert "Traceback" not in err
    assert err.endswith("stopped\n") or number == signal.SIGTERM
    loaded = checkpoint.load(out)
    assert loaded is not None
    assert loaded.position["step"] > 0
    assert loaded.position["epoch"] < 12
    assert not (out / "manifest.json").exists()
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint", "train_log.part.jsonl"]
    assert "contains an unfinished run; continue it" in run_error(2, *words(out, text, *more))
    run_ok(*words(out, text, *more, "--resume"))
    run_ok(*words(tmp_path / "whole", text, *more))
    assert weights(out) == weights(tmp_path / "whole")
    assert not (out / "checkpoint").exists()
    assert not (out / "train_log.part.jsonl").exists()
    assert (out / "train_log.jsonl").exists()


def test_killed_run_resumes_and_keeps_the_old_model(tmp_path: Path, text: Path) -> None:
    """The output folder already contains a model; kill −9 during training, twice."""
    out = trained(tmp_path / "m", text, "--order", 2, "--smoothing", "witten-bell")
    before = run_ok("info", out, "--json").json()
    for trial in range(2):
        resume = ("--resume",) if trial else ("--force",)
        status, _ = run_stopped(words(out, text, *OFTEN, *resume), signal.SIGKILL)
        assert status == -signal.SIGKILL
        assert run_ok("info", out, "--json").json() == before  # the complete old model
        assert checkpoint.load(out) is not None
    run_ok(*words(out, text, "--resume"))
    run_ok(*words(tmp_path / "whole", text))
    assert weights(out) == weights(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "whole"]
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(("ending", "kind"), [(" , it said .", "whitespace"), (", it said.", "word")])
def test_killed_run_resumes_with_the_chosen_tokenizer(tmp_path: Path, ending: str, kind: str) -> None:
    """`word` is the default; the text decides whether punctuation is split, and a resumed run keeps the choice."""
    text = write(tmp_path / "text.txt", english(40).replace("\n", f"{ending}\n"))
    out = tmp_path / "m"
    status, _ = run_stopped(words(out, text, *OFTEN), signal.SIGKILL)
    assert status == -signal.SIGKILL
    resumed = run_ok(*words(out, text, "--resume"))
    assert f"tokenizer: {kind} (" in resumed.err
    assert json.loads((out / "config.json").read_text())["tokenizer"]["kind"] == kind
    run_ok(*words(tmp_path / "whole", text))
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.fixture(scope="module")
def unfinished(text: Path, valid: Path) -> Path:
    """A stopped run that every test refuses to resume and must not change."""
    out = text.with_name("unfinished")
    code, _ = run_stopped(words(out, text, "--valid", valid, *OFTEN), signal.SIGTERM)
    assert code == 143
    return out


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "checkpoint").iterdir()}


def test_resume_with_another_text_is_refused(unfinished: Path, text: Path, valid: Path, tmp_path: Path) -> None:
    before = files(unfinished)
    other = write(tmp_path / "text.txt", english(41))
    message = run_error(3, *words(unfinished, other, "--valid", valid, "--resume"))
    assert "the text changed since the checkpoint was written; give the text it was trained on" in message
    other = write(tmp_path / "valid.txt", english(7, seed=8))
    message = run_error(3, *words(unfinished, text, "--valid", other, "--resume"))
    assert "the validation text is not that of the checkpoint" in message
    assert "the validation text was left out" in run_error(3, *words(unfinished, text, "--resume"))
    assert files(unfinished) == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--hidden", 9), "model.hidden is 9 now and was 8 then"),
        (("--dropout", 0.5), "model.dropout is 0.5 now and was 0.2 then"),
        (("--seed", 1), "seed is 1 now and was 0 then"),
        (("--context", "stream"), "context is stream now and was line then"),
        (("--vocab-size", 9), "the tokenizer changed"),
    ],
)
def test_resume_with_other_settings_is_refused(
    unfinished: Path, text: Path, valid: Path, more: tuple[object, ...], message: str
) -> None:
    before = files(unfinished)
    arguments = words(unfinished, text, "--valid", valid, "--resume", *more)
    assert message in run_error(2, *arguments)
    assert files(unfinished) == before


def test_second_run_into_the_same_folder_is_refused(tmp_path: Path, text: Path) -> None:
    out = tmp_path / "m"
    arguments = words(out, text, *OFTEN)
    with start(arguments, signal.SIGSTOP) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # it is stopped in the middle of its training
        try:
            assert "is being written by another run" in run_error(2, *arguments)
            assert "is being written by another run" in run_error(2, *arguments, "--resume")
        finally:
            process.kill()


def test_diverged_run_keeps_its_checkpoint(tmp_path: Path, text: Path) -> None:
    """A far too high rate: step and tensor are named, and the last good checkpoint can be resumed."""
    out = tmp_path / "m"
    huge = ("--optimizer", "sgd", "--learning-rate", "1e30", "--clip", 0, "--set", "warmup=0", *OFTEN)
    arguments = ["rnn" if word == "lstm" else word for word in words(out, text, *huge)]
    outcome = call(*arguments)
    assert outcome.status == 1
    last = outcome.err.splitlines()[-1]
    assert last.startswith("error: training diverged at step ")
    assert "values; the last good checkpoint is kept at " in last
    loaded = checkpoint.load(out)
    assert loaded is not None
    assert loaded.position["step"] > 0
    assert all(tensor.isfinite().all() for tensor in loaded.weights.values())
    assert not (out / "manifest.json").exists()


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_finished", [True, False], ids=["model", "run"])
def test_failed_run_with_force_leaves_the_folder_unchanged(tmp_path: Path, text: Path, is_finished: bool) -> None:
    out = tmp_path / "m"
    huge = ("--optimizer", "sgd", "--learning-rate", "1e30", "--clip", 0, "--set", "warmup=0")
    diverging = ["rnn" if word == "lstm" else word for word in words(out, text, *huge)]
    if is_finished:
        run_ok("train", "ngram", text, "--order", 1, "--out", out)
    else:
        assert call(*diverging, *map(str, OFTEN)).status == 1
        assert (out / "train_log.part.jsonl").stat().st_size > 0
    before = files_of(out)
    outcome = call(*diverging, "--force")
    assert outcome.status == 1
    assert "training diverged" in outcome.err
    assert "checkpoint" not in outcome.err  # this run wrote none
    assert files_of(out) == before


def test_diagnostics_are_warnings_and_log_lines(tmp_path: Path, text: Path) -> None:
    slow = ("--learning-rate", "1e-6", "--clip", "1e-6")
    outcome = run_ok(*words(tmp_path / "m", text, *slow, epochs=2))
    assert outcome.err.count("warning: the gradient was clipped on 100% of the steps") == 1
    assert outcome.err.count("is above that of word frequencies alone") == 1
    log = [json.loads(line) for line in (tmp_path / "m" / "train_log.jsonl").read_text().splitlines()]
    messages = [entry["words"] for entry in log if entry.get("event") == "advice"]
    assert len(messages) == 2
    assert all(f"warning: {item}\n" in outcome.err for item in messages)


def test_finished_model_is_not_resumed(tmp_path: Path, text: Path) -> None:
    out = tmp_path / "m"
    run_ok(*words(out, text, epochs=1))
    before = weights(out)
    assert "finished model" in run_error(2, *words(out, text, "--resume", epochs=1))
    assert weights(out) == before
