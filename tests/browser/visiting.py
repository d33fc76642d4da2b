"""What the tests of the page do in it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from playwright.sync_api import Locator, Page, expect

TABS: Final = ("next", "surprisal", "generate", "beam", "shannon", "context")
PATIENCE: Final = 15_000  # milliseconds: the machine may be busy

Visit = Callable[..., AbstractContextManager[Page]]


def write(page: Page, text: str) -> None:
    page.wait_for_selector("html[data-ready]")
    page.fill("#text", text)


def tab(page: Page, name: str) -> Locator:
    page.click(f"#tab-{name}")
    panel = page.locator(f"#panel-{name}")
    expect(panel).to_be_visible()
    return panel


def play(page: Page, unit: str, text: str) -> tuple[Locator, Locator]:
    """A new game of Shannon's over this text: its panel, and the field for guesses."""
    page.wait_for_selector("html[data-ready]")
    panel = tab(page, "shannon")
    panel.locator("select").select_option(unit)
    panel.locator("textarea").fill(text)
    panel.get_by_role("button", name="New game").click()
    guess = panel.get_by_label(f"your guess of the next {unit}")
    expect(guess).to_be_focused(timeout=PATIENCE)
    return panel, guess
