"""A page as an HTML parser and as a real browser see it."""

import html
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

VOID = {"meta", "br", "hr", "img", "link", "input", "wbr"}
NAMESPACES = {"http://www.w3.org/2000/svg"}
SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=3000",
    "--disable-background-networking",
)


class Outline(HTMLParser):
    """Fails on misnested elements; collects tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.heard: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.heard.append(data)

    def values(self, attribute: str) -> list[str]:
        return [value or "" for name, value in self.attributes if name == attribute]

    @property
    def text(self) -> str:
        return "".join(self.heard)


def browse(folder: Path, page: str, *switches: str) -> "subprocess.CompletedProcess[bytes]":
    """Run Chromium on a page from disk, with its profile in the folder."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [browser, *SWITCHES, profile, *switches, file.as_uri()]
    return subprocess.run(command, capture_output=True, timeout=120, check=True)


def widths(folder: Path, page: str) -> tuple[int, int]:
    """Widths of a phone-sized window and of the page in it; browser windows cannot be so narrow."""
    wrapper = (
        f'<title></title><iframe width="360" height="800" style="border:0" srcdoc="{html.escape(page)}"></iframe>'
        "<script>onload = () => { const inner = document.querySelector('iframe'); document.title = "
        "`${inner.contentWindow.innerWidth} ${inner.contentDocument.documentElement.scrollWidth}` }</script>"
    )
    match = re.search(r"<title>(\d+) (\d+)</title>", browse(folder, wrapper, "--dump-dom").stdout.decode())
    assert match is not None
    return int(match[1]), int(match[2])
