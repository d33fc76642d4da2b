"""Files of id shards: sizes, types and line ends."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data.id_shards import ShardWriter, id_dtype


@pytest.mark.parametrize(("size", "dtype"), [(1, "<u2"), (65536, "<u2"), (65537, "<u4")])
def test_type_of_the_ids(size: int, dtype: str) -> None:
    assert id_dtype(size) == dtype
    assert np.iinfo(np.dtype(dtype)).max >= size - 1


def test_shards_by_hand(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, eos=9, tokens=4)
    for block in ([1, 9, 2, 9], [3, 4, 5, 6, 7, 9, 9], [1], [2, 3, 4, 5, 9, 1, 9]):
        writer.append(np.array(block, "<u2"))
    writer.close()
    contents = [np.fromfile(tmp_path / shard.file, "<u2").tolist() for shard in writer.shards]
    assert contents == [[1, 9, 2, 9], [3, 4, 5, 6, 7, 9], [9, 1, 2, 3, 4, 5, 9], [1, 9]]
    assert [(shard.tokens, shard.lines) for shard in writer.shards] == [(4, 2), (6, 1), (7, 2), (2, 1)]
    for shard in writer.shards:
        assert hashlib.sha256((tmp_path / shard.file).read_bytes()).hexdigest() == shard.sha256


@given(st.lists(st.lists(st.integers(0, 3), max_size=6)), st.integers(1, 8), st.integers(1, 9))
def test_blocks_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[int]], size: int, block: int
) -> None:
    ids = np.array([token for line in lines for token in (*line, 4)], "<u4")
    folder = tmp_path_factory.mktemp("shards")
    writer = ShardWriter(folder, eos=4, tokens=size)
    for first in range(0, len(ids), block):
        writer.append(ids[first : first + block])
    writer.close()
    contents = [np.fromfile(folder / shard.file, "<u4").tolist() for shard in writer.shards]
    assert [token for content in contents for token in content] == ids.tolist()
    for content in contents:
        assert content[-1] == 4
        assert 4 not in content[size - 1 : -1]
    assert all(len(content) >= size for content in contents[:-1])
