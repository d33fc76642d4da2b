"""Configuration of n-gram models."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from chainrule.config import setting
from chainrule.errors import ConfigError

Smoothing = Literal[
    "modified-kneser-ney",
    "kneser-ney",
    "absolute",
    "witten-bell",
    "jelinek-mercer",
    "katz",
    "add-k",
    "laplace",
    "mle",
    "stupid-backoff",
]
SMOOTHINGS: Final[tuple[Smoothing, ...]] = get_args(Smoothing)
IMPORTED: Final = "imported"
"""Value of `smoothing` for a model imported from an ARPA file."""
INTERPOLATED: Final = "interpolated"
"""Value of `smoothing` for a model made by static interpolation of several models."""

MAX_ORDER: Final = 32
LAYOUTS: Final = ("fast", "small")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Order, smoothing method, its parameters, pruning and file layout of an n-gram model."""

    order: int = setting(5, "ngram, feedforward: order of the model (n); n-gram models default to 5.")
    smoothing: str = setting(
        "modified-kneser-ney",
        "Smoothing method (ngram): modified-kneser-ney, kneser-ney, absolute, witten-bell, jelinek-mercer, katz, "
        "add-k, laplace, mle or stupid-backoff.",
    )
    prune: tuple[int, ...] = setting(  # the last value applies to all higher orders
        (), "ngram: count threshold per order, e.g. 0,0,1; n-grams with this count or less are dropped."
    )
    entropy_prune: float = setting(
        0.0,
        "Entropy pruning (ngram): drop n-grams whose removal raises perplexity by less than this fraction, "
        "e.g. 1e-8.",
    )
    k: float = 0.1  # add-k: constant added to every count
    discount: float | None = None  # absolute, kneser-ney: D; None: estimated from the counts of counts
    backoff: float = 0.4  # stupid-backoff: back-off weight
    layout: str = setting(
        "fast", "Model file layout (ngram): fast (hash table) or small (compact).", shows_default=True
    )
    bits: int = setting(
        0,
        "Bits per probability (ngram): 8 (requires the small layout) or 0 (no quantization).",
        option="--quantize",
    )
    buckets: bool = True  # jelinek-mercer: one λ per order and bucket of c(h) instead of one per order

    def __post_init__(self) -> None:
        if not 1 <= self.order <= MAX_ORDER:
            raise ConfigError(f"order is {self.order}; choose a whole number from 1 to {MAX_ORDER}")
        if self.smoothing not in (*SMOOTHINGS, IMPORTED, INTERPOLATED):
            raise ConfigError(f"smoothing is '{self.smoothing}'; choose one of {', '.join(SMOOTHINGS)}")
        if self.prune and (self.prune[0] != 0 or list(self.prune) != sorted(self.prune)):
            raise ConfigError(
                f"prune is {','.join(map(str, self.prune))}; it must start with 0 and never fall, as in 0,0,1"
            )
        if len(self.prune) > self.order:
            raise ConfigError(f"prune has {len(self.prune)} thresholds but the model has {self.order} orders")
        if not 0 <= self.entropy_prune < float("inf"):
            raise ConfigError(f"entropy_prune is {self.entropy_prune}; choose 0 or a small number such as 1e-8")
        if self.entropy_prune and not self.is_normalized:
            raise ConfigError(
                "entropy_prune requires probabilities; stupid backoff gives unnormalized scores: "
                "remove one of the two settings"
            )
        if not 0 < self.k < float("inf"):
            raise ConfigError(f"k is {self.k}; choose a number above 0")
        if self.discount is not None and not 0 <= self.discount <= 1:
            raise ConfigError(f"discount is {self.discount}; choose a value in [0, 1]")
        if self.discount is not None and self.smoothing not in ("absolute", "kneser-ney"):
            raise ConfigError(f"discount is for absolute and kneser-ney smoothing; {self.smoothing} ignores it")
        if self.layout not in LAYOUTS:
            raise ConfigError(f"layout is '{self.layout}'; choose one of {', '.join(LAYOUTS)}")
        if self.bits not in (0, 8):
            raise ConfigError(f"bits is {self.bits}; choose 0 (no quantization) or 8")
        if self.bits and self.layout != "small":
            raise ConfigError("8 bits need the small layout; choose layout 'small' too")
        if not 0 < self.backoff <= 1:
            raise ConfigError(f"backoff is {self.backoff}; choose a value in (0, 1]")

    @property
    def is_normalized(self) -> bool:
        """Whether the scores after each context sum to 1; False for stupid backoff."""
        return self.smoothing != "stupid-backoff"

    def cut_offs(self) -> tuple[int, ...]:
        """Return the count cut-off of each order: n-grams counted this often or less are removed."""
        cut_offs = self.prune or (0,)
        return cut_offs + (cut_offs[-1],) * (self.order - len(cut_offs))
