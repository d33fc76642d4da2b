"""Shared helpers of the gradient-flow tests: small networks with known weights."""

from typing import Any

import numpy as np
import torch

from chainrule.lm import Ids, Vocabulary
from chainrule.neural.model import NeuralModel
from chainrule.neural.probes.gradient_flow import gradient_flow
from chainrule.neural.probes.measurements import GradientFlow
from neural.adaptation_models import WORDS, encoded


def recurrent(module: Any, words: Vocabulary = WORDS, **settings: Any) -> NeuralModel:
    """Random weights, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = module.build(module.Config(**{"hidden": 8, **settings}), words, np.ones(words.size)).double()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, 0.0, 0.4)
    return NeuralModel(network, words, "stream")


def fill(lm: NeuralModel, **values: Any) -> NeuralModel:
    """Set these parameters (dots written as two underscores) to these values and all others to zero."""
    remaining = {name.replace("__", "."): value for name, value in values.items()}
    with torch.no_grad():
        for name, parameter in lm.network.named_parameters():
            parameter.copy_(torch.as_tensor(remaining.pop(name, 0.0)).expand_as(parameter))
    assert not remaining
    return lm


def by_what(flows: list[GradientFlow]) -> dict[str, GradientFlow]:
    return {flow.what: flow for flow in flows}


def last_row(lm: NeuralModel, ids: Ids, **settings: Any) -> dict[str, GradientFlow]:
    """The flow at all positions and lags: the last position is row −1."""
    return by_what(gradient_flow(lm, encoded(ids), lags=len(ids) - 1, positions=len(ids), **settings))
