"""`chainrule` and `python -c` in a shell's lines, forked from one process that has imported everything.

A line runs as it stands, with its own files, folder, environment and status; only the seconds of importing are
spared. `chainrule serve`, which is sent signals, starts as ever. That commands also start by themselves, with
nothing imported, is for the README to show (tests/test_readme.py).
"""

import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BIN: Final = Path(sys.executable).parent
SHIM: Final = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] == ["serve"]:
    os.execv({entry!r}, [{entry!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    wanted = [sys.argv, os.getcwd(), dict(os.environ)]
    socket.send_fds(asked, [json.dumps(wanted).encode()], [0, 1, 2])
    asked.shutdown(socket.SHUT_WR)
    status = int(asked.recv(16))
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextmanager
def forking() -> Iterator[str]:
    """The PATH on which a shell finds both commands."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        address = str(folder / "socket")
        for command in ("chainrule", "python"):
            shim = folder / command
            shim.write_text(SHIM.format(python=sys.executable, entry=str(BIN / "chainrule"), address=address))
            shim.chmod(0o755)
        words = [sys.executable, __file__, address]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield f"{folder}:{BIN}:{os.environ['PATH']}"
            server.communicate()  # its stdin ends, and it with it


def attend(client: socket.socket) -> None:
    """One command, in a process of its own; another waits for its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, files, _, _ = socket.recv_fds(client, 1 << 16, 3)
    while more := client.recv(1 << 16):
        message += more
    arguments, folder, environment = json.loads(message)
    if worker := os.fork():
        for file in files:
            os.close(file)
        _, status = os.waitpid(worker, 0)
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    client.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    os._exit(outcome(arguments))  # to take everything apart again would take longer than most commands


def outcome(arguments: list[str]) -> int:
    """The status of `chainrule …` or `python -c SCRIPT`."""
    try:
        if Path(arguments[0]).name == "python":
            exec(compile(arguments[2], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = arguments
            importlib.import_module("chainrule.cli.main").run()
        code: object = None
    except SystemExit as exit_:
        code = exit_.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    return code if isinstance(code, int) else int(code is not None)


def main(address: str) -> None:
    """Import, then fork for whoever asks until stdin ends."""
    package = importlib.import_module("chainrule")
    for module in pkgutil.walk_packages(package.__path__, "chainrule."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("matplotlib.figure", "torch._dynamo", "torch.utils.tensorboard", "sacrebleu", "seqeval.metrics"):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for the status of those that wait
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while server.fileno() in select.select([server.fileno(), 0], [], [])[0]:
            client, _ = server.accept()
            if os.fork() == 0:
                server.close()
                return attend(client)
            client.close()


if __name__ == "__main__":
    main(sys.argv[1])
