"""Save and load the tensors of a network as a safetensors file, checking sizes before allocating memory."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from safetensors.torch import save as write_tensors
from torch import Tensor, nn

from chainrule.errors import ChainruleError, ConfigError, ModelFileError
from chainrule.lm import Floats
from chainrule.neural.config import MOST_PARAMETERS
from chainrule.neural.layers.output import Output
from chainrule.storage import tensors as validation
from chainrule.storage.tensors import LARGEST_WEIGHT, TensorSpec
from chainrule.storage.verified_dir import VerifiedDir
from chainrule.training.checkpoint import load_tensors

FILE = "model.safetensors"
FOLDERS: WeakKeyDictionary[nn.Module, Path] = WeakKeyDictionary()
"""Model folder each network was loaded from."""
N = TypeVar("N", bound=nn.Module)


def serialize(network: nn.Module) -> bytes:
    """Serialize the network in safetensors format."""
    tensors = {name: t.detach().cpu().contiguous() for name, t in named_tensors(network)}
    content: bytes = write_tensors(tensors)
    return content


def load_network(files: VerifiedDir, build: Callable[[], N], layers: int) -> N:
    """Build a network and load its saved weights; `layers` is the number of layers claimed by the config.

    Every tensor must have the expected name, dtype and shape, and finite values.
    """
    tensors = load_tensors(files, FILE, "train it again")
    path = files.path / FILE
    if layers > len(tensors):  # avoid the time to build that many layers
        raise ModelFileError(f"{path} does not fit its config: {layers} layers of {len(tensors)} tensors")
    validation.check(tensors, tensor_specs(build), path, largest=LARGEST_WEIGHT)
    network = build()
    with torch.no_grad():
        for name, tensor in named_tensors(network):
            tensor.copy_(tensors[name])
    for module in network.modules():
        if isinstance(module, Output) and not module.has_valid_buffers():
            raise ModelFileError(
                f"{path} does not fit its config: invalid word classes in its output layer; train it again"
            )
    FOLDERS[network] = files.path
    return network


def tensor_specs(build: Callable[[], nn.Module]) -> dict[str, TensorSpec]:
    """Return the tensor specs of a network without allocating memory; raise if it is too large."""
    with torch.device("meta"):
        return {name: validation.spec_of(t) for name, t in named_tensors(build())}


def check_outputs(values: Floats, network: nn.Module, *, allow_neg_inf: bool = True) -> Floats:
    """Return `values` unchanged; raise if they contain NaN, +inf or, unless `allow_neg_inf`, -inf.

    Finite weights can still overflow in use. The error names the folder the network was loaded from.
    """
    is_valid = not np.isnan(values).any() and not np.isposinf(values).any()
    if is_valid and (allow_neg_inf or not np.isneginf(values).any()):
        return values
    reason = "the hidden state overflowed to infinity on this text, so no probability can be computed"
    remedy = "train it again with a lower learning_rate or another attention_use"
    if network in FOLDERS:
        raise ModelFileError(f"{FOLDERS[network]}: {reason}; {remedy}")
    raise ChainruleError(f"{reason}; {remedy}")


def named_tensors(network: nn.Module) -> list[tuple[str, Tensor]]:
    """List every tensor to save; tied tensors appear once."""
    saved = network.state_dict(keep_vars=True)
    buffers = [(name, t) for name, t in network.named_buffers() if name in saved]
    tensors = [*network.named_parameters(), *buffers]
    size = sum(t.numel() for _, t in tensors)
    if size > MOST_PARAMETERS:
        raise ConfigError(
            f"the model would have {size:,} parameters; the maximum is {MOST_PARAMETERS:,}: reduce its size"
        )
    return tensors
