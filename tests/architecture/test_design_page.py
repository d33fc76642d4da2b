"""The architecture page names the modules and layers that exist."""

import re

from architecture.test_imports import LAYERS, MODULES, ROOT, SOURCE

PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")


def test_design_page_lists_every_module() -> None:
    listed: dict[str, set[str]] = {}
    package = ""
    for line in PAGE.splitlines():
        if match := re.match(r" {4}([\w/]+/) +\S", line):
            package = match[1].rstrip("/").removeprefix("chainrule")
            listed[package] = set()
        elif re.fullmatch(r" {8}[\w ]+", line) and listed:
            listed[package] |= set(line.split())
    actual: dict[str, set[str]] = {}
    for path in MODULES:
        folder = path.parent.relative_to(SOURCE).as_posix().removeprefix(".")
        names = actual.setdefault(folder, set())
        if not path.stem.startswith("__"):
            names.add(path.stem)
    assert listed == actual


def test_design_page_layers_match_the_import_test() -> None:
    rows = re.findall(r"^ {4}\d  (.+)$", PAGE, re.MULTILINE)
    assert [set(row.split(", ")) for row in rows] == [layer - {"__init__", "__main__"} for layer in LAYERS]


def test_design_page_links_exist() -> None:
    for target in re.findall(r"\]\((\.\./[^)#]+|[\w-]+\.md)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
