"""Limit CPU threads for small matrix products.

Threads synchronise after every matrix product. With OMP_WAIT_POLICY=passive, which chainrule sets by default to
share the machine, each wake-up is slow: an LSTM layer of 128 cells, 20 rows, forward and backward over 35 steps,
takes 5 ms on one thread and 24 ms on two; one of 1,024 cells takes 300 ms and 210 ms (2 cores, 2026-11-15). So
small sequential work runs on one thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MIN_PARALLEL_WORK = 2e7  # multiplications of one product below which one thread is faster
_saved_counts: list[int] = []  # thread counts to restore, innermost last


@contextmanager
def limit_threads(multiplications: float) -> Iterator[None]:
    """Use one thread in the block if its largest matrix product is small."""
    is_active_wait = os.environ.get("OMP_WAIT_POLICY", "active").lower() != "passive"
    if is_active_wait or multiplications >= MIN_PARALLEL_WORK or torch.get_num_threads() == 1:
        yield
        return
    _saved_counts.append(torch.get_num_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(_saved_counts.pop())


@contextmanager
def use_all_threads(multiplications: float) -> Iterator[None]:
    """Use all threads again for a large product inside a `suited` block."""
    if multiplications < MIN_PARALLEL_WORK or not _saved_counts:
        yield
        return
    torch.set_num_threads(_saved_counts[-1])
    try:
        yield
    finally:
        torch.set_num_threads(1)
