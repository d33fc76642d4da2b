"""Saliency of each token for a text classifier: integrated gradients or attention weights.

One value per word and one for `</s>`; `<s>` has none. Notation: T tokens of a text including `<s>`.
"""

import torch
from torch import Tensor
from torch.func import functional_call

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids
from chainrule.neural.encoders.classifier import TextClassifier
from chainrule.neural.weights import check_outputs
from chainrule.training.device import device_of, exact_inference

STEPS = 32  # points of the path from zero vectors to those of the text


def integrated_gradients(network: TextClassifier, text: Ids, label: int, other: int, steps: int = STEPS) -> Floats:
    """(T − 1,) attribution of log p(label) − log p(other) to each token after `<s>`, by integrated gradients.

    Σ_d x_d · ∫₀¹ ∂F(α x)/∂x_d dα over the dimensions of the token vector x, by the midpoint rule with `steps`
    points (Sundararajan et al. 2017, eq. 1 and 3). The vector of `<s>` is fixed. The attributions sum to F(x) −
    F(0) up to discretization; with one step they are close to gradient times input.
    """
    E = network.reader.embedding.detach()
    ids = torch.from_numpy(text.astype("int64")).to(E.device)
    alpha = ((torch.arange(steps, device=E.device) + 0.5) / steps)[:, None].repeat(1, len(ids))  # (S, T)
    alpha[:, 0] = 1.0  # `<s>`
    rows = (alpha[..., None] * E[ids]).flatten(0, 1).requires_grad_()  # (S·T, E)  a vector for every position
    positions = torch.arange(len(rows), device=E.device).view(steps, len(ids))  # (S, T)
    with exact_inference(), torch.enable_grad():
        # Replace the embedding so that position i reads row i.
        logits = functional_call(
            network, {"reader.embedding": rows}, (positions, torch.ones_like(positions, dtype=torch.bool))
        )
        (grads,) = torch.autograd.grad((logits[:, label] - logits[:, other]).sum(), rows)
    mean = grads.view(steps, len(ids), -1).mean(dim=0)  # (T, E)
    return check_outputs(_to_numpy((E[ids] * mean).sum(dim=-1)[1:]), network, allow_neg_inf=False)


def pooling_weights(network: TextClassifier, text: Ids) -> Floats:
    """(T − 1,) weights of attention pooling over the tokens after `<s>`; they sum to 1."""
    if network.attention is None:
        raise ConfigError(
            f"this classifier pools by '{network.config.pooling}' and has no attention; explain it by gradient"
        )
    ids = torch.from_numpy(text.astype("int64"))[None].to(device_of(network))  # (1, T)
    mask = torch.ones_like(ids, dtype=torch.bool)
    with exact_inference():
        output, mask_pooled = network.read(ids, mask)
        return check_outputs(
            _to_numpy(network.attention(output.hidden, mask_pooled)[0]), network, allow_neg_inf=False
        )


def _to_numpy(x: Tensor) -> Floats:
    values: Floats = x.detach().double().cpu().numpy()
    return values
