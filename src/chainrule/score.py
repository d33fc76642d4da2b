"""Token-level score of a text, rendered with surprisal colours in notebooks."""

import html
import math
from dataclasses import dataclass

import numpy as np

from chainrule.inspection.surprisal import surprisal_html


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Log-probabilities of the tokens of a text in nats, including `</s>` of each line.

    `log_prob` scores an unknown word as p(`<unk>`); to compare texts or models, use `log_prob_with_spelling`, which
    includes the probability of its characters.
    """

    text: str
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    oov: int
    log_prob_of_spellings: float  # of the unknown words; −inf if there are some and the model has no speller

    @property
    def log_prob(self) -> float:
        """Return log p(tokens) in nats."""
        return math.fsum(self.log_probs) if not self.infinite else -math.inf

    @property
    def log_prob_with_spelling(self) -> float:
        """Return log p(tokens) + log p(spellings of the unknown words) in nats: the log-probability of the text."""
        return self.log_prob + self.log_prob_of_spellings

    @property
    def bits(self) -> float:
        """Return −log₂ p(tokens)."""
        return (0.0 - self.log_prob) / math.log(2)  # avoids -0.0 for p = 1

    @property
    def perplexity(self) -> float:
        """Return exp of the mean −log p per token."""
        with np.errstate(over="ignore"):
            return float(np.exp(-self.log_prob / len(self.tokens)))

    @property
    def infinite(self) -> bool:
        """Whether some token has probability zero."""
        return -math.inf in self.log_probs

    def _repr_html_(self) -> str:
        bits = [(0.0 - log_prob) / math.log(2) for log_prob in self.log_probs]
        figures = f"{self.bits:.1f} bits, perplexity {self.perplexity:.1f}"
        if self.oov:
            figures += (
                f"; {(0.0 - self.log_prob_with_spelling) / math.log(2):.1f} bits with the spelling of unknown words"
            )
        return f"<div>{surprisal_html(self.tokens, bits)}<small>{html.escape(figures)}</small></div>"
