"""The words on top: whose they are, which come first, and how many."""

from chainrule.analysis.section import Section
from chainrule.inspection.report import MOST, Paragraph, format_paragraphs, summarize


def section(name: str, *findings: str) -> Section:
    return Section(name=name, title=name.title(), findings=findings)


def texts(sections: list[Section], *names: str) -> dict[str, str]:
    return {paragraph.model: paragraph.text for paragraph in summarize(sections, names)}


def test_the_first_finding_of_every_section_the_most_telling_section_first() -> None:
    sections = [
        section("recurrent_matrix", "The radius is 1.1.", "Never said."),
        section("gates", "Gates sit at 0.98.", "Nor this."),
        section("gradient_flow", "The signal halves every 4 tokens.", "Nor that."),
    ]
    assert texts(sections, "lstm") == {
        "lstm": "The signal halves every 4 tokens. Gates sit at 0.98. The radius is 1.1."
    }


def test_at_most_five_sentences() -> None:
    names = ("gradient_flow", "recurrent_matrix", "gates", "attention", "probability", "training")
    sections = [section(name, f"{name} says so.", "More.") for name in names]
    said = texts(sections, "lstm")["lstm"]
    assert said.count(".") == MOST == 5
    assert "recurrent_matrix" not in said  # the least telling of six
    long = section("gradient_flow", "One. Two. Three. Four. Five. Six. Seven.")
    assert texts([long], "lstm")["lstm"] == "One. Two. Three. Four. Five."


def test_numbers_and_short_forms_do_not_end_a_sentence() -> None:
    one = section("gates", "It takes 1.5 bits, i.e. 2.8 choices", "b", "c", "d")
    assert texts([one], "m")["m"] == "It takes 1.5 bits, i.e. 2.8 choices. b. c."  # three where there are few


def test_what_is_quoted_is_not_cut() -> None:
    quoted = "The most surprising is “Mr. T. Who? Me! So” (9 bits). One. Two. Three. Four. Five."
    assert texts([section("gates", quoted)], "m")["m"] == (
        "The most surprising is “Mr. T. Who? Me! So” (9 bits). One. Two. Three. Four."
    )
    # The quoted token may itself be a quotation mark, of either kind.
    for mark in "“”":
        odd = f"They differ on “{mark}”. One. “Two” is. Three. Four. Five."
        assert texts([section("gates", odd)], "m")["m"] == f"They differ on “{mark}”. One. “Two” is. Three. Four."


def test_each_model_has_its_own() -> None:
    sections = [
        section("gradient_flow", "lstm: the signal halves every 4 tokens.", "lstm-2: it halves every 9 tokens."),
        section("probability", "lstm-2 needs 5.1 bits a token.", "lstm and lstm-2 differ most on 'mice'."),
        section("training", "The text is short."),
    ]
    assert summarize(sections, ["lstm", "lstm-2"]) == (
        Paragraph("lstm", "The signal halves every 4 tokens."),
        Paragraph("lstm-2", "It halves every 9 tokens. lstm-2 needs 5.1 bits a token."),
        Paragraph("", "lstm and lstm-2 differ most on 'mice'. The text is short."),
    )


def test_a_name_is_taken_as_it_stands() -> None:
    """What means something in a regular expression, or stands inside a word, is no name."""
    sections = [section("gates", "a+b: it is open.", "aab is shut.", "Cells of gru forget.", "congruent")]
    found = summarize(sections, ["a+b", "gru"])
    assert [(p.model, p.text) for p in found] == [
        ("a+b", "It is open."),
        ("gru", "Cells of gru forget."),
        ("", "aab is shut. congruent."),
    ]


def test_in_words() -> None:
    said = [Paragraph("a", "One."), Paragraph("", "Both.")]
    assert format_paragraphs(said, ["a", "b"]) == ["a: One.", "Both."]
    assert format_paragraphs(said[:1], ["a"]) == ["One."]
    assert format_paragraphs([Paragraph("a", "a needs 5 bits.")], ["a", "b"]) == [
        "a needs 5 bits."
    ]  # its name once
    assert format_paragraphs([], ["a"]) == ["There are no findings."]
    assert summarize([], ["a"]) == ()
