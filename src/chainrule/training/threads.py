"""How many of the processor's threads a piece of work is worth.

Threads wait for each other after every matrix product. Waiting asleep (OMP_WAIT_POLICY=passive, which chainrule
sets where nothing else is set) is kind to a machine that others use, and each waking takes a while: a layer of 128
LSTM cells, 20 rows, forward and backward over 35 steps, takes 5 ms on one thread and 24 ms on two, one of 1,024
cells 300 ms and 210 (2 cores, 2026-11-15). So small work that has to wait often is done by one thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

WORTH = 2e7  # multiplications of one product: fewer are faster on one thread
_set_aside: list[int] = []  # threads there are for larger work inside a block that uses one


@contextmanager
def suited(multiplications: float) -> Iterator[None]:
    """One thread while the block runs, where its largest product is not worth more."""
    is_awake = os.environ.get("OMP_WAIT_POLICY", "active").lower() != "passive"
    if is_awake or multiplications >= WORTH or torch.get_num_threads() == 1:
        yield
        return
    _set_aside.append(torch.get_num_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(_set_aside.pop())


@contextmanager
def all_of_them(multiplications: float) -> Iterator[None]:
    """All threads again for a large piece inside a block of small ones."""
    if multiplications < WORTH or not _set_aside:
        yield
        return
    torch.set_num_threads(_set_aside[-1])
    try:
        yield
    finally:
        torch.set_num_threads(1)
