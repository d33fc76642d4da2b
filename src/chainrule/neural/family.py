"""What the table of families knows of a network: train, save, load; the same for all of them.

Lives here: the way from a config and a text to a `NeuralModel` and back from its files.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from chainrule.data.encoded import Encoded
from chainrule.data.training import TrainingData
from chainrule.errors import ConfigError, ModelFileError
from chainrule.folder import Sealed
from chainrule.lm import Context, Floats, Vocabulary
from chainrule.neural import validation
from chainrule.neural.adaptation import Adapted, Kind, adapt
from chainrule.neural.adapter import NeuralModel
from chainrule.neural.device import choose
from chainrule.neural.network import Network
from chainrule.neural.settings import MOST_PARAMETERS
from chainrule.progress import Progress, silent
from chainrule.training.batches import Lines, Source, Stream
from chainrule.training.loop import Run, Trainer
from chainrule.training.objective import next_token

FILE, LOG = "model.safetensors", "train_log.jsonl"
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NeuralFamily:
    """One architecture as a family."""

    Config: type[Any]
    build: Callable[[Any, Vocabulary, Floats | None], Network]
    candidates: Callable[[], list[Any]]
    facets: Callable[[Any], dict[str, str | int]]

    def train(self, data: TrainingData, config: Any) -> NeuralModel:
        """Learn by gradients, from first weights that the seed decides."""
        device = choose(data.device)
        _check_precision(config.precision, device)
        self._shapes(config, data.vocabulary)  # too large a net is refused before memory is taken
        counts = np.bincount(data.train.ids, minlength=data.vocabulary.size).astype(np.float64)
        seconds = [s for s in (config.max_seconds, data.max_seconds) if s is not None]
        config = dataclasses.replace(config, max_seconds=min(seconds, default=None))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(data.seed)
            network = self.build(config, data.vocabulary, counts).to(device)
            model = NeuralModel(network, data.vocabulary, data.context)
            run = Run(
                source=_source(data, config, network, device),
                objective=next_token,
                validate=_validation(model, data.valid),
                device=device,
                progress=data.progress,
                place=data.place,
                resume=data.resume,
                tensorboard=data.tensorboard,
                identity=data.identity,
                unigram_nats=_entropy(counts) if config.output != "nce" else float("inf"),  # its loss is no log p
            )
            log = Trainer(network, config, run).fit()
        return NeuralModel(network, data.vocabulary, data.context, log)

    def files(self, lm: NeuralModel) -> dict[str, bytes]:
        """The weights, and the log of the training that made them."""
        files = {FILE: write_tensors({name: t.detach().cpu().contiguous() for name, t in _named(lm.network)})}
        return files | ({LOG: lm.log} if lm.log else {})

    def load(
        self, files: Sealed, config: Any, vocabulary: Vocabulary, context: Context, device: str = "auto"
    ) -> NeuralModel:
        """The network of saved weights; sizes are compared before memory is taken for them."""
        tensors = _read(files)
        self._check_fit(files, {name: tuple(t.shape) for name, t in tensors.items()}, config, vocabulary)
        network = self.build(config, vocabulary, None)
        with torch.no_grad():
            for name, tensor in _named(network):
                tensor.copy_(tensors[name])
        log = files.bytes(LOG) if LOG in files.files else b""
        return NeuralModel(network.to(choose(device)), vocabulary, context, log)

    def _shapes(self, config: Any, vocabulary: Vocabulary) -> dict[str, Shape]:
        """What a network of this config would be made of; no memory is taken for it."""
        with torch.device("meta"):
            return {n: tuple(t.shape) for n, t in _named(self.build(config, vocabulary, np.ones(vocabulary.size)))}

    def _check_fit(self, files: Sealed, found: dict[str, Shape], config: Any, vocabulary: Vocabulary) -> None:
        path = files.path / FILE
        if config.layers > len(found):  # even to look at so many would take long
            raise ModelFileError(f"{path} does not fit its config: {config.layers} layers of {len(found)} tensors")
        wanted = self._shapes(config, vocabulary)
        for name in sorted(wanted | found):
            if wanted.get(name) != found.get(name):
                there, due = (f"{s[name]}" if name in s else "absent" for s in (found, wanted))
                raise ModelFileError(f"{path} does not fit its config: {name} is {there} and should be {due}")

    def parameters(self, lm: NeuralModel) -> int:
        """Weights that were learnt; a shared matrix counts once."""
        return sum(p.numel() for p in lm.network.parameters())

    def adapt(
        self,
        lm: NeuralModel,
        text: Encoded,
        valid: Encoded | None,
        kind: Kind,
        *,
        train: Encoded | None = None,
        stride: int | None = None,
        progress: Progress = silent,
    ) -> Adapted:
        """A text scored with the model adapted to it, as settings chosen on `valid` say."""
        return adapt(lm, text, valid, kind, train=train, stride=stride, progress=progress)


def _read(files: Sealed) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = read_tensors(files.bytes(FILE))
    except SafetensorError as error:
        raise ModelFileError(f"{files.path / FILE} is not a safetensors file ({error}); train it again") from error
    return tensors


def _named(network: Network) -> list[tuple[str, Tensor]]:
    """Every tensor to keep, a shared one once."""
    kept = network.state_dict(keep_vars=True)
    buffers = [(name, t) for name, t in network.named_buffers() if name in kept]
    named = [*network.named_parameters(), *buffers]
    size = sum(t.numel() for _, t in named)
    if size > MOST_PARAMETERS:
        raise ConfigError(f"the config asks for {size:,} weights; chainrule goes to {MOST_PARAMETERS:,}")
    return named


def _source(data: TrainingData, config: Any, network: Network, device: torch.device) -> Source:
    """Lines or one stream; a network with a window never reads more than that at once."""
    if network.window is not None:
        config = dataclasses.replace(config, bptt=min(config.bptt or network.window, network.window))
    if data.context == "stream":
        return Stream(data.train.ids, config, data.seed, device)
    return Lines(data.train.ids, data.vocabulary.bos, data.vocabulary.eos, config, data.seed, device)


def _validation(model: NeuralModel, valid: Encoded | None) -> Callable[[], float] | None:
    if valid is None or not model.vocabulary.predictable[valid.ids].any():
        return None
    return lambda: validation.mean_nats(model, valid)


def _entropy(counts: Floats) -> float:
    """H of the words' frequencies in nats: what a model without any context reaches on this text."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())


def _check_precision(precision: str, device: torch.device) -> None:
    """Half precision is the GPU's; some processors claim bf16 and stop at its first instruction."""
    if precision != "fp32" and device.type == "cpu":
        raise ConfigError(f"model.precision is '{precision}', and the processor computes in fp32; leave it at fp32")
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError("model.precision is 'bf16', which this GPU cannot compute in; choose fp32 or fp16")
