"""ARPA files of other tools and of benchmark size."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from chainrule.lm import Batch, Floats, Ids, Vocabulary
from chainrule.ngram.arpa import Arpa, read, write
from chainrule.ngram.config import Config
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import estimate
from ngram.reference import count

# p: <unk> 0.1, a 0.4, b 0.3, </s> 0.2.  p(a | <s>) = 0.7, so weight(<s>) = 0.3 / (1 − 0.4) = 0.5.
# p(b | a) = 0.5, p(</s> | a) = 0.2, so weight(a) = 0.3 / (1 − 0.5) = 0.6.
# p(b | <s> a) = 0.6, so weight(<s> a) = 0.4 / (1 − 0.5) = 0.8.
KENLM_STYLE = """\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-1\t<unk>\t0
0\t<s>\t-0.30103
-0.69897\t</s>\t0
-0.39794\ta\t-0.2218487
-0.5228787\tb\t0

\\2-grams:
-0.69897\ta </s>\t0
-0.154902\t<s> a\t-0.09691
-0.30103\ta b\t0

\\3-grams:
-0.2218487\t<s> a b

\\end\\
"""
SRILM_STYLE = """
\\data\\
ngram 1=5
ngram 2=3
ngram 3=1

\\1-grams:
-0.69897\t</s>
-99\t<s>\t-0.30103
-1\t<unk>
-0.39794\ta\t-0.2218487
-0.5228787\tb

\\2-grams:
-0.154902\t<s> a\t-0.09691
-0.69897\ta </s>
-0.30103\ta b

\\3-grams:
-0.2218487\t<s> a b

\\end\\
"""


def model_of(arpa: Arpa) -> NgramModel:
    V = len(arpa.words) + 3
    return NgramModel(arpa.engine, Vocabulary(V, bos=V - 2, eos=V - 1, unk=0, closed=not arpa.has_unk))


def foreign_files(folder: Path) -> list[Path]:
    if "CHAINRULE_ARPA" in os.environ:
        return [Path(os.environ["CHAINRULE_ARPA"])]
    for name, text in (("kenlm", KENLM_STYLE), ("srilm", SRILM_STYLE)):
        (folder / f"{name}.arpa").write_text(text)
    return sorted(folder.glob("*.arpa"))


@pytest.mark.data
def test_arpa_distributions_of_other_tools_sum_to_one(tmp_path: Path) -> None:
    """The file named by CHAINRULE_ARPA, or two small files in the style of other tools."""
    for path in foreign_files(tmp_path):
        lm = model_of(read(path))
        rng = np.random.default_rng(1)
        state = lm.start(20)
        log_p, state = lm.step(state, np.full(20, lm.vocabulary.bos))
        for _ in range(2 * lm.order):
            assert_allclose(np.exp(log_p).sum(axis=1), 1, atol=1e-3)
            probable = [rng.choice(lm.vocabulary.size, p=p / p.sum()) for p in np.exp(log_p)]
            log_p, state = lm.step(state, np.array(probable))


def test_kenlm_and_srilm_files_are_the_same_model(tmp_path: Path) -> None:
    for name, text in (("kenlm", KENLM_STYLE), ("srilm", SRILM_STYLE)):
        (tmp_path / name).write_text(text)
        arpa = read(tmp_path / name)
        lm = model_of(arpa)
        names = [arpa.unk, *arpa.words, "<s>", "</s>"]
        _, state = lm.step(lm.start(1), np.array([names.index("<s>")]))
        log_p, _ = lm.step(state, np.array([names.index("a")]))
        # After <s> a: b 0.6; </s> 0.8 · 0.2; a 0.8 · 0.6 · 0.4; <unk> 0.8 · 0.6 · 0.1
        expected = {"b": 0.6, "</s>": 0.16, "a": 0.192, "<unk>": 0.048, "<s>": 0.0}
        assert_allclose(np.exp(log_p[0]), [expected[word] for word in names], rtol=1e-5)


def encode(path: Path, ids: dict[str, int]) -> Ids:
    lines = path.read_text(encoding="utf-8").splitlines()
    return np.array([ids.get(word, 0) for line in lines for word in [*line.split(), "</s>"]])


def sentence_scores(lm: NgramModel, ids: Ids) -> Floats:
    inputs = np.concatenate([[lm.vocabulary.bos], ids[:-1]])[None]
    log_p, _ = lm.score(Batch(inputs, ids[None], np.ones((1, len(ids)), dtype=bool)), lm.start(1))
    starts = np.flatnonzero(inputs[0] == lm.vocabulary.eos)
    return np.add.reduceat(log_p[0], [0, *starts])


@pytest.mark.data
@pytest.mark.slow
def test_arpa_round_trips_the_penn_treebank_model(data_folder: Path, tmp_path: Path) -> None:
    train, test = (data_folder / "ptb" / f"ptb.{split}.txt" for split in ("train", "test"))
    words = sorted(set(train.read_text(encoding="utf-8").split()) - {"<unk>"})
    names = ["<unk>", *words, "<s>", "</s>"]
    ids = {name: i for i, name in enumerate(names)}
    vocabulary = Vocabulary(len(names), bos=ids["<s>"], eos=ids["</s>"], unk=0)
    lm = NgramModel.from_tables(estimate(count(encode(train, ids), 5, vocabulary), Config(order=5)), vocabulary)
    write(lm, names, tmp_path / "ptb.arpa")
    arpa = read(tmp_path / "ptb.arpa")
    assert arpa.words == words
    assert arpa.has_unk
    scores = sentence_scores(lm, encode(test, ids))
    assert len(scores) == 3761  # lines of ptb.test.txt
    assert_allclose(sentence_scores(model_of(arpa), encode(test, ids)), scores, rtol=1e-5)
