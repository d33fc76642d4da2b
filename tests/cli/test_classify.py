"""`chainrule classify`: train, predict, evaluate; numbers by hand, and errors with line numbers."""

import json
import math
import re
from pathlib import Path

import pytest

from chainrule import recipes
from chainrule.config import build_config, flatten
from chainrule.neural.encoders.classifier import ClassifyConfig
from chainrule.tokenizers.config import TokenizerConfig
from cli.command import call, run_error, run_ok, write
from cli.pipes import dialogue

TABLE = "pos\tgood good\nneg\tbad\npos\tGood bad\n"
NAIVE = ("--smoothing", "laplace")
TINY = ("--hidden", 4, "--embedding", 4, "--epochs", 2, "--clip", 0, "--device", "cpu", "--threads", 1)
POS = (4 / 50) / (4 / 50 + 1 / 54)
"""p(pos | good) of add-one unigrams: 2/3 · 4/10 · 3/10 against 1/3 · 1/6 · 2/6."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("classify") / "t.tsv", TABLE)


@pytest.fixture(scope="module")
def naive(table: Path) -> Path:
    run_ok("classify", "train", "ngram", table, "--out", table.with_name("naive"), *NAIVE)
    return table.with_name("naive")


@pytest.fixture(scope="module")
def network(table: Path) -> Path:
    out = table.with_name("network")
    run_ok("classify", "train", "lstm", table, "--valid", table, "--out", out, *TINY, "--pooling", "attention")
    return out


def test_classify_predict_worked_by_hand(naive: Path) -> None:
    outcome = run_ok("classify", "predict", naive, stdin="good\n\nbad bad bad\n")
    # neg and pos of an empty line: 1/3 · 2/6 = 1/9 against 2/3 · 3/10 = 1/5, so 9/14 for pos. Three times bad:
    # 1/3 · (1/3)⁴ = 1/243 against 2/3 · (1/5)³ · 3/10 = 1/625.
    lines = [line.split("\t") for line in outcome.out.splitlines()]
    assert [(label, text) for label, _, text in lines] == [("pos", "good"), ("pos", ""), ("neg", "bad bad bad")]
    expected = [POS, 9 / 14, 625 / (243 + 625)]
    assert [float(p) for _, p, _ in lines] == pytest.approx(expected, abs=1e-6)
    document = run_ok("classify", "predict", naive, "--json", stdin="good\n").json()
    assert document["probabilities"] == {"neg": pytest.approx(1 - POS), "pos": pytest.approx(POS)}
    assert document == {
        "schema_version": 1,
        "text": "good",
        "label": "pos",
        "probability": document["probabilities"]["pos"],
        "probabilities": document["probabilities"],
    }


def test_classify_explain_worked_by_hand(naive: Path, tmp_path: Path) -> None:
    # good: 4/10 against 1/6; </s>: 3/10 against 2/6
    outcome = run_ok("classify", "predict", naive, "--explain", stdin="GOOD\n").out.splitlines()
    assert outcome[1:] == [f"{math.log(2.4):+.6f}\t  GOOD", f"{math.log(0.9):+.6f}\t  </s>"]
    # an unknown word: 1/10 against 1/6
    outcome = run_ok("classify", "predict", naive, "--explain", stdin="GOOD Odd\n").out.splitlines()
    assert outcome[2] == f"{math.log(0.6):+.6f}\t  Odd\tunknown"
    document = run_ok("classify", "predict", naive, "--explain", "--json", stdin="  GOOD\n").json()
    good, end = ({"weight": pytest.approx(math.log(x))} for x in (2.4, 0.9))
    assert document["tokens"] == [
        {"token": "GOOD", "start": 2, "end": 6, "is_known": True} | good,
        {"token": "</s>", "start": 6, "end": 6, "is_known": True} | end,
    ]
    assert document["explained_by"] == "evidence"
    page = tmp_path / "page.html"
    outcome_ = run_ok("classify", "predict", naive, "--html", page, stdin="GOOD <b>  &\tmore\n")
    assert outcome_.err == f"wrote {page}\n"
    assert outcome_.out.count("\n") == 1
    article = page.read_text().partition("<article>")[2]
    assert re.sub("<[^>]*>", "", article).strip().endswith("GOOD &lt;b&gt;  &amp;\tmore &lt;/s&gt;")  # as typed
    assert article.count('class="unknown"') == 5  # <, b, >, &, more


def test_classify_evaluate_worked_by_hand(naive: Path, tmp_path: Path) -> None:
    test = write(tmp_path / "test.tsv", "pos\tgood\npos\tbad bad bad\nneg\tgood\n")
    document = run_ok("classify", "evaluate", naive, test, "--json").json()
    assert document["accuracy"] == pytest.approx(1 / 3)
    assert document["confusion"] == {"neg": {"neg": 0, "pos": 1}, "pos": {"neg": 1, "pos": 1}}
    assert document["majority"] == {"label": "pos", "accuracy": pytest.approx(2 / 3)}
    nats = -(math.log(POS) + math.log(243 / 868) + math.log(1 - POS)) / 3
    assert document["log_loss"] == pytest.approx(nats, rel=1e-6)
    output = run_ok("classify", "evaluate", naive, test).out
    assert "accuracy                    0.333333\n" in output
    assert "majority                    0.666667 (pos)\n" in output
    assert "\ntrue, found:  neg  pos\nneg             0    1\npos             1    1\n" in output
    assert "\nlabel  precision  recall      f1  texts\nneg       0.0000  0.0000  0.0000      1\n" in output
    # 625/868 = 0.72 is wrong; of the two with 0.81 one is correct.
    assert "0.7 to 0.8   0.7200    0.0000      1\n0.8 to 0.9   0.8120    0.5000      2\n" in output


def test_classify_unknown_label_counts_as_an_error(naive: Path, tmp_path: Path) -> None:
    # good is predicted pos, which is correct; bad pos, too: 2/3 · 1/5 · 3/10 = 1/25 against 1/3 · 2/6 · 2/6 =
    # 1/27.
    odd = write(tmp_path / "odd.tsv", "pos\tgood\nother\tbad\n")
    outcome = run_ok("classify", "evaluate", naive, odd, "--json")
    document = outcome.json()
    assert document["accuracy"] == 0.5
    assert document["confusion"]["other"] == {"neg": 0, "pos": 1, "other": 0}
    # Σ p² + (1 − 0)² for bad, with 27/52 and 25/52; 2 (1 − p)² for good.
    assert document["brier"] == pytest.approx(((27**2 + 25**2) / 52**2 + 1 + 2 * (1 - POS) ** 2) / 2)
    assert document["log_loss"] is None
    assert f"{odd}: not in the training data: other; such labels count as errors" in outcome.err


def test_classify_train_reports_validation(table: Path, tmp_path: Path) -> None:
    arguments = ("--out", tmp_path / "m", *NAIVE)
    outcome = run_ok("classify", "train", "ngram", table, "--valid", table, *arguments, "--json")
    # bad is narrowly predicted pos, as above: 2 of 3; F1 of pos 2 · 2 / (3 + 2) = 0.8, of neg 0.
    validation = outcome.json()["validation"]
    assert (validation["accuracy"], validation["macro_f1"]) == (pytest.approx(2 / 3), pytest.approx(0.4))
    assert ", validation accuracy 66.7%, macro F1 40.0%, " in outcome.err
    outcome = run_ok("classify", "train", "ngram", table, *arguments, "--json", "--force")
    assert "validation" not in outcome.json()
    assert "validation accuracy" not in outcome.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "good"}\n{"text": "bad bad bad"}\n', "standard input is read as JSON Lines"),
        ("neg\tgood\nneg\tbad bad bad\n", "standard input has labels in its first column"),
        ("text\tlabel\ngood\tneg\nbad bad bad\tpos\n", "in its last column"),
        ("good\nbad bad bad\n", ""),
    ],
)
def test_classify_predict_input_formats(naive: Path, text: str, message: str) -> None:
    outcome = run_ok("classify", "predict", naive, stdin=text)
    assert [line.split("\t")[::2] for line in outcome.out.splitlines()] == [["pos", "good"], ["neg", "bad bad bad"]]
    assert message in outcome.err
    assert bool(outcome.err) == bool(message)


def test_classify_network(network: Path, table: Path, tmp_path: Path) -> None:
    config = json.loads((network / "config.json").read_bytes())
    assert config["task"] == "classify"
    assert config["labels"] == {"neg": 1, "pos": 2}
    assert config["model"]["pooling"] == "attention"
    assert config["tokenizers"]["text"]["lowercase"] is True
    document = run_ok(
        "classify", "predict", network, "--explain", "--json", "--device", "cpu", stdin="good bad\n"
    ).json()
    assert sum(token["weight"] for token in document["tokens"]) == pytest.approx(1)
    assert document["explained_by"] == "attention"
    outcome = run_ok("classify", "predict", network, "--explain", "--device", "cpu", stdin="good\n")
    assert outcome.err.startswith("Weights are attention weights")
    assert sum(document["probabilities"].values()) == pytest.approx(1)
    assert run_ok("classify", "evaluate", network, table, "--json", "--device", "cpu").json()["texts"] == 3
    out = tmp_path / "m"
    trained = run_ok("classify", "train", "gru", table, "--out", out, *TINY, "--no-lowercase", "--json").json()
    assert trained["labels"] == {"neg": 1, "pos": 2}
    assert trained["train_texts"] == 3
    config = json.loads((out / "config.json").read_bytes())
    assert config["tokenizers"]["text"]["lowercase"] is False
    assert config["model"]["family"] == "gru"


def test_classify_settings_from_file_options_and_set(table: Path, tmp_path: Path) -> None:
    file = write(
        tmp_path / "c.toml", '[model]\nhidden = 6\nlayers = 2\n[tokenizer]\nkind = "char"\n[run]\nseed = 3\n'
    )
    arguments = ("--config", file, "--set", "pooling=mean", *TINY, "--class-weights", "balanced")
    run_ok("classify", "train", "rnn", table, "--out", tmp_path / "m", *arguments)
    config = json.loads((tmp_path / "m" / "config.json").read_bytes())
    expected = {"hidden": 4, "layers": 2, "pooling": "mean", "class_weights": "balanced", "family": "rnn"}
    assert {name: config["model"][name] for name in expected} == expected
    assert config["tokenizers"]["text"]["kind"] == "char"
    assert json.loads((tmp_path / "m" / "manifest.json").read_bytes())["seed"] == 3


def test_classify_reads_json_lines_and_stdin(tmp_path: Path) -> None:
    records = [{"review": "good\ngood", "stars": 5}, {"review": "bad", "stars": 1}]
    file = write(tmp_path / "t.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    columns = ("--column", "review", "--label", "stars")
    run_ok("classify", "train", "ngram", file, "--out", tmp_path / "m", *columns)
    document = run_ok("classify", "evaluate", tmp_path / "m", file, *columns, "--json").json()
    assert document["accuracy"] == 1
    outcome = run_ok("classify", "predict", tmp_path / "m", file, "--column", "review")
    assert [line.split("\t")[::2] for line in outcome.out.splitlines()] == [["5", "good good"], ["1", "bad"]]
    run_ok("classify", "train", "ngram", "-", "--out", tmp_path / "n", stdin=TABLE)
    assert run_ok("classify", "evaluate", tmp_path / "n", "-", "--json", stdin=TABLE).json()["texts"] == 3


def test_classify_rejects_invalid_files(table: Path, naive: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "m")
    half = write(tmp_path / "half.tsv", "a\tone\nb\ttwo\nthree\n")
    assert f"{half}, line 3 has no label" in run_error(3, "classify", "train", "ngram", half, *out)
    assert f"{half}, line 3 has no label" in run_error(3, "classify", "evaluate", naive, half)
    odd = write(tmp_path / "odd.tsv", "pos\tgood\nother\tbad\n")
    valid = ("--valid", odd)
    assert f"{odd}, example 2 has the label 'other'" in run_error(
        3, "classify", "train", "ngram", table, *out, *valid
    )
    one = write(tmp_path / "one.tsv", "a\tone\na\ttwo\n")
    assert "only one label, 'a'" in run_error(3, "classify", "train", "lstm", one, *out)
    broken = write(tmp_path / "broken.jsonl", '{"text": "x", "label": "a"}\n{"text"\n')
    assert f"{broken}, line 2 is not JSON" in run_error(3, "classify", "train", "ngram", broken, *out)
    assert f"{broken}, line 2 is not JSON" in run_error(3, "classify", "predict", naive, broken)
    run_error(4, "classify", "train", "ngram", tmp_path / "nowhere.tsv", *out)
    run_error(4, "classify", "predict", tmp_path / "nowhere")
    assert not (tmp_path / "m").exists()


def test_classify_wrong_usage(table: Path, naive: Path, network: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "m")
    assert "choose one of ngram, rnn, lstm" in run_error(2, "classify", "train", "cnn", table, *out)
    assert "has no setting 'hidden' for family 'ngram'" in run_error(
        2, "classify", "train", "ngram", table, *out, "--hidden", 3
    )
    assert "pooling is 'sum'; choose one of last" in run_error(
        2, "classify", "train", "lstm", table, *out, "--pooling", "sum"
    )
    assert "vectors is for networks" in run_error(2, "classify", "train", "ngram", table, *out, "--vectors", table)
    message = run_error(2, "classify", "train", "lstm", table, *out, "--recipe", "ptb-lstm")
    assert "recipe 'ptb-lstm' is for chainrule train lstm" in message
    assert f"chainrule classify predict {network}" in run_error(3, "score", network)
    (tmp_path / "copy").mkdir()
    for file in naive.iterdir():
        if file.is_file():
            (tmp_path / "copy" / file.name).write_bytes(file.read_bytes())
    run_error(3, "classify", "predict", tmp_path / "copy", stdin="good\n")  # without its n-grams
    assert not (tmp_path / "m").exists()


def test_classify_warns_about_long_texts(table: Path, tmp_path: Path) -> None:
    outcome = run_ok("classify", "train", "lstm", table, "--out", tmp_path / "m", *TINY, "--set", "longest=3")
    assert "warning: " in outcome.err
    assert "2 of 3 texts are longer than 3 tokens and read up to there" in outcome.err
    outcome = call("classify", "predict", tmp_path / "m", "--device", "cpu", stdin="good bad\ngood\n")
    assert outcome.err.count("1 of 2 texts are longer than 3 tokens") == 1


@pytest.mark.parametrize("name", ["sst2-lstm", "sms-spam-lstm"])
def test_classify_recipes_have_valid_settings(name: str) -> None:
    recipe = recipes.read(name, "lstm", "classify")
    chosen = recipe.choices
    config = build_config(ClassifyConfig, {"family": "lstm", **chosen.model}, "model")
    assert {setting: flatten(config)[setting] for setting in chosen.model} == chosen.model
    build_config(TokenizerConfig, chosen.tokenizer, "tokenizer")
    assert recipe.command.startswith("chainrule classify train lstm ")
    assert f"--recipe {name} --out " in recipe.command


def test_classify_html_path_is_checked_before_the_work(naive: Path, tmp_path: Path) -> None:
    page = ("--explain", "--html")
    assert "is a folder" in run_error(2, "classify", "predict", naive, *page, tmp_path, stdin="good\n")
    assert "does not exist" in run_error(
        2, "classify", "predict", naive, *page, tmp_path / "a" / "b", stdin="good\n"
    )
    plain = run_ok("classify", "predict", naive, "--explain", stdin="good\n").err
    assert "Blue" not in plain
    assert plain.endswith("negative weights the second most probable one.\n")
    assert "Blue" in run_ok("classify", "predict", naive, *page, tmp_path / "x.html", stdin="good\n").err


def test_classify_selects_table_columns_by_name(tmp_path: Path) -> None:
    file = write(tmp_path / "t.tsv", "review\tstars\ngood good\tpos\nbad\tneg\nGood bad\tpos\n")
    columns = ("--column", "review", "--label", "stars")
    document = run_ok(
        "classify", "train", "ngram", file, "--out", tmp_path / "m", *NAIVE, *columns, "--json"
    ).json()
    assert document["labels"] == {"neg": 1, "pos": 2}
    bare = write(tmp_path / "bare.tsv", TABLE)
    message = run_error(2, "classify", "evaluate", tmp_path / "m", bare, *columns)
    assert "bare.tsv: its first line does not name the columns" in message


def test_classify_predict_answers_line_by_line(naive: Path) -> None:
    lines = ["good", "", "bad bad bad"]
    expected = run_ok("classify", "predict", naive, stdin="".join(f"{line}\n" for line in lines)).out.splitlines()
    with dialogue("classify", "predict", naive) as conversation:
        answers = [conversation.ask(line.encode())[0].decode() for line in lines]
    assert answers == expected


def test_classify_predict_detects_the_format_from_the_first_line(naive: Path) -> None:
    with dialogue("classify", "predict", naive, "--json") as conversation:
        answers = [json.loads(conversation.ask(b'{"text": "%s"}' % text)[0]) for text in (b"good", b"bad")]
    assert [answer["text"] for answer in answers] == ["good", "bad"]
    label = answers[0]["label"].encode()
    with dialogue("classify", "predict", naive, "--json") as conversation:
        answers = [json.loads(conversation.ask(label + b"\tgood")[0]) for _ in range(2)]
    assert [answer["text"] for answer in answers] == ["good", "good"]
