"""`chainrule translate`: train, predict, score, align, evaluate, from files."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from chainrule.cli import translate as command
from chainrule.tasks.translate import BEAM, Translator
from cli.command import Outcome, call, run_error, run_ok
from cli.pipes import dialogue
from tasks.toy_pairs import reversed_strings

SMALL = ("--hidden", 16, "--epochs", 6, "--learning-rate", 1e-2, "--batch-size", 16, "--tokenizer", "char")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, a table of the same pairs, and a model trained on them."""
    place = tmp_path_factory.mktemp("pairs")
    pairs = reversed_strings(200)
    (place / "train.src").write_text("\n".join(pairs.sources) + "\n")
    (place / "train.tgt").write_text("\n".join(pairs.targets) + "\n")
    rows = zip(pairs.sources[:40], pairs.targets[:40], strict=True)
    (place / "valid.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in rows))
    outcome = trained(place, "--valid", place / "valid.tsv", "--json")
    document = outcome.json()
    assert document["task"] == "translate"
    assert document["train_pairs"] == 200
    assert document["valid_perplexity"] > 1
    assert document["validation"]["perplexity"] == document["valid_perplexity"]
    assert f"validation perplexity {document['valid_perplexity']:.2f}, " in outcome.err
    return place


def trained(place: Path, *more: object) -> Outcome:
    files = (place / "train.src", place / "train.tgt")
    return run_ok("translate", "train", "gru", *files, "--out", place / "model", *SMALL, *more)


def test_translate_predict(folder: Path) -> None:
    plain = run_ok("translate", "predict", folder / "model", stdin="abc\n\nfed\n")
    lines = plain.out.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""
    n_best = run_ok("translate", "predict", folder / "model", "--num", 3, stdin="abc\n").out.splitlines()
    assert [row.split("\t")[0] for row in n_best] == ["1", "2", "3"]
    assert n_best[0].split("\t")[2] == lines[0]
    scores = [float(row.split("\t")[1]) for row in n_best]
    assert scores == sorted(scores, reverse=True)
    documents = run_ok("translate", "predict", folder / "model", "--json", stdin="abc\nfed\n").json_lines()
    assert [d["source"] for d in documents] == ["abc", "fed"]
    assert documents[0]["translations"][0]["text"] == lines[0]
    for drawn in ((), ("--strategy", "sample")):
        arguments = ("--num", 2, "--json", *drawn)
        for actual in run_ok("translate", "predict", folder / "model", *arguments, stdin="abc\n").json()[
            "translations"
        ]:
            assert actual["score"] == pytest.approx(actual["log_prob"] / len(actual["tokens"]))


def test_translate_greedy_and_samples(folder: Path) -> None:
    greedy = run_ok("translate", "predict", folder / "model", "--strategy", "greedy", stdin="abc\n").out
    single = run_ok("translate", "predict", folder / "model", "--beam-size", 1, stdin="abc\n").out
    assert greedy == single
    drawn = [
        run_ok(
            "translate", "predict", folder / "model", "--strategy", "sample", "--seed", seed, stdin="abcde\n"
        ).out
        for seed in (1, 1, 2, 3)
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_translate_score_and_align(folder: Path) -> None:
    lines = run_ok("translate", "score", folder / "model", folder / "valid.tsv").out.splitlines()
    assert len(lines) == 40
    assert all(float(line.split("\t")[0]) < 0 for line in lines)
    picture = folder / "alignment.svg"
    output = run_ok(
        "translate", "align", folder / "model", "abc", "--target", "cba", "--out", picture
    ).out.splitlines()
    assert [line.split("\t")[0] for line in output] == ["c", "b", "a", "</s>"]
    drawn = picture.read_text()
    assert drawn.startswith("<svg")
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert labels.count("&lt;/s&gt;") == 2  # a column and a row
    assert {label: labels.count(label) for label in "abc"} == dict.fromkeys("abc", 2)
    document = run_ok("translate", "align", folder / "model", "abc", "--json").json()
    assert [sum(row) for row in document["weights"]] == pytest.approx([1.0] * len(document["target"]), abs=1e-4)


def test_translate_evaluate(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.txt"
    document = run_ok(
        "translate", "evaluate", folder / "model", folder / "valid.tsv", "--out", out, "--json"
    ).json()
    assert document["sentences"] == 40
    assert "tok:13a" in document["bleu_signature"]
    assert len(out.read_text().splitlines()) == 40
    both = (folder / "model", folder / "valid.tsv", "--against")
    with_itself = run_ok("translate", "evaluate", *both, folder / "model").out
    same = "bleu, this minus the other: +0.00 (+0.00 to +0.00), p 1.000 (two-sided, 1,000 resamples)"
    assert "other's bleu  0.00\n" in with_itself  # single words: there is no 4-gram
    assert same in with_itself
    assert same in run_ok("translate", "evaluate", *both, out).out
    targets = [f"the word {source} turned round" for source in ("abc", "fed", "cab")]  # long enough for 4-grams
    (tmp_path / "long.tsv").write_text("".join(f"{text.split()[2]}\t{text}\n" for text in targets))
    (tmp_path / "right.txt").write_text("".join(f"{text}\n" for text in targets))
    document = run_ok(
        "translate",
        "evaluate",
        folder / "model",
        tmp_path / "long.tsv",
        "--against",
        tmp_path / "right.txt",
        "--json",
    ).json()
    assert document["bleu_minus_other"]["difference"] == pytest.approx(document["bleu"] - 100)
    assert document["bleu_minus_other"]["high"] < 0
    assert document["bleu_minus_other"]["other_bleu"] == pytest.approx(100)
    assert document["bleu_minus_other"]["resamples"] == 1000


def test_translate_score_has_a_line_for_every_pair(folder: Path, tmp_path: Path) -> None:
    """Line 2 has no source, line 3 no target: the first has no score, the second only that of `</s>`."""
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("abc\tcba\n\tcba\nabc\t\nfed\tdef\n")
    plain = run_ok("translate", "score", folder / "model", pairs)
    rows = [line.split("\t") for line in plain.out.split("\n")[:-1]]
    assert [row[1:] for row in rows] == [["abc", "cba"], ["", "cba"], ["abc", ""], ["fed", "def"]]
    assert [row[0] == "" for row in rows] == [False, True, False, False]
    assert f"warning: {pairs}: empty sources get no score: line 2\n" in plain.err
    documents = run_ok("translate", "score", folder / "model", pairs, "--json").json_lines()
    assert [d["log_prob"] is None for d in documents] == [False, True, False, False]
    assert float(rows[2][0]) == pytest.approx(documents[2]["log_prob"], abs=1e-4)

    out = tmp_path / "found.txt"
    measured = run_ok("translate", "evaluate", folder / "model", pairs, "--out", out)
    assert "left out      2   pairs with an empty side\n" in measured.out
    assert "exact match" in measured.out
    assert "use the exact matches and chrF" in measured.err  # strings of letters are single words
    lines = out.read_text().split("\n")
    assert [line == "" for line in lines] == [False, True, True, False, True]
    again = run_ok("translate", "evaluate", folder / "model", pairs, "--against", out, "--json").json()
    assert again["left_out"] == 2
    assert again["bleu_minus_other"]["difference"] == 0


def test_translate_predict_prints_one_line_per_source(folder: Path, tmp_path: Path) -> None:
    """A tab within a target of two files is text: the model learns to generate it."""
    pairs = tmp_path / "sources.txt", tmp_path / "targets.txt"
    pairs[0].write_text("ab\n" * 40)
    pairs[1].write_text("a\tb\n" * 40)
    quick = (
        "--hidden",
        16,
        "--epochs",
        30,
        "--learning-rate",
        2e-2,
        "--tokenizer",
        "char",
        "--out",
        tmp_path / "m",
    )
    run_ok("translate", "train", "gru", *pairs, *quick)
    assert (
        run_ok("translate", "predict", tmp_path / "m", "--json", stdin="ab\n").json()["translations"][0]["text"]
        == "a\tb"
    )
    assert run_ok("translate", "predict", tmp_path / "m", stdin="ab\nab\n").out == "a b\na b\n"
    n_best = run_ok("translate", "predict", tmp_path / "m", "--num", 2, stdin="ab\n").out.splitlines()
    assert [line.count("\t") for line in n_best] == [2, 2]
    assert run_ok("translate", "score", tmp_path / "m", *pairs).out.splitlines()[0].count("\t") == 2


@pytest.mark.parametrize("text", ["a\nb", "a\tb", "a\r\nb", "a\u2028b", "a\x85b", "a b"])
def test_line_breaks_become_spaces(text: str) -> None:
    assert command._in_one_line(text) == "a b"


def test_translate_predict_and_evaluate_share_decoding_settings(folder: Path, tmp_path: Path) -> None:
    """`evaluate` measures what `predict` prints with the same settings."""
    sources, targets = tmp_path / "x.src", tmp_path / "x.tgt"
    sources.write_text("abcdef\n" * 8)
    targets.write_text("fedcba\n" * 8)
    translations = []
    for seed in (1, 1, 2):
        settings = ("--strategy", "sample", "--seed", seed, "--temperature", 2, "--max-tokens", 5)
        out = tmp_path / "found.txt"
        run_ok("translate", "evaluate", folder / "model", sources, targets, "--out", out, *settings)
        assert run_ok("translate", "predict", folder / "model", sources, *settings).out == out.read_text()
        translations.append(out.read_text())
    assert translations[0] == translations[1] != translations[2]
    assert len(set(translations[0].splitlines())) > 1  # equal sources, each with its own random numbers
    assert max(map(len, translations[0].splitlines())) <= 5


def test_translate_checks_the_output_path_first(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_if_called(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(Translator, "evaluate", fail_if_called)
    arguments = ("translate", "evaluate", folder / "model", folder / "valid.tsv", "--out")
    assert "is not a file; choose another --out" in run_error(2, *arguments, tmp_path)
    (tmp_path / "file").write_text("")
    assert "cannot write" in run_error(1, *arguments, tmp_path / "file" / "found.txt")


@pytest.mark.parametrize("name", ["alignment.png", "alignment", "svg"])
def test_translate_align_requires_an_svg_path(folder: Path, tmp_path: Path, name: str) -> None:
    message = run_error(2, "translate", "align", folder / "model", "abc", "--out", tmp_path / name)
    assert f"{tmp_path / name} does not end in .svg" in message
    assert not (tmp_path / name).exists()


def test_finished_translator_is_not_resumed(folder: Path) -> None:
    before = (folder / "model" / "manifest.json").read_bytes()
    files = (folder / "train.src", folder / "train.tgt")
    message = run_error(2, "translate", "train", "gru", *files, "--out", folder / "model", *SMALL, "--resume")
    assert f"{folder / 'model'} contains a finished model; remove --resume to retrain it" in message
    assert (folder / "model" / "manifest.json").read_bytes() == before


def test_translate_defaults_equal_the_python_api() -> None:
    assert command.DecodingOptions().settings() == replace(BEAM, seed=0)


def test_translate_align_requires_attention(folder: Path, tmp_path: Path) -> None:
    files, model = (folder / "train.src", folder / "train.tgt"), tmp_path / "model"
    quick = ("--hidden", 8, "--epochs", 1, "--tokenizer", "char", "--attention", "none")
    run_ok("translate", "train", "gru", *files, "--out", model, *quick)
    picture = tmp_path / "alignment.svg"
    assert "this model has no attention" in run_error(2, "translate", "align", model, "abc", "--out", picture)
    assert not picture.exists()


def test_other_commands_recognise_a_translator(folder: Path) -> None:
    assert run_ok("info", folder / "model", "--json").json()["task"] == "translate"
    assert "chainrule translate predict" in run_error(3, "evaluate", folder / "model", folder / "train.src")


def test_translate_rejects_invalid_input(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "short.tgt").write_text("one\n")
    (tmp_path / "bad.tsv").write_text("a\tb\nno tab\n")
    out = ("--out", tmp_path / "model")
    source = folder / "train.src"
    train = ("translate", "train")
    assert "has 200 lines but" in run_error(3, *train, "gru", source, tmp_path / "short.tgt", *out)
    assert "line 2 has 0 tabs" in run_error(3, *train, "gru", tmp_path / "bad.tsv", *out)
    assert "choose rnn, lstm, gru or transformer" in run_error(2, *train, "ngram", source, *out)
    assert "no setting 'hiden'" in run_error(2, *train, "gru", source, source, *out, "--set", "hiden=3")
    assert "heads is not a setting" in run_error(2, *train, "gru", source, source, *out, "--set", "heads=2")
    assert run_error(4, *train, "gru", tmp_path / "none.tsv", *out)
    assert not (tmp_path / "model").exists()
    assert "beam_size is 5; choose at least 6" in run_error(
        2, "translate", "predict", folder / "model", "--num", 6, stdin="abc\n"
    )


def test_translate_train_refuses_a_foreign_folder(folder: Path, tmp_path: Path) -> None:
    assert call("translate", "predict", tmp_path).status == 3
    (tmp_path / "mine.txt").write_text("keep me")
    assert "not a model folder" in run_error(
        2, "translate", "train", "gru", folder / "train.src", folder / "train.tgt", "--out", tmp_path
    )


def test_translate_rejects_invalid_combinations(folder: Path, tmp_path: Path) -> None:
    greedy = ("--strategy", "greedy", "--num", 3)
    message = run_error(2, "translate", "predict", folder / "model", *greedy, stdin="abc\n")
    assert "greedy gives one translation; use beam or sample" in message
    (tmp_path / "other").write_text("a\nb\n")
    pairs = (folder / "valid.tsv", "--against", tmp_path / "other")
    assert "other has 2 lines, but 40 are needed" in run_error(3, "translate", "evaluate", folder / "model", *pairs)


def test_damaged_translator_checkpoint_advises_removal(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "run" / "checkpoint"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{")
    arguments = (folder / "train.src", folder / "train.tgt", "--out", tmp_path / "run", *SMALL, "--resume")
    message = call("translate", "train", "gru", *arguments).err
    assert f"remove {place} to start over" in message
    assert "copy the model" not in message


@pytest.mark.parametrize("options", [(), ("--strategy", "sample", "--seed", "3")])
def test_translate_predict_answers_line_by_line(folder: Path, options: tuple[str, ...]) -> None:
    lines = (folder / "train.src").read_text().splitlines()[:3]
    text = "".join(f"{line}\n" for line in lines)
    with dialogue("translate", "predict", folder / "model", *options) as conversation:
        answers = [conversation.ask(line.encode())[0].decode() for line in lines]
    assert answers == run_ok("translate", "predict", folder / "model", *options, stdin=text).out.splitlines()


@pytest.mark.parametrize(
    "option", [("--max-tokens", 10**12), ("--beam-size", 10**12), ("--num", 10**12), ("--max-tokens", 0)]
)
def test_translate_options_that_control_work_are_bounded(folder: Path, option: tuple[str, int]) -> None:
    assert option[0] in run_error(2, "translate", "predict", folder / "model", *option, stdin="a\n")
