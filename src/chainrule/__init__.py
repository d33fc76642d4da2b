"""chainrule: language models of your own text, every family behind one contract, compared on one scale."""

TYPE_CHECKING = False  # importing typing takes milliseconds in which Ctrl-C is not yet handled
if TYPE_CHECKING:
    from chainrule.api import mix, train
    from chainrule.comparison import compare
    from chainrule.errors import ChainruleError, ChainruleWarning
    from chainrule.loading import load
    from chainrule.microscope.inspecting import inspect
    from chainrule.model import Model

__version__ = "0.1.0"

__all__ = ["ChainruleError", "ChainruleWarning", "Model", "compare", "inspect", "load", "mix", "train"]

_HOMES = {
    "ChainruleError": "chainrule.errors",
    "ChainruleWarning": "chainrule.errors",
    "Model": "chainrule.model",
    "compare": "chainrule.comparison",
    "inspect": "chainrule.microscope.inspecting",
    "load": "chainrule.loading",
    "mix": "chainrule.api",
    "train": "chainrule.api",
}


def __dir__() -> list[str]:
    """The public names and the module's attributes; not what this file imports for itself."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> object:
    """Public names are resolved on first use, so that importing chainrule loads nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'chainrule' has no attribute '{name}'")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    return value
