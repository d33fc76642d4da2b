"""Transformer: attention against torch, cache against one pass, window and causality."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.neural.layers.transformer_block import attend
from chainrule.neural.transformer import Config, Transformer, build, candidates, facets

WORDS = Vocabulary(size=13, bos=0, eos=1, unk=2)
POSITIONS = ["sinusoidal", "learned", "rotary"]
NORMS = ["pre", "post"]


def make(**chosen: Any) -> Transformer:
    small = {"hidden": 12, "heads": 3, "layers": 2, "window": 16, "bias": True, "dropout": 0.0}
    torch.manual_seed(5)
    net: Transformer = Transformer(Config(**{**small, **chosen}), WORDS, None).double().eval()
    for parameter in net.parameters():  # large, with nothing at zero or one
        torch.nn.init.normal_(parameter, 0.0, 0.4)
    return net


def some_ids(rows: int, length: int) -> Tensor:
    return torch.randint(0, WORDS.size, (rows, length), generator=torch.Generator().manual_seed(6))


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def read_in_pieces(net: Transformer, ids: Tensor, pieces: list[int]) -> tuple[Tensor, tuple[Tensor, ...]]:
    state, outputs = net.start(len(ids)), []
    for piece in ids.split(pieces, dim=1):
        hidden, state, _ = net(piece, state)
        outputs.append(hidden)
    return torch.cat(outputs, dim=1), state


def test_attention_worked_by_hand() -> None:
    # d = 4: scores 2·ln 3 / √4 = ln 3 and 0, hence weights 3/4 and 1/4 of the values 8 and 4: 7.
    q = torch.tensor([[[[2.0, 0, 0, 0]]]])
    k = torch.tensor([[[[math.log(3), 0, 0, 0], [0, 5.0, 0, 0]]]])
    v = torch.tensor([[[[8.0], [4.0]]]])
    assert attend(q, k, v).item() == pytest.approx(7.0)
    assert attend(q, k, v, torch.tensor([False, True])).item() == pytest.approx(4.0)


def test_attention_equals_torch() -> None:
    q, k, v = numbers(3, 2, 4, 5, 6)
    torch.testing.assert_close(attend(q, k, v), functional.scaled_dot_product_attention(q, k, v))
    ahead = torch.ones(5, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(
        attend(q, k, v, ahead), functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    )


def test_attention_is_permutation_equivariant() -> None:
    """Without positions and mask, outputs move with their inputs."""
    q, k, v = numbers(3, 1, 2, 6, 4)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    moved = attend(q[:, :, order], k[:, :, order], v[:, :, order])
    torch.testing.assert_close(moved, attend(q, k, v)[:, :, order])
    assert not torch.allclose(moved, attend(q, k, v))


def test_variance_of_query_key_products() -> None:
    """Var[qᵀk] = 2σ²μᵀμ + dσ⁴, E[qᵀk] = μᵀμ; not 2dσ²μᵀμ + dσ⁴."""
    # d = 4, σ = 1.5, μ = (1, −2, 0.5, 1): μᵀμ = 6.25, 2·2.25·6.25 + 4·5.0625 = 28.125 + 20.25 = 48.375 (against
    # 132.75). The variance of 400,000 draws is off by about 0.3 %.
    mu = torch.tensor([1.0, -2.0, 0.5, 1.0], dtype=torch.float64)
    q, k = mu + 1.5 * numbers(2, 400_000, 4)
    products = (q * k).sum(dim=-1)
    assert products.mean().item() == pytest.approx(6.25, abs=0.06)
    assert products.var().item() == pytest.approx(48.375, rel=0.02)


@pytest.mark.parametrize("d", [4, 64])
def test_scaling_by_root_d_keeps_the_deviation(d: int) -> None:
    q, k = 0.5 * numbers(2, 50_000, d)  # σ⁴ = 1/16
    products = (q * k).sum(dim=-1)
    assert products.var().item() == pytest.approx(d / 16, rel=0.04)
    assert (products / math.sqrt(d)).var().item() == pytest.approx(1 / 16, rel=0.04)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_transformer_equals_torch_layers(norm: str, activation: str) -> None:
    net = make(norm=norm, activation=activation, positions="learned", feedforward=20)
    ids = some_ids(2, 9)
    assert net.learned is not None
    x = net.embedding[ids] + net.learned.table[:9]
    for block in net.blocks:
        peer = torch.nn.TransformerEncoderLayer(
            12, 3, 20, 0.0, activation, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
        )
        ours = block.state_dict()
        names = {
            "self_attn.in_proj_": "qkv.",
            "self_attn.out_proj.": "merge.",
            "linear1.": "widen.",
            "linear2.": "narrow.",
            "norm1.": "norm_attention.",
            "norm2.": "norm_feedforward.",
        }
        peer.load_state_dict(
            {their + kind: ours[our + kind] for their, our in names.items() for kind in ("weight", "bias")}
        )
        x = peer(x, src_mask=torch.ones(9, 9, dtype=torch.bool).triu(1))
    x = x if net.norm is None else net.norm(x)
    torch.testing.assert_close(net(ids, net.start(2)).hidden, x)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("length", [9, 40])  # within the window of 16, and far beyond it
def test_cached_reading_equals_one_pass(positions: str, norm: str, length: int) -> None:
    net, ids = make(positions=positions, norm=norm), some_ids(3, length)
    full = net(ids, net.start(3))
    for pieces in ([1] * length, [4, length - 4], [1, 5, length - 6]):
        hidden, state = read_in_pieces(net, ids, pieces)
        torch.testing.assert_close(hidden, full.hidden)
        assert net.position(state).tolist() == [length] * 3
        assert state[1].shape == (3, min(length, 16), 3, 4)
        for entry, expected in zip(state, full.state, strict=True):
            torch.testing.assert_close(entry, expected)


@pytest.mark.parametrize("positions", POSITIONS)
def test_cache_with_rows_of_different_lengths(positions: str) -> None:
    net, ids = make(positions=positions), some_ids(3, 12)
    lengths = [3, 0, 7]
    alone = [net(ids[b : b + 1, :n], net.start(1)).state for b, n in enumerate(lengths)]
    # Right-aligned in P = 8 entries; entries before a row's own are arbitrary.
    joined = [torch.full((3, 8, 3, 4), 77.0, dtype=torch.float64) for _ in range(4)]
    for b, n in enumerate(lengths):
        for layer in range(4):
            joined[layer][b, 8 - n :] = alone[b][1 + layer][0]
    together = net(ids[:, 7:], (torch.tensor(lengths), *joined))
    for b, n in enumerate(lengths):
        expected = net(ids[b : b + 1, 7:], alone[b])
        torch.testing.assert_close(together.hidden[b : b + 1], expected.hidden)
        assert net.position(together.state)[b] == n + 5
        again = net(ids[b : b + 1, :4], tuple(item[b : b + 1] for item in together.state))
        torch.testing.assert_close(again.hidden, net(ids[b : b + 1, :4], expected.state).hidden)


def test_transformer_state_is_immutable() -> None:
    net, ids = make(), some_ids(2, 10)
    _, state, _ = net(ids[:, :4], net.start(2))
    before = [item.clone() for item in state]
    first = net(ids[:, 4:], state).hidden
    torch.testing.assert_close(net(ids[:, 4:], state).hidden, first)
    assert all(torch.equal(a, b) for a, b in zip(before, state, strict=True))


@pytest.mark.parametrize("positions", POSITIONS)
def test_transformer_is_causal(positions: str) -> None:
    net, ids = make(positions=positions), some_ids(1, 10)
    changed_ids = ids.clone()
    changed_ids[0, 6] = (ids[0, 6] + 1) % WORDS.size
    changed = (net(ids, net.start(1)).hidden != net(changed_ids, net.start(1)).hidden).any(dim=-1)[0]
    assert changed.tolist() == [False] * 6 + [True] * 4


@pytest.mark.parametrize("pieces", [[20], [1] * 20, [7, 13]])
def test_single_layer_sees_exactly_the_window(pieces: list[int]) -> None:
    net, ids = make(layers=1, window=5), some_ids(1, 20)
    changed_ids = ids.clone()
    changed_ids[0, 8] = (ids[0, 8] + 1) % WORDS.size
    changed = (read_in_pieces(net, ids, pieces)[0] != read_in_pieces(net, changed_ids, pieces)[0]).any(dim=-1)[0]
    assert changed.nonzero().flatten().tolist() == [8, 9, 10, 11, 12]


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_only_rotary_positions_are_relative(positions: str) -> None:
    """The same five words repeated, a window of five: two layers reach back 2·4 words, then everything repeats."""
    net = make(positions=positions, window=5)
    hidden = net(some_ids(1, 5).repeat(1, 6), net.start(1)).hidden[:, 8:]
    repeats = torch.allclose(hidden[:, 5:], hidden[:, :-5])
    assert repeats == (positions == "rotary")


def test_training_keeps_no_cache() -> None:
    net, ids = make(), some_ids(2, 8)
    empty = net.start(2)
    expected, cache, _ = net(ids, empty)
    net.train()
    hidden, state, _ = net(ids, empty)
    torch.testing.assert_close(hidden, expected)
    assert state is empty
    assert cache[1].shape == (2, 8, 3, 4)


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "input_dropout", "output_dropout"])
def test_transformer_dropouts_only_in_training(name: str) -> None:
    net, ids = make(**{name: 0.5}), some_ids(2, 8)
    calm = make()
    assert torch.equal(net(ids, net.start(2)).hidden, calm(ids, calm.start(2)).hidden)
    net.train()
    first, second = (net(ids, net.start(2)).hidden for _ in range(2))
    assert not torch.equal(first, second)


def test_half_precision_cache_is_read_in_full_precision() -> None:
    net, ids = make(), some_ids(2, 12)
    length, *cache = net(ids[:, :8], net.start(2)).state
    output = net(ids[:, 8:], (length, *[item.to(torch.bfloat16) for item in cache]))
    assert output.state[1].dtype == torch.float64
    torch.testing.assert_close(output.hidden, net(ids, net.start(2)).hidden[:, 8:], atol=0.1, rtol=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("positions", POSITIONS)
def test_transformer_half_precision_is_close(positions: str, dtype: torch.dtype) -> None:
    net, ids = make(positions=positions).float().cuda(), some_ids(2, 12).cuda()
    exact = net(ids, net.start(2)).hidden
    with torch.autocast("cuda", dtype=dtype):
        rough, state, _ = net(ids[:, :8], net.start(2))
        later = net(ids[:, 8:], state).hidden
        net.train()
        learned = net(ids, net.start(2)).hidden
    assert rough.dtype == torch.float32
    for actual in (torch.cat([rough, later], dim=1), learned):
        torch.testing.assert_close(actual, exact, atol=0.1, rtol=0.1)
        assert not torch.equal(actual, exact)
    learned.sum().backward()
    assert all(p.grad is not None for name, p in net.named_parameters() if "output" not in name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("positions", POSITIONS)
def test_transformer_training_can_be_captured(positions: str) -> None:
    net, ids = make(positions=positions).float().cuda().train(), some_ids(2, 12).cuda()
    targets, start = ids.roll(-1, dims=1).clamp(min=1), net.start(2)

    def step() -> Tensor:
        loss: Tensor = net.output.loss(net(ids, start).hidden.flatten(0, 1), targets.flatten())
        loss.backward()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False), torch.cuda.graph(graph):
        captured = step()
    for seed in (1, 2):  # the graph reads the current content of `ids` and `targets`
        fresh = torch.randint(1, WORDS.size, (2, 13), generator=torch.Generator().manual_seed(seed)).cuda()
        ids.copy_(fresh[:, :-1])
        targets.copy_(fresh[:, 1:])
        graph.replay()
        replayed = captured.item()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert replayed == pytest.approx(step().item(), rel=1e-3)


def test_transformer_training_compiles_to_one_graph() -> None:
    net, ids = make(dropout=0.1).train(), some_ids(2, 8)
    torch.compile(net, backend="eager", fullgraph=True)(ids, net.start(2))


def test_transformer_initialisation_follows_gpt_2() -> None:
    words = Vocabulary(size=500, bos=0, eos=1, unk=2)
    net = Transformer(Config(hidden=128, layers=8, positions="learned", bias=True), words, None)
    assert net.learned is not None
    for block in net.blocks:
        for part, expected in (("qkv", 0.02), ("widen", 0.02), ("merge", 0.005), ("narrow", 0.005)):  # 0.02 / √16
            assert getattr(block, part).weight.std().item() == pytest.approx(expected, rel=0.03)
            assert getattr(block, part).bias.count_nonzero() == 0
    for table in (net.embedding, net.learned.table):
        assert table.std().item() == pytest.approx(0.02, rel=0.03)


def test_transformer_xavier_initialisation() -> None:
    # Xavier for each of W^Q, W^K, W^V separately: variance 2 / (128 + 128).
    block = Transformer(Config(hidden=128, layers=1, init="xavier"), WORDS, None).blocks[0]
    for part in (*block.qkv.weight.chunk(3), block.merge.weight):
        assert part.std().item() == pytest.approx(math.sqrt(2 / 256), rel=0.03)


def test_transformer_parameter_count_worked_by_hand() -> None:
    # V = 13, D = 12, two layers: E 156; per layer 3D² + D² + 8D² = 1,728 and two norms 24; the last norm 12; b_o
    # 13.
    assert sum(p.numel() for p in make(bias=False).parameters()) == 156 + 2 * (1728 + 24) + 12 + 13
    # Biases: per layer 3D + D + 4D + D = 108 and 24 of norms; 12 of the last norm. Positions: 16 rows.
    extra = 2 * (108 + 24) + 12 + 16 * 12
    with_all = build(make(positions="learned").config, WORDS, None)
    assert sum(p.numel() for p in with_all.parameters()) == 156 + 2 * (1728 + 24) + 12 + 13 + extra


def test_transformer_learns_to_copy() -> None:
    """A random word occurs twice: the second can only be predicted by attending to the first."""
    torch.manual_seed(8)
    net = Transformer(Config(hidden=32, heads=2, layers=2, window=8, dropout=0.0), WORDS, None)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    for _ in range(150):
        first = torch.randint(3, 13, (64, 3))
        ids = torch.cat([torch.zeros(64, 1, dtype=torch.int64), first, first], dim=1)
        hidden = net(ids[:, :-1], net.start(64)).hidden[:, 3:]
        loss = net.output.loss(hidden.flatten(0, 1), ids[:, 4:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1  # against ln 10 = 2.3 without attention


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"hidden": 10, "heads": 4}, "hidden, 10, cannot be divided among model.heads, 4"),
        ({"hidden": 12, "heads": 4}, "hidden 12 / model.heads 4 is odd"),
        ({"hidden": 64, "embedding": 32}, "embedding is 32 and model.hidden 64"),
        ({"heads": 0}, "heads is 0; choose 1"),
        ({"window": 0}, "window is 0; choose 1"),
        ({"feedforward": -1}, "feedforward is -1; choose 0"),
        ({"attention_dropout": 1.0}, "attention_dropout is 1; choose a value"),
    ],
)
def test_invalid_transformer_settings_are_rejected(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**chosen)


def test_odd_head_width_is_allowed_without_rotation() -> None:
    net, ids = make(heads=4, positions="sinusoidal"), some_ids(1, 4)
    torch.testing.assert_close(read_in_pieces(net, ids, [1] * 4)[0], net(ids, net.start(1)).hidden)
    assert Config(hidden=64, embedding=64).embedding_width == 64


def test_transformer_facets_for_compare() -> None:
    assert facets(Config(layers=3, hidden=96)) == {"layers": 3, "width": 96}
    assert len({tuple(facets(config).values()) for config in candidates()}) == len(candidates())
