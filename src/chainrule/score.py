"""The score of a piece of text, token by token; in a notebook it shows itself coloured."""

import html
import math
from dataclasses import dataclass

import numpy as np

from chainrule.inspection.surprisal import surprisal_html


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """log p of a text's tokens in nats, `</s>` of each line among them.

    `log_prob` counts an unknown word as p(`<unk>`), whatever it is; to compare texts or models, use
    `log_prob_with_spelling`, which is of the text itself.
    """

    text: str
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    oov: int
    log_prob_of_spellings: float  # of its unknown words; −inf where it has some and the model has no speller

    @property
    def log_prob(self) -> float:
        """Log p(tokens), nats."""
        return math.fsum(self.log_probs) if not self.infinite else -math.inf

    @property
    def log_prob_with_spelling(self) -> float:
        """Log p(tokens) + log p(spellings of the unknown words), nats: the probability of the text itself."""
        return self.log_prob + self.log_prob_of_spellings

    @property
    def bits(self) -> float:
        """−log₂ p(tokens)."""
        return (0.0 - self.log_prob) / math.log(2)  # 0 where p = 1, not -0

    @property
    def perplexity(self) -> float:
        """Exp of the mean of −log p."""
        with np.errstate(over="ignore"):
            return float(np.exp(-self.log_prob / len(self.tokens)))

    @property
    def infinite(self) -> bool:
        """Whether some token has no probability."""
        return -math.inf in self.log_probs

    def _repr_html_(self) -> str:
        bits = [(0.0 - log_prob) / math.log(2) for log_prob in self.log_probs]
        figures = f"{self.bits:.1f} bits, perplexity {self.perplexity:.1f}"
        if self.oov:
            figures += (
                f"; {(0.0 - self.log_prob_with_spelling) / math.log(2):.1f} bits with the spelling of unknown words"
            )
        return f"<div>{surprisal_html(self.tokens, bits)}<small>{html.escape(figures)}</small></div>"
