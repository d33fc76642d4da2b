"""Input checks and truncated back-propagation shared by the networks."""

import numpy as np

from chainrule.errors import UsageError, VocabularyError
from chainrule.lm import Floats, Ids, Mask


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

    The sequence is divided into segments of `window` steps; the state is carried across segments, the gradient is
    not.

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
