import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError, UsageError
from chainrule.evaluation.tagging import Mistake, accuracy, confusion

GOLD = [["D", "N", "V", "N"], ["N", "V"], []]
FOUND = [["D", "V", "V", "V"], ["X", "N"], []]


def test_accuracy_by_hand() -> None:
    assert accuracy(GOLD, FOUND) == 2 / 6  # D and one V
    assert accuracy(GOLD, GOLD) == 1
    assert accuracy([], []) == 0
    assert accuracy([[]], [[]]) == 0


def test_confusion_by_hand() -> None:
    table = confusion(GOLD, FOUND)
    assert table.labels == ("N", "V", "D", "X")  # 3, 2, 1 and 0 times right
    assert table.counts.tolist() == [
        [0, 2, 0, 1],  # N
        [1, 1, 0, 0],  # V
        [0, 0, 1, 0],  # D
        [0, 0, 0, 0],  # X
    ]
    assert table.gold.tolist() == [3, 2, 1, 0]
    assert table.predicted.tolist() == [1, 3, 1, 1]
    mistakes = [Mistake("N", "V", 2), Mistake("N", "X", 1), Mistake("V", "N", 1)]
    assert table.most_confused(9) == mistakes
    assert table.most_confused(2) == mistakes[:2]
    assert table.most_confused(0) == []
    with pytest.raises(UsageError, match="n is -1"):
        table.most_confused(-1)


def test_equally_frequent_labels_go_by_name() -> None:
    assert confusion([["b", "a"]], [["d", "c"]]).labels == ("a", "b", "c", "d")


def test_no_words_no_table() -> None:
    table = confusion([], [])
    assert table.labels == ()
    assert table.counts.shape == (0, 0)
    assert table.most_confused(1) == []


@pytest.mark.parametrize("compare", [accuracy, confusion])
def test_uneven_sides_are_refused(compare: object) -> None:
    assert callable(compare)
    with pytest.raises(InputError, match="3 gold sentences but 2 predictions"):
        compare(GOLD, FOUND[:2])
    with pytest.raises(InputError, match="sentence 2 has 2 gold tags and 1 predicted"):
        compare(GOLD, [FOUND[0], ["X"], []])


TAG = st.sampled_from("ABCD")


@given(st.lists(st.lists(st.tuples(TAG, TAG))))
def test_every_word_is_counted_once(sentences: list[list[tuple[str, str]]]) -> None:
    gold = [[right for right, _ in sentence] for sentence in sentences]
    result = [[given_tag for _, given_tag in sentence] for sentence in sentences]
    words = [pair for sentence in sentences for pair in sentence]
    table = confusion(gold, result)
    assert set(table.labels) == {tag for pair in words for tag in pair}
    for row, right in enumerate(table.labels):
        for column, given_tag in enumerate(table.labels):
            assert table.counts[row, column] == words.count((right, given_tag))
    assert table.gold.tolist() == sorted(table.gold.tolist(), reverse=True)
    assert accuracy(gold, result) * len(words) == pytest.approx(table.counts.trace())
    assert sum(mistake.frequency for mistake in table.most_confused(16)) == len(words) - table.counts.trace()
