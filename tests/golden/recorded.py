"""Compare text with a recorded file, number by number where the numbers come from a network."""

import difflib
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

GOLDEN: Final = Path(__file__).parent
TEXTS: Final = GOLDEN / "texts"
FOLDERS: Final = GOLDEN / "folders"
CHECKPOINT: Final = GOLDEN / "checkpoint"
RECORD_VARIABLE: Final = "CHAINRULE_GOLDEN"
HOW_TO_RECORD: Final = (
    "if the change is intended: python -m tests.golden.record, and commit the new record by itself"
)
NEVER: Final = "this record is never rewritten: files of earlier versions must keep giving these numbers"

_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_FEWEST_DECIMALS: Final = 4


@dataclass(frozen=True)
class Tolerance:
    """How far two floating-point numbers may differ; integers and words must be equal."""

    relative: float = 0.0
    absolute: float = 0.0
    allows_last_digit: bool = False

    def accepts(self, expected: str, actual: str) -> bool:
        """Whether two lines are equal but for numbers within the tolerance.

        With `allows_last_digit`, a number printed with four decimals or more may also differ by one in its last
        digit: rounding turns the smallest difference into that.
        """
        if expected == actual:
            return True
        if not self.relative or _words(expected) != _words(actual):
            return False
        pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(actual), strict=True)
        return all(self._is_close(old, new) for old, new in pairs)

    def _is_close(self, old: str, new: str) -> bool:
        if old == new:
            return True
        if not set(old + new) & set(".e"):
            return False
        difference = abs(float(old) - float(new))
        scale = max(abs(float(old)), abs(float(new)))
        decimals = min(_decimals(old), _decimals(new))
        if self.allows_last_digit and decimals >= _FEWEST_DECIMALS and difference <= 1.01 * 10.0**-decimals:
            return True
        return difference <= max(self.relative * scale, self.absolute)


EXACT: Final = Tolerance()
NGRAM: Final = Tolerance(1e-12)
"""Of an n-gram model: what is printed with up to twelve digits is equal. NumPy's exp and log of doubles may differ
in the last of seventeen digits between instruction sets (AVX2, AVX-512)."""
SPELLED: Final = Tolerance(1e-6)
"""Of an n-gram model with a speller that was trained in the test: its logarithms are of float32."""
STORED_NETWORK: Final = Tolerance(1e-6, 1e-6, allows_last_digit=True)
"""Of a network that was read from a file: processors add float32 numbers in different orders."""
TRAINED_NETWORK: Final = Tolerance(1e-4, 1e-5, allows_last_digit=True)
"""Of a network that was trained in the test, or of its gradients: rounding differences grow with each step."""


def is_recording() -> bool:
    """Whether the record is being rewritten instead of compared."""
    return os.environ.get(RECORD_VARIABLE) == "record"


def check(path: Path, actual: str, tolerance: Tolerance = EXACT) -> None:
    """Compare with the recorded file; rewrite it when recording."""
    if is_recording():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(actual.encode())
        return
    expected = path.read_bytes().decode() if path.exists() else ""
    fail_if_different(path, expected, actual, tolerance, HOW_TO_RECORD)


def check_stored(path: Path, actual: str, tolerance: Tolerance = EXACT) -> None:
    """Compare with a file that `record` never rewrites."""
    fail_if_different(path, path.read_text(encoding="utf-8"), actual, tolerance, NEVER)


def check_names(folder: Path, names: set[str]) -> None:
    """Require that a folder holds these files and no others; remove the others when recording."""
    recorded = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if is_recording():
        for name in recorded - names:
            (folder / name).unlink()
        return
    assert recorded == names, HOW_TO_RECORD


def fail_if_different(path: Path, expected: str, actual: str, tolerance: Tolerance, advice: str) -> None:
    """Fail with a unified diff unless the texts agree; numbers within the tolerance are not shown."""
    old = expected.splitlines()
    new = _with_accepted_lines(old, actual.splitlines(), tolerance)
    if old == new and (tolerance.relative or expected == actual):
        return
    name = path.relative_to(GOLDEN).as_posix()
    diff = difflib.unified_diff(old, new, f"recorded/{name}", f"now/{name}", lineterm="")
    pytest.fail("\n".join(["the output differs from the record", *diff, advice]), pytrace=False)


def _with_accepted_lines(old: list[str], new: list[str], tolerance: Tolerance) -> list[str]:
    """Return the new lines, those within the tolerance as they are in the old ones."""
    blocks: list[tuple[str, int, int, int, int]] = [("equal", 0, len(old), 0, len(new))]
    if len(old) != len(new):
        blocks = list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
    lines: list[str] = []
    for _, i, i_end, j, j_end in blocks:
        if i_end - i == j_end - j:
            pairs = zip(old[i:i_end], new[j:j_end], strict=True)
            lines += [was if tolerance.accepts(was, now) else now for was, now in pairs]
        else:
            lines += new[j:j_end]
    return lines


def _words(line: str) -> list[str]:
    return [" ".join(part.split()) for part in _NUMBER.split(line)]


def _decimals(number: str) -> int:
    """Digits behind the decimal point, as far as they are printed: 3 of 1.25e-1."""
    mantissa, _, exponent = number.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return decimals if math.isfinite(float(number)) else 0
