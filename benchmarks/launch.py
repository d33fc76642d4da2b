"""Run one command and print, as JSON, its seconds, its CPU seconds and its peak resident MiB.

A program of its own because Linux counts the memory of whoever starts a program towards that program's peak:
this one imports next to nothing. Output of the command is thrown away; standard input goes to it.
"""

import os
import sys
import time


def main(command: list[str]) -> int:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    quiet = [(os.POSIX_SPAWN_DUP2, nowhere, 1), (os.POSIX_SPAWN_DUP2, nowhere, 2)]
    start = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - start
    print(f'{{"wall": {wall}, "cpu": {used.ru_utime + used.ru_stime}, "peak": {used.ru_maxrss / 1024}}}')
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
