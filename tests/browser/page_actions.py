"""Actions on the web page, for the browser tests."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from playwright.sync_api import Locator, Page, expect

TABS: Final = ("next", "surprisal", "generate", "beam", "shannon", "context")
TIMEOUT_MS: Final = 15_000  # generous: the machine may be busy

Visit = Callable[..., AbstractContextManager[Page]]


def fill_text(page: Page, text: str) -> None:
    page.wait_for_selector("html[data-ready]")
    page.fill("#text", text)


def open_tab(page: Page, name: str) -> Locator:
    page.click(f"#tab-{name}")
    panel = page.locator(f"#panel-{name}")
    expect(panel).to_be_visible()
    return panel


def start_game(page: Page, unit: str, text: str) -> tuple[Locator, Locator]:
    """Start a Shannon game with this text; return its panel and the guess field."""
    page.wait_for_selector("html[data-ready]")
    panel = open_tab(page, "shannon")
    panel.locator("select").select_option(unit)
    panel.locator("textarea").fill(text)
    panel.get_by_role("button", name="New game").click()
    guess = panel.get_by_label(f"your guess of the next {unit}")
    expect(guess).to_be_focused(timeout=TIMEOUT_MS)
    return panel, guess
