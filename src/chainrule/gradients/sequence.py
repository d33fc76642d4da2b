"""What every net is given, checked: tokens, a first state, where truncated back-propagation cuts.

Not here: the nets themselves, one file each.
"""

import numpy as np

from chainrule.errors import UsageError, VocabularyError
from chainrule.lm import Floats, Ids, Mask


def check_tokens(ids: Ids, targets: Ids, vocab_size: int) -> None:
    """Refuse tokens that a net of `vocab_size` words cannot read, or whose targets do not match."""
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


def first_state(given: Floats | None, width: int) -> Floats:
    """(m,): the state before the first token: zero where none is given."""
    if given is None:
        return np.zeros(width)
    if given.shape != (width,):
        raise UsageError(f"the first state has shape {given.shape}; the net is {width} wide, so give ({width},)")
    return given


def cuts(T: int, window: int | None) -> Mask:
    """(T,): True at t where no error passes from step t back to step t−1.

    The sequence falls into pieces of `window` steps; the state is carried from piece to piece, the error is not.

    >>> cuts(5, 2)
    array([False, False,  True, False,  True])
    """
    if window is None:
        return np.zeros(T, dtype=bool)
    if window < 1:
        raise UsageError(f"the window is {window} steps; choose 1 or more, or None for the whole sequence")
    steps = np.arange(T)
    is_cut: Mask = (steps > 0) & (steps % window == 0)
    return is_cut
