"""The contract: log p(w_1 … w_T) = Σ_t log p(w_t | w_<t).

Lives here: what every language model offers and the arrays that cross its border. No behaviour.
Letters used throughout: B batch, T time, V vocabulary, K hypotheses, n order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

Context = Literal["line", "stream"]
"""`line`: every line starts from `<s>`. `stream`: a line goes on from the one before, `</s>` an ordinary token.

In a stream `<s>` before a text is read as `</s>`: a text starts as a line does. (`<s>` itself would be seen once,
where the training text starts.)
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is read and what is to be predicted; `targets` is `inputs` one step later."""

    inputs: Ids  # (B, T)  begins with <s>, or goes on where a state left off
    targets: Ids  # (B, T)
    mask: Mask  # (B, T)  False where a row has ended and only padding follows


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Which ids there are and which of them mean something to a model."""

    size: int  # V, all ids
    bos: int  # <s>: context, never predicted
    eos: int  # </s>: predicted and counted
    unk: int | None  # <unk>; None where every text can be written without it
    closed: bool = False  # True: <unk> has no probability

    @property
    def predictable(self) -> Mask:
        """(V,) which ids may come next: not `<s>`, and not `<unk>` where the vocabulary is closed."""
        mask = np.ones(self.size, dtype=bool)
        mask[self.bos] = False
        if self.closed and self.unk is not None:
            mask[self.unk] = False
        return mask


class State(Protocol):
    """What a model remembers of the prefix. A value: never changed in place. Axis 0 is the hypothesis."""

    def select(self, rows: Ids) -> Self:
        """The states of these rows, in this order, repeats allowed."""
        ...


S = TypeVar("S", bound=State)


class LanguageModel(Protocol[S]):
    """Two views of one distribution, `score` in parallel and `step` one token at a time; they agree."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids it reads and predicts."""
        ...

    @property
    def context(self) -> Context:
        """Whether a line starts anew or goes on from the one before."""
        ...

    @property
    def is_normalized(self) -> bool:
        """False: scores that do not sum to one (stupid backoff)."""
        ...

    def start(self, rows: int) -> S:
        """Nothing read yet, not even `<s>`."""
        ...

    def step(self, state: S, ids: Ids) -> tuple[Floats, S]:
        """Read one token a row: (K,) -> (K, V) log p(next | all read so far), and the state after it."""
        ...

    def score(self, batch: Batch, state: S) -> tuple[Floats, S]:
        """Read T tokens a row: (B, T) log p(target_t | all read up to input_t), and the state after the last.

        Where `mask` is False nothing is read: what stands there is of no meaning, and the state is the one after
        the row's last token before it.
        """
        ...


AnyModel = LanguageModel[Any]


class Joining(Protocol[S]):
    """What a model may offer besides: rows that began apart are stepped together. Without it, one after another."""

    def join(self, states: Sequence[S]) -> S:
        """The rows of several states in one, in their order."""
        ...


class Distributing(Protocol[S]):
    """What a model may offer besides: `score` of every word at once. Without it, a text is stepped through."""

    def distributions(self, batch: Batch, state: S) -> tuple[Floats, S]:
        """Read as `score` does: (B, T, V) log p(w | all read up to input_t), and the state after the last.

        What `step` says of the same tokens. All of it stands in memory: the caller keeps B · T · V small.
        """
        ...


class Advancing(Protocol[S]):
    """What a model may offer besides: reading without a word on what was read. Without it, `score` is asked."""

    def advance(self, batch: Batch, state: S) -> S:
        """The state after the last token of each row, read as `score` does."""
        ...
