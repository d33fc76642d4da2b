"""A model through an ARPA file and back."""

from pathlib import Path

import pytest

import chainrule
from chainrule.errors import ConfigError, InputError, ModelFileError, NotFoundError
from chainrule.exchange import export_arpa, import_arpa
from chainrule.ngram.config import SMOOTHINGS
from cli.command import english, write

pytestmark = pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")

LINES = ["the cat sees a dog today", "a zebra sees", "", "in the old garden", "garden garden", "<s> bird"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("text") / "english.txt", english())


@pytest.mark.parametrize("smoothing", [name for name in SMOOTHINGS if name != "stupid-backoff"])
def test_the_scores_survive(tmp_path: Path, text: Path, smoothing: str) -> None:
    model = chainrule.train("ngram", text, order=3, smoothing=smoothing, min_count=15)
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
