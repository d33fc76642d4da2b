"""Word vectors among what a folder may hold, so that `chainrule.load` and `chainrule info` open it as any other."""

from pathlib import Path

from chainrule.embeddings import storage
from chainrule.embeddings.config import VectorConfig as Config
from chainrule.embeddings.learning import train
from chainrule.embeddings.vectors import WordVectors

__all__ = ["Config", "load", "train"]


def load(path: str | Path, device: str = "cpu") -> WordVectors:
    """The vectors of a folder, every file verified first; they are in memory, whatever the device."""
    return storage.load(path)
