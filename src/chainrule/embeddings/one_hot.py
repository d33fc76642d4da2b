"""One-hot vectors, the baseline in which a word has nothing in common with any other.

The V×V identity is never built: a matrix of width 0 stands for it. Its products are those of different rows of the
identity, all 0; `WordVectors` knows the form, so that a word is like itself alone, has no neighbours and solves no
analogy.
"""

import numpy as np

from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.counting import Counted
from chainrule.embeddings.method import Trained, check_words
from chainrule.embeddings.vocabulary import Chosen
from chainrule.progress import Progress, as_progress, silent


def train(
    counted: Counted,
    chosen: Chosen,
    config: VectorConfig,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | bool = silent,
) -> Trained:
    """The identity over the chosen words, as a matrix (V, 0); nothing is learnt, nothing drawn."""
    progress = as_progress(progress)
    check_words(chosen)
    return Trained(np.zeros((len(chosen.words), 0), np.float32), None, {"seconds": 0.0, "threads": 1})
