"""Fork server that runs `chainrule` and `python -c` in shell commands without the import time.

Commands run with their own files, working directory, environment and exit status, forked from a process that has
imported everything. `chainrule serve`, which receives signals, is started normally. tests/test_readme.py covers
normal starts of the other commands.
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
with socket.socket(socket.AF_UNIX) as client:
    client.connect({address!r})
    request = [sys.argv, os.getcwd(), dict(os.environ)]
    socket.send_fds(client, [json.dumps(request).encode()], [0, 1, 2])
    client.shutdown(socket.SHUT_WR)
    status = int(client.recv(16))
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextmanager
def forking() -> Iterator[str]:
    """Start the fork server; yield a PATH on which a shell finds both commands."""
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
            server.communicate()  # closing its stdin ends it


def attend(client: socket.socket) -> None:
    """Run one command in a forked process and send its exit status."""
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
    os._exit(outcome(arguments))  # skip the interpreter shutdown, which takes longer than most commands


def outcome(arguments: list[str]) -> int:
    """Run `chainrule …` or `python -c SCRIPT`; return the exit status."""
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
    """Import everything, then fork for every connection until stdin is closed."""
    package = importlib.import_module("chainrule")
    for module in pkgutil.walk_packages(package.__path__, "chainrule."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("matplotlib.figure", "torch._dynamo", "torch.utils.tensorboard", "sacrebleu", "seqeval.metrics"):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children need not be waited for
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
