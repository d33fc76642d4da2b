"""Encoder block against torch's layer with the same weights, and its initialisation."""

import math
from typing import Any

import pytest
import torch

from chainrule.neural.encoders.encoder import EncoderConfig
from chainrule.neural.layers.transformer_block import TransformerBlock

D, H, WIDE = 8, 2, 12


def config(**chosen: Any) -> EncoderConfig:
    return EncoderConfig(family="transformer", **{"hidden": D, "heads": H, "dropout": 0.0, **chosen})


def randomize(block: torch.nn.Module) -> None:
    """Random values everywhere, also in norms and biases, so that no omission goes unnoticed."""
    for parameter in block.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_transformer_block_equals_the_torch_encoder_layer(norm: str, activation: str) -> None:
    torch.manual_seed(1)
    block = TransformerBlock(config(norm=norm, activation=activation, feedforward=WIDE, bias=True))
    randomize(block)
    judge = torch.nn.TransformerEncoderLayer(
        D, H, WIDE, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
    )
    names = {
        "self_attn.in_proj_": "qkv.",
        "self_attn.out_proj.": "merge.",
        "linear1.": "widen.",
        "linear2.": "narrow.",
        "norm1.": "norm_attention.",
        "norm2.": "norm_feedforward.",
    }
    state_dict = block.state_dict()
    judge.load_state_dict(
        {theirs + part: state_dict[ours + part] for theirs, ours in names.items() for part in ("weight", "bias")}
    )
    x = torch.randn(3, 5, D)
    mask = torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    nothing = x.new_empty(3, 0, H, D // H)
    result, keys, _ = block(x, (nothing, nothing), None, mask[:, None, None])
    expected = judge(x, src_key_padding_mask=~mask)
    torch.testing.assert_close(result[mask], expected[mask], rtol=1e-5, atol=1e-6)
    assert keys.shape == (3, 5, H, D // H)


def test_initialisation_keeps_variance_over_two_branches_per_layer() -> None:
    """Standard normal (or uniform of ±√3), 4 layers: the outputs of 2 · 4 branches have deviation 1/√8."""
    torch.manual_seed(2)
    block = TransformerBlock(config(hidden=64, layers=4, init="normal", init_range=math.sqrt(3)))
    deviation = {
        name: float(weight.detach().std()) for name, weight in block.named_parameters() if weight.dim() == 2
    }
    ends = 1 / math.sqrt(8)
    expected = {"qkv.weight": 1.0, "merge.weight": ends, "widen.weight": 1.0, "narrow.weight": ends}
    assert deviation == pytest.approx(expected, rel=0.06)
