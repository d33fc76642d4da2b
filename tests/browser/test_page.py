"""The web page in a real Chromium with a real server of small models.

Screenshots of every view, light, dark and narrow, go to the folder named by CHAINRULE_SCREENSHOTS.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, Page, Route, expect

import chainrule
from browser.page_actions import TABS, TIMEOUT_MS, Visit, fill_text, open_tab
from chainrule.server.app import create_app
from chainrule.text.corpus import Corpus
from server.running_server import run_server

KEY: Final = "open-sesame"


def test_next_distribution_updates_and_marks_filtered_tokens(visit: Visit) -> None:
    with visit() as page:
        fill_text(page, "the cat")
        cards = page.locator("#panel-next .card")
        expect(cards).to_have_count(3, timeout=TIMEOUT_MS)
        trigram = cards.nth(0)
        expect(trigram.locator("h3")).to_have_text("trigram")
        first = trigram.locator(".bar[style*='--rank: 0;']")
        expect(first.locator(".token")).to_have_text("sees", timeout=TIMEOUT_MS)  # what followed "the cat"
        expect(trigram.locator(".bar.cut")).to_have_count(0)
        page.get_by_label("top-k").fill("1")
        expect(first.locator(".number")).to_have_text("100 %", timeout=TIMEOUT_MS)  # it has all the mass now
        expect(trigram.locator(".figures")).to_contain_text("1 token after filtering")
        expect(trigram.locator(".bar:not(.cut)")).to_have_count(1)
        first.click()
        expect(page.locator("#text")).to_have_value("the cat sees")
        page.get_by_role("checkbox", name="letters").uncheck()
        expect(cards).to_have_count(2)


def test_surprisal_shows_tokens_and_totals(visit: Visit) -> None:
    with visit() as page:
        fill_text(page, "the cat runs")
        panel = open_tab(page, "surprisal")
        cards = panel.locator(".card")
        expect(cards).to_have_count(3, timeout=TIMEOUT_MS)
        expect(cards.nth(0).locator(".token-text")).to_have_count(4)  # three words and </s>
        expect(cards.nth(1).locator(".token-text")).to_have_count(13)  # twelve letters and </s>
        expect(cards.nth(0).locator(".figures")).to_contain_text("bits per byte")
        runs = cards.nth(0).locator(".token-text").nth(2)
        runs.hover()
        expect(cards.nth(0).locator(".detail")).to_contain_text("runs")
        expect(runs).to_have_text(" runs")
        bits = float(str(runs.get_attribute("title")).split()[0])
        assert bits > 2  # it never followed "cat"
        response = page.request.post(
            f"{page.url}v1/score", data={"model": "trigram", "input": "the cat runs", "unit": "bits"}
        )
        (score,) = response.json()["results"]
        assert bits == pytest.approx(-score["log_probs"][2], abs=0.01)
        expect(cards.nth(0).locator(".figures")).to_contain_text(f"{score['bits_per_byte']:.3f} bits per byte")
        runs.focus()
        page.keyboard.press("Home")
        expect(cards.nth(0).locator(".detail")).to_contain_text("the")


def test_generation_streams_and_continues_from_an_alternative(visit: Visit) -> None:
    with visit() as page:
        fill_text(page, "the cat")
        panel = open_tab(page, "generate")
        panel.get_by_role("button", name="Generate").click()
        expect(panel.locator("[role=status]")).to_contain_text("under the model;", timeout=TIMEOUT_MS)
        first = panel.locator(".token-text").first
        first.focus()
        page.keyboard.press("Enter")
        others = panel.locator(".alternatives .bar:not(.came)")
        expect(others.first).to_be_visible()
        words = others.locator(".token").filter(has_text=re.compile("^(loves|sees|runs)$"))
        word = words.first.inner_text()  # a sampled token is not among the alternatives
        words.first.click()
        expect(panel.locator(".token-text").first).to_have_text(f" {word}", timeout=TIMEOUT_MS)
        expect(panel.locator("[role=status]")).to_contain_text("under the model;", timeout=TIMEOUT_MS)
        panel.get_by_role("button", name="Use as my text").click()
        expect(page.locator("#text")).to_have_value(re.compile(f"^the cat {word}"))


def test_punctuation_is_shown_without_joiners(visit: Visit, tmp_path: Path) -> None:
    lines = ["he said, no", "she said, yes", "he said, yes"]
    chainrule.train("ngram", Corpus.from_lines(lines), order=2, smoothing="witten-bell").save(tmp_path / "marks")
    with run_server(create_app([tmp_path / "marks"])) as server, visit(server.url) as page:
        fill_text(page, "he said")
        names = page.locator("#panel-next .bar .token")
        expect(names.filter(has_text=re.compile("^,$"))).to_have_count(1, timeout=TIMEOUT_MS)
        expect(page.locator("#panel-next")).not_to_contain_text("\uffed")
        expect(page.get_by_role("button", name="\uffed")).to_have_count(0)
        panel = open_tab(page, "surprisal")
        fill_text(page, "he said, no")
        panel.locator(".token-text").nth(2).click()
        expect(panel.locator(".detail")).to_contain_text("Expected: ,", timeout=TIMEOUT_MS)
        expect(panel).not_to_contain_text("\uffed")
        fill_text(page, "he said")
        panel = open_tab(page, "beam")
        expect(panel.locator("svg .node").first).to_be_visible(timeout=TIMEOUT_MS)
        assert "\uffed" not in panel.inner_html()


def test_unknown_word_symbol_is_described(visit: Visit, tmp_path: Path) -> None:
    lines = ["cat lion", "cat tiger puma", "lynx ocelot jaguar", "cougar caracal serval"]
    model = chainrule.train("ngram", Corpus.from_lines(lines), order=1, smoothing="laplace", min_count=2, unk="OOV")
    model.save(tmp_path / "rare")
    with run_server(create_app([tmp_path / "rare"])) as server, visit(server.url) as page:
        fill_text(page, "cat")
        names = page.locator("#panel-next .bar .token")
        expect(names.filter(has_text="unknown word")).to_have_count(1, timeout=TIMEOUT_MS)
        expect(names.filter(has_text="OOV")).to_have_count(0)
        expect(page.get_by_role("button", name="write unknown word")).to_be_visible()
        panel = open_tab(page, "surprisal")
        expect(panel.locator(".detail")).to_contain_text("unknown word", timeout=TIMEOUT_MS)
        expect(panel.locator(".detail")).not_to_contain_text("OOV")
        panel = open_tab(page, "generate")
        panel.get_by_role("button", name="Generate").click()
        expect(panel.locator("[role=status]")).to_contain_text("under the model;", timeout=TIMEOUT_MS)
        expect(panel.locator(".token-text", has_text="unknown word")).to_have_count(0)  # it is not drawn
        panel.locator(".token-text").first.click()
        panel.locator(".alternatives").get_by_role("button", name="continue with an unknown word").click()
        expect(panel.locator(".token-text").first).to_have_text(" [unknown word]", timeout=TIMEOUT_MS)
        expect(panel.locator("[role=status]")).to_contain_text("under the model;", timeout=TIMEOUT_MS)
        panel.get_by_role("button", name="Use as my text").click()
        expect(page.locator("#text")).to_have_value(re.compile("^cat OOV"))


def test_beam_tree_can_be_navigated(visit: Visit) -> None:
    with visit() as page:
        fill_text(page, "the")
        panel = open_tab(page, "beam")
        nodes = panel.locator("svg .node")
        expect(nodes.first).to_be_visible(timeout=TIMEOUT_MS)
        expect(panel.locator("svg path")).to_have_count(nodes.count())
        expect(panel.locator("svg .node.pruned").first).to_be_visible()
        page.get_by_label("length penalty").fill("2")  # longer texts are better now
        body = {"model": "trigram", "prompt": "the", "beam_size": 3, "max_tokens": 6, "length_penalty": 2.0}
        best = page.request.post(f"{page.url}v1/beam", data=body).json()["best"][0]
        expect(panel.locator(".found li").first).to_contain_text(best["text"].strip(), timeout=TIMEOUT_MS)
        path = [*best["text"].split(), *(["⏎"] if best["is_finished"] else [])]
        expect(panel.locator("svg .node.best")).to_have_text(path, timeout=TIMEOUT_MS)
        nodes.first.focus()
        expect(panel.locator(".detail")).to_contain_text("total log p")
        page.keyboard.press("ArrowDown")
        expect(panel.locator("svg .node:focus")).to_have_count(1)
        expect(nodes.first).not_to_be_focused()


def test_context_shows_backoff_depth_and_attention(visit: Visit) -> None:
    with visit() as page:
        fill_text(page, "the cat sees")
        panel = open_tab(page, "context")
        cards = panel.locator(".card")
        expect(cards).to_have_count(3, timeout=TIMEOUT_MS)
        cards.nth(0).locator(".token-text").nth(2).hover()
        expect(cards.nth(0).locator(".detail")).to_contain_text("trigram")
        expect(cards.nth(0).locator(".used")).to_have_count(2)
        expect(cards.nth(0).locator(".figures")).to_contain_text(
            re.compile(r"mean n-gram length used: [0-9.]+ words")
        )
        expect(cards.nth(1).locator(".figures")).to_contain_text(
            re.compile(r"mean n-gram length used: [0-9.]+ characters")
        )
        attention = cards.nth(2)
        expect(attention).to_contain_text("2 layers of 2 heads")
        words = attention.locator("[role=option]")
        words.nth(0).focus()
        expect(attention.locator(".detail")).to_contain_text("<s> 100 %")  # nothing else was read before it
        attention.locator("select").select_option("1,1")
        expect(attention.locator(".detail")).to_contain_text("<s> 100 %")


def test_hostile_text_is_shown_as_text(visit: Visit) -> None:
    hostile = '<script>document.title="taken"</script><img src=x onerror=document.title="taken"> שלום עולם'
    with visit() as page:
        fill_text(page, hostile)
        for name in ("surprisal", "beam", "context"):
            panel = open_tab(page, name)
            expect(panel.locator(".token-text, svg .node").first).to_be_visible(timeout=TIMEOUT_MS)
            expect(panel.locator("script, img")).to_have_count(0)
        open_tab(page, "surprisal")
        first = page.locator("#panel-surprisal .reading > div").first
        expect(first).to_have_attribute("dir", "auto")
        expect(first).to_contain_text("<script>")
        expect(first).to_contain_text("שלום")
        expect(page).to_have_title("chainrule")


def test_pasted_megabyte_is_truncated_with_a_message(visit: Visit) -> None:
    with visit() as page:
        page.wait_for_selector("html[data-ready]")
        page.evaluate("""() => {
            const data = new DataTransfer();
            data.setData("text/plain", "the cat sees ".repeat(80000));
            const paste = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
            document.getElementById("text").dispatchEvent(paste);
        }""")
        expect(page.locator("#note")).to_contain_text("20,000")
        assert len(page.input_value("#text")) == 20_000
        expect(page.locator("#panel-next .bar").first).to_be_visible(timeout=TIMEOUT_MS)
        page.evaluate("""() => {
            const box = document.getElementById("text");
            box.value = "x".repeat(1 << 20);
            box.dispatchEvent(new Event("input"));
        }""")  # not by pasting
        expect(page.locator("#note")).to_contain_text("truncated to its first 20,000")
        assert len(page.input_value("#text")) == 20_000


def test_page_is_usable_with_the_keyboard_alone(visit: Visit) -> None:
    with visit() as page:
        fill_text(page, "the cat")
        page.focus("#tab-next")
        for name in TABS[1:]:
            page.keyboard.press("ArrowRight")
            expect(page.locator(f"#tab-{name}")).to_be_focused()
            expect(page.locator(f"#panel-{name}")).to_be_visible()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#tab-next")).to_be_focused()
        bar = bars_of_first_model(page)
        expect(bar(0).locator(".token")).to_have_text("sees", timeout=TIMEOUT_MS)  # the response for "the cat"
        for _ in range(4):  # past the three sliders to the first bar of the first model
            page.keyboard.press("Tab")
        expect(bar(0)).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(bar(1)).to_be_focused()
        expect(bar(1)).to_have_css("outline-style", "solid")
        page.keyboard.press("Enter")
        expect(page.locator("#text")).to_have_value(re.compile("^the cat."))


def bars_of_first_model(page: Page) -> Callable[[int], Locator]:
    """The bar of a rank; 0 is the most probable token."""
    card = page.locator("#panel-next .card").first
    return lambda rank: card.locator(f".bar[style*='--rank: {rank};']")


def change_text(page: Page, text: str) -> None:
    """Set the text as typing would, without moving the focus."""
    page.locator("#text").evaluate(
        "(box, text) => { box.value = text; box.dispatchEvent(new Event('input')); }", text
    )


def test_focus_stays_in_place_when_the_focused_bar_disappears(visit: Visit) -> None:
    """Server responses are replaced by ones without the focused token, without any token, and by errors."""
    missing: set[str] = set()

    def answer(route: Route) -> None:
        document = route.fetch().json()
        document["next"] = [item for item in document["next"] if item["token"] not in missing]
        route.fulfill(json=document)

    with visit() as page:
        fill_text(page, "the cat")
        bar = bars_of_first_model(page)
        expect(bar(0).locator(".token")).to_have_text("sees", timeout=TIMEOUT_MS)
        page.route("**/v1/next", answer)
        bar(2).focus()
        token, successor = (bar(rank).locator(".token").inner_text() for rank in (2, 3))
        missing.add(token)
        change_text(page, "the cat ")
        expect(bar(2).locator(".token")).to_have_text(successor, timeout=TIMEOUT_MS)
        expect(bar(2)).to_be_focused()
        last = page.locator("#panel-next .card").first.locator(".bar").count() - 1
        bar(last).focus()
        label = bar(last).locator(".token").inner_text()
        missing.add("<unk>" if label == "unknown word" else label)
        change_text(page, "the cat")
        expect(bar(last)).to_have_count(0, timeout=TIMEOUT_MS)
        expect(bar(last - 1)).to_be_focused()  # the nearest remaining one
        page.unroute("**/v1/next")
        page.route("**/v1/next", lambda route: route.fulfill(status=503, json={"error": {"message": "gone"}}))
        change_text(page, "the cat ")
        expect(bar(0)).to_have_count(0, timeout=TIMEOUT_MS)
        expect(page.locator("#panel-next").get_by_label("top-p")).to_be_focused()


@pytest.mark.parametrize("name", ["surprisal", "context"])
def test_focus_stays_at_its_token_when_the_text_is_read_again(visit: Visit, name: str) -> None:
    with visit() as page:
        fill_text(page, "the cat runs")
        tokens = open_tab(page, name).locator(".card").first.locator(".token-text")
        expect(tokens).to_have_count(4, timeout=TIMEOUT_MS)
        tokens.nth(2).focus()
        change_text(page, "the cat sees")
        expect(tokens.nth(2)).to_have_text(" sees", timeout=TIMEOUT_MS)
        expect(tokens.nth(2)).to_be_focused()
        change_text(page, "")
        expect(tokens).to_have_count(0, timeout=TIMEOUT_MS)
        expect(page.locator("#text")).to_be_focused()


def test_focus_stays_in_the_beam_tree_when_redrawn(visit: Visit) -> None:
    with visit() as page:
        fill_text(page, "the cat")
        panel = open_tab(page, "beam")
        nodes = panel.locator("svg .node")
        expect(nodes.first).to_be_visible(timeout=TIMEOUT_MS)
        nodes.nth(1).focus()
        change_text(page, "the dog")
        expect(panel.locator("svg text.given")).to_have_text("…the dog", timeout=TIMEOUT_MS)
        expect(nodes.nth(1)).to_be_focused()


def test_focus_moves_to_the_chosen_alternative(visit: Visit) -> None:
    with visit() as page:
        fill_text(page, "the cat")
        panel = open_tab(page, "generate")
        panel.get_by_role("button", name="Generate").click()
        expect(panel.locator("[role=status]")).to_contain_text("under the model;", timeout=TIMEOUT_MS)
        panel.locator(".token-text").first.focus()
        page.keyboard.press("Enter")
        expect(panel.locator(".alternatives .bar").first).to_be_focused()
        page.keyboard.press("Enter")
        expect(panel.locator(".token-text.forced")).to_be_focused()


def test_api_key_is_requested_and_kept_in_memory_only(visit: Visit, folders: list[Path]) -> None:
    with run_server(create_app(folders[:1], api_key=KEY)) as server, visit(server.url) as page:
        expect(page.locator("#key-form")).to_be_visible()
        page.fill("#key", "wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-words")).to_contain_text("Wrong API key")
        page.fill("#key", KEY)
        page.keyboard.press("Enter")
        expect(page.locator("#panel-next .bar").first).to_be_visible(timeout=TIMEOUT_MS)
        stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert KEY not in stored
        assert KEY not in page.content()


LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}, "reduced_motion": "reduce"},
}


def test_tabs_and_hints_are_fully_visible_on_a_small_screen(visit: Visit) -> None:
    with visit(**LOOKS["narrow"]) as page:
        page.wait_for_selector("html[data-ready]")
        boxes = page.locator("[role=tab]").evaluate_all(
            "(tabs) => tabs.map((each) => each.getBoundingClientRect())"
        )
        assert len(boxes) == len(TABS)
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 360 for box in boxes)
        assert len({box["y"] for box in boxes}) == 2  # rows
        panel = open_tab(page, "shannon")
        is_whole = "(field) => { field.value = field.placeholder; const { scrollWidth, clientWidth, scrollHeight, "
        is_whole += "clientHeight } = field; field.value = ''; "
        is_whole += "return scrollWidth <= clientWidth && scrollHeight <= clientHeight; }"
        assert panel.locator("textarea").evaluate(is_whole)
        for unit in ("letter", "word"):
            panel.locator("select").select_option(unit)
            panel.locator("textarea").fill("the cat sees the dog")
            panel.get_by_role("button", name="New game").click()
            guess = panel.get_by_label(f"your guess of the next {unit}")
            expect(guess).to_be_focused(timeout=TIMEOUT_MS)
            assert guess.evaluate(is_whole)


@pytest.mark.parametrize("name", LOOKS)
def test_page_fits_light_dark_and_narrow_screens(visit: Visit, name: str) -> None:
    folder = os.environ.get("CHAINRULE_SCREENSHOTS")
    with visit(**LOOKS[name]) as page:
        fill_text(page, "the cat sees the dog and the zebra")
        expect(page.locator("#panel-next .bar").first).to_be_visible(timeout=TIMEOUT_MS)
        body = page.locator("body")
        paper = body.evaluate("(element) => getComputedStyle(element).backgroundColor")
        is_dark = sum(int(part) for part in paper[4:-1].split(",")[:3]) < 3 * 128
        assert is_dark == (name == "dark")
        for tab in TABS:
            panel = open_tab(page, tab)
            if tab in ("surprisal", "context"):
                expect(panel.locator(".card")).to_have_count(3, timeout=TIMEOUT_MS)
            if tab == "beam":
                expect(panel.locator("svg")).to_be_visible(timeout=TIMEOUT_MS)
            width, inner = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert width <= inner, f"{tab} is wider than the window"
            if folder:
                page.screenshot(path=Path(folder) / f"{name}-{tab}.png", full_page=True)
        page.click("#theme")
        expect(body).not_to_have_css("background-color", paper)
