"""`chainrule tag`: train, predict, evaluate; output and errors."""

import signal
from pathlib import Path
from typing import Any

import pytest

from chainrule import api, recipes
from chainrule.config import build_config, flatten
from chainrule.data.training_data import RunOptions
from chainrule.tasks import pretrain, tag
from chainrule.tokenizers.config import TokenizerConfig
from cli.command import call, digests, run_error, run_ok
from cli.command import write as write_text
from cli.pipes import dialogue
from tasks.toy_tags import grammar, names, write
from training.test_resume import send_signal_during_step

SMALL = ("--hidden", 24, "--embedding", 12, "--dropout", 0.1, "--batch-size", 8, "--learning-rate", 0.02)
QUICK = (*SMALL, "--set", "warmup=10", "--epochs", 5, "--device", "cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagging")
    for seed, name in enumerate(("train", "dev", "test"), start=1):
        write(folder / f"{name}.conll", grammar(100 if name == "train" else 40, seed))
        write(folder / f"names.{name}", names(120 if name == "train" else 40, seed))
    return folder


@pytest.fixture(scope="module")
def words(place: Path) -> Path:
    """A part-of-speech tagger."""
    files = (place / "train.conll", "--valid", place / "dev.conll")
    outcome = run_ok("tag", "train", "lstm", *files, "--out", place / "words", "--characters", 0, *QUICK, "--json")
    document = outcome.json()
    assert document["model"] == str(place / "words")
    assert document["train_sentences"] == 100
    assert document["validation"] == {"accuracy": document["valid_accuracy"]}
    assert document["valid_accuracy"] >= 0.99
    assert f", validation accuracy {document['valid_accuracy']:.4f}, " in outcome.err
    return place / "words"


@pytest.fixture(scope="module")
def spans(place: Path) -> Path:
    """A named-entity tagger."""
    arguments = ("--valid", place / "names.dev", "--out", place / "names", "--cased", "--characters", 4)
    outcome = run_ok("tag", "train", "lstm", place / "names.train", *arguments, *QUICK, "--json")
    figures = outcome.json()["validation"]
    assert list(figures) == ["f1", "accuracy"]
    assert f", validation f1 {figures['f1']:.4f}, " in outcome.err
    return place / "names"


def test_tag_predict(words: Path) -> None:
    outcome = run_ok("tag", "predict", words, stdin="the old saw saw a duck\n\na cat hear this fish\n")
    assert outcome.out == (
        "the\tDET\nold\tADJ\nsaw\tNOUN\nsaw\tVERB\na\tDET\nduck\tNOUN\n\n\n"
        "a\tDET\ncat\tNOUN\nhear\tVERB\nthis\tDET\nfish\tNOUN\n"
    )
    assert outcome.err == ""
    lines = run_ok("tag", "predict", words, "--json", "--probabilities", stdin="\nthe saw\n\n").json_lines()
    assert [line["tags"] for line in lines] == [[], ["DET", "NOUN"], []]
    assert lines[0]["words"] == lines[2]["words"] == lines[0]["probabilities"] == []


def test_tag_predict_keeps_columns_that_are_not_tags(words: Path, tmp_path: Path) -> None:
    path = write_text(tmp_path / "in.conll", "the\tB-PER\nsaw\tO\n")
    outcome = run_ok("tag", "predict", words, path)
    assert outcome.out == "the\tB-PER\tDET\nsaw\tO\tNOUN\n"
    assert "column 2 has none of the model's tags" in outcome.err
    assert run_ok("tag", "predict", words, path, "--column", 2).out == "the\tDET\nsaw\tNOUN\n"
    reported = run_ok("tag", "predict", words, stdin="the DET\nsaw NOUN\n\na DET\n").err
    assert "standard input looks like columns" in reported


def test_tag_predict_json(words: Path, tmp_path: Path) -> None:
    path = write_text(tmp_path / "new.txt", "a cat hear this fish\nthe saw saw the dog\n")
    lines = run_ok("tag", "predict", words, path, "--json", "--probabilities").json_lines()
    assert [line["words"][2] for line in lines] == ["hear", "saw"]
    assert [line["tags"] for line in lines] == [["DET", "NOUN", "VERB", "DET", "NOUN"]] * 2
    assert all(0.5 < p <= 1 for line in lines for p in line["probabilities"])
    assert "probabilities" not in run_ok("tag", "predict", words, path, "--json").json_lines()[0]


def test_tag_predict_columns(words: Path, place: Path) -> None:
    """The words of a column file are read; predicted tags replace the file's."""
    result = run_ok("tag", "predict", words, place / "test.conll").out
    lines, right = result.splitlines(), (place / "test.conll").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == [line.split("\t")[0] for line in right]
    assert sum(a == b for a, b in zip(lines, right, strict=True)) / len(lines) > 0.99
    sure = run_ok("tag", "predict", words, "-", "--columns", "--probabilities", stdin="the\nsaw\n").out
    assert [line.split("\t")[:2] for line in sure.splitlines()] == [["the", "DET"], ["saw", "NOUN"]]
    assert all(0 <= float(line.split("\t")[2]) <= 1 for line in sure.splitlines())


def test_tag_evaluate(words: Path, spans: Path, place: Path) -> None:
    plain = run_ok("tag", "evaluate", words, place / "test.conll", "--json").json()
    assert plain["accuracy"] >= 0.99
    assert plain["sentences"] == 40
    assert "f1" not in plain
    assert set(plain["by_label"]) == {"DET", "ADJ", "NOUN", "VERB"}
    assert sum(scores["gold"] for scores in plain["by_label"].values()) == plain["words"]
    assert plain["unknown_accuracy"] is None
    named = run_ok("tag", "evaluate", spans, place / "names.test", "--json").json()
    assert named["f1"] == named["precision"] == named["recall"] == 1
    assert named["gold"] == named["by_label"]["LOC"]["gold"] + named["by_label"]["PER"]["gold"] == 80
    assert named["most_confused"] == []


def test_tag_evaluate_table(words: Path, place: Path) -> None:
    wrong = place / "wrong.conll"
    # the first noun of the test file is labelled a verb: one certain error
    first = (place / "test.conll").read_text()
    write_text(wrong, first.replace("\tNOUN", "\tVERB", 1))
    table = run_ok("tag", "evaluate", words, wrong).out.splitlines()
    assert table[0].split() == ["sentences", "40"]
    assert any(line.split() == ["label", "gold", "found", "correct", "precision", "recall", "f1"] for line in table)
    assert any(line.split()[:1] == ["DET"] and line.split()[-1] == "1.0000" for line in table)
    assert table[-1].split() == ["VERB", "NOUN", "1"]
    document = run_ok("tag", "evaluate", words, wrong, "--json").json()
    confusion = document["confusion"]
    assert confusion["VERB"]["NOUN"] == 1
    assert sum(n for row in confusion.values() for n in row.values()) == document["words"]
    assert {right: sum(row.values()) for right, row in confusion.items()} == {
        label: scores["gold"] for label, scores in document["by_label"].items()
    }


def test_tag_predict_keeps_all_lines(words: Path, tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O\n\n\nthe x ?\nsaw x ?\n\n-DOCSTART- -X- O\n\na x ?\n"
    path = write_text(tmp_path / "in.conll", text)
    tags = text.replace("the x ?", "the x DET").replace("saw x ?", "saw x NOUN").replace("a x ?", "a x DET")
    assert run_ok("tag", "predict", words, path).out == tags
    added = run_ok("tag", "predict", words, path, "--column", 4).out
    assert added.splitlines()[3:5] == ["the x ? DET", "saw x ? NOUN"]
    folder = tmp_path / "both"
    folder.mkdir()
    for name in ("1", "2"):
        write_text(folder / name, "the\t_\n")
    assert run_ok("tag", "predict", words, folder).out == "the\tDET\n\nthe\tDET\n"


def test_tag_predict_defaults_to_the_training_column(place: Path, tmp_path: Path) -> None:
    lines = (place / "train.conll").read_text().splitlines()
    path = write_text(tmp_path / "three", "\n".join(f"{line}\tX" if line else "" for line in lines))
    small = ("--hidden", 4, "--embedding", 4, "--epochs", 1, "--clip", 0, "--characters", 0, "--device", "cpu")
    run_ok("tag", "train", "lstm", path, "--column", 2, "--out", tmp_path / "x", *small)
    by_itself, named = (
        run_ok("tag", "evaluate", tmp_path / "x", path, *more, "--json").json() for more in ((), ("--column", 2))
    )
    assert by_itself["confusion"] == named["confusion"]
    assert set(by_itself["confusion"]) == {"DET", "ADJ", "NOUN", "VERB"}
    assert "not in the training data: X" in run_ok("tag", "evaluate", tmp_path / "x", path, "--column", 3).err
    result = run_ok("tag", "predict", tmp_path / "x", path).out.splitlines()
    assert {line.split("\t")[2] for line in result if line} == {"X"}  # unchanged; tags are in the second column
    assert {line.split("\t")[1] for line in result if line} <= {"DET", "ADJ", "NOUN", "VERB"}


def test_tag_reads_json_lines(words: Path, tmp_path: Path) -> None:
    text = '{"words": ["the", "saw"]}\n{"words": ["a"]}\n'
    for path, stdin in (("-", text), (write_text(tmp_path / "x.json", text), "")):
        assert run_ok("tag", "predict", words, path, stdin=stdin).out == "the\tDET\nsaw\tNOUN\n\na\tDET\n"
    assert "standard input, line 1 is not a JSON object" in run_error(
        3, "tag", "predict", words, stdin='{"text": "a"}'
    )
    assert "is JSON, but tagged text is read" in run_error(3, "tag", "evaluate", words, tmp_path / "x.json")


def test_tag_warns_once_about_long_sentences(place: Path, tmp_path: Path) -> None:
    small = ("--hidden", 4, "--epochs", 1, "--clip", 0, "--characters", 0, "--device", "cpu")
    settings = ("--set", "longest=12", "--set", "heads=2")
    run_ok("tag", "train", "transformer", place / "train.conll", "--out", tmp_path / "x", *small, *settings)
    outcome = run_ok("tag", "predict", tmp_path / "x", "--probabilities", stdin="the saw\n" + "the " * 25)
    assert len(outcome.out.splitlines()) == 2 + 1 + 25
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("warning: 1 of 2 sentences have more than 10 words and are read in pieces")
    path = write_text(tmp_path / "long.conll", "the\tDET\n" * 25)
    outcome = run_ok("tag", "evaluate", tmp_path / "x", path, "--json")
    assert outcome.json()["words"] == 25
    assert "1 of 1 sentences" in outcome.err


@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
def test_tag_help_states_its_defaults(command: str) -> None:
    help_text = " ".join(run_ok("tag", command, "--help").out.split())
    assert "Parquet" not in help_text
    assert (
        "[default: the last; upos for CoNLL-U]" if command == "train" else "[default: as in training]"
    ) in help_text


def test_tag_reports_line_numbers_of_invalid_input(words: Path, tmp_path: Path) -> None:
    path = write_text(tmp_path / "bad.conll", "the\tDET\nsaw\tNOUN\n\na\tDET\nduck\n")
    assert "bad.conll, line 5 has one column" in run_error(3, "tag", "evaluate", words, path)
    assert "bad.conll, line 5" in run_error(3, "tag", "train", "lstm", path, "--out", tmp_path / "x")
    assert "standard input" in run_error(3, "tag", "predict", words, stdin="")
    latin = write_text(tmp_path / "latin.conll", b"caf\xe9\tNN\n")
    for command in (("evaluate", words, latin), ("predict", words, latin)):
        assert "--errors" not in run_error(3, "tag", *command)
    assert not (tmp_path / "x").exists()
    assert "none.conll" in run_error(4, "tag", "evaluate", words, tmp_path / "none.conll")


def test_tag_rejects_invalid_settings(place: Path, tmp_path: Path) -> None:
    file, out = place / "train.conll", tmp_path / "x"
    assert "no setting 'hiden'" in run_error(2, "tag", "train", "lstm", file, "--out", out, "--set", "hiden=3")
    assert "not a setting of family 'lstm'" in run_error(
        2, "tag", "train", "lstm", file, "--out", out, "--set", "heads=2"
    )
    assert "is for family 'lstm'" in run_error(2, "tag", "train", "gru", file, "--out", out, "--recipe", "ewt-lstm")
    assert "column is 'upos'" in run_error(2, "tag", "train", "lstm", file, "--out", out, "--column", "upos")


@pytest.mark.parametrize("task", ["tag", "classify", "pretrain"])
def test_conflicting_family_setting_is_rejected(place: Path, tmp_path: Path, task: str) -> None:
    """Repeating the same family is allowed; another one is rejected wherever it is set."""
    text = write_text(tmp_path / "text.tsv", "a\tone two\nb\ttwo one\n")
    command = {
        "tag": ("tag", "train", "lstm", place / "train.conll"),
        "classify": ("classify", "train", "lstm", text),
        "pretrain": ("pretrain", "lstm", text),
    }[task]
    config = write_text(tmp_path / "c.toml", '[model]\nfamily = "gru"\nhidden = 4\n')
    for wrong in (("--config", config), ("--set", "family=gru")):
        message = run_error(2, *command, "--out", tmp_path / "x", *wrong)
        assert "model.family is 'gru', but the command says 'lstm'" in message
    same = write_text(tmp_path / "d.toml", '[model]\nfamily = "lstm"\nhidden = 4\n')
    small = ("--embedding", 4, "--epochs", 1, "--clip", 0, "--device", "cpu")
    outcome = run_ok(*command, "--out", tmp_path / "x", "--config", same, "--set", "family=lstm", *small)
    assert "saved" in outcome.err


def test_tag_other_options(place: Path, tmp_path: Path) -> None:
    vectors = write_text(tmp_path / "vectors.txt", "the 1 0 2 3\nsaw 2 1 0 1\n")
    more = ("--no-crf", "--vectors", vectors, "--recipe", "conll2003-lstm", "--hidden", 8, "--embedding", 4)
    file = place / "names.train"
    run_ok("tag", "train", "lstm", file, "--out", tmp_path / "x", *more, "--epochs", 1, "--set", "characters=2")
    model = api.load(tmp_path / "x", kind="tag", device="cpu")
    assert (model.config.crf, model.config.characters, model.config.hidden, model.config.embedding) == (
        False,
        2,
        8,
        4,
    )
    assert model.config.rare_unknown == 0.5
    assert model.tokenizer.config.lowercase
    assert model.metrics["vectors_coverage"] > 0
    assert "chainrule tag predict" in (tmp_path / "x" / "README.md").read_text()


def test_tag_with_a_pretrained_encoder(place: Path, tmp_path: Path) -> None:
    """The encoder's vocabulary and shape override a recipe; a conflicting explicit option is rejected."""
    text = write_text(tmp_path / "text.txt", "".join(" ".join(s.words) + "\n" for s in grammar(20, seed=1)))
    encoder = pretrain.train("lstm", text, epochs=1, hidden=8, embedding=6, options=RunOptions(device="cpu"))
    encoder.save(tmp_path / "encoder")
    begun = ("--out", tmp_path / "x", "--pretrained", tmp_path / "encoder")
    start = ("tag", "train", "lstm", place / "train.conll", *begun)
    recipe = ("--recipe", "ewt-lstm", "--epochs", 1)
    assert "model.hidden is 400 but" in run_error(2, *start, *recipe, "--hidden", 400)
    # The recipe has one layer by default and does not set directions: two sizes are overridden.
    message = (
        f"settings taken from the encoder {tmp_path / 'encoder'} instead of the recipe: hidden 8, embedding 6\n"
    )
    assert message in run_ok(*start, *recipe).err
    assert api.load(tmp_path / "x", kind="tag", device="cpu").tokenizer.to_json() == encoder.tokenizer.to_json()
    assert "settings taken from" not in run_ok(*start, "--epochs", 1, "--force").err  # the recipe sets no size
    assert "already has a tokenizer and word vectors" in run_error(2, *start, "--min-count", 2, "--force")


@pytest.mark.parametrize(("positions", "expected"), [("sinusoidal", 40), ("learned", 20)])
def test_recipe_longest_with_a_pretrained_encoder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: Any, expected: int
) -> None:
    """Applied where positions are unlimited, but not with a learned vector for each of 20."""
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    about = {**dict.fromkeys(("title", "text", "expected", "time", "hardware", "command"), "x"), "task": "tag"}
    lines = [f'{name} = "{value}"' for name, value in {**about, "family": "transformer"}.items()]
    write_text(tmp_path / "mine.toml", "\n".join(["[recipe]", *lines, "[model]", "hidden = 4", "longest = 40", ""]))
    text = write_text(tmp_path / "text.txt", "".join(" ".join(s.words) + "\n" for s in grammar(20, seed=1)))
    shape: dict[str, Any] = {"hidden": 6, "heads": 3, "positions": positions, "longest": 20, "clip": 0}
    pretrain.train("transformer", text, epochs=1, options=RunOptions(device="cpu"), **shape).save(
        tmp_path / "encoder"
    )
    begun = ("--pretrained", tmp_path / "encoder", "--recipe", "mine", "--epochs", 1, "--device", "cpu")
    out = tmp_path / "x"
    outcome = run_ok("tag", "train", "transformer", place / "train.conll", "--out", out, *begun, "--hidden", 6)
    assert api.load(out, kind="tag", device="cpu").config.longest == expected
    assert ("longest 20" in outcome.err) == (expected == 20)


def test_stopped_tagger_training_resumes(place: Path, tmp_path: Path) -> None:
    arguments: tuple[Any, ...] = ("tag", "train", "lstm", place / "names.train", "--valid", place / "names.dev")
    arguments += (*QUICK, "--epochs", 2, "--characters", 3)
    run_ok(*arguments, "--out", tmp_path / "whole")
    with send_signal_during_step(signal.SIGTERM, 20):
        outcome = call(*arguments, "--out", tmp_path / "cut")
    assert outcome.status == 143
    assert "--resume continues from there" in outcome.err
    run_ok(*arguments, "--out", tmp_path / "cut", "--resume")
    whole, cut = (digests(tmp_path / name) for name in ("whole", "cut"))
    assert whole["model.safetensors"] == cut["model.safetensors"]


@pytest.mark.parametrize("name", ["conll2003-lstm", "ewt-lstm"])
def test_tag_recipes_have_valid_settings(name: str) -> None:
    recipe = recipes.read(name, "lstm", "tag")
    config = build_config(tag.Config, {"family": recipe.family, **recipe.choices.model}, "model")
    assert {setting: flatten(config)[setting] for setting in recipe.choices.model} == recipe.choices.model
    build_config(TokenizerConfig, recipe.choices.tokenizer, "tokenizer")
    assert f"--recipe {name} " in recipe.command


def test_tag_predict_answers_sentence_by_sentence(words: Path) -> None:
    lines = ["the dog sees a cat", "a cat", "", "the dog"]
    text = "".join(f"{line}\n" for line in lines)
    with dialogue("tag", "predict", words) as conversation:
        sizes = [len(line.split()) + bool(i) for i, line in enumerate(lines)]  # a blank line separates sentences
        answers = [conversation.ask(line.encode(), size) for line, size in zip(lines, sizes, strict=True)]
    assert (
        b"\n".join(line for answer in answers for line in answer).decode() + "\n"
        == run_ok("tag", "predict", words, stdin=text).out
    )
    with dialogue("tag", "predict", words, "--json") as conversation:
        tagged = [conversation.ask(line.encode())[0].decode() for line in lines]
    assert tagged == run_ok("tag", "predict", words, "--json", stdin=text).out.splitlines()
