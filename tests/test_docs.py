"""docs/commands.md says what works: every line of it is run, in order, in a folder that holds what it names."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from cli.command import english

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"


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


def blocks() -> list[str]:
    """The indented blocks of the page: shell commands first, Python last."""
    return re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_every_line_of_the_page_works() -> None:
    shell, *_, python = blocks()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    commands = [line.strip().split("  #")[0] for line in shell.splitlines() if line.strip()]
    assert len(commands) > 14
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env=os.environ | {"PATH": path}
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    script = "import warnings; warnings.simplefilter('ignore')\n" + re.sub(r"^    ", "", python, flags=re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
