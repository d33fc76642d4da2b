"""Interactive use of a command: write a line, read its output, write the next."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cli.command import ENTRY

WATCHDOG_SECONDS = 60.0
"""Time after which an unresponsive command is killed."""


class Dialogue:
    """The pipes of a running command."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    def ask(self, line: bytes, answers: int = 1) -> list[bytes]:
        """Write a line and read `answers` lines."""
        self._stdin.write(line + b"\n")
        self._stdin.flush()
        return [self._stdout.readline().rstrip(b"\n") for _ in range(answers)]


@contextmanager
def dialogue(*arguments: object) -> Iterator[Dialogue]:
    """Run `chainrule ARGUMENTS`, which must exit with 0 at the end of its input."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    words = [ENTRY, *map(str, arguments)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, env=environment) as process:
        watchdog = threading.Timer(WATCHDOG_SECONDS, process.kill)
        watchdog.start()
        try:
            yield Dialogue(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait() == 0
        finally:
            watchdog.cancel()
            process.kill()
