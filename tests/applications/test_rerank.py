"""N-best lists, weight tuning and choice of hypotheses, on numbers worked by hand."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import chainrule
from chainrule.applications.nbest import Columns, NBest, read_nbest, read_references
from chainrule.applications.rerank import (
    Tuning,
    TuningData,
    choose_best,
    count_errors,
    cross_validate,
    evaluate_choice,
    make_folds,
    resolve_impossible,
    score,
    score_texts,
    search_line,
    tune,
)
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.lm import Floats

TABLE = """\
utt\trank\tacoustic_logp\tlm_logp\thypothesis\ttokens
b\t2\t-11\t-3\ti love dogs\ti love dogs
a\t1\t-10\t-9\tcats chase rice\tcats chase rice
b\t1\t-10\t-4\ti love docks\ti love docks
a\t2\t-12\t-5\tcats chase mice\tcats chase mice
a\t3\t-13\t-6\tcats chase\tcats chase
"""
REFERENCES = "utt\treference\na\tcats chase mice\nb\ti love dogs\n"

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return make


@pytest.fixture
def nbest(write: Write) -> NBest:
    return read_nbest(write("nbest.tsv", TABLE))


def test_a_list_is_read_by_its_header_and_ranks(nbest: NBest) -> None:
    assert nbest.utterances == ("b", "a")
    assert nbest.starts.tolist() == [0, 2, 5]
    assert nbest.hypotheses[:3] == ("i love docks", "i love dogs", "cats chase rice")
    assert list(nbest.scores) == ["acoustic_logp", "lm_logp"]  # the rank is no score
    assert nbest.scores["acoustic_logp"].tolist() == [-10, -11, -10, -12, -13]
    assert nbest.words.tolist() == [3, 3, 3, 3, 2]


def test_scores_can_be_chosen_by_the_beginning_of_their_names(write: Write) -> None:
    path = write("nbest.tsv", TABLE)
    assert list(read_nbest(path, Columns(scores=("lm",))).scores) == ["lm_logp"]
    assert read_nbest(path, Columns(scores=())).scores == {}
    for name in ("l", "lm_logp"):
        assert list(read_nbest(path, Columns(scores=(name,))).scores) == ["lm_logp"]
    with pytest.raises(ConfigError, match="no column of the name 'am'"):
        read_nbest(path, Columns(scores=("am",)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows"),
        ("utt\thypothesis\n", "no rows"),
        ("a b c\nd e f\n", "one column"),
        ("speaker\thypothesis\na\tb\n", "line 1: no column for the utterance"),
        ("utt\twords\na\tb\n", "line 1: no column for the hypothesis"),
        ("utt\thypothesis\na\tb\tc\n", "line 2 has 3 cells but the header has 2"),
        ("utt\thypothesis\thypothesis\na\tb\tc\n", "contains 'hypothesis' twice"),
        ("utt\thypothesis\n\n\tb\n", "line 3 has no utterance id"),
        ("utt\trank\thypothesis\na\tnan\tb\n", "line 2: rank is 'nan'"),
    ],
)
def test_invalid_lists_are_rejected(text: str, message: str, write: Write) -> None:
    with pytest.raises(InputError, match=message):
        read_nbest(write("nbest.tsv", text))


@pytest.mark.parametrize("cell", ["high", "", "nan", "-inf", "1_0"])
def test_a_column_of_numbers_with_another_cell_in_it_is_refused(cell: str, write: Write) -> None:
    path = write("nbest.tsv", TABLE.replace("\t-12\t", f"\t{cell}\t"))  # one cell of five
    for columns in (None, Columns(scores=("acoustic",))):
        with pytest.raises(InputError, match=rf"nbest\.tsv, line 5: acoustic_logp is '{cell}'.*--scores"):
            read_nbest(path, columns)
    assert list(read_nbest(path, Columns(scores=("lm",))).scores) == ["lm_logp"]


def test_a_column_is_of_scores_if_half_of_it_is_numbers(write: Write) -> None:
    table = "utt\tspeaker\thypothesis\na\t1\tx\na\tann\ty\nb\tbob\tz\n"
    assert read_nbest(write("names.tsv", table)).scores == {}  # one of three: names
    with pytest.raises(InputError, match="line 3: speaker is 'ann'"):
        read_nbest(write("half.tsv", table + "b\t2\tw\n"))  # two of four
    with pytest.raises(InputError, match="line 2: speaker is 'nan'"):
        read_nbest(write("none.tsv", "utt\tspeaker\thypothesis\na\tnan\tx\n"))


def test_a_second_reference_is_refused(write: Write) -> None:
    with pytest.raises(InputError, match="line 4: a second reference of a"):
        read_references(write("ref.tsv", REFERENCES + "a\tcats\n"))


def test_errors_and_three_choices_worked_by_hand(nbest: NBest, write: Write) -> None:
    errors, words = count_errors(nbest, read_references(write("ref.tsv", REFERENCES)))
    assert errors.tolist() == [1, 0, 1, 0, 1]
    assert words.tolist() == [3, 3]
    scored = score(nbest, {})
    assert scored.names == ("acoustic_logp", "lm_logp", "words")
    # b: −10 − 4 against −11 − 3, a tie that the first wins; a: −19, −17, −19
    rows = scored.choose(scored.weights({"acoustic": 1, "lm": 1}))
    assert rows.tolist() == [0, 3]
    result = evaluate_choice(nbest, rows, errors, words)
    # first: one wrong word each, 2 of 6; reranked: 1 of 6; the best in the lists: none
    assert result.rates == {"first": pytest.approx(100 / 3), "reranked": pytest.approx(100 / 6), "oracle": 0}
    assert scored.totals(scored.weights({"words": 2, "lm_logp": 1})).tolist() == [2, 3, -3, 1, -2]


def test_unknown_weights_lengths_and_references_are_refused(nbest: NBest) -> None:
    scored = score(nbest, {}, ("characters",))
    assert scored.values[:, 2].tolist() == [12, 11, 15, 15, 10]
    with pytest.raises(ConfigError, match="no score named 'am'"):
        scored.weights({"am": 1})
    with pytest.raises(ConfigError, match="no length feature 'syllables'"):
        score(nbest, {}, ("syllables",))
    with pytest.raises(InputError, match=r"1 of 2 utterances .* have no reference, a the first"):
        count_errors(nbest, {"b": "i love dogs"})


def test_impossible_hypotheses_are_not_chosen_unless_all_are(nbest: NBest) -> None:
    model = np.array([-np.inf, -1.0, -np.inf, -np.inf, -np.inf])
    with pytest.warns(ChainruleWarning, match=r"in 1 of 2 lists \(first: a\)"):
        scored = resolve_impossible(nbest, {"acoustic": nbest.scores["acoustic_logp"], "lm": model})
    assert scored.choose(np.array([1.0, 1.0])).tolist() == [1, 2]  # in a the model is not counted
    assert len(scored.lists(np.zeros(5, dtype=int)).scores) == 4


def test_models_score_each_text_alone(toy: Path, tmp_path: Path) -> None:
    texts = ["i love cats", "i love dogs", "i love cats", "cats  chase"]
    line = chainrule.train("ngram", toy, order=2, smoothing="witten-bell")
    one_by_one = [s.log_prob_with_spelling for s in map(line.score, texts)]
    assert score_texts(line, texts) == pytest.approx(one_by_one)
    stream = chainrule.train("ngram", toy, order=2, smoothing="witten-bell", context="stream")
    # as one stream each text would follow the </s> of the one before it; alone each follows <s>
    assert score_texts(stream, texts) == pytest.approx([stream.score(text).log_prob for text in texts])


def test_the_first_of_equals_is_chosen() -> None:
    assert choose_best(np.array([1.0, 2.0, 2.0, -np.inf, -np.inf]), np.array([0, 3, 5])).tolist() == [1, 3]


def test_line_search_by_hand() -> None:
    # one utterance, heights 0, 1, 0 and slopes −1, 0, 1: errors 5 for γ < −1, 1 up to γ = 1, 3 above
    lists = TuningData(np.array([[0.0, -1], [1, 0], [0, 1]]), np.array([0, 3]), np.array([5.0, 1, 3]))
    assert search_line(lists, np.array([1.0, 0]), np.array([0.0, 1])) == (1.0, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_line_search_finds_the_minimum(seed: int) -> None:
    lists = random_lists(seed)
    weights, direction = np.ones(3), np.array([0.0, 1, -0.5])

    def errors(step: float) -> float:
        return float(lists.errors[choose_best(lists.scores @ (weights + step * direction), lists.starts)].sum())

    fewest, at = search_line(lists, weights, direction)
    assert errors(at) == fewest
    assert fewest <= min(errors(step) for step in np.linspace(-20, 20, 4001))


@pytest.mark.parametrize("tuning", ["expected", "exact"])
def test_tuned_weights_are_as_good_as_a_grid(tuning: Tuning) -> None:
    lists = random_lists(1)

    def errors(weights: Floats) -> float:
        return float(lists.errors[choose_best(lists.scores @ weights, lists.starts)].sum())

    weights = tune(lists, tuning)
    assert weights[0] == 1.0
    fewest = min(errors(np.array([1.0, *rest])) for rest in product(np.linspace(-3, 9, 49), repeat=2))
    assert errors(weights) <= fewest * (1.05 if tuning == "expected" else 1)
    assert errors(weights) < errors(np.ones(3))


def test_only_ratios_of_scores_matter() -> None:
    lists = random_lists(2)
    scaled = TuningData(lists.scores * [1, 100, 0.01] + 7, lists.starts, lists.errors)
    assert tune(scaled) * [1, 100, 0.01] == pytest.approx(tune(lists), rel=1e-6)


def test_folds_depend_on_names_and_seed_alone() -> None:
    names = [f"u{i}" for i in range(11)]
    parts = make_folds(names, 3, seed=1)
    assert sorted(np.concatenate(parts).tolist()) == list(range(11))
    assert sorted(map(len, parts)) == [3, 4, 4]
    backwards = make_folds(names[::-1], 3, seed=1)
    assert [{names[i] for i in part} for part in parts] == [{names[::-1][i] for i in part} for part in backwards]
    assert [p.tolist() for p in make_folds(names, 3, seed=2)] != [p.tolist() for p in parts]
    for number in (1, 12):
        with pytest.raises(ConfigError, match=f"in {number} parts; choose 2 to 11"):
            make_folds(names, number)


def test_folds_do_not_use_their_references() -> None:
    lists = random_lists(3)
    many = NBest("x", tuple(map(str, range(20))), lists.starts, ("w",) * 100, ("w",) * 100, {}, ("utt", "hyp"))
    scored = resolve_impossible(many, {str(i): lists.scores[:, i] for i in range(3)})
    errors = lists.errors.astype(int)
    before = cross_validate(scored, errors, 4)
    part = make_folds(many.utterances, 4)[0]
    changed = errors.copy()
    for u in part:  # what was said in this part is now something else
        changed[many.starts[u] : many.starts[u + 1]] = errors[many.starts[u] : many.starts[u + 1]][::-1]
    after = cross_validate(scored, changed, 4)
    assert after.weights[0].tolist() == before.weights[0].tolist()
    assert after.rows[part].tolist() == before.rows[part].tolist()
    assert any(a.tolist() != b.tolist() for a, b in zip(after.weights[1:], before.weights[1:], strict=True))


def random_lists(seed: int) -> TuningData:
    """20 utterances of 5 hypotheses whose errors fall with x₀ + 3 x₁ − x₂, noise apart."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(100, 3))
    errors = np.round(np.clip(6 - 1.5 * scores @ [1, 3, -1] + rng.normal(size=100), 0, None))
    return TuningData(scores, np.arange(0, 101, 5), errors)


@pytest.mark.data
def test_the_known_figures_of_the_wall_street_journal_lists(data_folder: Path) -> None:
    nbest = read_nbest(data_folder / "nbest_wsj" / "nbest.tsv")
    errors, words = count_errors(nbest, read_references(data_folder / "nbest_wsj" / "ref.tsv"))
    scored = score(nbest, {})
    # as the data's own description says: 142 utterances, 2,390 words; 15.56, 14.64, 8.45 and 17.53 %
    assert (len(words), words.sum(), len(errors)) == (142, 2390, 3398)
    rows = scored.choose(scored.weights({"acoustic": 1, "lm": 16}))
    rates = evaluate_choice(nbest, rows, errors, words).rates
    assert {name: round(rate, 2) for name, rate in rates.items()} == {
        "first": 15.56,
        "reranked": 14.64,
        "oracle": 8.45,
    }
    acoustic = evaluate_choice(nbest, scored.choose(scored.weights({"acoustic": 1})), errors, words)
    assert round(acoustic.rates["reranked"], 2) == 17.53
