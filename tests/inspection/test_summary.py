"""The summary: findings by model, important sections first, few sentences."""

from chainrule.inspection.report import MOST, Finding, Inspection, Paragraph, Section, Subject, summarize


def section(name: str, *findings: Finding | str) -> Section:
    records = tuple(Finding(None, item) if isinstance(item, str) else item for item in findings)
    return Section(name=name, title=name.title(), findings=records)


def texts(sections: list[Section], *names: str) -> dict[str, str]:
    return {paragraph.model: paragraph.text for paragraph in summarize(sections, names)}


def inspection(sections: list[Section], *names: str) -> Inspection:
    subjects = tuple(
        Subject(name=name, family="", sizes={}, parameters=0, tokenizer="", context="", trained_on="", looked_at="")
        for name in names
    )
    return Inspection(subjects=subjects, text="", sections=tuple(sections))


def test_first_finding_of_every_section_by_importance() -> None:
    sections = [
        section("recurrent_matrix", "The radius is 1.1.", "Left out."),
        section("gates", "Gates average 0.98.", "Left out."),
        section("gradient_flow", "The gradient halves every 4 tokens.", "Left out."),
    ]
    assert texts(sections, "lstm") == {
        "lstm": "The gradient halves every 4 tokens. Gates average 0.98. The radius is 1.1."
    }


def test_at_most_five_sentences() -> None:
    names = ("gradient_flow", "recurrent_matrix", "gates", "attention", "probability", "training")
    summary = texts([section(name, f"From {name}.", "More.") for name in names], "lstm")["lstm"]
    assert summary.count(".") == MOST == 5
    assert "recurrent_matrix" not in summary  # the least important of six
    two = [section(name, Finding("lstm", f"{name}.", "More.")) for name in names]
    assert texts(two, "lstm")["lstm"] == "Gradient_flow. More. Gates. More. Attention."


def test_later_findings_while_there_are_few_sentences() -> None:
    assert texts([section("gates", "A.", "B.", "C.", "D.")], "m")["m"] == "A. B. C."


def test_findings_by_model() -> None:
    sections = [
        section("gradient_flow", Finding("lstm", "the gradient halves."), Finding("lstm-2", "it does not.")),
        section("probability", Finding("lstm-2", "its surprisal is 5.1 bits."), "lstm and lstm-2 differ."),
        section("training", "The text is short."),
    ]
    assert summarize(sections, ["lstm", "lstm-2"]) == (
        Paragraph("lstm", "The gradient halves."),
        Paragraph("lstm-2", "It does not. Its surprisal is 5.1 bits."),
        Paragraph("", "lstm and lstm-2 differ. The text is short."),
    )


def test_text_of_findings_and_paragraphs() -> None:
    finding = Finding("a", "it is one sentence.", "This is another.")
    assert str(finding) == "a: it is one sentence. This is another."
    assert finding.sentences == ("It is one sentence.", "This is another.")
    sections = [section("gates", Finding("a", "one."), "Both.")]
    assert inspection(sections, "a", "b").paragraphs == ["a: One.", "Both."]
    assert inspection(sections, "a").paragraphs == ["One. Both."]
    assert inspection([], "a").paragraphs == ["There are no findings."]
    assert summarize([], ["a"]) == ()
