"""Build frozen config dataclasses from TOML tables, `key=value` overrides and saved JSON.

Settings of several sources are merged by precedence. An unknown name raises ConfigError with the closest match.
A config may contain others, such as `ModelConfig.training`; outside Python, all settings are in one flat table.
"""

import contextlib
import dataclasses
import difflib
import math
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from chainrule.errors import ConfigError, NotFoundError, printable

C = TypeVar("C")
TABLES = ("model", "training", "tokenizer", "run")
LARGEST_INTEGER = 1 << 63
RECIPE_TABLE = "recipe"  # table with the description of a recipe, not settings


def setting(default: Any, help: str, *, option: str = "", shows_default: bool = False, **limits: float) -> Any:
    """Declare a field of a config dataclass together with its command-line option.

    Args:
        default: Default value.
        help: Help text of the option.
        option: Flags of the option, e.g. `--tie/--no-tie`; by default the name of the field.
        shows_default: Append the default value to the help text.
        limits: `min` and `max` of the option.

    """
    shown = f"{default:g}" if isinstance(default, float) else default
    text = f"{help}  [default: {shown}]" if shows_default else help
    return dataclasses.field(default=default, metadata={"help": text, "option": option, "limits": limits})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Settings of a training run that belong to neither the model nor the tokenizer."""

    context: Literal["line", "stream"] = setting(
        "line",
        "'line' resets the context at every line; 'stream' carries it over from the line before.",
        shows_default=True,
    )
    seed: int = setting(
        0,
        "Random seed; the same seed gives the same result, except when a unigram tokenizer is trained.",
        shows_default=True,
        min=0,
    )

    def __post_init__(self) -> None:
        check_seed(self.seed, "run.seed")


def check_seed(seed: int, name: str = "seed") -> None:
    """Raise ConfigError for a negative seed of a random number generator."""
    if seed < 0:
        raise ConfigError(f"{name} is {seed}; choose 0 or more")


def check_fractions(config: object, section: str, *names: str, includes_one: bool = False) -> None:
    """Raise ConfigError for a setting outside [0, 1), or outside [0, 1] if `includes_one`; None is valid."""
    for name in names:
        value = getattr(config, name)
        if value is not None and (not 0 <= value <= 1 or (value == 1 and not includes_one)):
            interval = "[0, 1]" if includes_one else "[0, 1)"
            raise ConfigError(f"{section}.{name} is {value:g}; choose a value in {interval}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOverrides:
    """Settings from one source (a file, a recipe or the command line), by section.

    `model` includes the training settings.
    """

    model: dict[str, object] = dataclasses.field(default_factory=dict)
    tokenizer: dict[str, object] = dataclasses.field(default_factory=dict)
    run: dict[str, object] = dataclasses.field(default_factory=dict)

    def __or__(self, above: "ConfigOverrides") -> "ConfigOverrides":
        """Merge two sources like dicts: `above` takes precedence."""
        return ConfigOverrides(
            model=self.model | above.model,
            tokenizer=self.tokenizer | above.tokenizer,
            run=self.run | above.run,
        )

    def arguments(self) -> dict[str, Any]:
        """Return the settings of tokenizer and model as keyword arguments of a `train` function."""
        tokenizer = {"tokenizer" if name == "kind" else name: value for name, value in self.tokenizer.items()}
        return tokenizer | self.model


def build_config(
    kind: type[C], settings: Mapping[str, object], section: str, family: str = "", *, is_saved: bool = False
) -> C:
    """Build a config from plain values; strings are converted to the types of the fields.

    Args:
        kind: The dataclass to build.
        settings: Values by field name.
        section: Name of the table, for error messages.
        family: Name of the model family, for error messages.
        is_saved: The values come from a model folder: they must be finite and have the types written by `to_json`.

    Raises:
        ConfigError: for an unknown name or an invalid value.

    """
    known = _settings_of(kind, section)
    values: dict[str, object] = {}
    if not isinstance(settings, Mapping):
        raise ConfigError(f"[{section}] is {settings!r:.40}; it must be a table of settings")
    for name, value in settings.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"choose from {', '.join(known)}"
            owner = f" for family '{family}'" if family else ""
            table = known[near[0]][1].partition(".")[0] if near else section  # that of the closest match
            raise ConfigError(f"[{table}] has no setting '{name}'{owner}; {hint}")
        hint, label = known[name]
        if is_saved:
            _check_saved(value, label, hint)
        values[name] = _read(value, hint, label)
    return kind(**_nest(values, _default_nested_configs(kind)))


def with_settings(config: C, **settings: Any) -> C:
    """Return a copy of a config with some settings replaced, in the config itself or in a nested one."""
    nested = {name: getattr(config, name) for name in _default_nested_configs(type(config))}
    return dataclasses.replace(config, **_nest(settings, nested))  # type: ignore[type-var]


def setting_names(kind: type[Any]) -> list[str]:
    """Return the names of the settings of a config, including those of its nested configs."""
    return list(_settings_of(kind, ""))


def flatten(config: Any) -> dict[str, Any]:
    """Return the values of the settings of a config and of its nested configs by name."""
    values: dict[str, Any] = {}
    for name, value in dataclasses.asdict(config).items():
        values |= value if dataclasses.is_dataclass(getattr(config, name)) else {name: value}
    return values


def to_json(config: Any) -> dict[str, Any]:
    """Convert a config to JSON values by setting name."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in flatten(config).items()}


def _settings_of(kind: type[Any], section: str) -> dict[str, tuple[Any, str]]:
    """Return type and full name of each setting; the section of a nested config is the name of its field."""
    hints, settings = get_type_hints(kind), dict[str, tuple[Any, str]]()
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            settings |= _settings_of(hints[field.name], field.name)
        else:
            settings[field.name] = hints[field.name], f"{section}.{field.name}"
    return settings


def _default_nested_configs(kind: type[Any]) -> dict[str, Any]:
    """Return the default of each nested config by the name of its field."""
    factories = {f.name: f.default_factory for f in dataclasses.fields(kind) if callable(f.default_factory)}
    defaults = {name: make() for name, make in factories.items()}
    return {name: default for name, default in defaults.items() if dataclasses.is_dataclass(default)}


def _nest(settings: Mapping[str, object], nested: Mapping[str, Any]) -> dict[str, object]:
    """Move the settings of nested configs into them."""
    values = dict(settings)
    for name, config in nested.items():
        inner = {key: values.pop(key) for key in setting_names(type(config)) if key in values}
        values[name] = dataclasses.replace(config, **inner)
    return values


def read_toml(path: Path) -> dict[str, dict[str, object]]:
    """Read the tables of a TOML file."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no config file {path}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; give a TOML file") from error
    except ValueError as error:  # not UTF-8, not TOML, or a path with a NUL byte
        raise ConfigError(f"{printable(str(path))} is not TOML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply; write settings under the tables alone") from None
    known = ", ".join(f"[{table}]" for table in TABLES)
    for name, table in tables.items():
        if isinstance(table, dict) and name not in (*TABLES, RECIPE_TABLE):
            raise ConfigError(f"{path} has a table [{name}]; choose from {known}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: '{name}' is not in a table; write it under one of {known}")
    return tables


def overrides_from_tables(tables: Mapping[str, Mapping[str, object]], source: object) -> ConfigOverrides:
    """Collect the settings of a TOML file by section; [model] and [training] are merged.

    >>> overrides_from_tables({"model": {"layers": 2}, "training": {"epochs": 5}}, "run.toml").model
    {'layers': 2, 'epochs': 5}
    """
    model, training = tables.get("model", {}), tables.get("training", {})
    for name in model:
        if name in training and model[name] != training[name]:
            raise ConfigError(
                f"{source}: '{name}' is {model[name]!r} in [model] and {training[name]!r} in [training]; keep one"
            )
    return ConfigOverrides(
        model={**model, **training}, tokenizer=dict(tables.get("tokenizer", {})), run=dict(tables.get("run", {}))
    )


def parse_overrides(pairs: Sequence[str]) -> dict[str, object]:
    """Parse `key=value` arguments.

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


def merge_settings(
    recipe: ConfigOverrides | None = None,
    file: Path | None = None,
    pairs: Sequence[str] = (),
    options: Mapping[str, object] = types.MappingProxyType({}),
    *,
    tokenizer_config: type[Any],
) -> ConfigOverrides:
    """Merge the settings of a recipe, a TOML file, `key=value` pairs and options, in increasing priority.

    Options are assigned to the tokenizer, the run or the model by name, and pairs to the tokenizer or the model. If
    the options or pairs name a trained tokenizer, which cannot be configured, the tokenizer settings of the recipe
    are ignored.
    """
    settings = ConfigOverrides() if recipe is None else recipe
    kinds = get_args(get_type_hints(tokenizer_config)["kind"])
    run_names = {field.name for field in dataclasses.fields(RunConfig)}
    chosen = ConfigOverrides(run={name: value for name, value in options.items() if name in run_names})
    tokenizer_names = {field.name for field in dataclasses.fields(tokenizer_config)}
    rest = {name: value for name, value in options.items() if name not in run_names}
    for name, value in (parse_overrides(pairs) | rest).items():
        (chosen.tokenizer if name in tokenizer_names else chosen.model)[name] = value
    if chosen.tokenizer.get("kind", kinds[0]) not in kinds:
        settings = dataclasses.replace(settings, tokenizer={})
    if file is not None:
        settings |= overrides_from_tables(read_toml(file), file)
    return settings | chosen


def _check_saved(value: object, name: str, kind: Any) -> None:
    """Raise for a string in place of a number, boolean or list, and for numbers that are not finite."""
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    is_text = any(option is str or get_origin(option) is Literal for option in options)
    if isinstance(value, str) and not is_text:
        raise ConfigError(f"{name} is the text {value[:40]!r}; it must be {_noun(options[0])}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} is {value}; it must be finite")
    if isinstance(value, list):
        for part in value:
            _check_saved(part, name, next(iter(get_args(options[0])), Any))


def _noun(kind: Any) -> str:
    return _NOUNS.get(kind, "a list" if get_origin(kind) is tuple else getattr(kind, "__name__", "another value"))


def _read(value: object, kind: Any, name: str) -> object:
    """Convert `value` to the annotated type `kind`."""
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
    booleans = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if kind is bool:
        value = booleans.get(value.lower(), value) if isinstance(value, str) else value
    elif kind in (int, float) and isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = kind(value)
    elif kind is float and type(value) is int and abs(value) <= LARGEST_INTEGER:
        value = float(value)
    if kind is int and type(value) is int and abs(value) > LARGEST_INTEGER:
        raise ConfigError(f"{name} is a number of {value.bit_length()} bits; choose a smaller one")
    if type(value) is not kind:
        raise ConfigError(f"{name} is {value!r:.60}; it must be {_NOUNS.get(kind, kind.__name__)}")
    return value


_NOUNS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
