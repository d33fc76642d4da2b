"""Check whether a call releases the GIL, independent of timing."""

import sys
import threading
import time
from collections.abc import Callable

CALLS = 3000
SECONDS = 120.0
"""How long the waiting thread may go without a processor on a busy machine."""


def releases_lock(call: Callable[[], object], may_release: bool = True) -> bool:
    """Whether another thread gets to run Python code while this one only repeats `call`.

    The interpreter is told never to take the lock from a running thread, so that a waiting thread runs only if
    the call itself releases it. A call that is expected to keep the lock (`may_release` is False) is tried CALLS
    times; any other one until the thread has run.
    """
    reached = threading.Event()
    begin = threading.Lock()
    begin.acquire()

    def wait() -> None:
        begin.acquire()  # blocks without the interpreter lock
        reached.set()

    thread = threading.Thread(target=wait)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    try:
        begin.release()
        end = time.monotonic() + SECONDS
        calls = 0
        while not reached.is_set() and (calls < CALLS or (may_release and time.monotonic() < end)):
            call()
            calls += 1
        return reached.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
