"""Memory use of training: at most 1.2 times the two matrices plus 64 MB."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read as Linux tells it"),
]

MARGIN = 64 << 20
# VmHWM, unlike ru_maxrss, does not include the parent's peak.
CHILD = """
import json, sys
from chainrule import system
from chainrule.embeddings import ppmi, storage, train, word2vec

def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))

system.load_extension()
before = peak()
made = train.train(sys.argv[1], out=sys.argv[2], threads=1, epochs=1, dimensions=100, **json.loads(sys.argv[3]))
buckets = 0 if made.buckets is None else len(made.buckets)
print(json.dumps({"took": peak() - before, "words": len(made), "matrices": 400 * (2 * len(made) + buckets)}))
"""


def measure_memory(text: Path, **settings: object) -> dict[str, int]:
    command = [sys.executable, "-c", CHILD, str(text), str(text.parent / "out"), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    measured: dict[str, int] = json.loads(done.stdout)
    return measured


def test_memory_for_one_long_line(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one two three four five six seven " * (1 << 21))  # 68 MiB: more than the margin
    memory = measure_memory(text, sample=1e-6)
    assert text.stat().st_size > MARGIN
    assert memory["took"] < MARGIN / 2


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
@pytest.mark.parametrize("subwords", [{}, {"shortest": 3, "longest": 4, "buckets": 300_000}])
def test_memory_for_the_matrices(tmp_path: Path, method: str, subwords: dict[str, int]) -> None:
    V = 20_000 if subwords else 250_000
    text = tmp_path / "text"
    text.write_text("".join(f"w{i} v{i}\n" for i in range(V // 2)))
    memory = measure_memory(text, method=method, min_count=1, **subwords)
    assert memory["words"] == V
    assert (
        memory["matrices"] > 2 * MARGIN
    )  # so that a third matrix, or a copy of the buckets, would exceed the limit
    assert memory["took"] < 1.2 * memory["matrices"] + MARGIN


def test_memory_for_many_word_types(tmp_path: Path) -> None:
    # 700,000 words of which two get a vector: as str they would take 50 bytes each plus 8 in a list.
    text = tmp_path / "text"
    text.write_text("".join(f"a b {i}\n" for i in range(700_000)))
    memory = measure_memory(text, sample=1e-6)
    assert memory["words"] == 2
    assert memory["took"] < MARGIN
