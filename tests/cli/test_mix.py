"""`chainrule mix`: weights known by hand, and a mixture that is a complete model."""

import json
import math
from pathlib import Path

import pytest

from cli.command import QUIET, TOY, call, english, run_error, run_ok, trained, write


@pytest.fixture(scope="module")
def letters(shelf: Path) -> tuple[Path, Path]:
    """Two unigram models of one tokenizer: p(a) = p(</s>) = 1/2, and p(b) = p(</s>) = 1/2."""
    run_ok("tokenizer", "train", write(shelf / "ab.txt", "a b\n"), "--tokenizer", "word", "--out", shelf / "ab")
    options = ("--tokenizer", shelf / "ab", "--order", 1, "--smoothing", "mle")
    first = trained(shelf / "only-a", write(shelf / "a.txt", "a\n"), *options)
    return first, trained(shelf / "only-b", write(shelf / "b.txt", "b\n"), *options)


def test_mix_weights_worked_by_hand(letters: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "a\na\nb\na\n")
    options = ("--held-out", held_out, "--out", tmp_path / "m")
    document = run_ok("mix", *letters, *options, "--json").json()
    # (λ/2)³ ((1−λ)/2) (1/2)⁴ is greatest at λ = 3/4.
    assert [w["model"] for w in document["weights"]] == [str(path) for path in letters]
    assert [w["weight"] for w in document["weights"]] == pytest.approx([3 / 4, 1 / 4], abs=1e-5)
    assert document.keys() >= {
        "schema_version",
        "model",
        "weights",
        "held_out_perplexity",
        "held_out_bits_per_byte",
    }
    assert document["schema_version"] == 1
    perplexity = ((3 / 8) ** 3 * (1 / 8) * (1 / 2) ** 4) ** (-1 / 8)
    assert document["held_out_perplexity"] == pytest.approx(perplexity, rel=1e-6)
    figures = run_ok("evaluate", tmp_path / "m", held_out, "--json").json()
    assert figures["family"] == "mixture"
    assert figures["perplexity"] == pytest.approx(perplexity, rel=1e-6)


def test_mix_prints_a_table(letters: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "a\na\nb\na\n")
    outcome = run_ok("mix", *letters, "--held-out", held_out, "--out", tmp_path / "m")
    mixed = ((3 / 8) ** 3 * (1 / 8) * (1 / 2) ** 4) ** (-1 / 8)  # neither model alone knows both letters
    assert outcome.out.splitlines() == [
        "weight\tperplexity\tmodel",
        f"0.7500\tinfinite\t{letters[0]}",
        f"0.2500\tinfinite\t{letters[1]}",
        f"1.0000\t{mixed:.2f}\t{tmp_path / 'm'}",
    ]


def test_mix_reports_component_perplexities(letters: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "a\na\n")
    out = tmp_path / "m"
    document = run_ok("mix", *letters, "--held-out", held_out, "--out", out, "--json").json()
    # p(a) = p(</s>) = 1/2 by the first model, which has all the weight; the second cannot predict a
    assert [w["perplexity"] for w in document["weights"]] == [pytest.approx(2), None]
    assert document["held_out_perplexity"] == pytest.approx(2)
    stored = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert stored["held_out_component_perplexities"] == [pytest.approx(2), None]


def test_mix_of_mixtures(letters: tuple[Path, Path], tmp_path: Path) -> None:
    even = write(tmp_path / "even.txt", "a\nb\n")
    run_ok("mix", *letters, "--held-out", even, "--out", tmp_path / "even")  # 1/2 and 1/2
    mostly = write(tmp_path / "mostly.txt", "a\na\na\nb\n")
    run_ok("mix", tmp_path / "even", letters[0], "--held-out", mostly, "--out", tmp_path / "outer", "--json")
    # p(a) = (λ/2 + 1 − λ)/2 has to be 3/8, so λ = 1/2; then p(b) = 1/8.
    probabilities = {
        e["token"]: e["probability"] for e in run_ok("next", tmp_path / "outer", "", "--json").json()["next"]
    }
    assert probabilities == pytest.approx({"a": 3 / 8, "b": 1 / 8, "</s>": 1 / 2}, abs=1e-5)
    config = run_ok("info", tmp_path / "outer", "--json").json()["config"]
    assert config["weights"] == pytest.approx([1 / 2, 1 / 2], abs=1e-4)


def backwards(text: str) -> str:
    return "".join(" ".join(reversed(line.split())) + "\n" for line in text.splitlines())


def test_mixture_is_never_worse_than_its_best_component(english_text: Path, tmp_path: Path) -> None:
    first = trained(tmp_path / "1", english_text, "--order", 1, *QUIET)
    options = (*QUIET, "--tokenizer", first)
    second = trained(tmp_path / "2", english_text, "--order", 2, *options)
    reverse = write(tmp_path / "reverse.txt", backwards(english()))
    third = trained(tmp_path / "3", reverse, "--order", 3, "--context", "stream", *options)
    models = (first, second, third)
    forth, back = english(40, seed=8), backwards(english(20, seed=7))
    for name, text in (("forth", forth), ("back", back), ("both", forth + back)):
        held_out = write(tmp_path / f"{name}.txt", text)
        mixed = run_ok("mix", *models, "--held-out", held_out, "--out", tmp_path / name, "--json").json()
        alone = [run_ok("evaluate", path, held_out, "--json").json()["perplexity"] for path in models]
        assert mixed["held_out_perplexity"] <= min(alone) * (1 + 1e-6)
        assert sum(w["weight"] for w in mixed["weights"]) == pytest.approx(1)
        figures = run_ok("evaluate", tmp_path / name, held_out, "--json").json()
        assert figures["context"] == "stream"
        assert figures["perplexity"] == pytest.approx(mixed["held_out_perplexity"], rel=1e-9)
    assert mixed["held_out_perplexity"] < 0.9 * min(alone)  # each model knows what the other does not


def test_mix_rejects_different_tokenizers(laplace: Path, model: Path, toy_text: Path, tmp_path: Path) -> None:
    message = run_error(3, "mix", laplace, model, "--held-out", toy_text, "--out", tmp_path / "m")
    assert "have different tokenizers" in message
    assert "the folder of the other as its tokenizer" in message
    assert not (tmp_path / "m").exists()


def test_mix_wrong_usage(laplace: Path, toy_text: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "m")
    assert "two models or more, not 1" in run_error(2, "mix", laplace, "--held-out", toy_text, *out)
    empty = write(tmp_path / "empty.txt", "")
    assert "held-out text is empty" in run_error(3, "mix", laplace, laplace, "--held-out", empty, *out)
    run_error(4, "mix", laplace, tmp_path / "nowhere", "--held-out", toy_text, *out)
    run_error(4, "mix", laplace, laplace, "--held-out", tmp_path / "nowhere.txt", *out)
    foreign = write(tmp_path / "file", "mine")
    assert "choose another --out" in run_error(2, "mix", laplace, laplace, "--held-out", toy_text, "--out", foreign)


def test_mix_with_an_unpredictable_held_out_text(letters: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = write(tmp_path / "c.txt", "c\n")  # only </s> is possible: the weights cannot matter
    document = run_ok("mix", *letters, "--held-out", held_out, "--out", tmp_path / "m", "--json").json()
    assert [w["weight"] for w in document["weights"]] == pytest.approx([1 / 2, 1 / 2])
    assert "held_out_perplexity" not in document
    assert run_ok("evaluate", tmp_path / "m", held_out, "--json").json()["infinite"] is True


def test_mixture_folder_is_self_contained(toy_text: Path, tmp_path: Path) -> None:
    first = trained(tmp_path / "1", toy_text, "--order", 1, "--smoothing", "laplace")
    second = trained(tmp_path / "2", toy_text, "--order", 3, "--smoothing", "mle", "--tokenizer", first)
    run_ok("mix", first, second, "--held-out", write(tmp_path / "h.txt", TOY), "--out", tmp_path / "m")
    before = run_ok("score", tmp_path / "m", "--json", stdin="i love mice\n").out
    (tmp_path / "1").rename(tmp_path / "gone1")
    (tmp_path / "2").rename(tmp_path / "gone2")
    assert run_ok("score", tmp_path / "m", "--json", stdin="i love mice\n").out == before
    assert math.isfinite(
        run_ok("score", tmp_path / "m", "--json", stdin="a zebra\n").json()["log_prob_of_spellings"]
    )


def test_mix_of_open_and_closed_vocabularies_in_any_order(laplace: Path, closed: Path, tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "i love zebras\n")
    bits_per_byte = []
    for name, models in (("a", (laplace, closed)), ("b", (closed, laplace))):
        run_ok("mix", *models, "--held-out", held_out, "--out", tmp_path / name)
        bits_per_byte.append(run_ok("evaluate", tmp_path / name, held_out, "--json").json()["bits_per_byte"])
    assert bits_per_byte[0] == pytest.approx(bits_per_byte[1])
    assert bits_per_byte[0] is not None


def test_model_mixed_with_itself_has_two_weights(laplace: Path, tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "i love cats\n")
    mixed = run_ok("mix", laplace, laplace, "--held-out", held_out, "--out", tmp_path / "m", "--json")
    assert len(mixed.json()["weights"]) == 2
    assert f"saved {tmp_path / 'm'}" in mixed.err


def test_mix_refuses_to_overwrite_a_component(laplace: Path, tmp_path: Path) -> None:
    held_out = write(tmp_path / "held_out.txt", "i love cats\n")
    outcome = call("mix", laplace, laplace, "--held-out", held_out, "--out", laplace)
    assert outcome.status == 2
    assert "one of the models to be mixed" in outcome.err
