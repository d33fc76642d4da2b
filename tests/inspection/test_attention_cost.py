"""Cost of attention: worked by hand, and counted from matrix products."""

import numpy as np
import pytest

from chainrule.inspection.attention_scaling import (
    Cost,
    cost_table,
    cross_attention,
    crossover_length,
    feedforward,
    format_count,
    memory_attention,
    self_attention,
    translator_attention,
)
from chainrule.lm import Floats


class Counter:
    """Counts the multiplications of matrix products."""

    def __init__(self) -> None:
        self.made = 0

    def times(self, a: Floats, b: Floats) -> Floats:
        """(…, n, m) (m, p) or (…, m, p): m multiplications per output number."""
        out: Floats = a @ b
        self.made += out.size * a.shape[-1]
        return out


def count_multiplications(M: int, N: int, k: int, heads: int) -> tuple[int, int]:
    """Multiplications for pairs and projections of N tokens that attend to M others, in `heads` heads."""
    maps, pairs = Counter(), Counter()
    x, y, W = np.ones((N, k)), np.ones((M, k)), np.ones((k, k))

    def split_heads(z: Floats) -> Floats:
        return z.reshape(len(z), heads, k // heads).transpose(1, 0, 2)

    q, key, v = split_heads(maps.times(x, W)), split_heads(maps.times(y, W)), split_heads(maps.times(y, W))
    a = pairs.times(pairs.times(q, key.transpose(0, 2, 1)), v)
    maps.times(a.transpose(1, 0, 2).reshape(N, k), W)
    return pairs.made, maps.made


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize(("M", "N"), [(1, 1), (5, 3), (7, 7)])
def test_attention_cost_equals_counted_products(M: int, N: int, heads: int) -> None:
    cross, self_cost = cross_attention(M, N, 8), self_attention(N, 8)
    assert (cross.pairs, cross.projections) == count_multiplications(M, N, 8, heads)
    assert (self_cost.pairs, self_cost.projections) == count_multiplications(N, N, 8, heads)
    assert self_cost.total == self_cost.pairs + self_cost.projections


def test_attention_cost_equals_torch_flop_counts() -> None:
    """PyTorch counts two operations per multiplication in the translator's and the language model's blocks."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    from chainrule.neural.encoders.seq2seq import PairConfig
    from chainrule.neural.layers.transformer_block import CrossBlock

    block = CrossBlock(PairConfig(family="transformer", hidden=8, heads=2, dropout=0.0)).eval()
    M, N = 5, 3
    target, source = torch.ones(1, N, 8), torch.ones(1, M, 8)
    nothing = torch.empty(1, 0, 2, 4)
    with torch.no_grad(), FlopCounterMode(display=False) as operations:
        everything = torch.ones(1, 1, N, N, dtype=torch.bool)
        block._attention(target, (nothing, nothing), None, everything)
    assert operations.get_total_flops() == 2 * self_attention(N, 8).total
    with torch.no_grad(), FlopCounterMode(display=False) as operations:
        block._cross_attention(target, block.source(source), torch.ones(1, M, dtype=torch.bool))
    assert operations.get_total_flops() == 2 * cross_attention(M, N, 8).total
    with torch.no_grad(), FlopCounterMode(display=False) as operations:
        block._feedforward(target)
    assert operations.get_total_flops() == 2 * feedforward(N, 8, 32)


@pytest.mark.parametrize(("tokens", "memory"), [(1, 3), (2, 3), (4, 3), (5, 3), (9, 1), (9, 20)])
def test_memory_attention_cost_equals_plain_loops(tokens: int, memory: int) -> None:
    """Token t sees min(t, m) earlier states: k multiplications per score and k for its part of the sum."""
    visible = sum(min(t, memory) for t in range(tokens))
    assert memory_attention(tokens, memory, 6, "dot") == Cost(pairs=2 * visible * 6, projections=0)
    assert memory_attention(tokens, memory, 6, "general").projections == tokens * 36
    assert memory_attention(tokens, memory, 6, "additive").projections == 2 * tokens * 36


def test_translator_attention_cost_worked_by_hand() -> None:
    """M = 5, N = 3, k = 2: 2 · 15 · 2 = 60; W h_j of 5 states 20; W_1 s and W_2 h of 3 and 5 states 32."""
    assert translator_attention(5, 3, 2, "dot") == Cost(pairs=60, projections=0)
    assert translator_attention(5, 3, 2, "general") == Cost(pairs=60, projections=20)
    assert translator_attention(5, 3, 2, "additive") == Cost(pairs=60, projections=32)


def test_crossover_length_where_pairs_exceed_projections() -> None:
    n = crossover_length(64)
    assert self_attention(n, 64).pairs == self_attention(n, 64).projections
    assert self_attention(n + 1, 64).pairs > self_attention(n + 1, 64).projections


def test_cost_table_worked_by_hand() -> None:
    table = cost_table(
        [("self", [self_attention(2, 4), self_attention(3, 4)]), ("net", [64, 0])], ["2 tokens", "3 tokens"]
    ).replace(' style="text-align:right"', "")
    # 2·4·4 + 4·2·16 = 32 + 128; 2·9·4 + 4·3·16 = 72 + 192
    assert "<td>160<br><small>20 % for pairs</small></td><td>264<br><small>27 % for pairs</small></td>" in table
    assert "<td>64</td><td>0</td>" in table
    assert table.count('scope="col"') == 3
    assert "none for pairs" in cost_table([("none", [Cost(pairs=0, projections=0)])], ["1"])


def test_large_counts_are_abbreviated() -> None:
    assert [format_count(n) for n in (0, 999, 1000, 9_994, 99_940, 123_456_789)] == [
        "0",
        "999",
        "1.00 thousand",
        "9.99 thousand",
        "99.9 thousand",
        "123 million",
    ]
    assert format_count(10**12) == "1.00 trillion"
