"""`chainrule generate`: the same seed the same text, greedy by three names, and bad numbers refused."""

import math
from pathlib import Path

import pytest

from cli.command import QUIET, call, done, refused, trained, write

KEYS = {"schema_version", "text", "tokens", "log_prob", "finish_reason"}


def test_the_same_seed_gives_the_same_text(model: Path) -> None:
    first = done("generate", model, "--seed", 1, "--num", 5).out
    assert done("generate", model, "--seed", 1, "--num", 5).out == first
    assert done("generate", model, "--seed", 2, "--num", 5).out != first
    assert len(first.splitlines()) == 5


def test_greedy_by_three_names(model: Path, mle: Path) -> None:
    for prompt in ("", "the", "the dog"):
        texts = {
            done("generate", model, "--prompt", prompt, *options).out
            for options in (
                ("--strategy", "greedy"),
                ("--temperature", "0"),
                ("--top-k", "1", "--seed", "7"),
                ("--strategy", "beam", "--beam-size", "1"),
            )
        }
        assert len(texts) == 1
    # i in 2 of 3; love surely; cats and dogs are equal, and cats, met first by code point, has the lower id.
    assert done("generate", mle, "--strategy", "greedy").out == "i love cats\n"


def test_json(mle: Path) -> None:
    found = done("generate", mle, "--temperature", 0, "--json").json()
    assert found.keys() >= KEYS
    assert found["schema_version"] == 1
    assert found["text"] == "i love cats"
    assert found["tokens"] == ["i", "love", "cats", "</s>"]
    assert found["log_prob"] == pytest.approx(-math.log(3), rel=1e-6)
    assert found["finish_reason"] == "stop"
    found = done("generate", mle, "--temperature", 0, "--max-tokens", 2, "--json").json()
    assert (found["text"], found["finish_reason"]) == ("i love", "length")
    lines = done("generate", mle, "--seed", 1, "--num", 3, "--json").json_lines()
    assert len(lines) == 3


def test_a_prompt_is_continued(mle: Path) -> None:
    assert done("generate", mle, "--prompt", "cats chase").out == "cats chase mice\n"
    assert done("generate", mle, "--prompt", "cats chase", "--json").json()["text"].strip() == "mice"
    assert done("generate", mle, "--prompt", "cats chase", "--stream").out == "cats chase mice\n"
    assert done("generate", mle, "--prompt", "cats", "--stop", "mice").out.strip() == "cats chase"


def test_a_stream_is_the_same_text(model: Path) -> None:
    for seed in range(3):
        assert (
            done("generate", model, "--seed", seed, "--stream").out == done("generate", model, "--seed", seed).out
        )


def test_a_beam_finds_what_is_most_probable(mle: Path) -> None:
    found = done("generate", mle, "--strategy", "beam", "--num", 5, "--json").json_lines()
    # Three sentences have probability 1/3 each, and there are no others.
    assert sorted(line["text"] for line in found[:3]) == ["cats chase mice", "i love cats", "i love dogs"]
    assert [math.exp(line["log_prob"]) for line in found[:3]] == pytest.approx([1 / 3] * 3, rel=1e-6)


def test_extreme_temperatures_are_distributions(model: Path) -> None:
    greedy = done("generate", model, "--strategy", "greedy").out
    assert done("generate", model, "--temperature", "1e-300", "--seed", 3).out == greedy
    done("generate", model, "--temperature", "1e300", "--seed", 3, "--max-tokens", 10)
    done("generate", model, "--top-p", 1, "--seed", 3)


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
def test_wrong_usage(mle: Path, option: str, value: str) -> None:
    message = refused(2, "generate", mle, option, value)
    assert option.removeprefix("--").replace("-", "_") in message.replace("-", "_")
    assert "choose" in message


def test_a_stream_is_one_text(mle: Path) -> None:
    assert "--stream" in refused(2, "generate", mle, "--stream", "--num", 2)
    assert "--stream" in refused(2, "generate", mle, "--stream", "--json")


def test_no_model(tmp_path: Path) -> None:
    refused(4, "generate", tmp_path / "nowhere")
    refused(3, "generate", tmp_path)


def test_a_prompt_that_is_no_text(mle: Path) -> None:
    assert "not UTF-8" in refused(3, "generate", mle, "--prompt", "a\udcff")


def test_a_stop_text_may_be_a_comma(tmp_path: Path) -> None:
    from chainrule import api

    text = write(tmp_path / "t.txt", "one , two\n" * 3)
    loaded = api.load(trained(tmp_path / "m", text, *QUIET))
    assert loaded.generate("one", strategy="greedy", stop=",").text == " "
    assert loaded.generate("one", strategy="greedy", stop=("two", "x")).text == " , "
    assert call("generate", tmp_path / "m", "--stop", "").status == 2


def test_many_texts_come_in_turns(laplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chainrule.decoding import generate as module

    options = ("generate", laplace, "--num", 7, "--seed", 3)
    whole = done(*options).out
    monkeypatch.setattr(module, "MAX_CELLS", 20)  # two rows of nine ids at a time
    assert done(*options).out == whole
    assert len(set(whole.splitlines())) > 1


def test_a_streamed_prompt_ends_where_the_tokenizer_says(laplace: Path) -> None:
    options = ("generate", laplace, "--prompt", "i love ", "--strategy", "greedy", "--max-tokens", 1)
    assert done(*options, "--stream").out == done(*options).out == "i love cats\n"


@pytest.fixture(scope="module")
def rare(shelf: Path) -> Path:
    """A unigram of words seen twice: p(<unk>) is the highest."""
    text = write(shelf / "rare.txt", "cat lion\ncat tiger puma\nlynx ocelot jaguar\ncougar caracal serval\n")
    return trained(shelf / "rare", text, "--order", 1, "--smoothing", "laplace", "--min-count", 2)


def test_unknown_words_are_not_printed_unless_asked_for(rare: Path) -> None:
    options = ("--seed", 1, "--num", 30, "--max-tokens", 8)
    words = set(done("generate", rare, *options).out.split())
    assert words == {"cat"}
    assert set(done("generate", rare, *options, "--unk", "keep").out.split()) == {"cat", "<unk>"}
    for strategy in ("greedy", "beam"):
        assert "<unk>" not in done("generate", rare, "--strategy", strategy, "--max-tokens", 5).out
    assert "<unk>" not in done("generate", rare, "--seed", 1, "--stream").out


def test_the_speller_writes_words_outside_the_vocabulary(rare: Path) -> None:
    options = ("--seed", 1, "--max-tokens", 8, "--unk", "spell")
    text = done("generate", rare, *options).out
    assert done("generate", rare, *options).out == text
    assert done("generate", rare, *options, "--stream").out == text
    lines = done("generate", rare, *options, "--num", 20, "--json").json_lines()
    assert "<unk>" not in " ".join(line["text"] for line in lines)
    for line in lines:  # as many words as tokens, and `cat` where the model said so
        tokens = [token for token in line["tokens"] if token != "</s>"]
        assert [word == "cat" for word in line["text"].split()] == [token == "cat" for token in tokens]
    kept = done("generate", rare, *options[:-1], "keep", "--num", 20, "--json").json_lines()
    assert [line["log_prob"] for line in kept] == [line["log_prob"] for line in lines]


def test_other_values_of_unk_are_refused(rare: Path) -> None:
    assert "unk is 'drop'; choose one of exclude, spell, keep" in refused(2, "generate", rare, "--unk", "drop")
