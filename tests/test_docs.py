"""The pages say what works: every line of them is run, in order, in a folder that holds what it names."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from cli.command import english

DOCS = Path(__file__).parents[1] / "docs"
ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    text = english(120)
    for name in ("corpus", "train", "valid", "test", "lines"):
        Path(f"{name}.txt").write_text(text)
    Path("corpus.gz").write_bytes(gzip.compress(text.encode()))
    Path("texts").mkdir()
    records = "".join(json.dumps({"body": line}) + "\n" for line in text.splitlines())
    Path("texts/a.jsonl.zst").write_bytes(zstandard.compress(records.encode()))
    Path("run.toml").write_text('[tokenizer]\nkind = "word"\nmin_count = 2\n[model]\norder = 4\n')
    return tmp_path


@pytest.fixture
def tasks_folder(folder: Path) -> Path:
    """Pairs, tagged sentences, labelled texts and word vectors."""
    pairs = [("ein mann geht .", "a man walks ."), ("eine frau singt .", "a woman sings .")] * 20
    for side, name in enumerate(("de", "en")):
        for part in ("train", "test"):
            Path(f"{part}.{name}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    for name in ("pairs", "valid"):
        Path(f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    tagged = "John I-PER\nlives O\nin O\nNew I-LOC\nYork I-LOC\n. O\n\nthe O\ndog O\nbarks O\n\n" * 20
    for part in ("train", "dev", "test"):
        Path(f"{part}.conll").write_text(tagged)
        Path(f"{part}.labels.tsv").write_text("spam\twin a prize now\nham\tsee you at lunch\n" * 20)
    Path("vectors.txt").write_text("dog 0.1 -0.2 0.3 0.5\nlunch -0.4 0.1 0.2 0.0\n")
    return folder


@pytest.fixture
def vectors_folder(folder: Path) -> Path:
    """Judged pairs and analogies in words of the text."""
    Path("pairs.tsv").write_text("cat\tdog\t8.5\nsees\tlikes\t6\nthe\ta\t7\ncat\ttoday\t1\nzebra\tcat\t5\n")
    Path("questions.txt").write_text(": animals\ncat dog fish mouse\n: gram1-words\nthe a cat dog\n")
    Path("vectors.txt").write_text("cat 0.1 -0.2 0.3 0.5\ndog -0.4 0.1 0.2 0.0\nfish 0.1 0.1 0.2 0.0\n")
    return folder


def blocks(page: str) -> list[str]:
    """The indented blocks of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)


def run_shell(block: str, least: int) -> None:
    commands = [line.strip().split("  #")[0] for line in block.splitlines() if line.strip()]
    assert len(commands) >= least
    for command in commands:
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def run_python(script: str) -> None:
    whole = "import warnings; warnings.simplefilter('ignore')\n" + script
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_every_line_of_the_commands_works() -> None:
    shell, *_, python = blocks("commands.md")
    run_shell(shell, 15)
    run_python(re.sub(r"^    ", "", python, flags=re.MULTILINE))


@pytest.mark.slow
@pytest.mark.usefixtures("tasks_folder")
def test_every_line_of_the_tasks_works() -> None:
    run_shell(blocks("tasks.md")[0], 7)
    for script in re.findall(r"```python\n(.*?)```", (DOCS / "tasks.md").read_text(encoding="utf-8"), re.DOTALL):
        run_python(script)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.usefixtures("vectors_folder")
def test_every_line_of_the_vectors_works() -> None:
    run_shell(blocks("vectors.md")[0], 10)
    for script in re.findall(r"```python\n(.*?)```", (DOCS / "vectors.md").read_text(encoding="utf-8"), re.DOTALL):
        run_python(script)


@pytest.mark.slow
def test_every_line_of_the_contextual_works(folder: Path) -> None:
    shutil.copy(DOCS.parent / "tests" / "data" / "senses" / "bank.tsv", folder)
    words = (
        "cut -f2 bank.tsv > text.txt; chainrule pretrain lstm text.txt --hidden 16 --epochs 1 --out runs/encoder"
    )
    run_shell(words, 1)
    run_shell(blocks("contextual.md")[0], 4)
    for script in re.findall(
        r"```python\n(.*?)```", (DOCS / "contextual.md").read_text(encoding="utf-8"), re.DOTALL
    ):
        run_python(script)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.usefixtures("folder")
def test_every_line_of_the_ngram_page_works() -> None:
    run_shell(blocks("ngram.md")[0], 15)
    for script in re.findall(r"```python\n(.*?)```", (DOCS / "ngram.md").read_text(encoding="utf-8"), re.DOTALL):
        run_python(script)
