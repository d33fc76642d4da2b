"""A network's tensors as one safetensors file, and back; sizes are compared before memory is taken for them."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor, nn

from chainrule import tensors as validation
from chainrule.errors import ChainruleError, ConfigError, ModelFileError
from chainrule.folder import Sealed
from chainrule.lm import Floats
from chainrule.neural.output import Output
from chainrule.neural.settings import MOST_PARAMETERS
from chainrule.tensors import LARGEST_WEIGHT, TensorSpec

FILE = "model.safetensors"
FOLDERS: WeakKeyDictionary[nn.Module, Path] = WeakKeyDictionary()
"""The model folder that a network was loaded from."""
N = TypeVar("N", bound=nn.Module)


def to_bytes(network: nn.Module) -> bytes:
    """The file."""
    kept = {name: t.detach().cpu().contiguous() for name, t in named(network)}
    content: bytes = write_tensors(kept)
    return content


def read(files: Sealed) -> dict[str, Tensor]:
    """The tensors of a sealed folder's file."""
    try:
        tensors: dict[str, Tensor] = read_tensors(files.bytes(FILE))
    except (SafetensorError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise ModelFileError(f"{files.path / FILE} is not a safetensors file ({error}); train it again") from error
    return tensors


def restore(files: Sealed, build: Callable[[], N], layers: int) -> N:
    """The network of saved weights; `layers` is how many its config claims.

    Every tensor must have the name, dtype and shape that the config describes and finite values.
    """
    tensors = read(files)
    path = files.path / FILE
    if layers > len(tensors):  # even to look at so many would take long
        raise ModelFileError(f"{path} does not fit its config: {layers} layers of {len(tensors)} tensors")
    validation.check(tensors, specs(build), path, largest=LARGEST_WEIGHT)
    network = build()
    with torch.no_grad():
        for name, tensor in named(network):
            tensor.copy_(tensors[name])
    for module in network.modules():
        if isinstance(module, Output) and not module.has_valid_buffers():
            raise ModelFileError(f"{path} does not fit its config: the words of its output layer; train it again")
    FOLDERS[network] = files.path
    return network


def specs(build: Callable[[], nn.Module]) -> dict[str, TensorSpec]:
    """What a network would be made of; no memory is taken for it, and too large a one is refused."""
    with torch.device("meta"):
        return {name: validation.spec_of(t) for name, t in named(build())}


def check_outputs(values: Floats, network: nn.Module, *, may_be_impossible: bool = True) -> Floats:
    """Return what a network computed unchanged; raise where it is no answer, naming the network's folder.

    Weights can be finite and still overflow in use. NaN and +inf are never an answer; -inf is the log-probability
    of what is impossible, if `may_be_impossible`.
    """
    is_valid = not np.isnan(values).any() and not np.isposinf(values).any()
    if is_valid and (may_be_impossible or not np.isneginf(values).any()):
        return values
    reason = "the network's states grew beyond all numbers on this text, so it has no probability to give"
    remedy = "train it anew with a lower learning_rate or another attention_use"
    if network in FOLDERS:
        raise ModelFileError(f"{FOLDERS[network]}: {reason}; {remedy}")
    raise ChainruleError(f"{reason}; {remedy}")


def named(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Every tensor to keep, a shared one once."""
    kept = network.state_dict(keep_vars=True)
    buffers = [(name, t) for name, t in network.named_buffers() if name in kept]
    found = [*network.named_parameters(), *buffers]
    size = sum(t.numel() for _, t in found)
    if size > MOST_PARAMETERS:
        raise ConfigError(f"the config asks for {size:,} weights; chainrule goes to {MOST_PARAMETERS:,}")
    return found
