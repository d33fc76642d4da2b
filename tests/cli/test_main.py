"""`chainrule`: statuses, streams, signals, and nothing heavy before it is needed."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import chainrule
from cli.command import ENTRY, QUIET, call, done, process, trained, write

COMMANDS = (
    "compare",
    "train",
    "evaluate",
    "score",
    "generate",
    "next",
    "mix",
    "convert",
    "info",
    "recipes",
    "tokenizer",
    "doctor",
)
HEAVY = ("numpy", "torch", "tokenizers", "safetensors", "rich", "pyarrow", "chainrule._core")


def test_version_and_help() -> None:
    assert done("--version").out == f"chainrule {chainrule.__version__}\n"
    shown = done("--help").out
    assert all(f"\n  {command} " in shown for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    names = ("train", "encode", "decode") if command == "tokenizer" else ("",)
    for name in names:
        words = [word for word in (command, name) if word]
        shown = re.sub(r"\s+", " ", done(*words, "--help").out)
        assert re.search(rf"Examples?: .*chainrule {' '.join(words)}", shown), words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "error: no such command 'frobnicate'; see chainrule --help"),
        (["evaluate"], "error: missing argument 'MODEL'; see chainrule evaluate --help"),
        (["train", "ngram", "t.txt"], "error: missing option '--out'; see chainrule train --help"),
        (["info", "m", "--frobnicate"], "error: no such option: --frobnicate; see chainrule info --help"),
        (["train", "ngram", "t.txt", "--out", "m", "--order", "x"], "error: invalid value for '--order': "),
    ],
)
def test_a_call_that_cannot_be_parsed_is_wrong_usage(arguments: list[str], message: str) -> None:
    outcome = call(*arguments)
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.startswith(message)
    assert outcome.err.count("\n") == 1


def test_no_command_at_all_is_answered_with_the_help() -> None:
    outcome = call()
    assert outcome.status == 2
    assert "Usage: chainrule" in outcome.err
    assert "compare" in outcome.err


def test_debug_shows_where_and_keeps_the_status(tmp_path: Path) -> None:
    plain = call("evaluate", tmp_path / "nowhere", "-")
    assert (plain.status, plain.err.count("\n")) == (4, 1)
    debug = call("evaluate", tmp_path / "nowhere", "-", "--debug")
    assert debug.status == 4
    assert debug.err.startswith("Traceback (most recent call last)")
    assert debug.err.endswith(plain.err)


def test_a_failure_while_running_is_one_line(mle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "config.toml"
    folder.mkdir()
    outcome = call("train", "ngram", "-", "--out", tmp_path / "m", "--config", folder, stdin="a\n")
    assert outcome.status == 2
    assert outcome.err == f"error: {folder} cannot be read: Is a directory; give a TOML file\n"


def test_a_full_disk_is_one_line(mle: Path) -> None:
    with open("/dev/full", "wb") as full:
        words = [ENTRY, "info", str(mle)]
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"error: ")
    assert ended.stderr.endswith(b"No space left on device\n")


def test_the_process_keeps_its_streams_apart(toy_text: Path, tmp_path: Path) -> None:
    ended = process("train", "ngram", toy_text, "--out", tmp_path / "m", "--order", 2)
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert ended.stderr.startswith(b"warning: order 1: D = 0.5, 1, 1.5 taken")
    assert b"/chainrule/" not in ended.stderr  # no file name and line of the warning
    ended = process("score", tmp_path / "m", "--json", stdin="naïve\n".encode())
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "naïve".encode() in ended.stdout
    ended = process("score", tmp_path / "m", stdin=b"\xff")
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert ended.stderr.count(b"\n") == 1
    assert process("info", tmp_path / "nowhere").returncode == 4
    assert process("generate", tmp_path / "m", "--top-p", "2").returncode == 2


def test_the_module_is_the_command(mle: Path) -> None:
    words = [sys.executable, "-m", "chainrule", "next", str(mle), "i", "--top", "1"]
    ended = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"1.000000\tlove\n", b"")
    words = [sys.executable, "-m", "chainrule", "info", "nowhere"]
    assert subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 4


@pytest.mark.parametrize("arguments", [["next", "i"], ["generate", "--num", "3000", "--seed", "1"]])
def test_nobody_reads_on(mle: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command, *options = arguments
    words = [ENTRY, command, str(mle), *options]
    ended = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert ended.stderr == b""
    assert ended.returncode in (0, 1)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_work_and_nothing_is_lost(
    tmp_path: Path, toy_text: Path, number: signal.Signals, status: int
) -> None:
    model = trained(tmp_path / "m", toy_text, "--order", 2, *QUIET)
    before = (model / "manifest.json").read_bytes()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [ENTRY, "train", "ngram", "-", "--out", str(model)]
    environment = os.environ | {"TMPDIR": str(scratch)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words,
        env=environment,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    ) as running:
        assert running.stdin is not None
        running.stdin.write(b"word\n" * 100_000)  # more than a pipe holds: once written, it is being read
        running.stdin.flush()
        running.send_signal(number)
        _, err = running.communicate(timeout=60)
    assert running.returncode == status
    assert b"Traceback" not in err
    assert list(scratch.iterdir()) == []
    assert (model / "manifest.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "scratch"]


def loaded_by(code: str) -> set[str]:
    """Which heavy modules a fresh Python holds after this code."""
    shown = f"import sys; {code}; print('loaded', [m for m in {HEAVY!r} if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", shown], capture_output=True, timeout=60, check=True)
    last = ended.stdout.decode().splitlines()[-1]
    return set(re.findall(r"'([^']+)'", last))


def test_importing_loads_nothing_heavy() -> None:
    assert loaded_by("import chainrule; chainrule.__version__; dir(chainrule)") == set()
    assert loaded_by("import chainrule; chainrule.ChainruleError") == set()
    assert "numpy" in loaded_by("import chainrule; chainrule.load")  # the check itself can fail


def test_help_loads_nothing_heavy() -> None:
    for arguments in (
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["compare", "--help"],
        ["recipes", "small-lstm"],
    ):
        code = (
            f"sys.argv = ['chainrule', *{arguments!r}]\n"
            "from chainrule.cli.main import run\ntry: run()\nexcept SystemExit: pass\n"
        )
        assert loaded_by(f"exec({code!r})") == set(), arguments


def test_unknown_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = chainrule.frobnicate
    assert all(getattr(chainrule, name) is not None for name in chainrule.__all__)


def test_a_warning_is_said_once(tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", "a b\n")
    outcome = done("train", "ngram", text, "--order", 2, "--out", tmp_path / "m")
    warnings = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == len(set(warnings)) > 0
