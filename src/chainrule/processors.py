"""How many threads compiled parts may run."""

import os


def threads() -> int:
    """As many as this process may run at once, or fewer where `--threads` (or OMP_NUM_THREADS) says so."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    bound = os.environ.get("OMP_NUM_THREADS", "")
    return min(here, int(bound)) if bound.isdecimal() and int(bound) else here
