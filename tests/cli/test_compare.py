"""`chainrule compare`: one small text, all models, one scale."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import chainrule
from chainrule.ngram.config import SMOOTHINGS
from cli.command import Outcome, call, english, run_error, run_ok, strict, write

ROW_KEYS = {
    "name",
    "family",
    "parameters",
    "size_bytes",
    "train_seconds",
    "train_tokens_per_second",
    "perplexity",
    "perplexity_per_word",
    "bits_per_byte",
    "sample",
    "status",
    "epochs",
    "steps",
    "tokenizer",
    "sd",
}


@pytest.fixture(scope="module")
def out(shelf: Path) -> Path:
    return shelf / "compare"


@pytest.fixture(scope="module")
def compared(out: Path, english_text: Path) -> Outcome:
    return run_ok("compare", english_text, "--families", "ngram", "--out", out, "--keep", "all", "--json")


@pytest.fixture(scope="module")
def results(compared: Outcome) -> Any:
    return compared.json()


def test_compare_writes_its_files(compared: Outcome, out: Path) -> None:
    assert {path.name for path in out.iterdir()} == {"report.html", "results.json", "models"}
    assert strict((out / "results.json").read_text()) == compared.json()
    assert compared.err.endswith(f"and 50 of 50 models under {out / 'models'}\n")
    choice, *lines = compared.err.splitlines()
    assert choice == "tokenizer: word (punctuation is split from words)"
    assert [line.split(":")[0] for line in lines[:2]] == [
        "ngram-1-modified-kneser-ney",
        "ngram-2-modified-kneser-ney",
    ]


def test_compare_json_has_the_documented_keys(results: Any) -> None:
    assert results["schema_version"] == 1
    assert results.keys() >= {"text", "split", "rows"}
    assert results["text"].endswith("english.txt")
    assert all(row.keys() >= ROW_KEYS for row in results["rows"])
    assert re.fullmatch("[0-9a-f]{64}", results["text_sha256"])
    split = results["split"]
    assert split["train_lines"] + split["valid_lines"] + split["test_lines"] == 60
    assert (split["train_lines"], split["valid_lines"], split["test_lines"]) == (48, 6, 6)
    assert results["command"].startswith("chainrule compare ")


def test_compare_trains_every_model_once(results: Any) -> None:
    names = {f"ngram-{order}-{smoothing}" for order in range(1, 6) for smoothing in SMOOTHINGS}
    assert {row["name"] for row in results["rows"]} == names
    assert len(results["rows"]) == len(names)


def test_compare_rows_are_sorted_with_unranked_last(results: Any) -> None:
    rows = results["rows"]
    is_ranked = [row["is_ranked"] for row in rows]
    assert is_ranked == sorted(is_ranked, reverse=True)
    ranked = [row["bits_per_byte"] for row in rows if row["is_ranked"]]
    assert ranked == sorted(ranked)
    unranked = [row for row in rows if not row["is_ranked"]]
    assert {row["name"] for row in unranked} >= {f"ngram-{order}-stupid-backoff" for order in range(1, 6)}
    assert any(row["infinite"] for row in unranked)
    for row in rows:
        assert row["infinite"] == (row["bits_per_byte"] is None) == (row["perplexity"] is None)
        assert row["is_ranked"] == (not row["infinite"] and "stupid" not in row["name"])
    for row in unranked:
        assert row["note"].startswith(
            "infinite: no probability for '" if row["infinite"] else "a score, not a prob"
        )


def test_compare_rows_share_one_scale(results: Any) -> None:
    split = results["split"]
    for row in results["rows"]:
        if not row["infinite"]:
            # Without unknown words both follow from the same total: perplexity^tokens = 2^(bits per byte ·
            # bytes).
            bits = row["bits_per_byte"] * split["test_bytes"]
            assert bits >= math.log2(row["perplexity"]) * split["test_tokens"] * (1 - 1e-9)


def test_compared_models_can_be_loaded(results: Any, out: Path) -> None:
    best = results["rows"][0]["name"]
    assert chainrule.load(out / "models" / best).generate(seed=1).text
    names = {path.name for path in (out / "models").iterdir()}
    assert names == {row["name"] for row in results["rows"]}
    assert run_ok("info", out / "models" / best, "--json").json()["seed"] == 0


def test_compare_report_is_self_contained(compared: Outcome, out: Path, results: Any) -> None:
    page = (out / "report.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert results["rows"][0]["name"] in page
    fetched = re.findall(r"""(?:src|href)\s*=\s*["']([^"']*)["']|url\(([^)]*)\)|@import""", page)
    assert [a or b for a, b in fetched if not (a or b).startswith(("#", "data:", "'data:", '"data:'))] == []
    assert "<link" not in page


def test_compare_prints_a_table(english_text: Path, tmp_path: Path) -> None:
    options = ("--families", "ngram", "--max-seconds", "0.001", "--out", tmp_path)
    heading, table = run_ok("compare", english_text, *options).out.split("\nmodel ")
    assert heading.startswith(str(english_text))
    assert "tokenizer word, 19" in heading.replace("\n", "")  # 16 words, <unk>, <s>, </s>
    headings, *rows = table.splitlines()
    assert headings.split() == ["bits/byte", "perplexity", "size", "sec", "sample"]
    assert rows[0].startswith("ngram-")
    assert all(len(line) <= 100 for line in (headings, *rows))


def test_compare_is_deterministic_for_a_seed(results: Any, english_text: Path, tmp_path: Path) -> None:
    options = ("--families", "ngram", "--out", tmp_path, "--json")
    again = run_ok("compare", english_text, *options, "--max-seconds", "0.02").json()
    before = {row["name"]: row for row in results["rows"]}
    for row in again["rows"]:
        same = before[row["name"]]
        assert (row["bits_per_byte"], row["sample"]) == (same["bits_per_byte"], same["sample"])
    other = run_ok("compare", english_text, *options, "--max-seconds", "0.001", "--seed", 1, "--force").json()
    assert other["rows"][0]["bits_per_byte"] != before[other["rows"][0]["name"]]["bits_per_byte"]


def test_compare_reports_models_left_out_for_time(english_text: Path, tmp_path: Path) -> None:
    options = ("--families", "ngram", "--out", tmp_path, "--json")
    outcome = run_ok("compare", english_text, *options, "--max-seconds", "0.001")
    rows = outcome.json()["rows"]
    assert 1 <= len(rows) < 50
    left_out = re.findall(r"warning: (\S+) is skipped: the time budget for n-gram models is used up\n", outcome.err)
    assert len(left_out) == 50 - len(rows)
    assert not {row["name"] for row in rows} & set(left_out)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_compare_rejects_invalid_max_seconds(english_text: Path, tmp_path: Path, seconds: str) -> None:
    message = run_error(2, "compare", english_text, "--out", tmp_path / "c", "--max-seconds", seconds)
    assert "choose a number above 0" in message


def test_compare_uses_given_parts(english_text: Path, tmp_path: Path) -> None:
    valid = write(tmp_path / "valid.txt", english(5, seed=1))
    test = write(tmp_path / "test.txt", "the cat sees a dog now\nzebra\n")
    options = ("--out", tmp_path / "c", "--max-seconds", "0.001", "--json")
    both = run_ok("compare", english_text, "--valid", valid, "--test", test, *options).json()
    split = both["split"]
    assert (split["train_lines"], split["valid_lines"], split["test_lines"]) == (60, 5, 2)
    assert (split["test_tokens"], split["test_bytes"], split["seed"]) == (9, 29, None)
    first = both["rows"][0]["name"]
    figures = run_ok("evaluate", tmp_path / "c" / "models" / first, test, "--json").json()
    assert figures["bits_per_byte"] == pytest.approx(both["rows"][0]["bits_per_byte"], rel=1e-9)
    one = run_ok("compare", english_text, "--test", test, *options, "--force").json()["split"]
    assert (one["train_lines"], one["valid_lines"], one["test_lines"]) == (54, 6, 2)


def test_compare_defaults_to_min_count_two(results: Any, english_text: Path, tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", english() + "\n".join(f"hapax{i}" for i in range(30)) + "\n")
    document = run_ok("compare", text, "--out", tmp_path / "c", "--max-seconds", "0.001", "--json").json()
    assert document["tokenizer"] == results["tokenizer"]  # words that occur once make no difference


@pytest.mark.parametrize("tokenizer", ["char", "byte"])
def test_compare_with_other_tokenizers(english_text: Path, tmp_path: Path, tokenizer: str) -> None:
    options = ("--tokenizer", tokenizer, "--out", tmp_path, "--max-seconds", "0.001", "--json")
    document = run_ok("compare", english_text, *options).json()
    assert document["tokenizer"].startswith(tokenizer)
    assert (
        document["split"]["test_tokens"] == document["split"]["test_bytes"]
    )  # ASCII, and </s> for each line break


def test_compare_wrong_usage(english_text: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "c")
    assert "there is no family 'fivegram'" in run_error(2, "compare", english_text, *out, "--families", "fivegram")
    assert "choose from ngram" in run_error(2, "compare", english_text, *out, "--families", "mixture")
    assert "choose line or stream" in run_error(2, "compare", english_text, *out, "--context", "page")
    assert "2 lines" in run_error(3, "compare", write(tmp_path / "two.txt", "a\nb\n"), *out)
    run_error(3, "compare", write(tmp_path / "empty.txt", ""), *out)
    run_error(4, "compare", tmp_path / "nowhere.txt", *out)
    empty = write(tmp_path / "empty.txt", "")
    assert "test text is empty" in run_error(3, "compare", english_text, "--test", empty, *out)


def test_compare_refuses_an_existing_file_as_output(english_text: Path, tmp_path: Path) -> None:
    write(tmp_path / "c", "mine")
    outcome = call("compare", english_text, "--out", tmp_path / "c", "--max-seconds", "0.001")
    assert outcome.status in (1, 2)
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") <= 2
    assert (tmp_path / "c").read_text() == "mine"


def test_compare_with_stream_context(english_text: Path, tmp_path: Path) -> None:
    options = ("--context", "stream", "--out", tmp_path / "c", "--max-seconds", "0.001", "--json")
    document = run_ok("compare", english_text, *options).json()
    folder = tmp_path / "c" / "models" / document["rows"][0]["name"]
    assert json.loads((folder / "config.json").read_text())["context"] == "stream"


def test_compare_with_several_tokenizers_and_a_budget(english_text: Path, tmp_path: Path) -> None:
    options = ("--families", "ngram", "--budget", "1m", "--keep", "none", "--out", tmp_path)
    outcome = run_ok("compare", english_text, "--tokenizers", "char,word", *options)
    assert "ngram-char-1-modified-kneser-ney" in outcome.err
    headings, *rows = outcome.out.split("\nmodel ")[1].splitlines()
    names = [row.split()[0] for row in rows]
    assert {"ngram-word-1-modified-kneser-ney", "ngram-char-1-modified-kneser-ney"} & set(names)
    assert "† best of its family or tokenizer" in rows
    assert rows[-2] == "tokenizer: word (punctuation is split from words)"
    assert rows[-1] == "runs of blanks are read as one by every tokenizer, as the word tokenizer does"
    assert headings.split()[0] == "tokenizer"
    printed_names = re.findall(
        r"^ngram-(\w+)-[\w-]+(?: and \d+ more)?(?: †)? +(\w+) ", "\n".join(rows), re.MULTILINE
    )
    assert {name for name, _ in printed_names} == {"char", "word"}
    assert all(name == tokenizer for name, tokenizer in printed_names)
    assert all(len(line) <= 100 for line in (headings, *rows))
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "results.json"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "soon"), "budget is 'soon'; give a time above 0 such as 90s, 10m or 1h"),
        (("--budget", "0m"), "budget is '0m'"),
        (("--seeds", "0"), "seeds is 0; choose 1 or more"),
        (("--keep", "some"), "keep is 'some'; choose one of best, all, none"),
        (("--size", "large"), "size is 'large'; choose one of auto, fixed"),
        (("--tokenizers", "word,char", "--tokenizer", "word"), "exclude each other"),
    ],
)
def test_compare_rejects_invalid_options(
    english_text: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in run_error(2, "compare", english_text, "--out", tmp_path / "c", *options)


def test_compare_prints_the_tokenizer_choice(tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", english().replace("\n", " , it said .\n"))
    options = ("--families", "ngram", "--max-seconds", "0.001", "--out", tmp_path / "c")
    outcome = run_ok("compare", text, *options)
    choice = "tokenizer: whitespace (the text looks pre-tokenized: its punctuation is separated by blanks)"
    assert outcome.err.splitlines()[0] == choice
    assert choice in outcome.out.splitlines()
    results = strict((tmp_path / "c" / "results.json").read_text())
    assert results["remarks"] == [choice]
    assert {row["tokenizer"] for row in results["rows"]} == {"whitespace"}
    assert choice in (tmp_path / "c" / "report.html").read_text()
    char = run_ok("compare", text, *options, "--tokenizer", "char", "--force")
    assert "tokenizer: " not in char.err


@pytest.mark.parametrize("name", ["python", "novel"])
def test_compare_rejects_text_given_twice(english_text: Path, tmp_path: Path, name: str) -> None:
    message = run_error(2, "compare", english_text, "--text", name, "--out", tmp_path / "out")
    assert "TEXT and --text exclude each other" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--tokenizers", "--families"])
@pytest.mark.parametrize("value", [",", " , ,", " "])
def test_compare_rejects_empty_lists(english_text: Path, tmp_path: Path, option: str, value: str) -> None:
    message = run_error(2, "compare", english_text, option, value, "--out", tmp_path / "out")
    assert f"{option} is '{value}', which contains no names" in message
    assert not (tmp_path / "out").exists()
