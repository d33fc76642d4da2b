"""Models and tokenizers small enough to work out by hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from sequential_model import SequentialModel


def log(p: Sequence[float] | Sequence[Sequence[float]]) -> Floats:
    """(K, V) log p, -inf where p is 0; accepts a single row."""
    with np.errstate(divide="ignore"):
        return np.log(np.atleast_2d(np.array(p, dtype=np.float64)))


@dataclass(frozen=True, slots=True)
class Read:
    """All ids read so far."""

    ids: Ids  # (K, T)

    def select(self, rows: Ids) -> Self:
        return type(self)(self.ids[rows])


class Markov(SequentialModel):
    """p(next | last) from a table; `calls` counts the rows of each step."""

    def __init__(
        self,
        table: Floats,
        *,
        bos: int = 0,
        eos: int = 1,
        context: Context = "line",
        is_normalized: bool = True,
    ) -> None:
        self.table = table  # (V, V) log p
        self.vocabulary = Vocabulary(len(table), bos, eos, None)
        self.context: Context = context
        self.is_normalized = is_normalized
        self.calls: list[int] = []

    def start(self, rows: int) -> Read:
        return Read(np.zeros((rows, 0), dtype=np.int64))

    def step(self, state: Read, ids: Ids) -> tuple[Floats, Read]:
        self.calls.append(len(ids))
        read = Read(np.concatenate([state.ids, ids[:, None]], axis=1))
        return self.next(read), read

    def score(self, batch: Batch, state: Read) -> tuple[Floats, Read]:
        columns = []
        for t in range(batch.inputs.shape[1]):
            state = Read(np.concatenate([state.ids, batch.inputs[:, t, None]], axis=1))
            columns.append(np.take_along_axis(self.next(state), batch.targets[:, t, None], axis=1))
        return np.concatenate(columns, axis=1), state

    def next(self, state: Read) -> Floats:
        """(K, V) log p after the ids read so far."""
        return self.table[state.ids[:, -1]]


class Script(Markov):
    """Generates these ids in order with certainty, whatever it reads."""

    def __init__(self, ids: Sequence[int], vocab_size: int, prompt_length: int = 0) -> None:
        super().__init__(np.zeros((vocab_size, vocab_size)))
        self.ids = ids
        self.prompt_length = prompt_length

    def next(self, state: Read) -> Floats:
        spoken = state.ids.shape[1] - 1 - self.prompt_length
        p = np.zeros((len(state.ids), self.vocabulary.size))
        p[:, self.ids[min(max(spoken, 0), len(self.ids) - 1)]] = 1
        return log(p.tolist())


def random_markov(seed: int, V: int = 5) -> Markov:
    """A dense random transition table; `<s>` (0) is never predicted."""
    p = np.random.default_rng(seed).dirichlet(np.ones(V - 1), size=V)
    return Markov(log(np.concatenate([np.zeros((V, 1)), p], axis=1).tolist()))


class Trigram(Markov):
    """p(next | last two), so that a state of the wrong row is detected."""

    def __init__(self, seed: int, eos: float) -> None:
        """Five ids; `<s>` is never predicted, `</s>` always has this probability."""
        super().__init__(np.zeros((5, 5)))
        words = np.random.default_rng(seed).dirichlet(np.ones(3), size=(5, 5)) * (1 - eos)
        with np.errstate(divide="ignore"):
            self.cube = np.log(np.pad(words, ((0, 0), (0, 0), (2, 0))))  # (V, V, V)
        self.cube[:, :, 1] = np.log(eos)

    def next(self, state: Read) -> Floats:
        before = state.ids[:, -2] if state.ids.shape[1] > 1 else 0
        log_p: Floats = self.cube[before, state.ids[:, -1]]
        return log_p


class _Words:
    """A vocabulary of words separated by single spaces; ids 0 and 1 are `<s>` and `</s>`, 2 is `<unk>`."""

    bos, eos, unk = 0, 1, 2

    def __init__(self, *words: str) -> None:
        self.names = ["<s>", "</s>", "<unk>", *words]
        self.vocab_size = len(self.names)

    def encode(self, text: str) -> Ids:
        return np.array([self.names.index(w) if w in self.names[3:] else 2 for w in text.split()], dtype=np.int32)

    encode_prompt = encode

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.names[i] for i in ids if i > 1)

    def token_bytes(self, previous: int | None, id_: int) -> bytes:
        return b" " * (previous is not None and previous > 1) + self.names[id_].encode() if id_ > 1 else b""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.names[i] for i in ids]


class _Bytes:
    """Ids 0 and 1 are `<s>` and `</s>`, byte b is b + 2."""

    bos, eos, unk, vocab_size = 0, 1, None, 258

    def encode(self, text: str) -> Ids:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32) + 2

    encode_prompt = encode

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i - 2 for i in ids if i > 1).decode(errors="replace")

    def token_bytes(self, previous: int | None, id_: int) -> bytes:
        return bytes([id_ - 2]) if id_ > 1 else b""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [("<s>", "</s>")[i] if i < 2 else f"\\x{i - 2:02x}" for i in ids]


# The part of the Tokenizer interface that generation needs.
Words: Any = _Words
Bytes: Any = _Bytes
