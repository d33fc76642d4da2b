"""Decoder block against torch's layer with the same weights, and its initialisation."""

import math
from typing import Any

import pytest
import torch

from chainrule.neural.encoders.seq2seq import PairConfig
from chainrule.neural.layers.transformer_block import CrossBlock

D, H, WIDE = 8, 2, 12
NAMES = {
    "self_attn.in_proj_": "qkv.",
    "self_attn.out_proj.": "merge.",
    "multihead_attn.out_proj.": "merge_cross.",
    "linear1.": "widen.",
    "linear2.": "narrow.",
    "norm1.": "norm_attention.",
    "norm2.": "norm_cross.",
    "norm3.": "norm_feedforward.",
}


def block_of(**chosen: Any) -> CrossBlock:
    torch.manual_seed(1)
    return CrossBlock(PairConfig(family="transformer", **{"hidden": D, "heads": H, "dropout": 0.0, **chosen}))


def torch_layer_of(block: CrossBlock, norm: str, activation: str) -> torch.nn.TransformerDecoderLayer:
    judge = torch.nn.TransformerDecoderLayer(
        D, H, WIDE, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
    )
    state_dict = block.state_dict()
    weights = {
        theirs + part: state_dict[ours + part] for theirs, ours in NAMES.items() for part in ("weight", "bias")
    }
    for part in ("weight", "bias"):  # W^Q above W^K and W^V
        weights[f"multihead_attn.in_proj_{part}"] = torch.cat(
            [state_dict[f"q_cross.{part}"], state_dict[f"kv_cross.{part}"]]
        )
    judge.load_state_dict(weights)
    return judge


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_cross_block_equals_the_torch_decoder_layer(norm: str, activation: str) -> None:
    """At once and, from its keys and values, one token at a time."""
    block = block_of(norm=norm, activation=activation, feedforward=WIDE, bias=True)
    for parameter in block.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    x, memory = torch.randn(3, 4, D), torch.randn(3, 5, D)
    present = torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    ahead = torch.ones(4, 4, dtype=torch.bool).triu(1)
    expected = torch_layer_of(block, norm, activation)(x, memory, tgt_mask=ahead, memory_key_padding_mask=~present)
    source, nothing = block.source(memory), x.new_empty(3, 0, H, D // H)
    result, _, _, alpha = block(x, (nothing, nothing), None, None, source, present)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(alpha.sum(dim=-1), torch.ones(3, H, 4))
    assert not alpha[1, :, :, 2:].any()
    keys = values = nothing
    for t in range(4):
        everything = torch.ones(3, 1, 1, t + 1, dtype=torch.bool)
        one, keys, values, _ = block(x[:, t : t + 1], (keys, values), None, everything, source, present)
        torch.testing.assert_close(one[:, 0], expected[:, t], rtol=1e-5, atol=1e-5)


def test_initialisation_keeps_variance_over_three_branches_per_layer() -> None:
    """Standard normal (or uniform of ±√3), 4 layers: the outputs of 3 · 4 branches have deviation 1/√12."""
    block = block_of(hidden=64, layers=4, init="normal", init_range=math.sqrt(3))
    deviation = {
        name: float(weight.detach().std()) for name, weight in block.named_parameters() if weight.dim() == 2
    }
    ends = {f"{name}.weight": 1 / math.sqrt(12) for name in ("merge", "merge_cross", "narrow")}
    other_deviations = {f"{name}.weight": 1.0 for name in ("qkv", "widen", "q_cross", "kv_cross")}
    assert deviation == pytest.approx(ends | other_deviations, rel=0.06)


def test_uniform_initialisation_is_not_scaled() -> None:
    block = block_of(hidden=64, layers=4, init="uniform", init_range=0.5)
    assert float(block.merge_cross.weight.detach().abs().max()) > 0.45
