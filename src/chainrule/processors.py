"""Number of threads for the compiled extension."""

import os


def thread_count() -> int:
    """Return the number of usable processors, at most `--threads` (OMP_NUM_THREADS)."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, int(limit)) if limit.isdecimal() and int(limit) else available
