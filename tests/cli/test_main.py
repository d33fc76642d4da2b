"""`chainrule`: exit statuses, streams, signals, and lazy imports."""

import contextlib
import errno
import io
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import chainrule
from chainrule.cli.main import app, run
from cli.command import ENTRY, QUIET, call, process, run_ok, trained, write

ROOT: Any = typer.main.get_command(app)


def leaf_commands(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands by their words, including those of groups (`tokenizer train`)."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaf_commands(command, (*names, name))
        else:
            yield (*names, name)


GROUPS = {(): ROOT, **{(name,): command for name, command in ROOT.commands.items() if hasattr(command, "commands")}}
COMMANDS = tuple(leaf_commands(ROOT))
RUN_A_MODEL = {
    *("compare", "train", "evaluate", "score", "generate", "next", "mix", "inspect", "rerank", "correct", "filter"),
    *("identify", "pretrain", "serve", "vectors contextual", "vectors senses"),
    *(f"{task} {verb}" for task in ("classify", "tag", "translate") for verb in ("train", "predict", "evaluate")),
    *("translate score", "translate align"),
}
"""Commands that load or train a model that may be a network."""
HEAVY = ("numpy", "torch", "tokenizers", "safetensors", "rich", "pyarrow", "chainrule._core")


def test_version_and_help() -> None:
    assert run_ok("--version").out == f"chainrule {chainrule.__version__}\n"
    output = run_ok("--help").out
    assert all(f"\n  {command} " in output for command in ROOT.commands)


def test_leaf_commands_are_complete() -> None:
    names = {" ".join(words) for words in COMMANDS}
    assert len(ROOT.commands) >= 23
    assert {"train", "serve", "identify", "tokenizer decode", "vectors map", "translate align"} <= names
    assert names >= RUN_A_MODEL
    assert len(names) == len(COMMANDS) > 40


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_in_its_help(words: tuple[str, ...]) -> None:
    output = re.sub(r"\s+", " ", run_ok(*words, "--help").out)
    assert output.startswith(f"Usage: chainrule {' '.join(words)} ")
    assert re.search(rf"Examples?: .*chainrule {' '.join(words)}", output), words


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_rejects_an_unknown_option_in_one_line(words: tuple[str, ...]) -> None:
    outcome = call(*words, "--qqq")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == f"error: no such option: --qqq; see chainrule {' '.join(words)} --help\n"


@pytest.mark.parametrize("words", GROUPS, ids=lambda words: " ".join(words) or "chainrule")
def test_help_summaries_are_complete_at_80_columns(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output = run_ok(*words, "--help").out
    for name in GROUPS[words].commands:
        (summary,) = re.findall(rf"^  {name} +(.+)$", output, re.MULTILINE)
        assert summary.endswith("."), summary
        assert not summary.endswith("..."), summary
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_that_run_a_model_share_the_device_option(words: tuple[str, ...]) -> None:
    command = ROOT
    for word in words:
        command = command.commands[word]
    device_options = [option for option in command.params if option.name == "device"]
    assert bool(device_options) == (" ".join(words) in RUN_A_MODEL)
    if device_options:
        (option,) = device_options
        assert (option.opts, option.default) == (["--device"], "auto")
        assert option.help == "Device of neural models: auto, cpu or cuda."


@pytest.mark.parametrize("command", ["score", "next", "generate", "correct", "filter", "mix"])
def test_unknown_device_is_wrong_usage(command: str, mle: Path, toy_text: Path, tmp_path: Path) -> None:
    arguments: dict[str, list[object]] = {
        "score": [toy_text],
        "next": ["i"],
        "generate": [],
        "correct": [toy_text],
        "filter": [toy_text, "--keep", "50%"],
        "mix": [mle, "--held-out", toy_text, "--out", tmp_path / "m"],
    }
    outcome = call(command, mle, *arguments[command], "--device", "tpu")
    assert outcome.status == 2
    assert outcome.err == "error: device is 'tpu'; choose auto, cpu or cuda\n"
    assert call(command, mle, *arguments[command], "--device", "cpu").status == 0


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
def test_unparsable_call_is_wrong_usage(arguments: list[str], message: str) -> None:
    outcome = call(*arguments)
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.startswith(message)
    assert outcome.err.count("\n") == 1


def test_no_command_prints_the_help() -> None:
    outcome = call()
    assert outcome.status == 2
    assert "Usage: chainrule" in outcome.err
    assert "compare" in outcome.err


def test_debug_prints_a_traceback_with_the_same_status(tmp_path: Path) -> None:
    plain = call("evaluate", tmp_path / "nowhere", "-")
    assert (plain.status, plain.err.count("\n")) == (4, 1)
    debug = call("evaluate", tmp_path / "nowhere", "-", "--debug")
    assert debug.status == 4
    assert debug.err.startswith("Traceback (most recent call last)")
    assert debug.err.endswith(plain.err)


def test_runtime_failure_is_one_line(mle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "config.toml"
    folder.mkdir()
    outcome = call("train", "ngram", "-", "--out", tmp_path / "m", "--config", folder, stdin="a\n")
    assert outcome.status == 2
    assert outcome.err == f"error: {folder} cannot be read: Is a directory; give a TOML file\n"


def test_full_disk_is_one_line(mle: Path) -> None:
    with open("/dev/full", "wb") as full:
        words = [ENTRY, "info", str(mle)]
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"error: ")
    assert b"No space left on device; make room" in ended.stderr


def test_process_separates_stdout_and_stderr(toy_text: Path, tmp_path: Path) -> None:
    ended = process("train", "ngram", toy_text, "--out", tmp_path / "m", "--order", 2)
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert ended.stderr.startswith(b"warning: order 1: using default discounts 0.5, 1, 1.5: ")
    assert b"/chainrule/" not in ended.stderr  # no source file and line of the warning
    ended = process("score", tmp_path / "m", "--json", stdin="naïve\n".encode())
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "naïve".encode() in ended.stdout
    ended = process("score", tmp_path / "m", stdin=b"\xff")
    assert (ended.returncode, ended.stdout) == (3, b"")
    assert ended.stderr.count(b"\n") == 1
    assert process("info", tmp_path / "nowhere").returncode == 4
    assert process("generate", tmp_path / "m", "--top-p", "2").returncode == 2


def test_python_m_chainrule_is_the_command(mle: Path) -> None:
    words = [sys.executable, "-m", "chainrule", "next", str(mle), "i", "--top", "1"]
    ended = subprocess.run(words, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"1.000000\tlove\n", b"")
    words = [sys.executable, "-m", "chainrule", "info", "nowhere"]
    assert subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 4


@pytest.mark.parametrize("arguments", [["next", "i"], ["generate", "--num", "3000", "--seed", "1"]])
def test_closed_pipe_ends_the_command_quietly(mle: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command, *options = arguments
    words = [ENTRY, command, str(mle), *options]
    ended = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert ended.stderr == b""
    assert ended.returncode in (0, 1)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_stops_the_work_without_loss(
    tmp_path: Path, toy_text: Path, number: signal.Signals, status: int
) -> None:
    model = trained(tmp_path / "m", toy_text, "--order", 2, *QUIET)
    before = (model / "manifest.json").read_bytes()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [ENTRY, "train", "ngram", "-", "--out", str(model), "--force"]
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
    """Heavy modules loaded in a fresh Python after this code."""
    script = f"import sys; {code}; print('loaded', [m for m in {HEAVY!r} if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=True)
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


def test_unknown_package_attribute_raises() -> None:
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = chainrule.frobnicate
    assert all(getattr(chainrule, name) is not None for name in chainrule.__all__)


def test_dir_lists_the_public_names() -> None:
    assert set(chainrule.__all__) <= set(dir(chainrule))
    assert "__version__" in dir(chainrule)
    code = "import rlcompleter, chainrule; print(rlcompleter.Completer(globals()).attr_matches('chainrule.tr'))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert b"chainrule.train(" in ended.stdout


def test_warning_is_printed_once(tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", "a b\n")
    outcome = run_ok("train", "ngram", text, "--order", 2, "--out", tmp_path / "m")
    warnings = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == len(set(warnings)) > 0


class FailingOutput(io.RawIOBase):
    """A stdout that fails like /dev/full, or like a pipe without reader."""

    def __init__(self, number: int) -> None:
        self.number = number

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        raise OSError(self.number, os.strerror(self.number))


def call_with_output(number: int, *arguments: object, stdin: bytes = b"") -> tuple[int, str]:
    """Exit status and stderr of a command whose stdout fails with this error number."""
    out = io.TextIOWrapper(io.BufferedWriter(FailingOutput(number)), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["chainrule", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            run()
        signal.signal(signal.SIGTERM, before)
        err.seek(0)
        message = err.read()
    with contextlib.suppress(OSError):
        out.detach().detach()
    assert isinstance(ended.value.code, int)
    return ended.value.code, message


def test_command_list_is_complete() -> None:
    names = {" ".join(command) for command in COMMANDS}
    assert {"score", "translate predict", "tokenizer encode", "vectors neighbors", "doctor"} <= names
    assert len(names) >= 40


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_unwritable_help_output_is_one_line(command: tuple[str, ...]) -> None:
    status, message = call_with_output(errno.ENOSPC, *command, "--help")
    assert (status, message) == (
        1,
        "error: input or output: No space left on device; make room, or write to another disk\n",
    )
    assert call_with_output(errno.EPIPE, *command, "--help") == (1, "")


@pytest.mark.parametrize(
    "command",
    [
        ["score", "MODEL"],
        ["score", "MODEL", "--json"],
        ["evaluate", "MODEL", "-"],
        ["generate", "MODEL", "--seed", "1"],
        ["generate", "MODEL", "--seed", "1", "--stream"],
        ["next", "MODEL", "the"],
        ["info", "MODEL", "--json"],
        ["correct", "MODEL"],
        ["filter", "MODEL", "--keep", "1"],
        ["identify", "a=MODEL", "b=MODEL", "-"],
        ["tokenizer", "encode", "MODEL"],
        ["doctor"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_unwritable_results_are_one_line(command: list[str], model: Path) -> None:
    words = [word.replace("MODEL", str(model)) for word in command]
    status, message = call_with_output(errno.ENOSPC, *words, stdin=b"the cat sees a dog now\n")
    assert status == 1
    assert message.splitlines()[-1].startswith("error: input or output: No space left on device; make room")
    status, message = call_with_output(errno.EPIPE, *words, stdin=b"the cat sees a dog now\n")
    assert status == 1
    assert "Traceback" not in message
    assert "error" not in message


def test_closed_stdout_and_missing_reader_give_no_traceback(model: Path) -> None:
    lines = b"the cat sees a dog now\n" * 4000
    read, write_ = os.pipe()
    os.close(read)
    words = [ENTRY, "score", str(model)]
    gone = subprocess.run(words, input=lines, stdout=write_, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write_)
    assert (gone.returncode, gone.stderr) == (1, b"")
    shell = ["sh", "-c", '"$@" >&-', "sh", *words]
    closed = subprocess.run(shell, input=lines, stderr=subprocess.PIPE, timeout=60, check=False)
    assert closed.returncode == 1
    assert closed.stderr == (b"error: standard output: it is closed; redirect it to a file, a pipe or /dev/null\n")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        ImportError("libtorch_cpu.so: cannot allocate memory in static TLS block"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=repr,
)
def test_exhausted_memory_is_one_line(error: Exception, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("chainrule.api.load", fail)
    outcome = call("next", model, "the")
    assert outcome.status == 1
    assert outcome.err.startswith("error: out of memory; take a smaller model (--hidden")
    assert outcome.err.count("\n") == 1


def test_network_beyond_the_memory_limit_is_one_line(toy_text: Path, tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    arguments = ("train", "lstm", toy_text, "--hidden", 30_000, "--device", "cpu", "--out", tmp_path / "m")
    ended = process(*arguments, preexec_fn=limit)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(b"error: out of memory; take a smaller model (--hidden")
    assert b"Traceback" not in ended.stderr


def test_unexpected_error_is_one_line_or_a_traceback_with_debug(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("chainrule.api.load", fail)
    outcome = call("next", model, "the")
    message = (
        "error: ZeroDivisionError: division by zero; "
        "this is a bug in chainrule; run again with --debug for a traceback\n"
    )
    assert (outcome.status, outcome.err) == (1, message)
    assert "Traceback" in call("next", model, "the", "--debug").err


def test_too_deeply_nested_config_is_rejected(toy_text: Path, tmp_path: Path) -> None:
    deep = "[" * 3000 + "]" * 3000
    config = write(tmp_path / "deep.toml", f"[model]\norder = {deep}\n")
    outcome = call("train", "ngram", toy_text, "--out", tmp_path / "m", "--config", config)
    assert (outcome.status, outcome.err.count("\n")) == (2, 1)
    assert "deep.toml is nested too deeply" in outcome.err
    text = write(tmp_path / "deep.jsonl", '{"text": ' + "[" * 300_000 + "}\n")
    outcome = call("train", "ngram", text, "--out", tmp_path / "m")
    assert (outcome.status, outcome.err.count("\n")) == (3, 1)


def test_paths_that_are_not_utf8(toy_text: Path, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    text = folder / os.fsdecode(b"t\xff.txt")
    text.write_bytes(toy_text.read_bytes())
    model = folder / "m"
    run_ok("train", "ngram", text, "--out", model, "--order", 2, *QUIET)
    assert run_ok("evaluate", model, text, "--json").json()["model"].endswith("caf\ufffd/m")
    assert run_ok("score", model, text).out.count("\n") == 3
    assert run_ok("info", model, "--json").json()["family"] == "ngram"
    assert run_ok("info", model).out
    run_ok("tokenizer", "train", text, "--tokenizer", "word", "--out", folder / "tok", "--json")
    run_ok("convert", model, "--to", "arpa", "--out", folder / "m.arpa")
    run_ok("inspect", model, text, "--out", folder / "page.html")
    outcome = call("evaluate", folder / "nowhere", text)
    assert outcome.status == 4
    assert "caf\\udce9" in outcome.err
    outcome = call("score", model, folder / "nowhere.txt")
    assert (outcome.status, outcome.err.count("\n")) == (4, 1)


@pytest.mark.parametrize(
    "command",
    [
        ["generate", "MODEL", "--max-tokens"],
        ["generate", "MODEL", "--num"],
        ["generate", "MODEL", "--strategy", "beam", "--beam-size"],
        ["correct", "MODEL", "--beam"],
        ["correct", "MODEL", "--candidates"],
        ["identify", "a=MODEL", "b=MODEL", "-", "--threads"],
        ["filter", "MODEL", "--keep", "1", "--threads"],
        ["inspect", "MODEL", "--tokens"],
        ["inspect", "MODEL", "--lags"],
        ["inspect", "MODEL", "--positions"],
        ["rerank", "MODEL", "-", "--bootstrap"],
        ["rerank", "MODEL", "-", "--cross-validate"],
        ["classify", "evaluate", "MODEL", "-", "--bins"],
        ["translate", "predict", "MODEL", "--max-tokens"],
        ["translate", "predict", "MODEL", "--num"],
        ["translate", "predict", "MODEL", "--beam-size"],
        ["train", "ngram", "TEXT", "--out", "OUT", "--order"],
        ["train", "lstm", "TEXT", "--out", "OUT", "--hidden"],
        ["train", "lstm", "TEXT", "--out", "OUT", "--layers"],
        ["train", "lstm", "TEXT", "--out", "OUT", "--embedding"],
        ["vectors", "train", "TEXT", "--out", "OUT", "--dimensions"],
        ["vectors", "train", "TEXT", "--out", "OUT", "--window"],
        ["vectors", "train", "TEXT", "--out", "OUT", "--negative"],
        ["serve", "MODEL", "--rows"],
    ],
    ids=" ".join,
)
def test_numbers_that_control_work_are_bounded(
    command: list[str], model: Path, english_text: Path, tmp_path: Path
) -> None:
    places = {"MODEL": str(model), "TEXT": str(english_text), "OUT": str(tmp_path / "out")}
    words = [
        word.replace("MODEL", places["MODEL"]) if "MODEL" in word else places.get(word, word) for word in command
    ]
    outcome = call(*words, 10**12, stdin="the cat sees a dog now\n")
    assert (outcome.status, outcome.err.count("\n")) == (2, 1), outcome


@pytest.mark.parametrize(
    "command", [["next", "MODEL", "the", "--top"], ["generate", "MODEL", "--seed", "1", "--top-k"]], ids=" ".join
)
def test_numbers_that_limit_output_may_be_large(command: list[str], model: Path) -> None:
    assert run_ok(*(word.replace("MODEL", str(model)) for word in command), 10**12).out


def test_stdin_larger_than_the_temporary_folder_is_one_line(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    environment = os.environ | {"TMPDIR": str(tmp_path)}
    arguments = ("train", "ngram", "-", "--out", tmp_path / "m")
    ended = process(*arguments, stdin=b"a b c\n" * 100_000, preexec_fn=limit, env=environment)
    assert ended.returncode == 1
    message = ended.stderr.decode()
    assert message.startswith(
        f"error: standard input cannot be copied to {tmp_path}: File too large after 0.1 MB; "
    )
    assert message.endswith("give a file, or set TMPDIR\n")
    assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
