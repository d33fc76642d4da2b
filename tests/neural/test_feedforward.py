"""Feed-forward model: parameter count by hand, a reference loop over words, context length."""

from typing import Any

import numpy as np
import pytest
import torch

from chainrule.errors import ConfigError
from chainrule.lm import Vocabulary
from chainrule.neural.feedforward import Config, Feedforward, build, candidates, facets

WORDS = Vocabulary(size=11, bos=0, eos=1, unk=2)


def make(**chosen: Any) -> Feedforward:
    torch.manual_seed(3)
    net: Feedforward = Feedforward(Config(**{"hidden": 6, "embedding": 4, **chosen}), WORDS, None).double().eval()
    for parameter in net.parameters():  # biases too: zeros would hide a mistake
        torch.nn.init.normal_(parameter, 0.0, 0.5)
    return net


def some_ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, WORDS.size, (rows, length), generator=torch.Generator().manual_seed(4))


def size(net: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def test_parameter_count_of_bengio_2003() -> None:
    # V = 10,000, d = 300, m = 500, n = 3: E 3,000,000, W_h 300,000, b_h 500, W_o 5,000,000, b_o 10,000.
    words = Vocabulary(size=10_000, bos=0, eos=1, unk=2)
    config = Config(order=3, hidden=500, embedding=300, tie=False)
    assert size(build(config, words, None)) == 8_310_500
    # direct connections: 2·300 more inputs for each of 10,000 words.
    direct = Config(order=3, hidden=500, embedding=300, tie=False, direct=True)
    assert size(build(direct, words, None)) == 8_310_500 + 6_000_000


def test_tied_feedforward_parameter_count() -> None:
    # n = 3, d = 4, m = 6: E 11·4, W_h 6·8, b_h 6, projection to the embedding width 4·6, b_o 11.
    assert size(make(order=3)) == 44 + 48 + 6 + 24 + 11
    assert size(make(order=3, direct=True)) == 44 + 48 + 6 + 24 + 11 + 4 * 8
    assert size(make(order=3, embedding=6)) == 66 + 72 + 6 + 11


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("layers", [1, 2])
def test_feedforward_equals_the_formula_word_by_word(order: int, tie: bool, direct: bool, layers: int) -> None:
    net = make(order=order, tie=tie, direct=direct, layers=layers)
    w = {name: value.numpy() for name, value in net.state_dict().items()}
    ids = some_ids(2, 7)
    features = net(ids, net.start(2))
    log_p = net.output.log_probs(features.hidden.flatten(0, 1)).view(2, 7, -1).detach().numpy()
    for row, sentence in enumerate(ids.tolist()):
        for k in range(7):
            context = ([WORDS.bos] * order + sentence[: k + 1])[-(order - 1) :]
            x = np.concatenate([w["embedding"][word] for word in context])
            h = x
            for i in range(layers):
                h = np.tanh(w[f"layers.{i}.weight"] @ h + w[f"layers.{i}.bias"])
            if tie:
                z = w["embedding"] @ (w["project.weight"] @ h + (w["direct.weight"] @ x if direct else 0))
            else:  # W_o = [W_h→o, W_x→o]
                W = w["output.weight"]
                z = W[:, :6] @ h + (W[:, 6:] @ x if direct else 0)
            z = z + w["output.bias"]
            z[WORDS.bos] = -np.inf
            np.testing.assert_allclose(log_p[row, k], z - np.log(np.exp(z).sum()), atol=1e-12)


@pytest.mark.parametrize("order", [2, 3, 6])
def test_feedforward_reads_pieces_like_the_whole(order: int) -> None:
    net, ids = make(order=order), some_ids(3, 9)
    full = net(ids, net.start(3))
    for pieces in ([4, 5], [1] * 9, [2, 1, 6]):
        state, outputs = net.start(3), []
        for piece in ids.split(pieces, dim=1):
            hidden, state, _ = net(piece, state)
            outputs.append(hidden)
        torch.testing.assert_close(torch.cat(outputs, dim=1), full.hidden)
        assert torch.equal(state[0], full.state[0])
        assert state[0].shape == (3, order - 2)


def test_feedforward_depends_on_its_window_only() -> None:
    net, ids = make(order=4), some_ids(1, 8)
    changed_ids = ids.clone()
    changed_ids[0, 3] = (ids[0, 3] + 1) % WORDS.size
    changed = (net(ids, net.start(1)).hidden != net(changed_ids, net.start(1)).hidden).any(dim=-1)[0]
    assert changed.tolist() == [False] * 3 + [True] * 3 + [False] * 2


def test_feedforward_start_is_a_row_of_bos() -> None:
    net = make(order=4)
    assert net.start(2)[0].tolist() == [[WORDS.bos] * 2] * 2
    assert make(order=2).start(3)[0].shape == (3, 0)


@pytest.mark.parametrize("locked", [False, True])
def test_feedforward_dropout_only_in_training(locked: bool) -> None:
    net, ids = make(order=3, dropout=0.5, embedding_dropout=0.3, locked=locked, layers=2), some_ids(2, 5)
    calm = make(order=3, dropout=0.0, layers=2)
    calm.load_state_dict(net.state_dict())
    assert torch.equal(net(ids, net.start(2)).hidden, calm(ids, calm.start(2)).hidden)
    net.train()
    first, second = (net(ids, net.start(2)).hidden for _ in range(2))
    assert not torch.equal(first, second)
    absent = first == 0
    is_same_at_all_times = torch.equal(absent, absent[:, :1].expand_as(absent))
    assert is_same_at_all_times == locked


def test_feedforward_initialisation_follows_the_config() -> None:
    net = Feedforward(Config(hidden=64, order=3, init="uniform", init_range=0.05), WORDS, None)
    assert net.layers[0].weight.abs().max() <= 0.05
    assert net.layers[0].bias.count_nonzero() == 0
    wide = Feedforward(Config(hidden=64, order=3, init="orthogonal"), WORDS, None).layers[0].weight  # (64, 128)
    torch.testing.assert_close(wide @ wide.t(), torch.eye(64), atol=1e-5, rtol=0)


@pytest.mark.parametrize("order", [1, 0, 65])
def test_invalid_feedforward_order_is_rejected(order: int) -> None:
    with pytest.raises(ConfigError, match=f"order is {order}; choose 2 to 64"):
        Config(order=order)


def test_feedforward_facets_for_compare() -> None:
    assert [facets(config) for config in candidates()] == [
        {"order": config.order, "width": config.hidden} for config in candidates()
    ]
    assert facets(Config(order=3, hidden=50)) == {"order": 3, "width": 50}
