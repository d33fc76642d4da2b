"""Settings in (TOML, `key=value`), frozen dataclass out; a name that does not exist is answered with a near one."""

import contextlib
import dataclasses
import difflib
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from chainrule.errors import ConfigError, NotFoundError

C = TypeVar("C")
TABLES = ("model", "tokenizer")


def make(kind: type[C], settings: Mapping[str, object], section: str) -> C:
    """A config of this kind from plain values; text is read as the field's type.

    Raises:
        ConfigError: a name or a value that the config does not have.

    """
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for name, value in settings.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"choose from {', '.join(names)}"
            raise ConfigError(f"[{section}] has no setting '{name}'; {hint}")
        values[name] = _read(value, hints[name], f"{section}.{name}")
    return kind(**values)


def to_json(config: Any) -> dict[str, Any]:
    """A config as plain values."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(config).items()
    }


def read_toml(path: Path) -> dict[str, dict[str, object]]:
    """The tables of a TOML file."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no config file {path}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; give a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    for name, table in tables.items():
        if isinstance(table, dict) and name not in TABLES:
            raise ConfigError(f"{path} has a table [{name}]; choose from {', '.join(f'[{t}]' for t in TABLES)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: '{name}' stands outside a table; write it under [model] or [tokenizer]")
    return tables


def parse_overrides(pairs: Sequence[str]) -> dict[str, object]:
    """`key=value` arguments as settings.

    >>> parse_overrides(["order=3", "prune=0,0,1"])
    {'order': '3', 'prune': '0,0,1'}
    """
    settings: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {pair}: write it as key=value, for example --set order=3")
        settings[name] = value
    return settings


def _read(value: object, kind: Any, name: str) -> object:
    """`value` as the annotated type `kind`, text converted."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None or value in ("none", ""):
            return None
        return _read(value, next(a for a in arguments if a is not type(None)), name)
    if origin is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Sequence):
            raise ConfigError(f"{name} is {value!r}; write it as a list, for example 0,0,1")
        return tuple(_read(part, arguments[0], name) for part in parts if part != "")
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{name} is '{value}'; choose one of {', '.join(map(str, arguments))}")
        return value
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"{name} is {value!r}; it must be a table")
        return value
    return _scalar(value, kind, name)


def _scalar(value: object, kind: Any, name: str) -> object:
    switches = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if kind is bool:
        value = switches.get(value.lower(), value) if isinstance(value, str) else value
    elif kind in (int, float) and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = kind(value)
    elif kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"{name} is {value!r}; it must be {_NOUNS.get(kind, kind.__name__)}")
    return value


_NOUNS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
