"""Word vectors as a task, so that `chainrule.load` and `chainrule info` open them like any other model folder."""

from pathlib import Path

from chainrule.embeddings import storage
from chainrule.embeddings.config import VectorConfig as Config
from chainrule.embeddings.train import train
from chainrule.embeddings.vectors import WordVectors

__all__ = ["Config", "load", "train"]


def load(path: str | Path, device: str = "cpu") -> WordVectors:
    """Verify and load word vectors; `device` is ignored, vectors stay in main memory."""
    return storage.load(path)
