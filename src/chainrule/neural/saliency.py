"""What each word of a text did for its label: by gradients, or by where an attentive classifier looked.

Lives here: one number for each word and one for `</s>`, of a trained network; `<s>`, with which every text begins,
has none. Not here: the network (classifier.py), showing the numbers. Letter: T tokens of a text, `<s>` the first.
"""

import torch
from torch import Tensor
from torch.func import functional_call

from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids
from chainrule.neural.classifier import TextClassifier
from chainrule.neural.device import device_of, exact
from chainrule.neural.weights import check_outputs

STEPS = 32  # points between no vectors at all and those of the text


def gradient(network: TextClassifier, text: Ids, label: int, other: int, steps: int = STEPS) -> Floats:
    """(T − 1,) what each token behind `<s>` adds to log p(label) − log p(other), by integrated gradients.

    Σ_d x_d · ∫₀¹ ∂F(α x)/∂x_d dα over the values of the token's vector x, as a sum over the middles of `steps`
    pieces (Sundararajan et al. 2017, eq. 1 and 3). `<s>` keeps its vector. Over all other tokens this sums to
    F(x) − F(0), up to the pieces; with one step it is nearly the plain product of input and gradient.
    """
    E = network.reader.embedding.detach()
    ids = torch.from_numpy(text.astype("int64")).to(E.device)
    alpha = ((torch.arange(steps, device=E.device) + 0.5) / steps)[:, None].repeat(1, len(ids))  # (S, T)
    alpha[:, 0] = 1.0  # `<s>`
    rows = (alpha[..., None] * E[ids]).flatten(0, 1).requires_grad_()  # (S·T, E)  a vector for every place
    places = torch.arange(len(rows), device=E.device).view(steps, len(ids))  # (S, T)
    with exact(), torch.enable_grad():
        # The network itself, but that place i of the text reads row i.
        logits = functional_call(
            network, {"reader.embedding": rows}, (places, torch.ones_like(places, dtype=torch.bool))
        )
        (slope,) = torch.autograd.grad((logits[:, label] - logits[:, other]).sum(), rows)
    mean = slope.view(steps, len(ids), -1).mean(dim=0)  # (T, E)
    return check_outputs(_numbers((E[ids] * mean).sum(dim=-1)[1:]), network, may_be_impossible=False)


def attention(network: TextClassifier, text: Ids) -> Floats:
    """(T − 1,) how much of the pooled vector comes from each token behind `<s>`; they sum to 1."""
    if network.attention is None:
        raise ConfigError(
            f"this classifier pools by '{network.config.pooling}' and looks nowhere; explain it by gradient"
        )
    ids = torch.from_numpy(text.astype("int64"))[None].to(device_of(network))  # (1, T)
    mask = torch.ones_like(ids, dtype=torch.bool)
    with exact():
        read, pooled = network.read(ids, mask)
        return check_outputs(_numbers(network.attention(read.hidden, pooled)[0]), network, may_be_impossible=False)


def _numbers(x: Tensor) -> Floats:
    found: Floats = x.detach().double().cpu().numpy()
    return found
