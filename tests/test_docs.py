"""Run every code block of the documentation in order, in a folder with the files it uses."""

import gzip
import json
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import zstandard

from cli.command import english

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_path: str) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", quick_path)
    text = english(60)
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
    """Word similarity judgements and analogies over words of the text."""
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
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def run_python(script: str) -> None:
    whole = "import warnings; warnings.simplefilter('ignore')\n" + script
    done = subprocess.run(["python", "-c", whole], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_commands_page_examples_run() -> None:
    shell, *_, python = blocks("commands.md")
    run_shell(shell, 15)
    run_python(re.sub(r"^    ", "", python, flags=re.MULTILINE))


@pytest.mark.slow
@pytest.mark.usefixtures("tasks_folder")
def test_tasks_page_examples_run() -> None:
    run_shell(blocks("tasks.md")[0], 7)
    for script in re.findall(r"```python\n(.*?)```", (DOCS / "tasks.md").read_text(encoding="utf-8"), re.DOTALL):
        run_python(script)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.usefixtures("vectors_folder")
def test_vectors_page_examples_run() -> None:
    run_shell(blocks("vectors.md")[0], 10)
    for script in re.findall(r"```python\n(.*?)```", (DOCS / "vectors.md").read_text(encoding="utf-8"), re.DOTALL):
        run_python(script)


@pytest.mark.slow
def test_contextual_page_examples_run(folder: Path) -> None:
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
def test_ngram_page_examples_run() -> None:
    run_shell(blocks("ngram.md")[0], 15)
    run_shell(blocks("ngram.md")[2], 4)
    for script in re.findall(r"```python\n(.*?)```", (DOCS / "ngram.md").read_text(encoding="utf-8"), re.DOTALL):
        run_python(script)


def wait_until_free(port: int) -> None:
    """A stopped server may still answer for a moment."""
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.1)
    raise AssertionError(f"something still listens on port {port}")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_serve_page_examples_run() -> None:
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        port, *shard_ports = (listener.getsockname()[1] for listener in free)
    page = (DOCS / "serve.md").read_text(encoding="utf-8").replace("8080", str(port))
    first, *_, second, sharded = (block.replace("8080", str(port)) for block in blocks("serve.md"))
    for written, shard_port in zip(("8081", "8082"), shard_ports, strict=True):
        sharded = sharded.replace(written, str(shard_port))
    *asking, stop = first.strip().splitlines()
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    try:
        run_shell("\n".join(asking), 8)
        run_python(script)
        run_shell(stop, 1)
        wait_until_free(port)
        run_shell(second, 5)
        wait_until_free(port)
        run_shell(sharded, 12)
    finally:
        run_shell("kill $(cat serve.pid one.pid two.pid) 2> /dev/null || true", 1)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.usefixtures("folder")
def test_web_page_examples_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        run_shell(blocks("page.md")[0].replace("8080", str(port)), 8)
    finally:
        run_shell("kill $(cat page.pid) 2> /dev/null || true", 1)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("page", "least"), [("filter.md", 14), ("complete.md", 7), ("rerank.md", 7), ("correct.md", 8)]
)
def test_application_pages_examples_run(page: str, least: int) -> None:
    run_shell(blocks(page)[0], least)
    (script,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    run_python(script)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.usefixtures("folder")
def test_pipeline_page_examples_run() -> None:
    first, second, *_ = blocks("pipeline.md")
    run_shell(first, 6)
    run_shell(second, 6)
    (script,) = re.findall(r"```python\n(.*?)```", (DOCS / "pipeline.md").read_text(encoding="utf-8"), re.DOTALL)
    Path("pipeline.py").write_text(script)
    subprocess.run([sys.executable, "-W", "ignore", "pipeline.py"], check=True)  # workers import the file


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_clients_page_examples_run() -> None:
    # The packages it names are tested by tests/clients/serve.sh.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    try:
        run_shell(blocks("clients.md")[0].replace("8080", str(port)), 11)
    finally:
        run_shell("kill $(cat clients.pid) 2> /dev/null || true", 1)


def test_tutorial_commands_run(folder: Path) -> None:
    """The commands of the tutorial, on a small text and without networks."""
    Path("novels.txt").write_text(english(400))
    winner = ""
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (chainrule .*)$", page, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        short = command.replace("--budget 12m", "--budget 3s --families ngram").replace("ngram,lstm", "ngram")
        short = short.replace("--max-seconds 600", "--max-seconds 3")
        short = short.replace("mixture-word-ngram-gru-rnn-lstm", winner)
        done = subprocess.run(["bash", "-c", short], capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        winner = json.loads(Path("runs/mine/results.json").read_text())["rows"][0]["name"]
