"""ARPA export and import."""

import math
from pathlib import Path

import pytest

import chainrule
from chainrule import kenlm
from chainrule.applications import convert
from chainrule.applications.convert import export_arpa, import_arpa
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError, NotFoundError
from chainrule.ngram.config import SMOOTHINGS
from cli.command import english, write

pytestmark = pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")

MARKS = ['"The cat," he said, "sees a (small) dog."', "A bird's nest: 3.14 metres...", "the cat sees (a dog)!"]
LINES = ["the cat sees a dog today", "a zebra sees", "", "in the old garden", "garden garden", "<s> bird"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("text") / "english.txt", english())


@pytest.mark.parametrize("smoothing", [name for name in SMOOTHINGS if name != "stupid-backoff"])
def test_the_scores_survive(tmp_path: Path, text: Path, smoothing: str) -> None:
    model = chainrule.train("ngram", text, order=3, smoothing=smoothing, min_count=15, tokenizer="whitespace")
    model.save(tmp_path / "m")
    export_arpa(tmp_path / "m", tmp_path / "m.arpa")
    back = import_arpa(tmp_path / "m.arpa")
    for mine, other in zip(model.scores(LINES), back.scores(LINES), strict=True):
        assert other.tokens == mine.tokens
        assert other.oov == mine.oov
        assert other.log_probs == pytest.approx(mine.log_probs, rel=1e-4, abs=1e-5)
    back.save(tmp_path / "back")
    again = chainrule.load(tmp_path / "back")
    assert [s.log_probs for s in again.scores(LINES)] == [s.log_probs for s in back.scores(LINES)]


def test_a_model_whose_punctuation_is_split_survives(tmp_path: Path) -> None:
    model = chainrule.train("ngram", write(tmp_path / "marks.txt", "\n".join(MARKS * 2)), order=3)
    assert model.tokenizer.config.kind == "word"
    model.save(tmp_path / "m")
    export_arpa(tmp_path / "m", tmp_path / "m.arpa")
    back = import_arpa(tmp_path / "m.arpa")
    assert back.tokenizer.config.kind == "word"
    for mine, other in zip(model.scores([*LINES, *MARKS]), back.scores([*LINES, *MARKS]), strict=True):
        assert other.tokens == mine.tokens
        assert other.log_probs == pytest.approx(mine.log_probs, rel=1e-4, abs=1e-5)


def test_a_sub_word_model_is_written_in_its_symbols(tmp_path: Path, text: Path) -> None:
    model = chainrule.train("ngram", text, order=2, smoothing="laplace", tokenizer="bpe", vocab_size=280)
    model.save(tmp_path / "m")
    export_arpa(tmp_path / "m", tmp_path / "m.arpa")
    assert "Ġthe" in (tmp_path / "m.arpa").read_text()


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    content = "\\data\\\nngram 1=3\nngram 2=1\n\n\\1-grams:\n-1\t<s>\t-1\n-0.5\t</s>\n-1\ta\t-0.25\n\n"
    path = write(tmp_path / "m.arpa", content + "\\2-grams:\n-2\t<s> a\n\n\\end\\\n")
    model = import_arpa(path, command="as typed")
    # log10 p(a | <s>) = -2 is stored; log10 p(</s> | a) = -0.25 - 0.5 by backing off.
    assert model.score("a").log_prob == pytest.approx(-2.75 * 2.302585093, rel=1e-6)
    assert model.tokenizer.config.closed  # the file has no <unk>
    assert model.score("b").infinite
    assert (model.origin.text, model.origin.command) == ("imported from m.arpa", "as typed")


def test_what_cannot_be_exchanged(tmp_path: Path, text: Path) -> None:
    chainrule.train("ngram", text, order=2, smoothing="stupid-backoff").save(tmp_path / "stupid")
    with pytest.raises(ConfigError, match="a score, not a probability"):
        export_arpa(tmp_path / "stupid", tmp_path / "m.arpa")
    chainrule.train("ngram", text, order=2, smoothing="laplace", context="stream").save(tmp_path / "stream")
    with pytest.raises(ConfigError, match="stream n-gram cannot become ARPA"):
        export_arpa(tmp_path / "stream", tmp_path / "m.arpa")
    chainrule.train("ngram", text, order=2, smoothing="laplace", tokenizer="char").save(tmp_path / "char")
    with pytest.raises(InputError, match="' '"):
        export_arpa(tmp_path / "char", tmp_path / "m.arpa")
    models = [chainrule.train("ngram", text, order=n, smoothing="laplace") for n in (1, 2)]
    chainrule.mix(models, held_out=text).save(tmp_path / "mix")
    with pytest.raises(ConfigError, match="is a mixture model"):
        export_arpa(tmp_path / "mix", tmp_path / "m.arpa")
    assert not (tmp_path / "m.arpa").exists()


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"there is no file .*nowhere\.arpa"):
        import_arpa(tmp_path / "nowhere.arpa")
    with pytest.raises(ConfigError, match="is a folder"):
        import_arpa(tmp_path)
    with pytest.raises(NotFoundError):
        export_arpa(tmp_path / "nowhere", tmp_path / "m.arpa")
    with pytest.raises(ModelFileError):
        export_arpa(write(tmp_path / "m.arpa", "\\data\\\n"), tmp_path / "n.arpa")


def arpa_with_weight(path: Path, weight: str) -> Path:
    """p(a) = p(b) = 0.4, p(</s>) = 0.2, p(b | a) = 0.5: weight(a) must be 0.5 / 0.6, −0.0791812 in log10."""
    unigrams = f"-99\t<s>\n-0.69897\t</s>\n-0.39794\ta\t{weight}\n-0.39794\tb\n"
    text = f"\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n{unigrams}\n\\2-grams:\n-0.30103\ta b\n\n\\end\\\n"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_arpa_file_that_sums_to_one(tmp_path: Path) -> None:
    model = import_arpa(arpa_with_weight(tmp_path / "m.arpa", "-0.0791812"))
    assert model.lm.is_normalized
    model.save(tmp_path / "m")
    assert chainrule.load(tmp_path / "m").lm.is_normalized


def test_an_arpa_file_that_does_not_sum_to_one(tmp_path: Path) -> None:
    """With the weight 10^3 the sum after `a` is 0.5 + 600, and the model is marked as not normalised."""
    with pytest.warns(ChainruleWarning, match=r"m\.arpa is not normalized: .* sum to 1 ± 600"):
        model = import_arpa(arpa_with_weight(tmp_path / "m.arpa", "3"))
    assert not model.lm.is_normalized
    model.save(tmp_path / "m")
    loaded = chainrule.load(tmp_path / "m")
    assert not loaded.lm.is_normalized
    assert not loaded.lm.engine.is_normalized
    assert dict(loaded.next("a")) == pytest.approx({"b": 0.5, "a": 400, "</s>": 200}, rel=1e-4)  # what score gives
    assert loaded.score("a a").log_probs[1] == pytest.approx(math.log(400), rel=1e-4)
    export_arpa(loaded, tmp_path / "again.arpa")  # what it was read from can be written again
    assert kenlm.Model(tmp_path / "m.arpa").score("a b") == kenlm.Model(tmp_path / "again.arpa").score("a b")
    with pytest.raises(ConfigError, match="do not sum to 1"):
        convert.prune(loaded, 1e-8)
