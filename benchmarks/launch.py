"""Run a command and print its wall-clock seconds, CPU seconds and peak resident MiB as JSON.

A separate program with minimal imports, because Linux includes the memory of the parent process in the peak of
its child. The output of the command is discarded; standard input is passed on.
"""

import os
import sys
import time


def main(command: list[str]) -> int:
    null = os.open(os.devnull, os.O_WRONLY)
    redirects = [(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    start = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=redirects)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - start
    print(f'{{"wall": {wall}, "cpu": {used.ru_utime + used.ru_stime}, "peak": {used.ru_maxrss / 1024}}}')
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
