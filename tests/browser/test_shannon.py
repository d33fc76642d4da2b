"""The Shannon game in a real Chromium."""

import pytest
from playwright.sync_api import Route, expect

from browser.page_actions import TIMEOUT_MS, Visit, open_tab, start_game

COUNT_ANSWERS = """() => {
    const read = Response.prototype.json;
    let answersRead = 0;
    Response.prototype.json = async function () {
        const answer = await read.call(this);
        const count = this.url.endsWith("/v1/context") ? 1 : 0;
        // A task of its own: it runs after everything that waits for this document.
        setTimeout(() => { document.documentElement.dataset.answersRead = answersRead += count; });
        return answer;
    };
}"""


def test_shannon_game_counts_by_its_stated_rule(visit: Visit) -> None:
    with visit() as page:
        panel, guess = start_game(page, "word", "the cat sees the dog today")
        expect(page.locator("#writing")).to_be_hidden()
        expect(panel.locator(".hidden-text")).to_contain_text("the cat sees")
        expect(panel.locator(".game")).not_to_contain_text("dog")
        guess.fill("mouse")
        page.keyboard.press("Enter")
        expect(panel.locator(".game [role=status]")).to_contain_text("Not mouse")
        guess.fill("The")
        page.keyboard.press("Enter")
        # Guess 2, the first number sent: p = (0 + 1/(2·3)) / (0 + 1) = 1/6, log₂ 6 = 2.585 bits
        expect(panel.locator(".detail")).to_contain_text("guess 2: you pay 2.58 bits")
        guess.fill("dog")
        page.keyboard.press("Enter")
        # Guess 1, the second number: p = (0 + 1/2) / (1 + 1) = 1/4
        expect(panel.locator(".detail")).to_contain_text("guess 1: you pay 2.00 bits")
        expect(panel.locator("tr.you .number").first).to_have_text("4.6")
        expect(panel.locator("tbody tr")).to_have_count(4)
        guess.fill("today")
        page.keyboard.press("Enter")
        # The numbers were 2, 1 and 1: Σ −q log₂ q = 0.92 bits; lower bound 2 (1/3) log₂ 2
        expect(panel.locator(".game [role=status]")).to_contain_text("between 0.67 and 0.92 bits per word")
        expect(
            panel.get_by_role("button", name="New game")
        ).to_be_focused()  # the fields of the old game are closed


@pytest.mark.parametrize(("unit", "message"), [("word", "1 of 2 words was"), ("letter", "2 of 2 letters were")])
def test_shown_symbols_have_no_guess_number_and_no_bounds(visit: Visit, unit: str, message: str) -> None:
    with visit() as page:
        panel, guess = start_game(page, unit, "the cat sees the dog" if unit == "word" else "the cat sees a")
        panel.get_by_role("button", name="Show it").click()
        expect(panel.locator(".detail")).to_contain_text("shown")
        if unit == "word":
            guess.fill("dog")
            page.keyboard.press("Enter")
        else:
            panel.get_by_role("button", name="Show it").click()
        status = panel.locator(".game [role=status]")
        expect(status).to_contain_text(f"{message} shown: no bounds")
        expect(status).not_to_contain_text("between")


def test_letters_are_guessed_key_by_key(visit: Visit) -> None:
    with visit() as page:
        panel, _ = start_game(page, "letter", "the cat sees")  # twelve letters: all but the last are given
        page.keyboard.type("xs")
        expect(panel.locator(".detail")).to_contain_text("guess 2")
        expect(panel.locator(".detail")).to_contain_text("letters ")


@pytest.mark.parametrize("unit", ["letter", "word"])
def test_player_s_unit_is_kept_when_the_model_answers_late(visit: Visit, unit: str) -> None:
    """The first model's tokens suggest a unit; the response is held back until the player has chosen."""
    held: list[Route] = []
    with visit() as page:
        page.wait_for_selector("html[data-ready]")
        page.evaluate(COUNT_ANSWERS)
        page.route("**/v1/context", lambda route: held.append(route))
        panel = open_tab(page, "shannon")
        choice = panel.locator("select")
        choice.select_option(unit)
        while not held:
            page.wait_for_timeout(10)
        held.pop().continue_()
        expect(page.locator("html")).to_have_attribute("data-answers-read", "1", timeout=TIMEOUT_MS)
        assert choice.input_value() == unit  # the page would have changed it by now
