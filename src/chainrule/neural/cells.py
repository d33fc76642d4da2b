"""Table of recurrent cells; all code that handles recurrent networks reads it.

Names are available without torch: the module of a cell is imported when its layer or its config is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from chainrule.errors import ConfigError

if TYPE_CHECKING:
    from chainrule.neural.recurrent import RecurrentConfig, RecurrentLayer


@dataclass(frozen=True, slots=True)
class Cell:
    """A recurrent cell: its equations and its settings."""

    module: str  # contains the layer class, `Config` and the model family `family`
    layer_class: str  # subclass of `recurrent.RecurrentLayer`
    learning_rate: float  # peak rate at a width of 256 units, for `sizing`

    @property
    def layer(self) -> "type[RecurrentLayer]":
        """Class of one layer."""
        layer: type[RecurrentLayer] = getattr(self._module, self.layer_class)
        return layer

    @property
    def config(self) -> "type[RecurrentConfig]":
        """Class of the settings."""
        config: type[RecurrentConfig] = self._module.Config
        return config

    @property
    def _module(self) -> Any:
        return import_module(self.module)


CELLS: Final[Mapping[str, Cell]] = {
    "rnn": Cell("chainrule.neural.rnn", "ElmanLayer", learning_rate=3e-3),
    "lstm": Cell("chainrule.neural.lstm", "LSTMLayer", learning_rate=4.5e-3),
    "gru": Cell("chainrule.neural.gru", "GRULayer", learning_rate=4.5e-3),
}

ENCODER_FAMILIES: Final = (*CELLS, "transformer")
"""Families of encoders, which read a whole text."""


def get_cell(name: str) -> Cell:
    """Return the cell of this name."""
    if name not in CELLS:
        raise ConfigError(f"there is no recurrent cell '{name}'; choose one of {', '.join(CELLS)}")
    return CELLS[name]
