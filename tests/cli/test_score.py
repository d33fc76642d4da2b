"""`chainrule score`: the worked numbers, one line each, in any unit."""

import math
from pathlib import Path

import pytest

import chainrule
from chainrule.applications.line_scoring import score_long_line
from chainrule.evaluation.perplexity import TokenScorer
from chainrule.lm import Floats, Ids
from cli.command import QUIET, done, refused, trained, write
from cli.pipes import dialogue

KEYS = {"schema_version", "text", "log_prob", "unit", "tokens", "log_probs", "oov", "infinite"}


def test_maximum_likelihood_of_the_worked_example(mle: Path) -> None:
    found = done("score", mle, "--json", stdin="i love cats\n").json()
    # 2/3 · 1 · 1/2 · 1 = 1/3
    assert found["log_prob"] == pytest.approx(-math.log(3), rel=1e-6)
    assert found["log_probs"] == pytest.approx([math.log(2 / 3), 0, math.log(1 / 2), 0], rel=1e-6)
    assert found["tokens"] == ["i", "love", "cats", "</s>"]
    assert found["schema_version"] == 1
    assert found.keys() >= KEYS
    assert not found["infinite"]


def test_an_impossible_token_is_null(mle: Path) -> None:
    found = done("score", mle, "--json", stdin="i love mice\n").json()
    assert found["infinite"] is True
    assert found["log_prob"] is None
    assert found["log_probs"][2] is None  # mice after i love
    assert found["log_probs"][:2] == pytest.approx([math.log(2 / 3), 0], rel=1e-6)


def test_add_one_of_the_worked_example(closed: Path, laplace: Path) -> None:
    # V = 7: 3/10 · 3/9 · 1/9 · 1/7 = 1/630; V = 8: 3/11 · 3/10 · 1/10 · 1/8 = 9/8800
    for model, probability in ((closed, 1 / 630), (laplace, 9 / 8800)):
        found = done("score", model, "--json", stdin="i love mice\n").json()
        assert math.exp(found["log_prob"]) == pytest.approx(probability, rel=1e-6)


@pytest.mark.parametrize(
    ("unit", "total"), [("nats", -math.log(630)), ("bits", -math.log2(630)), ("log10", -math.log10(630))]
)
def test_units(closed: Path, unit: str, total: float) -> None:
    outcome = done("score", closed, "--unit", unit, stdin="i love mice\n")
    shown, text = outcome.out.removesuffix("\n").split("\t")
    assert float(shown) == pytest.approx(total, abs=1e-5)
    assert text == "i love mice"
    found = done("score", closed, "--unit", unit, "--json", stdin="i love mice\n").json()
    assert found["unit"] == unit
    assert found["log_prob"] == pytest.approx(total, rel=1e-6)
    assert math.fsum(found["log_probs"]) == pytest.approx(total, rel=1e-6)


def test_each_token_has_its_line(mle: Path) -> None:
    lines = done("score", mle, "--per-token", "--unit", "bits", stdin="i love cats\n").out.splitlines()
    values, texts = zip(*(line.split("\t") for line in lines), strict=True)
    assert texts == ("i love cats", "  i", "  love", "  cats", "  </s>")
    # −log2 3 in all: −log2 3/2 for i, nothing for love, −1 for cats, nothing for </s>
    assert list(map(float, values)) == pytest.approx([-math.log2(3), -math.log2(1.5), 0, -1, 0], abs=1e-5)
    assert (values[2], values[4]) == ("0.000000", "0.000000")  # and not -0


def test_an_empty_line_is_the_end_of_a_line(closed: Path) -> None:
    found = done("score", closed, "--json", stdin="\n").json()
    # No line of the three is empty: (0 + 1)/(3 + 7).
    assert found["log_prob"] == pytest.approx(math.log(1 / 10), rel=1e-6)
    assert found["tokens"] == ["</s>"]


def test_control_symbols_in_a_text_are_text(tmp_path: Path, toy_text: Path) -> None:
    options = ("--order", 3, "--smoothing", "laplace", "--tokenizer", "whitespace", "--out", tmp_path / "m")
    done("train", "ngram", toy_text, *options)
    empty, start, end, unknown = done("score", tmp_path / "m", "--json", stdin="\n<s>\n</s>\n<unk>\n").json_lines()
    for found in (start, end, unknown):
        # One word nobody has seen: p(<unk> | <s> <s>) = 1/11, then p(</s> | an unseen context) = 1/8.
        assert found["tokens"] == ["<unk>", "</s>"]
        assert found["oov"] == 1
        assert found["log_prob"] == pytest.approx(math.log(1 / 88), rel=1e-6)
    assert empty["log_prob"] == pytest.approx(math.log(1 / 11), rel=1e-6)  # were they control, all would be this
    spelled = {found["log_prob_of_spellings"] for found in (start, end, unknown)}
    assert len(spelled) == 3
    assert max(spelled) < 0


@pytest.mark.parametrize(
    ("unit", "factor"), [("nats", 1.0), ("bits", 1 / math.log(2)), ("log10", 1 / math.log(10))]
)
def test_a_line_with_unknown_words_has_a_second_figure(laplace: Path, unit: str, factor: float) -> None:
    text = "i love mice\ni love zebras\n"
    known, unknown = done("score", laplace, "--json", "--unit", unit, stdin=text).json_lines()
    assert known["log_prob_with_spelling"] == known["log_prob"]
    spelled = unknown["log_prob"] + unknown["log_prob_of_spellings"]
    assert unknown["log_prob_with_spelling"] == pytest.approx(spelled, rel=1e-12)
    # 3/11 · 3/10 for "i love", then p(<unk> | i love) = 1/10 and p(</s> | a context not seen) = 1/8
    assert unknown["log_prob"] == pytest.approx(factor * math.log(9 / 8800), rel=1e-6)
    first, second = done("score", laplace, "--unit", unit, stdin=text).out.splitlines()
    assert first == f"{known['log_prob']:.6f}\ti love mice"
    assert second == f"{unknown['log_prob']:.6f} ({spelled:.6f} with spelling)\ti love zebras"


def test_a_closed_vocabulary_cannot_spell(closed: Path) -> None:
    found = done("score", closed, "--json", stdin="i love zebras\n").json()
    assert found["log_prob_with_spelling"] is None
    assert found["infinite"] is True
    assert done("score", closed, stdin="i love zebras\n").out == "-inf (-inf with spelling)\ti love zebras\n"


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe", "wordpiece"])
def test_control_symbols_are_text_to_every_tokenizer(tmp_path: Path, english_text: Path, tokenizer: str) -> None:
    model = trained(tmp_path / "m", english_text, "--order", 2, *QUIET, "--tokenizer", tokenizer)
    for symbol in ("<s>", "</s>"):
        tokens = done("score", model, "--json", stdin=f"{symbol}\n").json()["tokens"]
        assert tokens[-1] == "</s>"
        assert "<s>" not in tokens
        assert "</s>" not in tokens[:-1]
        assert len(tokens) > 1


def test_score_is_the_sum_of_tokens_and_the_total_of_evaluate(model: Path, tmp_path: Path) -> None:
    lines = ["the cat sees a dog today", "a zebra sees", "", "now now now now", "the"]
    text = write(tmp_path / "test.txt", "\n".join(lines) + "\n")
    together = done("score", model, text, "--json").json_lines()
    assert [found["text"] for found in together] == lines
    for found in together:
        assert math.fsum(found["log_probs"]) == pytest.approx(found["log_prob"], rel=1e-9)
    for line, found in zip(lines, together, strict=True):
        alone = done("score", model, "--json", stdin=line + "\n").json()
        assert alone == found
    figures = done("evaluate", model, text, "--json").json()
    total = math.fsum(found["log_prob"] for found in together)
    assert -figures["nats_per_token"] * figures["tokens"] == pytest.approx(total, rel=1e-9)
    spelled = math.fsum(found["log_prob_of_spellings"] for found in together)
    assert -(total + spelled) / math.log(2) / figures["bytes"] == pytest.approx(figures["bits_per_byte"], rel=1e-9)
    assert figures["oov"] == sum(found["oov"] for found in together) > 0


def test_more_lines_than_are_scored_at_once(mle: Path) -> None:
    lines = done("score", mle, stdin="i love cats\ni love dogs\n" * 4100).out.splitlines()
    assert len(lines) == 8200
    assert set(lines) == {"-1.098612\ti love cats", "-1.098612\ti love dogs"}


def test_sense_is_preferred_to_its_sound_alike(tmp_path: Path) -> None:
    text = (
        "i saw a man\ni saw a dog\nwe saw a van\nshe saw an owl\nhe has a van\nthe eyes of a cat\n"
        "her eyes saw a star\nin awe of a king\nin awe of an old man\ni have an eye\ni saw it\nan awe of god\n"
    )
    options = ("--order", 3, "--smoothing", "witten-bell")
    model = trained(tmp_path / "m", write(tmp_path / "english.txt", text), *options)
    sense, sound = done("score", model, "--json", stdin="i saw a van\neyes awe of an\n").json_lines()
    assert sense["oov"] == sound["oov"] == 0
    assert len(sense["tokens"]) == len(sound["tokens"]) == 5
    assert sense["log_prob"] > sound["log_prob"]


def test_wrong_usage(mle: Path, tmp_path: Path) -> None:
    assert "choose one of nats, bits, log10" in refused(2, "score", mle, "--unit", "dB")
    assert "nowhere" in refused(4, "score", mle, tmp_path / "nowhere")
    assert "byte 1 (0xff)" in refused(3, "score", mle, stdin=b"a\xff\n")


def test_a_line_is_answered_before_the_next_is_written(model: Path, tmp_path: Path) -> None:
    lines = ["the cat sees a dog now", "", "one bird likes the fish today"]
    wanted = done("score", model, stdin="".join(f"{line}\n" for line in lines)).out.splitlines()
    with dialogue("score", model) as conversation:
        answers = [conversation.ask(line.encode())[0].decode() for line in lines]
    assert answers == wanted


def test_a_stream_model_goes_on_from_line_to_line_as_they_come(english_text: Path, tmp_path: Path) -> None:
    stream = trained(tmp_path / "m", english_text, "--order", 3, *QUIET, "--context", "stream")
    lines = english_text.read_text().splitlines()[:3]
    wanted = done("score", stream, stdin="".join(f"{line}\n" for line in lines)).out.splitlines()
    with dialogue("score", stream) as conversation:
        answers = [conversation.ask(line.encode())[0].decode() for line in lines]
    assert answers == wanted


@pytest.mark.parametrize("options", [(), ("--per-token",), ("--json",)])
@pytest.mark.parametrize("context", ["line", "stream"])
def test_long_lines_are_scored_in_pieces_with_the_same_result(
    options: tuple[str, ...], context: str, english_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["the cat sees the dog now", "a zebra sees  the cat", "", "one bird likes a cat today <s> </s>"]
    text = "".join(f"{line}\n" for line in lines)
    arguments = ("--order", 3, *QUIET, "--min-count", 20, "--context", context)
    model = trained(tmp_path / "m", english_text, *arguments)
    wanted = done("score", model, *options, stdin=text).out
    monkeypatch.setattr("chainrule.applications.line_scoring.MAX_ENGINE_LINE", 8)
    assert done("score", model, *options, stdin=text).out == wanted


def test_long_lines_go_in_pieces_through_the_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "the cat sees a dog now " * 5000
    wanted = chainrule.load(model).score(line.strip())
    sizes: list[int] = []
    read = TokenScorer.log_probs

    def watched(self: TokenScorer, ids: Ids) -> Floats:
        sizes.append(len(ids))
        return read(self, ids)

    monkeypatch.setattr(TokenScorer, "log_probs", watched)
    monkeypatch.setattr("chainrule.tokenizers.encode.CHARACTERS_PER_BATCH", 1 << 15)
    found = score_long_line(chainrule.load(model), line.strip())
    assert found.log_prob == wanted.log_prob
    assert (found.tokens, found.oov) == (len(wanted.tokens), wanted.oov)
    assert found.log_prob_of_spellings == pytest.approx(wanted.log_prob_of_spellings, rel=1e-12)
    assert len(sizes) == 2
    assert sum(sizes) == len(wanted.tokens)


@pytest.mark.parametrize("longest", [1 << 16, 3])
def test_tokens_are_printed_without_joiners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    """Also of a line that is long enough to be scored in pieces."""
    monkeypatch.setattr("chainrule.applications.line_scoring.MAX_ENGINE_LINE", longest)
    text = write(tmp_path / "text.txt", "she said, no\nhe said, no\n")
    model = trained(tmp_path / "model", text, "--order", 2, "--smoothing", "mle")
    lines = done("score", model, "--per-token", stdin="he said, no\n").out.splitlines()
    assert [line.split("\t")[1].strip() for line in lines] == ["he said, no", "he", "said", ",", "no", "</s>"]
    assert done("score", model, "--json", stdin="he said, no\n").json()["tokens"][2] == "\uffed,"
