"""`chainrule score`: worked numbers, one line each, in any unit."""

import math
from pathlib import Path

import pytest

import chainrule
from chainrule.applications.line_scoring import score_long_line
from chainrule.evaluation.perplexity import TokenScorer
from chainrule.lm import Floats, Ids
from cli.command import QUIET, run_error, run_ok, trained, write
from cli.pipes import dialogue

KEYS = {"schema_version", "text", "log_prob", "unit", "tokens", "log_probs", "oov", "infinite"}


def test_score_maximum_likelihood_worked_example(mle: Path) -> None:
    document = run_ok("score", mle, "--json", stdin="i love cats\n").json()
    # 2/3 · 1 · 1/2 · 1 = 1/3
    assert document["log_prob"] == pytest.approx(-math.log(3), rel=1e-6)
    assert document["log_probs"] == pytest.approx([math.log(2 / 3), 0, math.log(1 / 2), 0], rel=1e-6)
    assert document["tokens"] == ["i", "love", "cats", "</s>"]
    assert document["schema_version"] == 1
    assert document.keys() >= KEYS
    assert not document["infinite"]


def test_score_impossible_token_is_null(mle: Path) -> None:
    document = run_ok("score", mle, "--json", stdin="i love mice\n").json()
    assert document["infinite"] is True
    assert document["log_prob"] is None
    assert document["log_probs"][2] is None  # mice after i love
    assert document["log_probs"][:2] == pytest.approx([math.log(2 / 3), 0], rel=1e-6)


def test_score_add_one_worked_example(closed: Path, laplace: Path) -> None:
    # V = 7: 3/10 · 3/9 · 1/9 · 1/7 = 1/630; V = 8: 3/11 · 3/10 · 1/10 · 1/8 = 9/8800
    for model, probability in ((closed, 1 / 630), (laplace, 9 / 8800)):
        document = run_ok("score", model, "--json", stdin="i love mice\n").json()
        assert math.exp(document["log_prob"]) == pytest.approx(probability, rel=1e-6)


@pytest.mark.parametrize(
    ("unit", "total"), [("nats", -math.log(630)), ("bits", -math.log2(630)), ("log10", -math.log10(630))]
)
def test_score_units(closed: Path, unit: str, total: float) -> None:
    outcome = run_ok("score", closed, "--unit", unit, stdin="i love mice\n")
    value, text = outcome.out.removesuffix("\n").split("\t")
    assert float(value) == pytest.approx(total, abs=1e-5)
    assert text == "i love mice"
    document = run_ok("score", closed, "--unit", unit, "--json", stdin="i love mice\n").json()
    assert document["unit"] == unit
    assert document["log_prob"] == pytest.approx(total, rel=1e-6)
    assert math.fsum(document["log_probs"]) == pytest.approx(total, rel=1e-6)


def test_score_per_token_lines(mle: Path) -> None:
    lines = run_ok("score", mle, "--per-token", "--unit", "bits", stdin="i love cats\n").out.splitlines()
    values, texts = zip(*(line.split("\t") for line in lines), strict=True)
    assert texts == ("i love cats", "  i", "  love", "  cats", "  </s>")
    # −log2 3 in all: −log2 3/2 for i, 0 for love, −1 for cats, 0 for </s>
    assert list(map(float, values)) == pytest.approx([-math.log2(3), -math.log2(1.5), 0, -1, 0], abs=1e-5)
    assert (values[2], values[4]) == ("0.000000", "0.000000")  # not -0


def test_score_of_an_empty_line(closed: Path) -> None:
    document = run_ok("score", closed, "--json", stdin="\n").json()
    # None of the three lines is empty: (0 + 1)/(3 + 7).
    assert document["log_prob"] == pytest.approx(math.log(1 / 10), rel=1e-6)
    assert document["tokens"] == ["</s>"]


def test_score_treats_control_symbols_as_text(tmp_path: Path, toy_text: Path) -> None:
    options = ("--order", 3, "--smoothing", "laplace", "--tokenizer", "whitespace", "--out", tmp_path / "m")
    run_ok("train", "ngram", toy_text, *options)
    empty, start, end, unknown = run_ok(
        "score", tmp_path / "m", "--json", stdin="\n<s>\n</s>\n<unk>\n"
    ).json_lines()
    for document in (start, end, unknown):
        # One unseen word: p(<unk> | <s> <s>) = 1/11, then p(</s> | an unseen context) = 1/8.
        assert document["tokens"] == ["<unk>", "</s>"]
        assert document["oov"] == 1
        assert document["log_prob"] == pytest.approx(math.log(1 / 88), rel=1e-6)
    assert empty["log_prob"] == pytest.approx(
        math.log(1 / 11), rel=1e-6
    )  # if they were control symbols, all would have this value
    spelled = {document["log_prob_of_spellings"] for document in (start, end, unknown)}
    assert len(spelled) == 3
    assert max(spelled) < 0


@pytest.mark.parametrize(
    ("unit", "factor"), [("nats", 1.0), ("bits", 1 / math.log(2)), ("log10", 1 / math.log(10))]
)
def test_score_with_spelling_of_unknown_words(laplace: Path, unit: str, factor: float) -> None:
    text = "i love mice\ni love zebras\n"
    known, unknown = run_ok("score", laplace, "--json", "--unit", unit, stdin=text).json_lines()
    assert known["log_prob_with_spelling"] == known["log_prob"]
    spelled = unknown["log_prob"] + unknown["log_prob_of_spellings"]
    assert unknown["log_prob_with_spelling"] == pytest.approx(spelled, rel=1e-12)
    # 3/11 · 3/10 for "i love", then p(<unk> | i love) = 1/10 and p(</s> | an unseen context) = 1/8
    assert unknown["log_prob"] == pytest.approx(factor * math.log(9 / 8800), rel=1e-6)
    first, second = run_ok("score", laplace, "--unit", unit, stdin=text).out.splitlines()
    assert first == f"{known['log_prob']:.6f}\ti love mice"
    assert second == f"{unknown['log_prob']:.6f} ({spelled:.6f} with spelling)\ti love zebras"


def test_score_closed_vocabulary_cannot_spell(closed: Path) -> None:
    document = run_ok("score", closed, "--json", stdin="i love zebras\n").json()
    assert document["log_prob_with_spelling"] is None
    assert document["infinite"] is True
    assert run_ok("score", closed, stdin="i love zebras\n").out == "-inf (-inf with spelling)\ti love zebras\n"


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe", "wordpiece"])
def test_control_symbols_are_text_for_every_tokenizer(tmp_path: Path, english_text: Path, tokenizer: str) -> None:
    model = trained(tmp_path / "m", english_text, "--order", 2, *QUIET, "--tokenizer", tokenizer)
    for symbol in ("<s>", "</s>"):
        tokens = run_ok("score", model, "--json", stdin=f"{symbol}\n").json()["tokens"]
        assert tokens[-1] == "</s>"
        assert "<s>" not in tokens
        assert "</s>" not in tokens[:-1]
        assert len(tokens) > 1


def test_score_sums_tokens_and_matches_evaluate(model: Path, tmp_path: Path) -> None:
    lines = ["the cat sees a dog today", "a zebra sees", "", "now now now now", "the"]
    text = write(tmp_path / "test.txt", "\n".join(lines) + "\n")
    together = run_ok("score", model, text, "--json").json_lines()
    assert [document["text"] for document in together] == lines
    for document in together:
        assert math.fsum(document["log_probs"]) == pytest.approx(document["log_prob"], rel=1e-9)
    for line, document in zip(lines, together, strict=True):
        alone = run_ok("score", model, "--json", stdin=line + "\n").json()
        assert alone == document
    figures = run_ok("evaluate", model, text, "--json").json()
    total = math.fsum(document["log_prob"] for document in together)
    assert -figures["nats_per_token"] * figures["tokens"] == pytest.approx(total, rel=1e-9)
    spelled = math.fsum(document["log_prob_of_spellings"] for document in together)
    assert -(total + spelled) / math.log(2) / figures["bytes"] == pytest.approx(figures["bits_per_byte"], rel=1e-9)
    assert figures["oov"] == sum(document["oov"] for document in together) > 0


def test_score_more_lines_than_a_batch(mle: Path) -> None:
    lines = run_ok("score", mle, stdin="i love cats\ni love dogs\n" * 4100).out.splitlines()
    assert len(lines) == 8200
    assert set(lines) == {"-1.098612\ti love cats", "-1.098612\ti love dogs"}


def test_score_prefers_sense_to_its_homophone(tmp_path: Path) -> None:
    text = (
        "i saw a man\ni saw a dog\nwe saw a van\nshe saw an owl\nhe has a van\nthe eyes of a cat\n"
        "her eyes saw a star\nin awe of a king\nin awe of an old man\ni have an eye\ni saw it\nan awe of god\n"
    )
    options = ("--order", 3, "--smoothing", "witten-bell")
    model = trained(tmp_path / "m", write(tmp_path / "english.txt", text), *options)
    sense, sound = run_ok("score", model, "--json", stdin="i saw a van\neyes awe of an\n").json_lines()
    assert sense["oov"] == sound["oov"] == 0
    assert len(sense["tokens"]) == len(sound["tokens"]) == 5
    assert sense["log_prob"] > sound["log_prob"]


def test_score_wrong_usage(mle: Path, tmp_path: Path) -> None:
    assert "choose one of nats, bits, log10" in run_error(2, "score", mle, "--unit", "dB")
    assert "nowhere" in run_error(4, "score", mle, tmp_path / "nowhere")
    assert "byte 1 (0xff)" in run_error(3, "score", mle, stdin=b"a\xff\n")


def test_score_answers_line_by_line(model: Path, tmp_path: Path) -> None:
    lines = ["the cat sees a dog now", "", "one bird likes the fish today"]
    expected = run_ok("score", model, stdin="".join(f"{line}\n" for line in lines)).out.splitlines()
    with dialogue("score", model) as conversation:
        answers = [conversation.ask(line.encode())[0].decode() for line in lines]
    assert answers == expected


def test_stream_model_continues_across_interactive_lines(english_text: Path, tmp_path: Path) -> None:
    stream = trained(tmp_path / "m", english_text, "--order", 3, *QUIET, "--context", "stream")
    lines = english_text.read_text().splitlines()[:3]
    expected = run_ok("score", stream, stdin="".join(f"{line}\n" for line in lines)).out.splitlines()
    with dialogue("score", stream) as conversation:
        answers = [conversation.ask(line.encode())[0].decode() for line in lines]
    assert answers == expected


@pytest.mark.parametrize("options", [(), ("--per-token",), ("--json",)])
@pytest.mark.parametrize("context", ["line", "stream"])
def test_long_lines_are_scored_in_pieces_with_the_same_result(
    options: tuple[str, ...], context: str, english_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["the cat sees the dog now", "a zebra sees  the cat", "", "one bird likes a cat today <s> </s>"]
    text = "".join(f"{line}\n" for line in lines)
    arguments = ("--order", 3, *QUIET, "--min-count", 20, "--context", context)
    model = trained(tmp_path / "m", english_text, *arguments)
    expected = run_ok("score", model, *options, stdin=text).out
    monkeypatch.setattr("chainrule.applications.line_scoring.MAX_ENGINE_LINE", 8)
    assert run_ok("score", model, *options, stdin=text).out == expected


def test_long_lines_reach_the_model_in_pieces(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "the cat sees a dog now " * 5000
    expected = chainrule.load(model).score(line.strip())
    sizes: list[int] = []
    read = TokenScorer.log_probs

    def recorded_log_probs(self: TokenScorer, ids: Ids) -> Floats:
        sizes.append(len(ids))
        return read(self, ids)

    monkeypatch.setattr(TokenScorer, "log_probs", recorded_log_probs)
    monkeypatch.setattr("chainrule.tokenizers.encode.CHARACTERS_PER_BATCH", 1 << 15)
    result = score_long_line(chainrule.load(model), line.strip())
    assert result.log_prob == expected.log_prob
    assert (result.tokens, result.oov) == (len(expected.tokens), expected.oov)
    assert result.log_prob_of_spellings == pytest.approx(expected.log_prob_of_spellings, rel=1e-12)
    assert len(sizes) == 2
    assert sum(sizes) == len(expected.tokens)


@pytest.mark.parametrize("longest", [1 << 16, 3])
def test_score_prints_tokens_without_joiners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    """Also for a line long enough to be scored in pieces."""
    monkeypatch.setattr("chainrule.applications.line_scoring.MAX_ENGINE_LINE", longest)
    text = write(tmp_path / "text.txt", "she said, no\nhe said, no\n")
    model = trained(tmp_path / "model", text, "--order", 2, "--smoothing", "mle")
    lines = run_ok("score", model, "--per-token", stdin="he said, no\n").out.splitlines()
    assert [line.split("\t")[1].strip() for line in lines] == ["he said, no", "he", "said", ",", "no", "</s>"]
    assert run_ok("score", model, "--json", stdin="he said, no\n").json()["tokens"][2] == "\uffed,"
