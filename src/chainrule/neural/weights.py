"""A network's tensors as one safetensors file, and back; sizes are compared before memory is taken for them."""

from collections.abc import Callable
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor, nn

from chainrule.errors import ConfigError, ModelFileError
from chainrule.folder import Sealed
from chainrule.neural.settings import MOST_PARAMETERS

FILE = "model.safetensors"
Shape = tuple[int, ...]
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
    except SafetensorError as error:
        raise ModelFileError(f"{files.path / FILE} is not a safetensors file ({error}); train it again") from error
    return tensors


def restore(files: Sealed, build: Callable[[], N], layers: int) -> N:
    """The network of saved weights; `layers` is how many its config claims."""
    tensors = read(files)
    _check_fit(files, {name: tuple(t.shape) for name, t in tensors.items()}, build, layers)
    network = build()
    with torch.no_grad():
        for name, tensor in named(network):
            tensor.copy_(tensors[name])
    return network


def shapes(build: Callable[[], nn.Module]) -> dict[str, Shape]:
    """What a network would be made of; no memory is taken for it, and too large a one is refused."""
    with torch.device("meta"):
        return {name: tuple(t.shape) for name, t in named(build())}


def named(network: nn.Module) -> list[tuple[str, Tensor]]:
    """Every tensor to keep, a shared one once."""
    kept = network.state_dict(keep_vars=True)
    buffers = [(name, t) for name, t in network.named_buffers() if name in kept]
    found = [*network.named_parameters(), *buffers]
    size = sum(t.numel() for _, t in found)
    if size > MOST_PARAMETERS:
        raise ConfigError(f"the config asks for {size:,} weights; chainrule goes to {MOST_PARAMETERS:,}")
    return found


def _check_fit(files: Sealed, found: dict[str, Shape], build: Callable[[], nn.Module], layers: int) -> None:
    path = files.path / FILE
    if layers > len(found):  # even to look at so many would take long
        raise ModelFileError(f"{path} does not fit its config: {layers} layers of {len(found)} tensors")
    wanted = shapes(build)
    for name in sorted(wanted | found):
        if wanted.get(name) != found.get(name):
            there, due = (f"{s[name]}" if name in s else "absent" for s in (found, wanted))
            raise ModelFileError(f"{path} does not fit its config: {name} is {there} and should be {due}")
