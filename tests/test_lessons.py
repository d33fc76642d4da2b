"""Lessons: the code blocks of each page run in order, print the shown output and draw its pictures.

A page runs in its own folder with one Python namespace. `CHAINRULE_REDRAW=1` replaces the pictures in
docs/lessons/images by those just drawn.
"""

import doctest
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Final

import pytest

import chainrule
from chainrule.errors import ChainruleWarning
from chainrule.text.corpus import Corpus

pytest.importorskip("matplotlib")

LESSONS: Final = Path(__file__).parents[1] / "docs" / "lessons"
PAGES: Final = sorted(LESSONS.glob("[0-9][0-9]-*.md"))
NAMES: Final = [page.name for page in PAGES]

BLOCK: Final = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP: Final = re.compile(r"^\$ (.*\n(?:> .*\n|>\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)
PICTURE: Final = re.compile(r"!\[([^\]]*)\]\(images/([^)]+)\)")
LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)")
SECONDS: Final = re.compile(r"^This page runs in about (\d+) s on two cores\.$", re.MULTILINE)
SECTIONS: Final = ("## Exercises", "## In the code", "## Further reading")
SVG: Final = "{http://www.w3.org/2000/svg}"


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def seconds(page: Path) -> int:
    """The duration stated on the page."""
    match = SECONDS.search(read(page))
    return int(match[1]) if match else 0


def run_console(block: str, page: str) -> None:
    """Run each command of a block; compare its output where the page shows it (`…` matches anything)."""
    steps = STEP.findall(block)
    assert steps, f"{page}: a console block has no line that begins with $"
    for lines, expected in steps:
        command = re.sub(r"^>( |$)", "", lines, flags=re.MULTILINE)
        words = ["bash", "-c", f"set -o pipefail; {command}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "| head" in command, f"{page}: {command}{done.stderr}"
        pattern = expected.replace("…", "...")
        is_shown = doctest.OutputChecker().check_output(pattern, done.stdout, doctest.ELLIPSIS)
        assert not expected.strip() or is_shown, f"{page}: {command}expected\n{expected}got\n{done.stdout}"


def run_python(block: str, page: str, namespace: dict[str, Any]) -> None:
    """A block of `>>>` examples, or a plain one, in the page's namespace."""
    if ">>> " not in block:
        exec(compile(block, page, "exec"), namespace)
        return
    examples = doctest.DocTestParser().get_examples(block, page)
    test = doctest.DocTest(examples, {}, page, page, 0, block)
    test.globs = namespace  # the constructor copies its argument
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF, verbose=False)
    result = runner.run(test, out=report.append, clear_globs=False)
    assert result.attempted
    assert result.failed == 0, "".join(report)


def texts(picture: Path) -> list[str]:
    """Title, description and all labels of a picture, in drawing order."""
    root = ElementTree.parse(picture).getroot()
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    for name in ("title", "desc"):
        assert root.findtext(f"{SVG}{name}"), f"{picture.name} has no {name}"
    style = root.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme" in style, f"{picture.name} has no paper and ink of its own: see standalone()"
    tags = {f"{SVG}{name}" for name in ("title", "desc", "text")}
    return ["".join(element.itertext()) for element in root.iter() if element.tag in tags]


def test_warnings_quoted_in_lesson_3_are_printed() -> None:
    page = " ".join(read(LESSONS / "03-smoothing.md").split())
    (corpus,) = re.findall(r"cat > corpus.txt << END\n(.*?)> END", read(LESSONS / "03-smoothing.md"), re.DOTALL)
    lines = Corpus.from_lines([line.removeprefix("> ") for line in corpus.splitlines()])
    for settings in ({"order": 2, "smoothing": "katz", "closed": True}, {"order": 3}):
        with pytest.warns(ChainruleWarning) as warned:
            chainrule.train("ngram", lines, **settings)
        assert f"`{warned[0].message}`" in page


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.slow] if seconds(p) > 2 else [], id=p.stem) for p in PAGES]
)
def test_lesson_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_path: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", quick_path)
    monkeypatch.setenv("TERM", "dumb")
    Path("images").mkdir()
    namespace: dict[str, Any] = {"__name__": page.stem}
    blocks = BLOCK.findall(read(page))
    assert len(blocks) > 2
    for kind, block in blocks:
        if kind == "console":
            run_console(block, page.name)
        else:
            run_python(block, page.name, namespace)
    for _, name in PICTURE.findall(read(page)):
        committed, drawn = LESSONS / "images" / name, Path("images") / name
        assert drawn.exists(), f"{page.name} shows images/{name} and does not draw it"
        if "CHAINRULE_REDRAW" in os.environ:
            shutil.copyfile(drawn, committed)
        assert texts(drawn) == texts(committed), f"images/{name} is not what {page.name} draws now"


@pytest.mark.parametrize("name", NAMES)
def test_lesson_has_all_its_sections(name: str) -> None:
    text = read(LESSONS / name)
    assert text.startswith("# ")
    assert [text.count(f"\n{section}\n") for section in SECTIONS] == [1] * len(SECTIONS)
    assert SECONDS.search(text), "say how long it takes: This page runs in about 3 s on two cores."
    pictures = PICTURE.findall(text)
    assert pictures
    assert all(len(alt) > 40 for alt, _ in pictures), "say in the alternative text what is seen"


@pytest.mark.parametrize("name", [*NAMES, "README.md"])
def test_lesson_links_exist(name: str) -> None:
    links = [link for link in LINK.findall(read(LESSONS / name)) if "://" not in link]
    assert links
    assert [link for link in links if not (LESSONS / link).exists()] == []


def test_lesson_index_is_complete_and_ordered() -> None:
    listed = re.findall(r"\]\((\d\d-[^)]+\.md)\)", read(LESSONS / "README.md"))
    assert listed == NAMES


def test_every_lesson_picture_is_used() -> None:
    used_pictures = {name for page in PAGES for _, name in PICTURE.findall(read(page))}
    assert {path.name for path in (LESSONS / "images").iterdir()} == used_pictures
