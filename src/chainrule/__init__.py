"""chainrule: train, evaluate and compare language models of several families behind one interface."""

TYPE_CHECKING = False  # avoid importing typing: it takes milliseconds during which Ctrl-C is not yet handled
if TYPE_CHECKING:
    from chainrule.api import load, mix, train
    from chainrule.comparison.runner import compare
    from chainrule.errors import ChainruleError, ChainruleWarning
    from chainrule.inspection.run import inspect
    from chainrule.model import Model

__version__ = "0.1.0"

__all__ = ["ChainruleError", "ChainruleWarning", "Model", "compare", "inspect", "load", "mix", "train"]

_MODULES = {
    "ChainruleError": "chainrule.errors",
    "ChainruleWarning": "chainrule.errors",
    "Model": "chainrule.model",
    "compare": "chainrule.comparison.runner",
    "inspect": "chainrule.inspection.run",
    "load": "chainrule.api",
    "mix": "chainrule.api",
    "train": "chainrule.api",
}


def __dir__() -> list[str]:
    """List the public names and the dunder attributes of the module."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> object:
    """Import the module of a public name on first use, so that `import chainrule` loads nothing."""
    if name not in _MODULES:
        raise AttributeError(f"module 'chainrule' has no attribute '{name}'")
    from importlib import import_module

    value: object = getattr(import_module(_MODULES[name]), name)
    return value
