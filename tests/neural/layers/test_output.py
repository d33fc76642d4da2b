import numpy as np
import pytest
import torch
from torch import Tensor, nn

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural.config import ModelConfig, OutputKind
from chainrule.neural.layers.output import (
    AdaptiveSoftmax,
    NoiseContrastive,
    Output,
    SampledSoftmax,
    Softmax,
    make_output,
)

V, D = 30, 6
VOCABULARY = Vocabulary(size=V, bos=4, eos=5, unk=9, closed=True)
COUNTS: Floats = np.array([(7 * word) % 11 for word in range(V)], dtype=np.float64)
KINDS: dict[OutputKind, type[Output]] = {
    "softmax": Softmax,
    "sampled": SampledSoftmax,
    "nce": NoiseContrastive,
    "adaptive": AdaptiveSoftmax,
}


def embedding(width: int = D) -> nn.Parameter:
    torch.manual_seed(1)
    return nn.Parameter(torch.randn(V, width))


def output_layer(kind: OutputKind, counts: Floats | None = COUNTS, vocabulary: Vocabulary = VOCABULARY) -> Output:
    config = ModelConfig(output=kind, tie=False, samples=16, init_range=0.5)
    return make_output(config, D, vocabulary, embedding(), counts)


def hidden(rows: int = 8) -> Tensor:
    torch.manual_seed(2)
    return torch.randn(rows, D)


@pytest.mark.parametrize("kind", KINDS)
def test_output_kind_selects_its_layer(kind: OutputKind) -> None:
    assert type(output_layer(kind)) is KINDS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_output_probabilities_sum_to_one(kind: OutputKind) -> None:
    log_p = output_layer(kind).log_probs(hidden())
    assert log_p.shape == (8, V)
    assert (log_p.exp().sum(dim=1) - 1).abs().max() < 1e-6
    impossible = torch.isneginf(log_p)
    assert impossible.any(dim=0).nonzero().flatten().tolist() == [4, 9]  # <s>, <unk> of a closed vocabulary
    assert impossible[:, [4, 9]].all()


@pytest.mark.parametrize("kind", KINDS)
def test_open_vocabulary_predicts_unk(kind: OutputKind) -> None:
    log_p = output_layer(kind, vocabulary=Vocabulary(size=V, bos=4, eos=5, unk=9)).log_probs(hidden())
    assert torch.isneginf(log_p).any(dim=0).nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("kind", ["softmax", "adaptive"])
def test_exact_output_loss_is_the_mean_nll(kind: OutputKind) -> None:
    layer, targets = output_layer(kind), torch.tensor([0, 5, 29, 6, 1, 2, 8, 8])
    exact = -layer.log_probs(hidden())[torch.arange(8), targets].mean()
    torch.testing.assert_close(layer.loss(hidden(), targets), exact)


@pytest.mark.parametrize("kind", KINDS)
def test_output_built_without_counts_predicts_alike_once_loaded(kind: OutputKind) -> None:
    first, second = output_layer(kind), output_layer(kind, counts=None)
    for parameter in first.parameters():
        nn.init.normal_(parameter)
    assert not torch.equal(first.log_probs(hidden()), second.log_probs(hidden()))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.log_probs(hidden()), second.log_probs(hidden()))
    targets = torch.tensor([0, 5, 29, 6, 1, 2, 8, 8])
    torch.manual_seed(5)
    learnt = first.loss(hidden(), targets)
    torch.manual_seed(5)
    assert torch.equal(learnt, second.loss(hidden(), targets))  # the noise distribution is also restored


@pytest.mark.parametrize("kind", KINDS)
def test_every_output_parameter_gets_a_gradient(kind: OutputKind) -> None:
    layer, read = output_layer(kind), hidden(V).requires_grad_()
    targets = torch.from_numpy(np.flatnonzero(VOCABULARY.predictable))
    layer.loss(read[: len(targets)], targets).backward()
    for name, parameter in [("hidden", read), *layer.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("kind", ["softmax", "sampled", "nce"])
def test_tied_output_shares_the_embedding(kind: OutputKind) -> None:
    E = embedding()
    before = E.detach().clone()
    layer = make_output(ModelConfig(output=kind), D, VOCABULARY, E, COUNTS)
    assert layer.weight is E
    assert torch.equal(E, before)  # the embedding is not reinitialised
    layer.loss(hidden(), torch.tensor([0, 5, 29, 6, 1, 2, 8, 8])).backward()
    assert E.grad is not None
    assert (E.grad != 0).any(dim=1)[[0, 5, 29]].all()


@pytest.mark.parametrize("kind", ["softmax", "sampled", "nce"])
def test_untied_output_has_its_own_weights_within_the_range(kind: OutputKind) -> None:
    E = embedding()
    layer = make_output(ModelConfig(output=kind, tie=False, init_range=0.02), D, VOCABULARY, E, COUNTS)
    assert layer.weight is not E
    assert layer.weight.shape == (V, D)
    assert 0.01 < layer.weight.abs().max() <= 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_tied_outputs_of_different_widths_are_rejected(kind: OutputKind) -> None:
    with pytest.raises(ConfigError, match=r"not 6 and 7.*--no-tie"):
        make_output(ModelConfig(output=kind), D, VOCABULARY, embedding(7), COUNTS)
    config = ModelConfig(output=kind, tie=False)
    assert make_output(config, D, VOCABULARY, embedding(7), COUNTS).log_probs(hidden()).shape == (8, V)


def test_adaptive_softmax_cannot_be_tied() -> None:
    with pytest.raises(ConfigError, match="--no-tie"):
        make_output(ModelConfig(output="adaptive"), D, VOCABULARY, embedding(), COUNTS)


def test_output_settings_reach_the_layer() -> None:
    noisy = make_output(ModelConfig(output="sampled", samples=7), D, VOCABULARY, embedding(), COUNTS)
    assert noisy.draw().shape == (7,)
    clustered = make_output(
        ModelConfig(output="adaptive", cutoffs=(3, 9), tie=False), D, VOCABULARY, embedding(), COUNTS
    )
    assert clustered.layer.cutoffs == [3, 9, V - 2]
