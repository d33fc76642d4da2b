"""Validation of the tensors of a safetensors file: names, dtypes, shapes, finite values.

A checksum proves that a file is intact, not that its content is a model: every tensor is compared with what the
config describes before it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from chainrule.errors import ModelFileError

LARGEST_WEIGHT = 1e12
"""Largest allowed magnitude of a network weight.

Products of two such weights, summed over the widest layer, stay far below the float32 maximum of 3.4e38, so that
no activation function hides an overflow: tanh(inf) is 1.
"""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Required dtype and shape of a tensor; a size of None matches any."""

    dtype: str  # NumPy name, e.g. "float32"
    shape: tuple[int | None, ...]

    def __str__(self) -> str:
        """Return the shape, with the dtype unless it is float32."""
        sizes = f"({', '.join('any' if n is None else str(n) for n in self.shape)}{',' * (len(self.shape) == 1)})"
        return sizes if self.dtype == "float32" else f"{sizes} {self.dtype}"

    def fits(self, other: "TensorSpec") -> bool:
        """Whether a tensor with the spec `other` matches this spec."""
        if self.dtype != other.dtype or len(self.shape) != len(other.shape):
            return False
        return all(n is None or n == m for n, m in zip(self.shape, other.shape, strict=True))


def spec_of(tensor: Any) -> TensorSpec:
    """Return the spec of a NumPy array or a torch tensor."""
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def check(
    tensors: Mapping[str, Any], specs: Mapping[str, TensorSpec], source: Path | str, largest: float = float("inf")
) -> None:
    """Raise ModelFileError unless exactly the tensors of `specs` are present, finite and at most `largest`.

    Args:
        tensors: NumPy arrays or torch tensors on the CPU, by name.
        specs: The required tensors.
        source: The file, for error messages.
        largest: Largest magnitude of a floating-point value.

    """
    check_specs(tensors, specs, source)
    for name, tensor in tensors.items():
        check_finite(np.asarray(tensor), f"{source}: {name}", largest)


def check_specs(
    tensors: Mapping[str, Any],
    specs: Mapping[str, TensorSpec],
    source: Path | str,
    optional: Mapping[str, TensorSpec] | None = None,
) -> None:
    """Raise ModelFileError if a name, dtype or shape differs; the `optional` tensors may be absent."""
    allowed = {**(optional or {}), **specs}
    for name in sorted(specs.keys() | tensors.keys()):
        actual = spec_of(tensors[name]) if name in tensors else None
        if actual is None or name not in allowed or not allowed[name].fits(actual):
            expected = allowed.get(name, "absent")
            raise ModelFileError(
                f"{source} does not fit its config: {name} is {actual or 'absent'} and should be {expected}"
            )


def check_finite(values: NDArray[Any], name: str, largest: float = float("inf")) -> None:
    """Raise ModelFileError if a floating-point array contains NaN, infinity, or a magnitude above `largest`."""
    if values.size == 0 or not np.issubdtype(values.dtype, np.floating):
        return
    low, high = float(values.min()), float(values.max())  # NaN propagates, and no copy of the array is made
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ModelFileError(
            f"{name} contains NaN or infinite values, so it is not a trained model; train it again"
        )
    if max(-low, high) > largest:
        raise ModelFileError(
            f"{name} contains a value of {max(-low, high):.3g}, but chainrule uses values up to {largest:g}; "
            "train it again"
        )


def unpack(content: bytes, source: Path | str) -> dict[str, NDArray[Any]]:
    """Parse the content of a safetensors file; raise ModelFileError if it is malformed."""
    try:
        return dict(load_arrays(content))
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{source} is not a safetensors file ({error}); train the model again") from error
