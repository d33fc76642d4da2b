"""What can be chosen about an n-gram model; each default is written here and nowhere else."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

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
"""What stands for the smoothing of a model that was read from another program's file."""
INTERPOLATED: Final = "interpolated"
"""What stands for the smoothing of several models made one."""

MAX_ORDER: Final = 32
LAYOUTS: Final = ("fast", "small")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Order, smoothing, and what the smoothing needs to know."""

    order: int = 5  # n: a word is predicted from the n−1 before it
    smoothing: str = "modified-kneser-ney"  # one of SMOOTHINGS
    prune: tuple[int, ...] = ()  # per order, the last for all above: drop n-grams counted this often or less
    entropy_prune: float = 0.0  # drop n-grams whose loss raises the perplexity by less than this part of it
    k: float = 0.1  # add-k: added to every count
    discount: float | None = None  # absolute, kneser-ney: D; from the counts of counts where None
    backoff: float = 0.4  # stupid-backoff: weight of the shorter context
    layout: str = "fast"  # of the model file: fast, or small, less than half the size and slower to ask
    bits: int = 0  # 8: probabilities rounded to 256 values of each order, in the small layout; 0: as estimated
    buckets: bool = True  # jelinek-mercer: one λ for each size of c(h) rather than one for each order

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
            raise ConfigError(f"prune names {len(self.prune)} orders but the model has {self.order}")
        if not 0 <= self.entropy_prune < float("inf"):
            raise ConfigError(f"entropy_prune is {self.entropy_prune}; choose 0 or a small number such as 1e-8")
        if self.entropy_prune and not self.is_normalized:
            raise ConfigError(
                "entropy_prune weighs probabilities, and stupid backoff has none; drop one of the two"
            )
        if not 0 < self.k < float("inf"):
            raise ConfigError(f"k is {self.k}; choose a number above 0")
        if self.discount is not None and not 0 <= self.discount <= 1:
            raise ConfigError(f"discount is {self.discount}; choose a value in [0, 1]")
        if self.discount is not None and self.smoothing not in ("absolute", "kneser-ney"):
            raise ConfigError(f"discount is for absolute and kneser-ney smoothing; {self.smoothing} finds its own")
        if self.layout not in LAYOUTS:
            raise ConfigError(f"layout is '{self.layout}'; choose one of {', '.join(LAYOUTS)}")
        if self.bits not in (0, 8):
            raise ConfigError(f"bits is {self.bits}; choose 0, as estimated, or 8")
        if self.bits and self.layout != "small":
            raise ConfigError("8 bits need the small layout; choose layout 'small' too")
        if not 0 < self.backoff <= 1:
            raise ConfigError(f"backoff is {self.backoff}; choose a value in (0, 1]")

    @property
    def is_normalized(self) -> bool:
        """Whether the estimates are probabilities; stupid backoff gives scores."""
        return self.smoothing != "stupid-backoff"

    def cut_offs(self) -> tuple[int, ...]:
        """One cut-off for each order."""
        given = self.prune or (0,)
        return given + (given[-1],) * (self.order - len(given))
