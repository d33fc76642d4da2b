"""One-hot vectors, a baseline in which different words have similarity 0.

The V×V identity is represented by a matrix of width 0, which `WordVectors` handles: a word is similar only to
itself, has no neighbours and solves no analogies.
"""

import numpy as np

from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.corpus import CountedCorpus, TrainedVectors, WordVocabulary, check_vocabulary
from chainrule.progress import Progress, as_progress, silent


def train(
    counted: CountedCorpus,
    vocabulary: WordVocabulary,
    config: VectorConfig,
    *,
    threads: int = 1,
    seed: int = 0,
    progress: Progress | bool = silent,
) -> TrainedVectors:
    """Return the identity over the vocabulary as a matrix (V, 0); nothing is trained."""
    progress = as_progress(progress)
    check_vocabulary(vocabulary)
    return TrainedVectors(np.zeros((len(vocabulary.words), 0), np.float32), None, {"seconds": 0.0, "threads": 1})
