"""`chainrule generate`: reproducible samples, three ways to greedy, invalid numbers."""

import math
from pathlib import Path

import pytest

from cli.command import QUIET, call, run_error, run_ok, trained, write

KEYS = {"schema_version", "text", "tokens", "log_prob", "finish_reason"}


def test_generate_is_deterministic_for_a_seed(model: Path) -> None:
    first = run_ok("generate", model, "--seed", 1, "--num", 5).out
    assert run_ok("generate", model, "--seed", 1, "--num", 5).out == first
    assert run_ok("generate", model, "--seed", 2, "--num", 5).out != first
    assert len(first.splitlines()) == 5


def test_generate_greedy_in_three_ways(model: Path, mle: Path) -> None:
    for prompt in ("", "the", "the dog"):
        texts = {
            run_ok("generate", model, "--prompt", prompt, *options).out
            for options in (
                ("--strategy", "greedy"),
                ("--temperature", "0"),
                ("--top-k", "1", "--seed", "7"),
                ("--strategy", "beam", "--beam-size", "1"),
            )
        }
        assert len(texts) == 1
    # i in 2 of 3; love surely; cats and dogs tie, and cats has the lower id.
    assert run_ok("generate", mle, "--strategy", "greedy").out == "i love cats\n"


def test_generate_json(mle: Path) -> None:
    document = run_ok("generate", mle, "--temperature", 0, "--json").json()
    assert document.keys() >= KEYS
    assert document["schema_version"] == 1
    assert document["text"] == "i love cats"
    assert document["tokens"] == ["i", "love", "cats", "</s>"]
    assert document["log_prob"] == pytest.approx(-math.log(3), rel=1e-6)
    assert document["finish_reason"] == "stop"
    document = run_ok("generate", mle, "--temperature", 0, "--max-tokens", 2, "--json").json()
    assert (document["text"], document["finish_reason"]) == ("i love", "length")
    lines = run_ok("generate", mle, "--seed", 1, "--num", 3, "--json").json_lines()
    assert len(lines) == 3


def test_generate_continues_a_prompt(mle: Path) -> None:
    assert run_ok("generate", mle, "--prompt", "cats chase").out == "cats chase mice\n"
    assert run_ok("generate", mle, "--prompt", "cats chase", "--json").json()["text"].strip() == "mice"
    assert run_ok("generate", mle, "--prompt", "cats chase", "--stream").out == "cats chase mice\n"
    assert run_ok("generate", mle, "--prompt", "cats", "--stop", "mice").out.strip() == "cats chase"


def test_generate_stream_prints_the_same_text(model: Path) -> None:
    for seed in range(3):
        assert (
            run_ok("generate", model, "--seed", seed, "--stream").out
            == run_ok("generate", model, "--seed", seed).out
        )


def test_generate_beam_finds_the_most_probable_texts(mle: Path) -> None:
    documents = run_ok("generate", mle, "--strategy", "beam", "--num", 5, "--json").json_lines()
    # Three sentences have probability 1/3 each; there are no others.
    assert sorted(line["text"] for line in documents[:3]) == ["cats chase mice", "i love cats", "i love dogs"]
    assert [math.exp(line["log_prob"]) for line in documents[:3]] == pytest.approx([1 / 3] * 3, rel=1e-6)


def test_generate_with_extreme_temperatures(model: Path) -> None:
    greedy = run_ok("generate", model, "--strategy", "greedy").out
    assert run_ok("generate", model, "--temperature", "1e-300", "--seed", 3).out == greedy
    run_ok("generate", model, "--temperature", "1e300", "--seed", 3, "--max-tokens", 10)
    run_ok("generate", model, "--top-p", 1, "--seed", 3)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", "-1"),
        ("--temperature", "nan"),
        ("--temperature", "inf"),
        ("--top-p", "0"),
        ("--top-p", "2"),
        ("--top-p", "nan"),
        ("--top-k", "0"),
        ("--min-p", "-0.5"),
        ("--beam-size", "0"),
        ("--repetition-penalty", "0"),
        ("--no-repeat-ngram", "0"),
        ("--max-tokens", "-1"),
        ("--num", "0"),
        ("--seed", "-1"),
        ("--strategy", "psychic"),
    ],
)
def test_generate_wrong_usage(mle: Path, option: str, value: str) -> None:
    message = run_error(2, "generate", mle, option, value)
    assert option.removeprefix("--").replace("-", "_") in message.replace("-", "_")
    assert "choose" in message


def test_generate_stream_allows_a_single_text(mle: Path) -> None:
    assert "--stream" in run_error(2, "generate", mle, "--stream", "--num", 2)
    assert "--stream" in run_error(2, "generate", mle, "--stream", "--json")


def test_generate_without_a_model(tmp_path: Path) -> None:
    run_error(4, "generate", tmp_path / "nowhere")
    run_error(3, "generate", tmp_path)


def test_generate_rejects_an_invalid_utf8_prompt(mle: Path) -> None:
    assert "not UTF-8" in run_error(3, "generate", mle, "--prompt", "a\udcff")


def test_stop_text_may_be_a_comma(tmp_path: Path) -> None:
    from chainrule import api

    text = write(tmp_path / "t.txt", "one , two\n" * 3)
    loaded = api.load(trained(tmp_path / "m", text, *QUIET))
    assert loaded.generate("one", strategy="greedy", stop=",").text == " "
    assert loaded.generate("one", strategy="greedy", stop=("two", "x")).text == " , "
    assert call("generate", tmp_path / "m", "--stop", "").status == 2


def test_generate_many_texts_in_batches(laplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chainrule.decoding import generate as module

    options = ("generate", laplace, "--num", 7, "--seed", 3)
    whole = run_ok(*options).out
    monkeypatch.setattr(module, "MAX_CELLS", 20)  # two rows of nine ids at a time
    assert run_ok(*options).out == whole
    assert len(set(whole.splitlines())) > 1


def test_streamed_prompt_is_normalised(laplace: Path) -> None:
    options = ("generate", laplace, "--prompt", "i love ", "--strategy", "greedy", "--max-tokens", 1)
    assert run_ok(*options, "--stream").out == run_ok(*options).out == "i love cats\n"


@pytest.fixture(scope="module")
def rare(shelf: Path) -> Path:
    """A unigram of words seen twice: <unk> is the most probable."""
    text = write(shelf / "rare.txt", "cat lion\ncat tiger puma\nlynx ocelot jaguar\ncougar caracal serval\n")
    return trained(shelf / "rare", text, "--order", 1, "--smoothing", "laplace", "--min-count", 2)


def test_generate_prints_unknown_words_only_on_request(rare: Path) -> None:
    options = ("--seed", 1, "--num", 30, "--max-tokens", 8)
    words = set(run_ok("generate", rare, *options).out.split())
    assert words == {"cat"}
    assert set(run_ok("generate", rare, *options, "--unk", "keep").out.split()) == {"cat", "<unk>"}
    for strategy in ("greedy", "beam"):
        assert "<unk>" not in run_ok("generate", rare, "--strategy", strategy, "--max-tokens", 5).out
    assert "<unk>" not in run_ok("generate", rare, "--seed", 1, "--stream").out


def test_generate_spells_unknown_words(rare: Path) -> None:
    options = ("--seed", 1, "--max-tokens", 8, "--unk", "spell")
    text = run_ok("generate", rare, *options).out
    assert run_ok("generate", rare, *options).out == text
    assert run_ok("generate", rare, *options, "--stream").out == text
    lines = run_ok("generate", rare, *options, "--num", 20, "--json").json_lines()
    assert "<unk>" not in " ".join(line["text"] for line in lines)
    for line in lines:  # as many words as tokens, and `cat` where the model predicted it
        tokens = [token for token in line["tokens"] if token != "</s>"]
        assert [word == "cat" for word in line["text"].split()] == [token == "cat" for token in tokens]
    documents = run_ok("generate", rare, *options[:-1], "keep", "--num", 20, "--json").json_lines()
    assert [line["log_prob"] for line in documents] == [line["log_prob"] for line in lines]


def test_generate_rejects_other_values_of_unk(rare: Path) -> None:
    assert "unk is 'drop'; choose one of exclude, spell, keep" in run_error(2, "generate", rare, "--unk", "drop")
