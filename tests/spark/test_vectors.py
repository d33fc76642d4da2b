"""Word vectors on Spark: the vectors of training in one process."""

from pathlib import Path
from typing import Any

from numpy.testing import assert_array_equal

from chainrule.embeddings import train


def test_glove_vectors(session: Any, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"w{i % 7} w{i % 5} v{i % 3}, w{i % 11}\n" for i in range(500)))
    common: dict[str, Any] = {"method": "glove", "dimensions": 4, "threads": 1, "seed": 5}
    local = train.train(text, **common)
    trained = train.train(text, **common, on=session, partition="3000")
    assert trained.words == local.words
    assert_array_equal(trained.matrix, local.matrix)
    assert trained.metrics["train_words"] == local.metrics["train_words"]
