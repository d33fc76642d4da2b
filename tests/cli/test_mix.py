"""`chainrule mix`: weights known by hand, and a result that is a model like any other."""

import json
import math
from pathlib import Path

import pytest

from cli.command import QUIET, TOY, call, done, english, refused, trained, write


@pytest.fixture(scope="module")
def letters(shelf: Path) -> tuple[Path, Path]:
    """Two unigram models of one tokenizer: p(a) = p(</s>) = 1/2, and p(b) = p(</s>) = 1/2."""
    done("tokenizer", "train", write(shelf / "ab.txt", "a b\n"), "--tokenizer", "word", "--out", shelf / "ab")
    options = ("--tokenizer", shelf / "ab", "--order", 1, "--smoothing", "mle")
    first = trained(shelf / "only-a", write(shelf / "a.txt", "a\n"), *options)
    return first, trained(shelf / "only-b", write(shelf / "b.txt", "b\n"), *options)


def test_weights_worked_by_hand(letters: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "a\na\nb\na\n")
    options = ("--held-out", held_out, "--out", tmp_path / "m")
    found = done("mix", *letters, *options, "--json").json()
    # (λ/2)³ ((1−λ)/2) (1/2)⁴ is greatest at λ = 3/4.
    assert [w["model"] for w in found["weights"]] == [str(path) for path in letters]
    assert [w["weight"] for w in found["weights"]] == pytest.approx([3 / 4, 1 / 4], abs=1e-5)
    assert found.keys() >= {"schema_version", "model", "weights", "held_out_perplexity", "held_out_bits_per_byte"}
    assert found["schema_version"] == 1
    perplexity = ((3 / 8) ** 3 * (1 / 8) * (1 / 2) ** 4) ** (-1 / 8)
    assert found["held_out_perplexity"] == pytest.approx(perplexity, rel=1e-6)
    figures = done("evaluate", tmp_path / "m", held_out, "--json").json()
    assert figures["family"] == "mixture"
    assert figures["perplexity"] == pytest.approx(perplexity, rel=1e-6)


def test_as_text(letters: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "a\na\nb\na\n")
    outcome = done("mix", *letters, "--held-out", held_out, "--out", tmp_path / "m")
    mixed = ((3 / 8) ** 3 * (1 / 8) * (1 / 2) ** 4) ** (-1 / 8)  # neither model alone knows both letters
    assert outcome.out.splitlines() == [
        "weight\tperplexity\tmodel",
        f"0.7500\tinfinite\t{letters[0]}",
        f"0.2500\tinfinite\t{letters[1]}",
        f"1.0000\t{mixed:.2f}\t{tmp_path / 'm'}",
    ]


def test_perplexities_of_the_components(letters: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "a\na\n")
    out = tmp_path / "m"
    found = done("mix", *letters, "--held-out", held_out, "--out", out, "--json").json()
    # p(a) = p(</s>) = 1/2 by the first model, which has all the weight; the second cannot predict a
    assert [w["perplexity"] for w in found["weights"]] == [pytest.approx(2), None]
    assert found["held_out_perplexity"] == pytest.approx(2)
    stored = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert stored["held_out_component_perplexities"] == [pytest.approx(2), None]


def test_a_mix_of_mixes(letters: tuple[Path, Path], tmp_path: Path) -> None:
    even = write(tmp_path / "even.txt", "a\nb\n")
    done("mix", *letters, "--held-out", even, "--out", tmp_path / "even")  # 1/2 and 1/2
    mostly = write(tmp_path / "mostly.txt", "a\na\na\nb\n")
    done("mix", tmp_path / "even", letters[0], "--held-out", mostly, "--out", tmp_path / "outer", "--json")
    # p(a) = (λ/2 + 1 − λ)/2 has to be 3/8, so λ = 1/2; then p(b) = 1/8.
    found = {e["token"]: e["probability"] for e in done("next", tmp_path / "outer", "", "--json").json()["next"]}
    assert found == pytest.approx({"a": 3 / 8, "b": 1 / 8, "</s>": 1 / 2}, abs=1e-5)
    config = done("info", tmp_path / "outer", "--json").json()["config"]
    assert config["weights"] == pytest.approx([1 / 2, 1 / 2], abs=1e-4)


def backwards(text: str) -> str:
    return "".join(" ".join(reversed(line.split())) + "\n" for line in text.splitlines())


def test_never_worse_than_its_best(english_text: Path, tmp_path: Path) -> None:
    first = trained(tmp_path / "1", english_text, "--order", 1, *QUIET)
    options = (*QUIET, "--tokenizer", first)
    second = trained(tmp_path / "2", english_text, "--order", 2, *options)
    reverse = write(tmp_path / "reverse.txt", backwards(english()))
    third = trained(tmp_path / "3", reverse, "--order", 3, "--context", "stream", *options)
    models = (first, second, third)
    forth, back = english(40, seed=8), backwards(english(20, seed=7))
    for name, text in (("forth", forth), ("back", back), ("both", forth + back)):
        held_out = write(tmp_path / f"{name}.txt", text)
        mixed = done("mix", *models, "--held-out", held_out, "--out", tmp_path / name, "--json").json()
        alone = [done("evaluate", path, held_out, "--json").json()["perplexity"] for path in models]
        assert mixed["held_out_perplexity"] <= min(alone) * (1 + 1e-6)
        assert sum(w["weight"] for w in mixed["weights"]) == pytest.approx(1)
        figures = done("evaluate", tmp_path / name, held_out, "--json").json()
        assert figures["context"] == "stream"
        assert figures["perplexity"] == pytest.approx(mixed["held_out_perplexity"], rel=1e-9)
    assert mixed["held_out_perplexity"] < 0.9 * min(alone)  # of both, each model knows what the other does not


def test_different_tokenizers_are_refused(laplace: Path, model: Path, toy_text: Path, tmp_path: Path) -> None:
    message = refused(3, "mix", laplace, model, "--held-out", toy_text, "--out", tmp_path / "m")
    assert "have different tokenizers" in message
    assert "the folder of the other as its tokenizer" in message
    assert not (tmp_path / "m").exists()


def test_wrong_usage(laplace: Path, toy_text: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "m")
    assert "two models or more, not 1" in refused(2, "mix", laplace, "--held-out", toy_text, *out)
    empty = write(tmp_path / "empty.txt", "")
    assert "held-out text is empty" in refused(3, "mix", laplace, laplace, "--held-out", empty, *out)
    refused(4, "mix", laplace, tmp_path / "nowhere", "--held-out", toy_text, *out)
    refused(4, "mix", laplace, laplace, "--held-out", tmp_path / "nowhere.txt", *out)
    foreign = write(tmp_path / "file", "mine")
    assert "choose another --out" in refused(2, "mix", laplace, laplace, "--held-out", toy_text, "--out", foreign)


def test_a_text_that_no_model_knows(letters: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = write(tmp_path / "c.txt", "c\n")  # </s> alone is possible: the weights cannot matter
    found = done("mix", *letters, "--held-out", held_out, "--out", tmp_path / "m", "--json").json()
    assert [w["weight"] for w in found["weights"]] == pytest.approx([1 / 2, 1 / 2])
    assert "held_out_perplexity" not in found
    assert done("evaluate", tmp_path / "m", held_out, "--json").json()["infinite"] is True


def test_the_mixture_is_complete_in_itself(toy_text: Path, tmp_path: Path) -> None:
    first = trained(tmp_path / "1", toy_text, "--order", 1, "--smoothing", "laplace")
    second = trained(tmp_path / "2", toy_text, "--order", 3, "--smoothing", "mle", "--tokenizer", first)
    done("mix", first, second, "--held-out", write(tmp_path / "h.txt", TOY), "--out", tmp_path / "m")
    before = done("score", tmp_path / "m", "--json", stdin="i love mice\n").out
    (tmp_path / "1").rename(tmp_path / "gone1")
    (tmp_path / "2").rename(tmp_path / "gone2")
    assert done("score", tmp_path / "m", "--json", stdin="i love mice\n").out == before
    assert math.isfinite(done("score", tmp_path / "m", "--json", stdin="a zebra\n").json()["log_prob_of_spellings"])


def test_open_and_closed_vocabularies_mix_in_any_order(laplace: Path, closed: Path, tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "i love zebras\n")
    found = []
    for name, models in (("a", (laplace, closed)), ("b", (closed, laplace))):
        done("mix", *models, "--held-out", held_out, "--out", tmp_path / name)
        found.append(done("evaluate", tmp_path / name, held_out, "--json").json()["bits_per_byte"])
    assert found[0] == pytest.approx(found[1])
    assert found[0] is not None


def test_a_model_mixed_with_itself_has_two_weights(laplace: Path, tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "i love cats\n")
    mixed = done("mix", laplace, laplace, "--held-out", held_out, "--out", tmp_path / "m", "--json")
    assert len(mixed.json()["weights"]) == 2
    assert f"saved {tmp_path / 'm'}" in mixed.err


def test_a_model_is_not_mixed_into_itself(laplace: Path, tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "i love cats\n")
    outcome = call("mix", laplace, laplace, "--held-out", held_out, "--out", laplace)
    assert outcome.status == 2
    assert "one of the models to be mixed" in outcome.err
