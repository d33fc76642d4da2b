"""Convert back-off tables to and from named arrays for safetensors files."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as write_tensors

from chainrule.errors import ModelFileError
from chainrule.lm import Floats, Ids
from chainrule.ngram.tables import BackoffLevel, BackoffTables

Arrays = dict[str, NDArray[Any]]


def to_arrays(tables: BackoffTables) -> Arrays:
    """Return the arrays named by order; the keys of order 1 are implied and not stored."""
    arrays: Arrays = {"log_missing": np.array([tables.log_missing])}
    for n, level in enumerate(tables.levels, start=1):
        arrays[f"{n}.log_prob"] = level.log_prob
        if n > 1:
            arrays[f"{n}.key"] = level.key
        if n < tables.order:
            arrays[f"{n}.log_backoff"] = level.log_backoff
    return arrays


def from_arrays(arrays: Mapping[str, NDArray[Any]], order: int, size: int) -> BackoffTables:
    """Return tables of `order` over `size` ids; raise ModelFileError if the arrays are not valid."""
    levels: list[BackoffLevel] = []
    try:
        for n in range(1, order + 1):
            log_prob = arrays[f"{n}.log_prob"]
            key = arrays[f"{n}.key"] if n > 1 else np.arange(size)
            is_top = n == order
            log_backoff = np.zeros(len(log_prob), np.float32) if is_top else arrays[f"{n}.log_backoff"]
            _check(n, key, log_prob, log_backoff, limit=size * (len(levels[-1]) if levels else 1))
            levels.append(BackoffLevel(key, log_prob, log_backoff))
        log_missing = float(arrays["log_missing"][0])
    except (KeyError, IndexError) as missing:
        raise ModelFileError(f"the n-gram tables have no array {missing}; the file is not whole") from missing
    if f"{order + 1}.log_prob" in arrays:
        raise ModelFileError(f"the n-gram tables hold more orders than the {order} of the config; train it anew")
    return BackoffTables(tuple(levels), log_missing)


def _check(n: int, key: Ids, log_prob: Floats, log_backoff: Floats, limit: int) -> None:
    is_whole = key.dtype == np.int64 and log_prob.dtype == log_backoff.dtype == np.float32
    is_whole = is_whole and key.shape == log_prob.shape == log_backoff.shape and key.ndim == 1
    is_whole = is_whole and bool(np.all(key[1:] > key[:-1]))
    is_whole = is_whole and (len(key) == 0 or (int(key[0]) >= 0 and int(key[-1]) < limit))
    if not is_whole or np.isnan(log_prob).any() or np.isnan(log_backoff).any():
        raise ModelFileError(f"the n-gram table of order {n} is not sound; train or copy the model anew")


def serialize(arrays: Arrays) -> bytes:
    """Return the arrays as safetensors bytes."""
    return write_tensors({name: np.ascontiguousarray(array) for name, array in arrays.items()})
