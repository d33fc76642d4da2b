"""Interface of all language models: log p(w_1 … w_T) = Σ_t log p(w_t | w_<t).

Dimensions: B batch, T time, V vocabulary, K hypotheses, n order.
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
"""`line`: every line starts from `<s>`. `stream`: a line continues the previous one; `</s>` is an ordinary token.

In a stream, the `<s>` before a text is read as `</s>`, so that a text starts as a line does: the training text
contains `<s>` only once, at its start.
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs and targets; `targets` is `inputs` shifted by one step."""

    inputs: Ids  # (B, T)  starts with <s>, or continues from a state
    targets: Ids  # (B, T)
    mask: Mask  # (B, T)  False for padding


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Size of the vocabulary and the ids of its control symbols."""

    size: int  # V, all ids
    bos: int  # <s>: context, never predicted
    eos: int  # </s>: predicted and counted
    unk: int | None  # <unk>; None if the tokenizer can encode every text without it
    closed: bool = False  # True: <unk> has probability zero

    @property
    def predictable(self) -> Mask:
        """(V,) mask of the ids that can be predicted: not `<s>`, and not `<unk>` of a closed vocabulary."""
        mask = np.ones(self.size, dtype=bool)
        mask[self.bos] = False
        if self.closed and self.unk is not None:
            mask[self.unk] = False
        return mask


class State(Protocol):
    """State of a model after a prefix: an immutable value whose axis 0 is the hypothesis."""

    def select(self, rows: Ids) -> Self:
        """Return the states of these rows, in this order; rows may repeat."""
        ...


S = TypeVar("S", bound=State)


class LanguageModel(Protocol[S]):
    """Two views of one distribution: `score` in parallel and `step` one token at a time; the two agree."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the inputs and targets."""
        ...

    @property
    def context(self) -> Context:
        """Whether every line starts from `<s>` or continues the previous line."""
        ...

    @property
    def is_normalized(self) -> bool:
        """Whether the probabilities sum to one; False for stupid backoff."""
        ...

    @property
    def engine(self) -> Any:
        """Compiled n-gram engine, for n-gram queries outside this interface; None for other models."""
        ...

    @property
    def network(self) -> Any:
        """PyTorch network, for hidden states and gradients; None for other models."""
        ...

    def start(self, rows: int) -> S:
        """Return the initial state of `rows` hypotheses, before `<s>` is read."""
        ...

    def join(self, states: Sequence[S]) -> S:
        """Concatenate the rows of several states, so that they can be stepped as one batch."""
        ...

    def step(self, state: S, ids: Ids) -> tuple[Floats, S]:
        """Read one token per row: (K,) -> (K, V) log p(next | prefix), and the new state."""
        ...

    def score(self, batch: Batch, state: S) -> tuple[Floats, S]:
        """Read T tokens per row: (B, T) log p(target_t | prefix up to input_t), and the new state.

        Where `mask` is False, the input is not read, the result is undefined, and the state does not change.
        """
        ...

    def score_lines(self, ids: Ids) -> Floats | None:
        """Score whole lines stored end to end, each ended by `</s>`: (N,) -> (N,) log p, equal to `score`.

        None if the model scores batches only, as neural and stream models do.
        """
        ...

    def distributions(self, batch: Batch, state: S) -> tuple[Floats, S]:
        """Read a batch: (B, T, V) log p(w | prefix up to input_t), and the new state.

        Equal to the results of `step` on the same tokens. The caller keeps B · T · V small enough for memory.
        """
        ...

    def advance(self, batch: Batch, state: S) -> S:
        """Return the state after the last token of each row, without computing probabilities."""
        ...


AnyModel = LanguageModel[Any]
