"""Whether a call lets other Python threads run: a check that depends on no timing."""

import sys
import threading
from collections.abc import Callable

CALLS = 3000


def releases_lock(call: Callable[[], object]) -> bool:
    """Whether another thread gets to run Python while this one does nothing but `call`, again and again.

    The interpreter is told never to take the lock from a running thread, so that a waiting thread runs only if
    the call itself releases it.
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
        for _ in range(CALLS):
            if reached.is_set():
                break
            call()
        return reached.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
