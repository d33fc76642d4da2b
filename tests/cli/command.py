"""Run commands, in this process (fast) or as a subprocess."""

import io
import json
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from chainrule.cli.main import run
from chainrule.storage import verified_dir

ENTRY = str(Path(sys.executable).with_name("chainrule"))
TOY = "i love cats\ni love dogs\ncats chase mice\n"
QUIET = ("--smoothing", "witten-bell")  # does not warn about discounts


@dataclass(frozen=True)
class Outcome:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """Parse stdout as one strict JSON document."""
        return strict(self.out)

    def json_lines(self) -> list[Any]:
        """Parse stdout as strict JSON Lines."""
        return [strict(line) for line in self.out.splitlines()]


def strict(text: str) -> Any:
    """Parse JSON; NaN, Infinity and repeated keys raise AssertionError."""

    def reject_constant(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), "repeated key"
        return dict(pairs)

    return json.loads(text, parse_constant=reject_constant, object_pairs_hook=reject_duplicates)


def call(*arguments: object, stdin: str | bytes = b"") -> Outcome:
    """Run `chainrule ARGUMENTS` in this process."""
    stdin_bytes = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        vars(warnings)["onceregistry"].clear()  # as in a new process
        patch.setattr(sys, "argv", ["chainrule", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin_bytes), encoding="utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        try:
            run()
            status = 0
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        finally:
            signal.signal(signal.SIGTERM, before)
    return Outcome(status, *(_content(stream) for stream in (out, err)))


def run_ok(*arguments: object, stdin: str | bytes = b"") -> Outcome:
    """Run a command that must succeed."""
    outcome = call(*arguments, stdin=stdin)
    assert outcome.status == 0, outcome.err
    return outcome


def run_error(status: int, *arguments: object, stdin: str | bytes = b"") -> str:
    """Run a command that must fail with this status, one or two lines on stderr and nothing on stdout."""
    outcome = call(*arguments, stdin=stdin)
    assert outcome.status == status, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("error: "), outcome.err
    assert outcome.err.endswith("\n")
    assert outcome.err.count("\n") <= 2
    return outcome.err


def process(*arguments: object, stdin: bytes = b"", **settings: Any) -> subprocess.CompletedProcess[bytes]:
    """Run `chainrule ARGUMENTS` as a subprocess."""
    words: Sequence[str] = [ENTRY, *map(str, arguments)]
    return subprocess.run(words, input=stdin, capture_output=True, timeout=60, check=False, **settings)


def write(path: Path, text: str | bytes) -> Path:
    """Write a file without changing line breaks."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def trained(out: Path, text: Path, *arguments: object) -> Path:
    """Train an n-gram model and return its folder."""
    run_ok("train", "ngram", text, "--out", out, *arguments)
    return out


@contextmanager
def locked_by_another_thread(path: Path) -> Iterator[None]:
    """Lock a model folder from another thread while the block runs."""
    with ThreadPoolExecutor(max_workers=1) as other:
        hold = verified_dir.lock(path)
        other.submit(hold.__enter__).result()
        try:
            yield
        finally:
            other.submit(hold.__exit__, None, None, None).result()


def digests(model: Path) -> dict[str, str]:
    """Return the SHA-256 digests in the manifest of a model."""
    files = json.loads((model / "manifest.json").read_bytes())["files"]
    return {name: entry["sha256"] for name, entry in files.items()}


def english(lines: int = 60, seed: int = 3) -> str:
    """Generate random English-like sentences from a small grammar."""
    rng = random.Random(seed)
    places = (
        ("the", "a", "one"),
        ("cat", "dog", "mouse", "bird"),
        ("sees", "chases", "likes"),
        ("the", "a"),
        ("cat", "dog", "fish"),
        ("today", "now", "in the old garden"),
    )
    return "".join(" ".join(rng.choice(words) for words in places) + "\n" for _ in range(lines))


def _content(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
