"""Signals are recorded, acted on when requested, and handlers restored afterwards."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chainrule.training.trainer import GracefulStop

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Start from Python's default handlers, and restore whatever a failed test left."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_is_only_recorded(number: signal.Signals) -> None:
    with GracefulStop() as stop:
        assert stop.signal is None
        os.kill(os.getpid(), number)
        assert stop.signal == number


def test_exit_after_sigint_raises_keyboard_interrupt() -> None:
    with GracefulStop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            stop.exit_if_signalled()


def test_exit_after_sigterm_has_status_143() -> None:
    with GracefulStop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) as exit_:
            stop.exit_if_signalled()
    assert exit_.value.code == 143


def test_exit_without_a_signal_does_nothing() -> None:
    with GracefulStop() as stop:
        stop.exit_if_signalled()


def test_second_sigint_interrupts_immediately() -> None:
    with GracefulStop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT


def test_first_signal_determines_the_exit() -> None:
    with GracefulStop() as stop:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert stop.signal == signal.SIGTERM


def test_handlers_are_restored_also_after_an_error() -> None:
    before = handlers()
    with GracefulStop():
        assert all(now != then for now, then in zip(handlers(), before, strict=True))
    assert handlers() == before
    with pytest.raises(ZeroDivisionError), GracefulStop():
        raise ZeroDivisionError
    assert handlers() == before


def test_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with GracefulStop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal is None
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_graceful_stop_does_nothing_outside_the_main_thread() -> None:
    before, handlers_in_thread = handlers(), []

    def train() -> None:
        with GracefulStop() as stop:
            handlers_in_thread.append(handlers())
            stop.exit_if_signalled()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert handlers_in_thread == [before]


PROGRAM = """
import os, signal
from chainrule.training.trainer import GracefulStop
signal.signal(signal.SIGINT, signal.default_int_handler)
with GracefulStop() as stop:
    os.kill(os.getpid(), {number})
    print("saved", flush=True)
    stop.exit_if_signalled()
print("never")
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_program_saves_before_it_exits(number: signal.Signals, status: int) -> None:
    program = [sys.executable, "-c", PROGRAM.format(number=int(number))]
    completed = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (completed.stdout, completed.returncode) == ("saved\n", status)  # a shell shows -2 as 130
