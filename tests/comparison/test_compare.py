"""`chainrule.compare`: what is trained, on what, and what is saved."""

import dataclasses
import errno
import math
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import chainrule
from chainrule import families
from chainrule.comparison import runner
from chainrule.comparison.plan import row_name
from chainrule.comparison.results import Results
from chainrule.comparison.settings import make_settings
from chainrule.config import with_settings
from chainrule.errors import ChainruleError, ChainruleWarning, ConfigError, InputError, UsageError
from chainrule.model import Model
from chainrule.neural import gru, transformer
from chainrule.ngram import family as ngram
from chainrule.ngram.config import Config
from chainrule.storage.atomic import write_error
from chainrule.text import splits
from chainrule.text.corpus import Corpus
from chainrule.text.splits import split_text
from chainrule.training.config import TrainingConfig
from cli.command import english, write


@pytest.fixture
def four_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four candidates of one family instead of fifty and other families."""
    monkeypatch.setattr(families, "trainable", lambda: ["ngram"])
    chosen = [
        Config(order=1, smoothing="laplace"),
        Config(order=2, smoothing="laplace"),
        Config(order=2, smoothing="mle"),
        Config(order=2, smoothing="stupid-backoff"),
    ]
    monkeypatch.setattr(ngram, "candidates", lambda: chosen)


def lines(count: int = 60, seed: int = 3) -> Corpus:
    return Corpus.from_lines(english(count, seed).splitlines())


@pytest.fixture
def results(four_candidates: None) -> Results:
    return chainrule.compare(lines(), test=Corpus.from_lines(["the cat sees a dog now", "dog dog one"]))


@pytest.mark.filterwarnings("error", "ignore:about 100% of the lines::")
def test_identical_lines_cost_zero_bits(four_candidates: None, tmp_path: Path) -> None:
    """Maximum likelihood predicts the only line with p = 1: no minus sign, no NaN, no NumPy warning."""
    results = chainrule.compare(Corpus.from_lines(["the same line again"] * 100), out=tmp_path)
    best = next(row for row in results.rows if row.name == "ngram-2-mle")
    assert best.bits_per_byte == 0
    assert "-0.0" not in (tmp_path / "results.json").read_text(encoding="utf-8")
    assert (tmp_path / "report.html").exists()


def test_unranked_row_is_announced_with_its_reason(four_candidates: None) -> None:
    announced: list[str] = []
    test = Corpus.from_lines(["the cat sees a dog now", "dog dog one"])
    chainrule.compare(lines(), test=test, announce=announced.append)
    endings = {line.split(": ")[0]: line.split(": ", 1)[-1].rsplit(", ", 1)[0] for line in announced}
    assert endings["ngram-2-stupid-backoff"] == "a score, not a probability"
    assert endings["ngram-2-mle"] == "infinite: no probability for 'dog' on line 2, token 1"
    assert endings["ngram-2-laplace"].endswith(" bits per byte")


def test_compare_has_a_row_for_each_candidate(results: Results) -> None:
    names = ["ngram-2-laplace", "ngram-1-laplace", "ngram-2-mle", "ngram-2-stupid-backoff"]
    assert [row.name for row in results.rows] == names  # best first, then unranked rows
    assert [row.is_ranked for row in results.rows] == [True, True, False, False]
    assert results.rows[0].facets == {"order": 2, "smoothing": "laplace"}
    mle, stupid = results.rows[2:]
    assert mle.bits_per_byte == math.inf
    assert mle.note == "infinite: no probability for 'dog' on line 2, token 1"
    assert stupid.note == "a score, not a probability"
    assert math.isfinite(stupid.bits_per_byte)


def test_row_equals_the_evaluation_of_its_model(results: Results, tmp_path: Path, four_candidates: None) -> None:
    test = write(tmp_path / "test.txt", "the cat sees a dog now\ndog dog one\n")
    again = chainrule.compare(lines(), test=test, out=tmp_path, keep="all")
    for row, same in zip(results.rows, again.rows, strict=True):
        assert (row.name, row.bits_per_byte, row.sample) == (same.name, same.bits_per_byte, same.sample)
        model = chainrule.load(tmp_path / "models" / row.name)
        figures = model.evaluate(test)
        assert figures.bits_per_byte == row.bits_per_byte
        assert figures.perplexity == row.perplexity
        assert model.parameters == row.parameters


def test_training_speed_counts_processed_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of three epochs reads its text three times, an n-gram once."""
    monkeypatch.setattr(ngram, "candidates", lambda: [Config(order=2, smoothing="laplace")])
    family: Any = families.get("rnn")
    config = family.Config(hidden=4, training=TrainingConfig(epochs=3, batch_size=4))
    monkeypatch.setitem(families.FAMILIES, "tiny", "comparison.test_compare:tiny")
    monkeypatch.setattr(
        "comparison.test_compare.tiny", dataclasses.replace(family, candidates=lambda: [config]), raising=False
    )
    result = chainrule.compare(lines(20), families=("ngram", "tiny"), device="cpu", out=tmp_path, size="fixed")
    tokens = {"ngram": result.split.train_tokens, "tiny": 3 * result.split.train_tokens}
    for row in (row for row in result.rows if row.family != "mixture"):
        seconds = max(row.train_seconds, 1e-3)
        assert row.train_tokens_per_second == pytest.approx(tokens[row.family] / seconds)


def test_learning_curve_of_the_best_model_of_each_family(results: Results) -> None:
    assert [curve.name for curve in results.curves] == ["ngram-2-laplace"]
    by_name = {row.name: row for row in results.rows}
    for curve in results.curves:
        assert list(curve.tokens) == sorted(set(curve.tokens))
        assert len(curve.tokens) == len(runner.CURVE_PARTS) + 1
        assert curve.tokens[-1] == results.split.train_tokens
        assert list(curve.bytes) == sorted(set(curve.bytes))
        assert curve.bits_per_byte[-1] == by_name[curve.name].bits_per_byte


def test_learning_curves_of_different_tokenizers_share_bytes(four_candidates: None) -> None:
    result = chainrule.compare(lines(), tokenizers=("word", "char"), max_seconds=600)
    word, char = sorted(result.curves, key=lambda curve: curve.tokens)
    assert word.bytes == char.bytes
    assert all(four_candidates < many for four_candidates, many in zip(word.tokens, char.tokens, strict=True))


def test_sentences_are_from_the_test_text(results: Results) -> None:
    assert {sentence.text for sentence in results.sentences} == {"the cat sees a dog now", "dog dog one"}
    for sentence in results.sentences:
        assert [view.name for view in sentence.by_model] == ["ngram-2-laplace", "ngram-1-laplace"]
        assert all(len(view.tokens) == len(view.bits) for view in sentence.by_model)
        assert all(bits > 0 for view in sentence.by_model for bits in view.bits)


def test_given_validation_and_test_texts_are_used(four_candidates: None) -> None:
    text, held_out = lines(60), lines(7, seed=9)
    both = chainrule.compare(text, valid=held_out, test=held_out).split
    assert (both.train_lines, both.valid_lines, both.test_lines, both.seed) == (60, 7, 7, None)
    valid = chainrule.compare(text, valid=held_out).split
    assert (valid.train_lines, valid.valid_lines, valid.test_lines, valid.seed) == (54, 7, 6, 0)
    test = chainrule.compare(text, test=held_out).split
    assert (test.train_lines, test.valid_lines, test.test_lines) == (54, 6, 7)
    none = chainrule.compare(text).split
    assert (none.train_lines, none.valid_lines, none.test_lines) == (48, 6, 6)


def test_compare_defaults_to_the_embedded_text(four_candidates: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "_paragraphs", lambda: tuple(english(40).splitlines()))
    result = chainrule.compare()
    assert result.text == "Pride and Prejudice (embedded)"
    assert result.split.train_lines + result.split.valid_lines + result.split.test_lines == 40


def test_each_family_has_its_time_limit(four_candidates: None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ChainruleWarning)
        result = chainrule.compare(lines(), max_seconds=1e-9)
    names = ("ngram-2-laplace", "ngram-2-mle", "ngram-2-stupid-backoff")
    assert [str(w.message) for w in caught] == [
        f"{name} is skipped: the time budget for n-gram models is used up" for name in names
    ]
    assert [row.name for row in result.rows] == ["ngram-1-laplace"]  # a started candidate is finished


@pytest.mark.parametrize("seconds", [0, -1, math.nan])
def test_invalid_max_seconds_is_rejected(seconds: float) -> None:
    with pytest.raises(ConfigError, match="choose a number above 0"):
        chainrule.compare(lines(), max_seconds=seconds)


def test_compare_rejects_invalid_arguments(four_candidates: None) -> None:
    with pytest.raises(ConfigError, match="there is no family 'oracle'"):
        chainrule.compare(lines(), families=("oracle",))
    with pytest.raises(ConfigError, match="is not trained on text; choose from ngram"):
        chainrule.compare(lines(), families=("mixture",))
    with pytest.raises(InputError, match="2 lines"):
        chainrule.compare(Corpus.from_lines(["a", "b"]))
    with pytest.raises(InputError, match="contains no words"):
        chainrule.compare(Corpus.from_lines([""] * 10))
    with pytest.raises(InputError, match="test text is empty"):
        chainrule.compare(lines(), test=Corpus.from_lines([]))


def test_compare_on_the_smallest_text(four_candidates: None) -> None:
    with pytest.warns(ChainruleWarning, match="about 100% of the lines of the test text are in the training text"):
        result = chainrule.compare(Corpus.from_lines(["a", "a", "a"]), tokenizer_settings={"min_count": 2})
    assert len(result.rows) == 4
    assert result.split.train_lines == 1


def test_every_candidate_survives_small_texts() -> None:
    """Degenerate counts must not end the comparison: Jelinek-Mercer weights once left [0, 1] here."""
    for seed, chosen in ((3, families.trainable()), (4, ["ngram"])):
        result = chainrule.compare(
            lines(60, seed),
            families=tuple(chosen),
            tokenizer_settings={"min_count": 2},
            device="cpu",
            size="fixed",
            max_seconds=600,
        )
        trained = [row for row in result.rows if row.family != "mixture"]
        assert len(trained) == sum(len(families.get(name).candidates()) for name in chosen)
        assert all(not math.isnan(row.bits_per_byte) for row in result.rows)


def test_row_name() -> None:
    assert row_name("ngram", Config(order=4, smoothing="katz")) == "ngram-4-katz"


def test_words_seen_once_are_unknown_by_default(four_candidates: None) -> None:
    lines = ["a b c", "a b d", "a b e", "a a", "b b", "a b"] * 3 + ["x y z"]
    for tokenizer_settings, cut in (({}, 2), ({"min_count": 1}, 1), ({"vocab_size": 4}, 1)):
        settings = make_settings({"tokenizer_settings": tokenizer_settings})
        assert settings.settings_of("word").get("min_count", 1) == cut
    assert "min_count" not in make_settings({"tokenizer": "byte"}).settings_of("byte")
    assert chainrule.compare(Corpus.from_lines(lines)).rows


def test_family_that_does_not_learn_is_rejected_immediately() -> None:
    with pytest.raises(ConfigError, match="'mixture' is not trained on text"):
        chainrule.compare(Corpus.from_lines(["a"]), families=("mixture",))


def test_out_may_be_a_string_and_contains_all_files(four_candidates: None, tmp_path: Path) -> None:
    results = chainrule.compare(lines(), out=str(tmp_path / "c"), keep="all")
    assert {path.name for path in (tmp_path / "c").iterdir()} == {"report.html", "results.json", "models"}
    assert len(list((tmp_path / "c" / "models").iterdir())) == len(results.rows)


def test_compare_networks_and_ngrams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram, "candidates", lambda: [Config(order=2)])
    for module in (gru, transformer):  # two epochs, however long they take
        short = [with_settings(config, epochs=2, max_seconds=3600.0) for config in module.candidates()]
        family = dataclasses.replace(module.family, candidates=lambda short=short: short)
        monkeypatch.setattr(module, "family", family)
    calls: list[tuple[str, int, int | None]] = []
    result = chainrule.compare(
        lines(),
        families=("ngram", "gru", "transformer"),
        device="cpu",
        size="fixed",
        keep="all",
        out=tmp_path,
        progress=lambda *what: calls.append(what),
    )
    names = {"ngram-2-modified-kneser-ney", "gru-1-192-after", "gru-1-192-before", "transformer-2-96"}
    mixtures = {"mixture-ngram-gru", "mixture-ngram-transformer", "mixture-ngram-gru-transformer"}
    assert names <= {row.name for row in result.rows} < names | mixtures
    assert all(row.is_ranked and math.isfinite(row.bits_per_byte) for row in result.rows)
    for row in result.rows:
        loaded = chainrule.load(tmp_path / "models" / row.name, device="cpu")
        assert loaded.parameters == row.parameters
    assert any(what.startswith("training gru-1-192-after: training") for what, _, _ in calls)
    by_clock = [(done, total) for what, done, total in calls if what.startswith("training gru")]
    assert all(total == 120 and 0 <= done <= 120 for done, total in by_clock)  # seconds of the default budget
    networks = {flow.name.split("-")[0] for flow in result.flows}
    assert networks == {"gru", "transformer"}  # one per family, and none of n-grams
    assert all(flow.relative()[-1][0] == 1 for flow in result.flows)
    assert "How far back networks can learn" in (tmp_path / "report.html").read_text(encoding="utf-8")


def run_of(out: Path, command: str, text: Corpus | None = None, *, force: bool = False) -> Results:
    return chainrule.compare(text or lines(), out=out, command=command, force=force, keep="all")


def names(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in (*out.iterdir(), *(out / "models").glob("*"))}


def test_same_comparison_can_be_run_again(four_candidates: None, tmp_path: Path) -> None:
    before = run_of(tmp_path, "chainrule compare a")
    after = run_of(tmp_path, "chainrule compare a --json")
    assert [row.bits_per_byte for row in before.rows] == [row.bits_per_byte for row in after.rows]
    assert names(tmp_path) == {"results.json", "report.html", "models"} | {
        f"models/{row.name}" for row in after.rows
    }


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_another_comparison_in_the_folder_is_rejected(
    four_candidates: None, tmp_path: Path, is_interrupted: bool
) -> None:
    run_of(tmp_path, "chainrule compare a")
    if is_interrupted:
        (tmp_path / "results.json").unlink()
        (tmp_path / "report.html").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(UsageError, match="contains another comparison; to replace it give --force"):
        run_of(tmp_path, "chainrule compare b")
    with pytest.raises(UsageError, match="contains another comparison"):
        run_of(tmp_path, "chainrule.compare(…)")
    with pytest.raises(UsageError, match="contains a comparison of another text"):
        run_of(tmp_path, "chainrule compare a", lines(70, 4))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    results = run_of(tmp_path, "chainrule compare b", lines(70, 4), force=True)
    assert chainrule.load(tmp_path / "models" / results.rows[0].name).origin.command == "chainrule compare b"


def test_models_missing_from_the_report_are_removed(
    four_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of(tmp_path, "chainrule compare a")
    monkeypatch.setattr(ngram, "candidates", lambda: [Config(order=1, smoothing="laplace")])
    run_of(tmp_path, "chainrule compare a")
    assert names(tmp_path) == {"results.json", "report.html", "models", "models/ngram-1-laplace"}


def test_interrupted_comparison_leaves_no_outdated_report(
    four_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of(tmp_path, "chainrule compare a")
    save = Model.save
    saved: list[Path] = []

    def interrupted(model: Model, path: Path, **options: bool) -> None:
        if len(saved) == 2:
            raise KeyboardInterrupt
        assert not (tmp_path / "report.html").exists()  # removed before the first model is replaced
        assert not (tmp_path / "results.json").exists()
        saved.append(path)
        save(model, path, **options)

    monkeypatch.setattr(Model, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path, "chainrule compare b", lines(70, 4), force=True)
    assert names(tmp_path) == {"unfinished.jsonl", "models", *(f"models/{path.name}" for path in saved)}
    monkeypatch.setattr(Model, "save", save)
    run_of(tmp_path, "chainrule compare b", lines(70, 4))  # the same command overwrites it without --force


def test_user_folder_under_models_is_not_removed(four_candidates: None, tmp_path: Path) -> None:
    run_of(tmp_path, "chainrule compare a")
    (tmp_path / "models" / "notes").mkdir()
    (tmp_path / "models" / "notes" / "thesis.txt").write_text("years")
    run_of(tmp_path, "chainrule compare b", force=True)
    assert (tmp_path / "models" / "notes" / "thesis.txt").read_text() == "years"
    (tmp_path / "models" / "ngram-1-laplace" / "thesis.txt").write_text("years")
    with pytest.raises(UsageError, match=r"thesis\.txt, which is not part of the model"):
        run_of(tmp_path, "chainrule compare c", force=True)


def test_full_disk_ends_the_comparison(
    four_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(*_: object, **__: object) -> None:
        raise write_error(tmp_path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    monkeypatch.setattr(Model, "save", raise_disk_full)
    with pytest.raises(ChainruleError, match="No space left on device") as error:
        run_of(tmp_path, "chainrule compare a")
    assert error.value.exit_code == 1


@pytest.mark.parametrize("force", [False, True])
def test_folder_with_an_unfinished_run_is_rejected(four_candidates: None, tmp_path: Path, force: bool) -> None:
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(UsageError, match="contains an unfinished run"):
        run_of(tmp_path, "chainrule compare a", force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_training_part_smaller_than_the_test_part_causes_a_warning() -> None:
    lines = ["a b"] * 20 + ["c d " * 200]
    text = Corpus.from_lines(lines)
    seed = next(seed for seed in range(100) if lines[-1] in split_text(text, None, None, seed).test)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chainrule.compare(text, families=("ngram",), budget=1, seed=seed)
    assert any("bytes, fewer than the" in str(warning.message) for warning in caught)
