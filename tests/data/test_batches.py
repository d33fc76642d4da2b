import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data.encoded import EncodedText, line_batches, line_chunks, stream_batches

BOS, EOS = 8, 9


def encoded(lines: list[list[int]]) -> EncodedText:
    ids = np.array([w for line in lines for w in [*line, EOS]], dtype=np.int32)
    return EncodedText(ids=ids, eos=EOS, unk=None, words=0, characters=0, bytes=0)


def test_line_batches_worked_by_hand() -> None:
    (batch, positions), (last, _) = line_batches(encoded([[1, 2, 3], [4], []]), BOS, tokens=5)
    # Shortest first: the empty line and "4"; then "1 2 3" alone.
    assert batch.inputs.tolist() == [[8, 9], [8, 4]]
    assert batch.mask.tolist() == [[True, False], [True, True]]
    assert batch.targets[batch.mask].tolist() == [9, 4, 9]
    assert positions[batch.mask].tolist() == [6, 4, 5]
    assert last.inputs.tolist() == [[8, 1, 2, 3]]
    assert last.targets.tolist() == [[1, 2, 3, 9]]


@given(st.lists(st.lists(st.integers(0, 7), max_size=6), min_size=1, max_size=9), st.integers(1, 30))
def test_line_batches_cover_every_token_once_with_its_predecessor(lines: list[list[int]], tokens: int) -> None:
    text = encoded(lines)
    before = np.concatenate([[BOS], text.ids[:-1]])
    covered: list[int] = []
    for batch, positions in line_batches(text, BOS, tokens):
        covered += positions[batch.mask].tolist()
        np.testing.assert_array_equal(batch.targets[batch.mask], text.ids[positions[batch.mask]])
        expected = np.where(before == EOS, BOS, before)
        np.testing.assert_array_equal(batch.inputs[batch.mask], expected[positions[batch.mask]])
        assert batch.inputs.shape[0] == 1 or batch.inputs.size <= tokens
    assert sorted(covered) == list(range(len(text.ids)))
    pieces = list(stream_batches(text, BOS, tokens))
    assert np.concatenate([b.inputs[0] for b, _ in pieces]).tolist() == before.tolist()
    assert np.concatenate([b.targets[0] for b, _ in pieces]).tolist() == text.ids.tolist()
    assert np.concatenate([p[0] for _, p in pieces]).tolist() == list(range(len(text.ids)))
    chunks = list(line_chunks(text, tokens))
    assert np.concatenate([text.ids[chunk] for chunk in chunks]).tolist() == text.ids.tolist()
    for chunk, following in zip(chunks, [*chunks[1:], None], strict=True):
        ids = text.ids[chunk]
        assert ids[-1] == EOS
        assert len(ids) <= tokens or np.count_nonzero(ids == EOS) == 1
        if following is not None:  # the next line did not fit
            next_line = int(np.argmax(text.ids[following] == EOS)) + 1
            assert len(ids) + next_line > tokens
