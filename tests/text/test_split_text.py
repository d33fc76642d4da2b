from chainrule.text.splits import subsample_blocks


def test_subsample_blocks_takes_blocks_from_the_whole_text() -> None:
    text = [str(i) for i in range(2560)]  # 256 blocks of 10
    half = subsample_blocks(text, 2)
    assert half[:12] == ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "20", "21"]
    assert len(half) == 1280
    assert subsample_blocks(text, 1) == text
    assert subsample_blocks(["a", "b", "c"], 2) == ["a", "c"]
