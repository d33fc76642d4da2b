"""Code shared by all recurrent networks: forward trace, loss, initial state and truncation."""

from dataclasses import dataclass

import numpy as np

from chainrule.errors import UsageError, VocabularyError
from chainrule.gradients.softmax import cross_entropy, loss_gradient, softmax
from chainrule.lm import Floats, Ids, Mask


@dataclass(frozen=True, slots=True, eq=False)
class SequenceTrace:
    """Inputs, states and outputs of the forward pass over T tokens; each network adds its own values."""

    ids: Ids  # (T,)
    targets: Ids  # (T,)
    h0: Floats  # (m,)
    x: Floats  # (T, d)
    h: Floats  # (T, m)
    logits: Floats  # (T, V)

    @property
    def p(self) -> Floats:
        """p_t = softmax(W_o h_t + b_o), (T, V)."""
        return softmax(self.logits)

    @property
    def losses(self) -> Floats:
        """L_t = −log p_{t,y_t}, in nats, (T,)."""
        return cross_entropy(self.logits, self.targets)

    @property
    def loss(self) -> float:
        """L = Σ_t L_t, in nats."""
        return float(self.losses.sum())

    @property
    def past(self) -> Floats:
        """h_{t−1} for every t, (T, m)."""
        return np.vstack([self.h0, self.h[:-1]])

    def output_gradients(self, W_o: Floats) -> Floats:
        """Return ∂L_t/∂h_t = W_oᵀ (p_t − y_t) for every t, (T, m)."""
        gradients: Floats = loss_gradient(self.p, self.targets) @ W_o
        return gradients

    def last_output_gradient(self, W_o: Floats) -> Floats:
        """Return ∂L_T/∂h_T in the last row and 0 before it, (T, m)."""
        gradients = np.zeros_like(self.h)
        gradients[-1] = loss_gradient(self.p, self.targets)[-1] @ W_o
        return gradients


def check_tokens(ids: Ids, targets: Ids, vocab_size: int) -> None:
    """Raise unless ids and targets are in the vocabulary, non-empty and of the same length."""
    if len(ids) != len(targets) or len(targets) == 0:
        raise UsageError(
            f"there are {len(ids)} inputs and {len(targets)} targets; give one target for each input, at least one"
        )
    for name, values in (("ids", ids), ("targets", targets)):
        if values.min() < 0 or values.max() >= vocab_size:
            raise VocabularyError(
                f"{name} run from {values.min()} to {values.max()} but the embedding has {vocab_size} rows; "
                f"use ids from 0 to {vocab_size - 1}"
            )


def initial_state(state: Floats | None, width: int) -> Floats:
    """Return the state before the first token, (m,); zeros if None."""
    if state is None:
        return np.zeros(width)
    if state.shape != (width,):
        raise UsageError(f"the first state has shape {state.shape}; the net is {width} wide, so give ({width},)")
    return state


def truncation_points(T: int, window: int | None) -> Mask:
    """Return a mask (T,) that is True at t if no gradient flows from step t back to step t−1.

    The sequence is divided into segments of `window` steps; the state is carried across segments, but the
    gradient is not.

    >>> truncation_points(5, 2)
    array([False, False,  True, False,  True])
    """
    if window is None:
        return np.zeros(T, dtype=bool)
    if window < 1:
        raise UsageError(f"the window is {window} steps; choose 1 or more, or None for the whole sequence")
    steps = np.arange(T)
    is_cut: Mask = (steps > 0) & (steps % window == 0)
    return is_cut
