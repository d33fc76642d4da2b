"""Benchmark CPU training against the loop of PyTorch's word_language_model example.

    python -m benchmarks.cpu --threads 2 --steps 200

Both train the same 2×200 tied LSTM from the same initial weights on the same windows in the same order. They are
timed alternately in one process; the reported ratio is the median over the rounds. Perplexity is measured on the
first validation tokens after the timed steps; an epoch of WikiText-2 would have 2,965 steps.
"""

import argparse
import math
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from benchmarks.corpora import BENCHMARKS, machine, table
from torch import Tensor, nn

from chainrule.data.encoded import EncodedText
from chainrule.lm import Vocabulary
from chainrule.neural import lstm
from chainrule.neural.config import OutputKind
from chainrule.neural.family import mean_nats
from chainrule.neural.model import NeuralModel
from chainrule.neural.network import Network
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.training import optimizers
from chainrule.training.batches import StreamBatches
from chainrule.training.config import TrainingConfig
from chainrule.training.step import NATS, TOKENS, EagerStepper, TrainingStep, next_token

CPU: Final = torch.device("cpu")
LAYERS, D, B, T = 2, 200, 20, 35
RATE, CLIP, DROPOUT = 20.0, 0.25, 0.2
ANNEALED = (0.5, 0.75)  # fractions of the run at which the learning rate is divided by 4
# At learning rate 20 rounding errors triple at each of the first steps, so that loops with a different order of
# additions diverge after ten steps in fp32. They are therefore compared in fp64, and in fp32 at rate 1.
EQUAL = ((torch.float64, RATE, 30), (torch.float32, 1.0, 100))  # dtype, learning rate, steps
TOLERANCE = 1e-4  # nats per token
WARM_UP = ROUND = 5  # steps
VALID = 1 << 16  # validation tokens


@dataclass(frozen=True, slots=True)
class Text:
    """An encoded benchmark text."""

    title: str
    train: EncodedText
    valid: EncodedText
    vocabulary: Vocabulary


class Example(nn.Module):
    """The model of the example: embedding, dropout, nn.LSTM, dropout, tied linear layer, log softmax."""

    def __init__(self, vocabulary: Vocabulary, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(vocabulary.size, D)
        self.rnn = nn.LSTM(D, D, LAYERS, dropout=dropout)
        self.decoder = nn.Linear(D, vocabulary.size)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        with torch.no_grad():  # excludes `<s>` as in chainrule: exp(-inf) has no gradient
            self.decoder.bias.zero_()[vocabulary.bos] = -torch.inf

    def forward(self, ids: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(T, B) -> (T · B, V) log p, and the state."""
        outputs, state = self.rnn(self.drop(self.encoder(ids)), state)
        logits = self.decoder(self.drop(outputs))
        return nn.functional.log_softmax(logits.view(-1, logits.shape[-1]), dim=1), state


class ExampleLoop:
    """Training loop of the example: nll_loss, clip_grad_norm_, and θ ← θ − ηg for each parameter."""

    def __init__(self, text: Text, dropout: float = DROPOUT, rate: float = RATE) -> None:
        self.text, self.rate = text, rate
        self.net = Example(text.vocabulary, dropout)
        ids = torch.from_numpy(text.train.ids.astype(np.int64))
        self.columns = ids[: len(ids) // B * B].view(B, -1).t().contiguous()  # (L, B)
        self.steps = self._epochs()

    def run(self, steps: int) -> float:
        """Run this many steps, cycling through epochs, and return the mean loss."""
        return statistics.fmean(next(self.steps) for _ in range(steps))

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the following steps."""
        self.rate = rate

    @property
    def network(self) -> Network:
        """A chainrule network with the weights of the example, for evaluation."""
        network = lstm.build(settings(), self.text.vocabulary, None)
        copy_weights(self.net, network)
        return network

    def _epochs(self) -> Iterator[float]:
        self.net.train()
        while True:
            state = (torch.zeros(LAYERS, B, D), torch.zeros(LAYERS, B, D))
            for at in range(0, len(self.columns) - T, T):
                self.net.zero_grad()
                state = (state[0].detach(), state[1].detach())
                log_p, state = self.net(self.columns[at : at + T], state)
                loss = nn.functional.nll_loss(log_p, self.columns[at + 1 : at + 1 + T].view(-1))
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), CLIP)
                for parameter in self.net.parameters():
                    parameter.data.add_(parameter.grad, alpha=-self.rate)
                yield loss.item()


class OurLoop:
    """Training loop of chainrule: `Step` over the windows of a `Stream`."""

    def __init__(self, text: Text, first: Example, config: lstm.Config) -> None:
        counts = np.bincount(text.train.ids, minlength=text.vocabulary.size).astype(np.float64)
        self.network = lstm.build(config, text.vocabulary, counts)
        copy_weights(first, self.network)
        self.step = TrainingStep(self.network, next_token, config.training, CPU)
        self.reader = EagerStepper(self.step, StreamBatches(text.train.ids, config.training, 0, CPU))
        self.steps = self._epochs()

    def run(self, steps: int) -> float:
        """Run this many steps, cycling through epochs, and return the mean loss."""
        self.network.train()
        self.step.statistics.zero_()
        for _ in range(steps):
            next(self.steps)
        return float(self.step.statistics[NATS] / self.step.statistics[TOKENS])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the following steps."""
        optimizers.set_rate(self.step.optimizer, rate)

    def _epochs(self) -> Iterator[None]:
        while True:
            yield from self.reader.epoch(0, 0)


Learner = ExampleLoop | OurLoop


def settings(output: OutputKind = "softmax", dropout: float = DROPOUT, rate: float = RATE) -> lstm.Config:
    """Return the settings of the example as a chainrule config; an adaptive softmax is not tied."""
    return lstm.Config(
        layers=LAYERS,
        hidden=D,
        output=output,
        tie=output != "adaptive",
        dropout=dropout,
        locked=False,
        training=TrainingConfig(
            batch_size=B, bptt=T, shuffle=False, optimizer="sgd", learning_rate=rate, clip=CLIP
        ),
    )


def copy_weights(example: Example, network: Any) -> None:
    """Copy the weights of the example that exist in both networks."""
    with torch.no_grad():
        network.embedding.copy_(example.encoder.weight)
        for layer, weights in zip(network.layers, example.rnn.all_weights, strict=True):
            for ours, theirs in zip((layer.W, layer.R, layer.b_W, layer.b_R), weights, strict=True):
                ours.copy_(theirs)
        if hasattr(network.output, "bias"):
            possible = ~network.output.impossible
            network.output.bias[possible] = example.decoder.bias[possible]


def read(name: str) -> Text:
    """Read a benchmark text; the vocabulary has every word of the training split."""
    benchmark = BENCHMARKS[name]
    corpus = benchmark.corpus("train")
    tokenizer = tokenizer_training.train(corpus, TokenizerConfig(kind="whitespace"))
    train, valid = encode(corpus, tokenizer), encode(benchmark.corpus("valid"), tokenizer)
    return Text(benchmark.title, train, replace(valid, ids=valid.ids[:VALID]), tokenizer.vocabulary)


def race(learners: dict[str, Learner], steps: int) -> dict[str, list[float]]:
    """Return the seconds per step of each round; the first of `steps` steps are an untimed warm-up."""
    times: dict[str, list[float]] = {name: [] for name in learners}
    for learner in learners.values():
        learner.run(WARM_UP)
    for done in range(WARM_UP, steps, ROUND):
        count = min(ROUND, steps - done)
        for name, learner in learners.items():
            learner.set_rate(RATE / 4 ** sum(done >= part * steps for part in ANNEALED))
            start = time.perf_counter()
            learner.run(count)
            times[name].append((time.perf_counter() - start) / count)
    return times


def perplexity(learner: Learner, text: Text) -> float:
    """Return the validation perplexity under the full softmax."""
    return math.exp(mean_nats(NeuralModel(learner.network, text.vocabulary, "stream"), text.valid))


def equality(text: Text) -> str:
    """Compare the mean loss of the same steps without dropout; exit if it differs."""
    rows = []
    for dtype, rate, steps in EQUAL:
        torch.set_default_dtype(dtype)
        torch.manual_seed(0)
        theirs = ExampleLoop(text, 0.0, rate)
        ours = OurLoop(text, theirs.net, settings("softmax", 0.0, rate))
        nats = [theirs.run(steps), ours.run(steps)]
        difference = abs(nats[0] - nats[1])
        if not difference < TOLERANCE:
            raise SystemExit(f"the loops differ by {difference:.1e} nats per token after {steps} steps")
        rows.append([f"rate {rate:g}, {dtype}", str(steps), *[f"{mean:.6f}" for mean in nats], f"{difference:.1e}"])
    torch.set_default_dtype(torch.float32)
    return table([f"{text.title}, no dropout: mean nats", "steps", "example", "chainrule", "difference"], rows)


def speed(text: Text, kinds: tuple[OutputKind, ...], steps: int) -> str:
    """Measure tokens per second, speed-up over the example (with quartiles over rounds) and perplexity."""
    torch.manual_seed(0)
    theirs = ExampleLoop(text)
    learners: dict[str, Learner] = {"example": theirs}
    learners |= {f"chainrule, {kind}": OurLoop(text, theirs.net, settings(kind)) for kind in kinds}
    times, rows = race(learners, steps), []
    for name, learner in learners.items():
        ratios = [theirs_s / ours_s for theirs_s, ours_s in zip(times["example"], times[name], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        ratio = "1" if learner is theirs else f"{middle:.2f} ({low:.2f} to {high:.2f})"
        tokens = f"{B * T / statistics.median(times[name]):,.0f}"
        rows.append([name, tokens, ratio, f"{perplexity(learner, text):.1f}"])
    head = [f"{text.title}, V = {text.vocabulary.size:,}", "tokens/s", "speed-up"]
    return table([*head, f"perplexity after {steps} steps"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default: 2)")
    parser.add_argument("--steps", type=int, default=200, help="training steps (default: 200)")
    arguments = parser.parse_args()
    if arguments.steps < WARM_UP + 2 * ROUND:
        parser.error(f"--steps is {arguments.steps}; choose {WARM_UP + 2 * ROUND} or more, for two timed rounds")
    torch.set_num_threads(arguments.threads)
    wait_policy = os.environ.get("OMP_WAIT_POLICY", "not set")
    print(f"{machine()}; torch {torch.__version__}, {arguments.threads} threads, OMP_WAIT_POLICY {wait_policy}\n")
    treebank = read("ptb")
    print(equality(treebank), flush=True)
    print(speed(treebank, ("softmax",), arguments.steps), flush=True)
    print(speed(read("wikitext2"), ("softmax", "adaptive", "sampled"), arguments.steps), flush=True)


if __name__ == "__main__":
    main()
