"""`chainrule train`: equivalent inputs give the same model, and errors name a remedy."""

import bz2
import gzip
import json
import lzma
import math
import os
import re
from pathlib import Path

import pytest

from cli.command import QUIET, TOY, call, digests, locked_by_another_thread, run_error, run_ok, trained, write

SMALL = ("--order", "3", *QUIET)


def test_train_prints_to_stderr_only(tmp_path: Path, toy_text: Path) -> None:
    outcome = run_ok("train", "ngram", toy_text, "--out", tmp_path / "m", *SMALL)
    assert outcome.out == ""
    assert outcome.err.startswith(f"saved {tmp_path / 'm'}: ")
    assert "train with --min-count 2" in outcome.err  # no unknown word in training
    outcome = run_ok("train", "ngram", toy_text, "--out", tmp_path / "m", *SMALL, "--min-count", 2, "--force")
    assert outcome.err.splitlines()[1:] == ["tokenizer: word (punctuation is split from words)"]


def test_train_json(tmp_path: Path, toy_text: Path) -> None:
    document = run_ok("train", "ngram", toy_text, "--out", tmp_path / "m", *SMALL, "--json").json()
    assert document["schema_version"] == 1
    assert document["model"] == str(tmp_path / "m")
    assert document["family"] == "ngram"
    assert document["train_tokens"] == 12  # three lines of three words, and three </s>
    assert document.keys() == {
        "schema_version",
        "model",
        "family",
        "parameters",
        "train_tokens",
        "train_oov",
        "train_seconds",
    }


def test_train_reports_validation(tmp_path: Path, toy_text: Path) -> None:
    valid = write(tmp_path / "valid.txt", "i love mice\n")
    options = ("--order", 3, "--smoothing", "laplace", "--closed", "--valid", valid, "--json")
    outcome = run_ok("train", "ngram", toy_text, "--out", tmp_path / "m", *options)
    document = outcome.json()
    assert document["valid_perplexity"] == pytest.approx(630**0.25, rel=1e-6)
    assert document["valid_bits_per_byte"] == pytest.approx(math.log2(630) / 12, rel=1e-6)
    validation_line = f"validation: perplexity {630**0.25:.2f}, {math.log2(630) / 12:.4f} bits per byte"
    assert validation_line in outcome.err.splitlines()


def test_train_reports_infinite_validation(tmp_path: Path, toy_text: Path) -> None:
    valid = write(tmp_path / "valid.txt", "mice love i\n")
    options = ("--order", 3, "--smoothing", "mle", "--valid", valid)
    outcome = run_ok("train", "ngram", toy_text, "--out", tmp_path / "m", *options)
    assert "validation: perplexity infinite" in outcome.err


def test_train_network_reports_validation_and_info_shows_the_run(tmp_path: Path, toy_text: Path) -> None:
    options = ("--hidden", 4, "--epochs", 2, "--batch-size", 3, "--device", "cpu", "--valid", toy_text)
    outcome = run_ok("train", "rnn", toy_text, "--out", tmp_path / "m", *options)
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_bytes())
    figures = f"perplexity {metrics['valid_perplexity']:.2f}, {metrics['valid_bits_per_byte']:.4f} bits per byte"
    assert f"validation: {figures}" in outcome.err.splitlines()
    # Three lines of three words and `</s>`, all in one batch, twice.
    assert (metrics["train_epochs"], metrics["train_steps"]) == (2, 2)
    assert metrics["train_tokens_processed"] == 2 * 12
    assert metrics["train_stopped"] == "all epochs done"
    output = run_ok("info", tmp_path / "m").out
    assert re.search(r"\n  train_epochs +2\n  train_steps +2\n  train_stopped +all epochs done\n", output)
    assert "trained 2 epochs, 2 steps: all epochs done" in outcome.err.splitlines()
    assert f"status: {metrics['status']}" in outcome.err.splitlines()
    assert re.search(rf"\n  status +{re.escape(metrics['status'])}\n", output)


def test_train_patience_stops_early(tmp_path: Path, toy_text: Path) -> None:
    valid = write(tmp_path / "valid.txt", "mice love i\n")  # words in an order that the text does not contain
    options = ("--hidden", 8, "--epochs", 300, "--learning-rate", 0.1, "--device", "cpu", "--dropout", 0)
    outcome = run_ok("train", "rnn", toy_text, "--valid", valid, "--patience", 3, *options, "--out", tmp_path / "m")
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_bytes())
    assert metrics["status"] == "stopped early: no improvement for 3 validations"
    assert metrics["train_epochs"] < 300
    assert metrics["train_is_converged"]
    assert "status: stopped early: no improvement for 3 validations" in outcome.err.splitlines()
    message = run_error(2, "train", "rnn", toy_text, "--patience", 3, *options, "--out", tmp_path / "n")
    assert "give --valid" in message


def test_train_size_auto_prints_its_plan(tmp_path: Path, toy_text: Path) -> None:
    options = ("--valid", toy_text, "--max-seconds", 1, "--size", "auto", "--device", "cpu", "--hidden", 8)
    outcome = run_ok("train", "gru", toy_text, *options, "--out", tmp_path / "m")
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_bytes())
    assert metrics["plan"].startswith("gru: 8 units, full softmax, ")
    assert metrics["plan"] in outcome.err.splitlines()
    config = json.loads((tmp_path / "m" / "config.json").read_bytes())
    assert "'validations': 10" in str(config)
    assert "choose auto" in run_error(2, "train", "gru", toy_text, "--size", "big", "--out", tmp_path / "n")
    assert "leave it out" in run_error(2, "train", "ngram", toy_text, "--size", "auto", "--out", tmp_path / "n")


def test_model_folder_has_the_documented_files(laplace: Path) -> None:
    names = {path.name for path in laplace.iterdir()}
    assert names >= {"config.json", "tokenizer.json", "model.ngram", "metrics.json", "README.md", "manifest.json"}
    manifest = json.loads((laplace / "manifest.json").read_bytes())
    assert manifest["format_version"] == 1
    assert manifest["seed"] == 0
    assert set(manifest["files"]) == names - {"manifest.json"}
    assert manifest["command"].startswith("chainrule train ngram ")
    assert {"chainrule", "python", "numpy"} <= manifest["versions"].keys()


def test_training_twice_gives_the_same_bytes(tmp_path: Path, english_text: Path) -> None:
    first, second = (trained(tmp_path / name, english_text, *SMALL) for name in ("first", "second"))
    assert (first / "model.ngram").read_bytes() == (second / "model.ngram").read_bytes()
    assert (first / "speller.safetensors").read_bytes() == (second / "speller.safetensors").read_bytes()
    assert (first / "tokenizer.json").read_bytes() == (second / "tokenizer.json").read_bytes()


def same_model(first: Path, second: Path) -> bool:
    """Whether tables, tokenizer, speller and text digest are equal."""
    names = ("model.ngram", "tokenizer.json", "speller.safetensors", "training_lines.sketch")
    facts = [
        json.loads((model / "manifest.json").read_bytes())["training_text"]["sha256"] for model in (first, second)
    ]
    return facts[0] == facts[1] and all(digests(first)[name] == digests(second)[name] for name in names)


def parquet(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as format_

    format_.write_table(pyarrow.table({"text": TOY.splitlines()}), path)


def zstd(path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    path.write_bytes(zstandard.ZstdCompressor().compress(TOY.encode()))


def folder(path: Path) -> None:
    path.mkdir()
    first, *rest = TOY.splitlines(keepends=True)
    write(path / "1.txt", first)
    write(path / "2.txt", "".join(rest))
    write(path / ".hidden", "not read")


FORMS = {
    "mark.txt": lambda path: write(path, b"\xef\xbb\xbf" + TOY.encode()),
    "crlf.txt": lambda path: write(path, TOY.replace("\n", "\r\n")),
    "cr.txt": lambda path: write(path, TOY.replace("\n", "\r")),
    "unended.txt": lambda path: write(path, TOY.removesuffix("\n")),
    "text.txt.gz": lambda path: write(path, gzip.compress(TOY.encode())),
    "text.txt.bz2": lambda path: write(path, bz2.compress(TOY.encode())),
    "text.txt.xz": lambda path: write(path, lzma.compress(TOY.encode())),
    "text.txt.zst": zstd,
    "text.jsonl": lambda path: write(path, "".join(json.dumps({"text": t}) + "\n" for t in TOY.splitlines())),
    "text.parquet": parquet,
    "folder": folder,
}


@pytest.mark.parametrize("name", FORMS)
def test_container_of_the_text_makes_no_difference(tmp_path: Path, toy_text: Path, name: str) -> None:
    FORMS[name](tmp_path / name)
    clean, other = (trained(tmp_path / f"m{i}", text, *SMALL) for i, text in enumerate((toy_text, tmp_path / name)))
    assert same_model(clean, other)


def test_different_text_makes_a_difference(tmp_path: Path, toy_text: Path) -> None:
    other = write(tmp_path / "other.txt", TOY + "\n")  # one more blank line: one more </s>
    models = (trained(tmp_path / text.stem, text, *SMALL) for text in (toy_text, other))
    assert not same_model(*models)


def test_train_from_stdin_and_columns(tmp_path: Path, toy_text: Path) -> None:
    clean = trained(tmp_path / "clean", toy_text, *SMALL)
    run_ok("train", "ngram", "-", "--out", tmp_path / "piped", *SMALL, stdin=TOY)
    assert same_model(clean, tmp_path / "piped")
    records = write(tmp_path / "text.jsonl", "".join(json.dumps({"body": t}) + "\n" for t in TOY.splitlines()))
    assert same_model(clean, trained(tmp_path / "column", records, *SMALL, "--column", "body"))
    message = run_error(3, "train", "ngram", records, "--out", tmp_path / "m")
    assert "line 1 has no column 'text'" in message
    assert "--column: body" in message


def test_only_line_feeds_and_returns_end_lines(tmp_path: Path) -> None:
    text = write(tmp_path / "odd.txt", "a\u2028b c\x0bd\x0ce\x85f\u00a0g\n")
    options = ("--tokenizer", "whitespace", *SMALL)
    document = run_ok("train", "ngram", text, "--out", tmp_path / "m", *options, "--json").json()
    assert document["train_tokens"] == 3  # two words, separated by the ASCII space, and </s>
    assert run_ok("evaluate", tmp_path / "m", text, "--json").json()["sentences"] == 1


@pytest.mark.parametrize("content", ["", "\n", "\n \n\t\n"])
@pytest.mark.parametrize("tokenizer", ["word", "char", "byte"])
def test_train_rejects_a_text_without_words(tmp_path: Path, content: str, tokenizer: str) -> None:
    text = write(tmp_path / "blank.txt", content)
    message = run_error(3, "train", "ngram", text, "--out", tmp_path / "m", "--tokenizer", tokenizer)
    assert "contains no words" in message
    assert "give a text with" in message
    assert not (tmp_path / "m").exists()


def test_train_on_a_single_word(tmp_path: Path) -> None:
    text = write(tmp_path / "one.txt", "word")
    model = trained(tmp_path / "m", text, "--order", 1, "--smoothing", "laplace")
    document = run_ok("score", model, "--json", stdin="word\n").json()
    # Counts: word, </s>. Predictable: word, </s>, <unk>. p(word) = p(</s>) = (1 + 1)/(2 + 3).
    assert document["log_prob"] == pytest.approx(2 * math.log(2 / 5), rel=1e-6)


def test_train_locates_or_replaces_invalid_utf8(tmp_path: Path) -> None:
    text = write(tmp_path / "bad.txt", b"ok line\nbad \xff byte\n")
    message = run_error(3, "train", "ngram", text, "--out", tmp_path / "m", *SMALL)
    assert f"{text} is not UTF-8 at byte 12 (0xff)" in message
    assert "--errors replace" in message
    trained(tmp_path / "m", text, *SMALL, "--errors", "replace")
    assert run_ok("score", tmp_path / "m", "--json", stdin="bad \ufffd byte\n").json()["oov"] == 0


def test_train_on_a_line_of_three_megabytes(tmp_path: Path) -> None:
    text = write(tmp_path / "long.txt", "tick tock " * 300_000)
    model = trained(tmp_path / "m", text, "--order", 2, "--smoothing", "mle")
    document = run_ok("evaluate", model, text, "--json").json()
    assert document["tokens"] == 600_001
    assert document["bytes"] == 3_000_000  # the trailing space is dropped, the line end counts one
    # p(tick | <s>) = p(tock | tick) = 1; 300,000 tock are followed by 299,999 tick and one </s>.
    nats = -(299_999 * math.log(299_999 / 300_000) + math.log(1 / 300_000))
    assert document["nats_per_token"] * 600_001 == pytest.approx(nats, rel=1e-3)


def test_train_on_a_word_of_three_megabytes(tmp_path: Path) -> None:
    text = write(tmp_path / "long.txt", "x" * 3_000_000)
    model = trained(tmp_path / "m", text, "--order", 2, "--smoothing", "mle", "--tokenizer", "byte")
    assert run_ok("evaluate", model, text, "--json").json()["tokens"] == 3_000_001


def test_train_with_a_declared_unknown_word(tmp_path: Path) -> None:
    text = write(tmp_path / "unk.txt", "a <oov>\na b\n")
    model = trained(tmp_path / "m", text, "--order", 2, "--smoothing", "mle", "--unk", "<oov>")
    document = run_ok("score", model, "--json", stdin="a zebra\n").json()
    assert document["tokens"] == ["a", "<oov>", "</s>"]
    assert document["oov"] == 1
    assert document["log_prob"] == pytest.approx(math.log(1 / 2))  # p(<oov> | a) = 1/2, everything else is certain


def test_train_context_rules_worked_by_hand(tmp_path: Path) -> None:
    text = write(tmp_path / "ab.txt", "a\nb\na\nb\n")
    options = ("--order", 2, "--smoothing", "mle", "--context")
    test = write(tmp_path / "test.txt", "a\nb\n")

    def nats(rule: str) -> float:
        document = run_ok("evaluate", trained(tmp_path / rule, text, *options, rule), test, "--json").json()
        assert document["context"] == rule
        return float(document["nats_per_token"] * document["tokens"])

    # line: p(a | <s>) = p(b | <s>) = 2/4, p(</s> | a) = p(</s> | b) = 1.
    assert nats("line") == pytest.approx(math.log(4), rel=1e-6)
    # stream: <s> a </s> b </s> a </s> b </s>. A text starts as after </s>: followed by a in 1 of 3, by b in 2 of
    # 3.
    assert nats("stream") == pytest.approx(math.log(9 / 2), rel=1e-6)


def test_stream_model_scores_lines_as_one_text(tmp_path: Path) -> None:
    text = write(tmp_path / "ab.txt", "a\nb\na\nb\n")
    model = trained(tmp_path / "m", text, "--order", 2, "--smoothing", "mle", "--context", "stream")
    first, second = run_ok("score", model, "--json", stdin="a\nb\n").json_lines()
    assert first["log_prob"] == pytest.approx(math.log(1 / 3), rel=1e-6)  # as after </s>
    assert second["log_prob"] == pytest.approx(math.log(2 / 3), rel=1e-6)
    assert run_ok("score", model, "--json", stdin="b\n").json()["log_prob"] == pytest.approx(
        math.log(2 / 3), rel=1e-6
    )


def test_train_settings_from_a_file(tmp_path: Path, toy_text: Path) -> None:
    config = write(tmp_path / "c.toml", '[model]\norder = 2\nsmoothing = "laplace"\n[tokenizer]\nkind = "char"\n')
    trained(tmp_path / "file", toy_text, "--config", config)
    document = run_ok("info", tmp_path / "file", "--json").json()
    assert (document["config"]["order"], document["config"]["smoothing"]) == (2, "laplace")
    assert document["tokenizer"]["kind"] == "char"
    trained(tmp_path / "set", toy_text, "--config", config, "--set", "order=3", "--set", "kind=byte")
    document = run_ok("info", tmp_path / "set", "--json").json()
    assert (document["config"]["order"], document["tokenizer"]["kind"]) == (3, "byte")
    trained(
        tmp_path / "option", toy_text, "--config", config, "--set", "order=3", "--order", 4, "--tokenizer", "byte"
    )
    document = run_ok("info", tmp_path / "option", "--json").json()
    assert (document["config"]["order"], document["tokenizer"]["kind"]) == (4, "byte")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--order", "0"], "order is 0; choose a whole number from 1 to 32"),
        (["--order", "1000000"], "order is 1000000; choose"),
        (["--smoothing", "magic"], "smoothing is 'magic'; choose one of modified-kneser-ney"),
        (["--set", "ordr=3"], "did you mean 'order'?"),
        (["--set", "order"], "write it as key=value"),
        (["--set", "order=many"], "it must be a whole number"),
        (["--prune", "1,0"], "must start with 0 and never fall"),
        (
            ["--tokenizer", "nowhere"],
            "choose one of word, whitespace, char, byte, bpe, wordpiece, unigram, or a fold",
        ),
        (["--closed", "--min-count", "2"], "--closed allows no words outside"),
        (["--min-count", "0"], "choose 1 or more"),
        (["--context", "page"], "choose one of line, stream"),
        (["--errors", "ignore"], "choose one of strict, replace"),
        (["--tokenizer", "bpe", "--vocab-size", "10"], "needs 256 symbols"),
    ],
)
def test_train_wrong_usage(tmp_path: Path, toy_text: Path, options: list[str], reason: str) -> None:
    assert reason in run_error(2, "train", "ngram", toy_text, "--out", tmp_path / "m", *options)
    assert not (tmp_path / "m").exists()


def test_train_unknown_family(tmp_path: Path, toy_text: Path) -> None:
    message = run_error(2, "train", "fivegram", toy_text, "--out", tmp_path / "m")
    assert "there is no family 'fivegram'; choose one of ngram" in message
    assert "with chainrule mix" in run_error(2, "train", "mixture", toy_text, "--out", tmp_path / "m")


def test_train_missing_files(tmp_path: Path, toy_text: Path) -> None:
    assert "nowhere.txt" in run_error(4, "train", "ngram", tmp_path / "nowhere.txt", "--out", tmp_path / "m")
    message = run_error(4, "train", "ngram", toy_text, "--out", tmp_path / "m", "--config", tmp_path / "no.toml")
    assert "no.toml" in message


def test_train_refuses_a_foreign_folder(tmp_path: Path, toy_text: Path) -> None:
    (tmp_path / "thesis").mkdir()
    write(tmp_path / "thesis" / "chapter1.txt", "years of work")
    message = run_error(2, "train", "ngram", toy_text, "--out", tmp_path / "thesis")
    assert "choose another --out" in message
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter1.txt"]


def test_failed_training_keeps_the_old_model(tmp_path: Path, toy_text: Path) -> None:
    model = trained(tmp_path / "m", toy_text, *SMALL)
    before = digests(model)
    run_error(3, "train", "ngram", write(tmp_path / "empty.txt", ""), "--out", model, "--force")
    assert digests(model) == before
    assert call("evaluate", model, toy_text).status == 0
    trained(model, toy_text, "--order", 2, *QUIET, "--force")  # a successful one replaces it
    assert digests(model) != before


def test_jelinek_mercer_reports_what_it_held_out(tmp_path: Path, english_text: Path) -> None:
    options = ("--order", 2, "--smoothing", "jelinek-mercer")
    outcome = run_ok("train", "ngram", english_text, "--out", tmp_path / "m", *options)
    assert "warning: Jelinek-Mercer weights are learned on one line in 10" in outcome.err
    assert "--valid" in outcome.err
    outcome = run_ok(
        "train", "ngram", english_text, "--out", tmp_path / "m", *options, "--valid", english_text, "--force"
    )
    assert "warning" not in outcome.err


def test_unknown_config_table_is_rejected(toy_text: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "run.toml", "[modle]\norder = 2\n")
    outcome = call("train", "ngram", toy_text, "--out", tmp_path / "m", "--config", config)
    assert outcome.status == 2
    assert "[modle]; choose from [model], [training], [tokenizer], [run]" in outcome.err


def test_text_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.txt"
    with open(name, "w") as file:
        file.write(TOY)
    run_ok("train", "ngram", os.fsdecode(name), "--out", tmp_path / "m", *QUIET)
    assert "?.txt" in run_ok("info", tmp_path / "m", "--json").json()["training_text"]


def test_explicit_tokenizer_overrides_the_file(toy_text: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "run.toml", "[tokenizer]\nkind = 'char'\n")
    options = ("--config", config, *QUIET)
    for arguments, kind in (((), "char"), (("--tokenizer", "word"), "word"), (("--set", "kind=byte"), "byte")):
        out = tmp_path / kind
        run_ok("train", "ngram", toy_text, "--out", out, *options, *arguments)
        assert run_ok("info", out, "--json").json()["tokenizer"]["kind"] == kind


def test_concurrent_runs_into_one_folder_are_refused(tmp_path: Path, toy_text: Path) -> None:
    with locked_by_another_thread(tmp_path / "m"):
        outcome = call("train", "ngram", toy_text, "--out", tmp_path / "m", *SMALL)
    assert outcome.status == 2
    assert "is being written by another run" in outcome.err
    run_ok("train", "ngram", toy_text, "--out", tmp_path / "m", *SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_user_files_are_never_removed(tmp_path: Path, toy_text: Path) -> None:
    trained(tmp_path / "m", toy_text, *SMALL)
    write(tmp_path / "m" / "thesis.txt", "mine")
    outcome = call("train", "ngram", toy_text, "--out", tmp_path / "m", *SMALL)
    assert outcome.status == 2
    assert "contains thesis.txt, which is not part of the model" in outcome.err
    assert (tmp_path / "m" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["context", "seed", "text", "family", "progress", "tokenizer", "device"])
def test_train_set_rejects_names_that_are_not_settings(tmp_path: Path, toy_text: Path, name: str) -> None:
    outcome = call("train", "ngram", toy_text, "--out", tmp_path / "m", "--set", f"{name}=1")
    assert outcome.status == 2
    assert f"[model] has no setting '{name}'" in outcome.err


def test_setting_in_the_wrong_table_is_rejected(tmp_path: Path, toy_text: Path) -> None:
    for table, line in (("model", "min_count = 2"), ("tokenizer", "order = 2")):
        config = write(tmp_path / "c.toml", f"[{table}]\n{line}\n")
        outcome = call("train", "ngram", toy_text, "--out", tmp_path / "m", "--config", config)
        assert outcome.status == 2
        assert f"[{table}] has no setting" in outcome.err


def test_inapplicable_setting_is_rejected(tmp_path: Path, toy_text: Path) -> None:
    outcome = call("train", "ngram", toy_text, "--out", tmp_path / "m", "--set", "discount=0.9")
    assert outcome.status == 2
    assert "discount is for absolute and kneser-ney" in outcome.err
    assert call("train", "ngram", toy_text, "--out", tmp_path / "m", "--device", "foo").status == 2


def test_train_warns_about_replaced_bytes(tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_bytes(b"a \xff b\n")
    outcome = run_ok("train", "ngram", text, "--out", tmp_path / "m", *SMALL, "--errors", "replace")
    assert "warning: 1 sequences of the training text are not UTF-8" in outcome.err


def test_jelinek_mercer_on_few_lines_is_smooth(tmp_path: Path, toy_text: Path) -> None:
    model = trained(tmp_path / "m", toy_text, "--smoothing", "jelinek-mercer")
    assert float(run_ok("score", model, stdin="mice love zebras\n").out.split()[0]) > -50
    one = write(tmp_path / "one.txt", "a b\n")
    outcome = call("train", "ngram", one, "--out", tmp_path / "n", "--smoothing", "jelinek-mercer")
    assert outcome.status == 3
    assert "give --valid" in outcome.err


def test_train_on_a_table_column(tmp_path: Path, toy_text: Path) -> None:
    table = write(tmp_path / "t.csv", 'id,body\n1,"i love mice"\n2,"cats love mice"\n')
    options = ("--order", 1, "--smoothing", "laplace", "--out", tmp_path / "m")
    result = run_ok("train", "ngram", table, "--column", "body", *options, "--json")
    assert result.json()["train_tokens"] == 8
    assert "warning" not in result.err
    warned = run_ok("train", "ngram", table, "--order", 1, "--smoothing", "laplace", "--out", tmp_path / "lines")
    assert f"warning: {table} is read as lines of text" in warned.err
    assert "--column NAME" in warned.err
    message = run_error(2, "train", "ngram", toy_text, "--column", "body", "--out", tmp_path / "n")
    assert f"{toy_text} is plain text and has no column 'body'" in message
