"""What a translator gives back: a translation and what it is worth, and where it looked."""

from dataclasses import dataclass

import numpy as np

from chainrule.lm import Floats


@dataclass(frozen=True, slots=True)
class Translation:
    """One target for a source."""

    source: str
    text: str
    ids: list[int]  # `</s>` the last of them where it ended so
    tokens: list[str]  # their names
    log_probs: list[float]  # nats, one a token
    score: float  # what the search ranks by: log p over length^p
    is_finished: bool  # False: the length was used up before `</s>` or a stop string

    @property
    def log_prob(self) -> float:
        """log p(target | source) in nats."""
        return float(np.sum(self.log_probs))


@dataclass(frozen=True, slots=True)
class Alignment:
    """Where each prediction looked in the source."""

    source: list[str]  # S tokens, `</s>` the last
    target: list[str]  # T tokens, `</s>` the last where it ended so
    by_head: Floats  # (L, H, T, S), by layer and head

    @property
    def weights(self) -> Floats:
        """(T, S) over all layers and heads."""
        mean: Floats = self.by_head.mean(axis=(0, 1))
        return mean
