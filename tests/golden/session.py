"""Run chainrule commands in a folder of toy texts and stored models, and write down what they print."""

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.command import Outcome, call
from golden.normalizer import normalize
from golden.recorded import FOLDERS, TEXTS


@contextmanager
def working_folder(folder: Path, lines: Sequence[str] = ()) -> Iterator[Path]:
    """Copy the texts, and the models that the lines name as `models/NAME`, to a folder; make it the current one.

    Output is 80 columns wide and without colour.
    """
    shutil.copytree(TEXTS, folder, dirs_exist_ok=True)
    for model in sorted({name for line in lines for name in re.findall(r"models/([\w-]+)", line)}):
        if (FOLDERS / model).exists():
            shutil.copytree(FOLDERS / model, folder / "models" / model)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "80")
        patch.setenv("NO_COLOR", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield folder


def run(line: str) -> Outcome:
    """Run one line: words for chainrule, `< FILE` at the end for its standard input."""
    words, _, stdin = line.partition(" < ")
    return call(*shlex.split(words), stdin=Path(stdin).read_bytes() if stdin else b"")


def transcript(lines: Sequence[str]) -> str:
    """Run lines and return what they printed, as on a terminal; `cat FILE` shows a file that was written."""
    return "".join(_entry(line) for line in lines)


def _entry(line: str) -> str:
    if line.startswith("cat "):
        return f"$ {line}\n{normalize(Path(line.removeprefix('cat ')).read_text(encoding='utf-8'))}\n"
    if line.startswith("find "):
        root = Path(line.removeprefix("find "))
        names = sorted(path.as_posix() for path in root.rglob("*") if path.is_file())
        return f"$ {line}\n" + "".join(f"{name}\n" for name in names) + "\n"
    outcome = run(line)
    out, err = (normalize(text).replace(str(Path.cwd()), "<folder>") for text in (outcome.out, outcome.err))
    entry = [f"$ chainrule {line}\n", out]
    if err:
        entry.append(f"--- stderr\n{err}")
    if outcome.status:
        entry.append(f"--- exit status {outcome.status}\n")
    return "".join(entry) + "\n"
