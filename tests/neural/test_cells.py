"""Table of recurrent cells: one row makes a cell available to language models, encoders and sizing."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainrule import families, sizing
from chainrule.config import build_config
from chainrule.errors import ConfigError
from chainrule.neural.cells import CELLS, ENCODER_FAMILIES, get_cell
from chainrule.neural.encoders.classifier import ClassifyConfig
from chainrule.neural.encoders.encoder import make_layer
from chainrule.neural.encoders.seq2seq import PairConfig

NEW_CELL = """
from chainrule.neural import cells
cells.CELLS["mgu"] = cells.Cell("neural.minimal_gated_unit", "MinimalGatedLayer", learning_rate=4e-3)
cells.ENCODER_FAMILIES = (*cells.CELLS, "transformer")  # as if the row had been in the source

import chainrule
from chainrule import sizing
from chainrule.tasks import classify
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import LabelledTexts

lines = ["a b c", "b c a", "c a b", "d e f", "e f d", "f d e"] * 4
model = chainrule.train("mgu", Corpus.from_lines(lines), hidden=8, epochs=1, device="cpu")
assert model.config.hidden == 8 and model.parameters > 0
labels = ["left" if "a" in line else "right" for line in lines]
classifier = classify.train("mgu", LabelledTexts(lines, labels), hidden=8, embedding=4, epochs=1, device="cpu")
assert classifier.config.family == "mgu"
assert "mgu" in sizing.LADDERS and sizing.LEARNING_RATES["mgu"] == (4e-3, 256)
"""


@pytest.mark.parametrize("name", CELLS)
def test_every_table_of_families_has_the_cell(name: str) -> None:
    cell, family = get_cell(name), families.get(name)
    assert family.Config is cell.config
    assert name in sizing.LADDERS
    for kind in (ClassifyConfig, PairConfig):
        config = build_config(kind, {"family": name, "init_range": 0.25, "weight_dropout": 0.5}, "model")
        layer = make_layer(3, 4, config)
        assert type(layer) is cell.layer
        assert (layer.W.shape, layer.R.shape) == ((4 * cell.layer.gates, 3), (4 * cell.layer.gates, 4))
        assert layer.weight_dropout == 0.5


def test_an_unknown_cell_is_an_error() -> None:
    with pytest.raises(ConfigError, match="there is no recurrent cell 'mgu'; choose one of rnn, lstm, gru"):
        get_cell("mgu")
    config: Any = SimpleNamespace(family="transformer", init="xavier", init_range=0.1, weight_dropout=0.0)
    with pytest.raises(ConfigError, match="there is no recurrent cell 'transformer'"):
        make_layer(3, 4, config)
    for kind in (ClassifyConfig, PairConfig):
        with pytest.raises(
            ConfigError, match=f"model.family is 'mgu'; choose one of {', '.join(ENCODER_FAMILIES)}"
        ):
            build_config(kind, {"family": "mgu"}, "model")


def test_a_cell_needs_one_row() -> None:
    """A new process, because the table is read at import: train a language model and a classifier of a new cell."""
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NEW_CELL], cwd=tests, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
