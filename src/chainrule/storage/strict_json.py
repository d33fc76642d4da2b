"""Strict JSON: UTF-8 text without NaN, infinities, overflowing numbers or duplicate keys."""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn


def parse(raw: bytes | str) -> Any:
    """Parse strict JSON; raise ValueError for anything else.

    >>> parse('{"order": 5}')
    {'order': 5}
    """
    text = raw.decode() if isinstance(raw, bytes) else raw
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)


def dump(value: Any) -> bytes:
    """Serialize a value as indented strict JSON; raise ValueError for NaN and infinities."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def replace_nonfinite(value: Any) -> Any:
    """Convert numbers, arrays, sequences and mappings to JSON values, None for NaN and infinities.

    >>> replace_nonfinite({"loss": math.inf, "curve": (1.5, math.nan), "steps": 3})
    {'loss': None, 'curve': [1.5, None], 'steps': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(item) for item in value]
    if hasattr(value, "tolist"):  # a NumPy array or number, without importing NumPy
        return replace_nonfinite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is out of range for float64")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("duplicate key")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
