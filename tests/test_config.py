from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from chainrule.config import (
    ConfigOverrides,
    RunConfig,
    build_config,
    flatten,
    merge_settings,
    overrides_from_tables,
    parse_overrides,
    read_toml,
    setting_names,
    to_json,
    with_settings,
)
from chainrule.errors import ConfigError, NotFoundError
from chainrule.ngram.config import Config
from chainrule.tokenizers.config import TokenizerConfig


@dataclass(frozen=True, kw_only=True)
class Sample:
    width: int = 256
    dropout: float = 0.2
    tie: bool = True
    name: Literal["a", "b"] = "a"
    prune: tuple[int, ...] = ()
    limit: float | None = None


def test_strings_are_converted_to_field_types() -> None:
    settings = {"width": "3", "dropout": "0", "tie": "false", "name": "b", "prune": "0,0,1", "limit": "1e3"}
    assert build_config(Sample, settings, "model") == Sample(
        width=3, dropout=0.0, tie=False, name="b", prune=(0, 0, 1), limit=1000.0
    )
    assert build_config(Sample, {"limit": "none", "dropout": 1}, "model") == Sample(limit=None, dropout=1.0)


def test_unknown_setting_suggests_a_similar_name() -> None:
    with pytest.raises(ConfigError, match=r"\[model\] has no setting 'witdh'; did you mean 'width'\?"):
        build_config(Sample, {"witdh": 3}, "model")
    with pytest.raises(ConfigError, match="choose from width, dropout"):
        build_config(Sample, {"zzz": 3}, "model")
    with pytest.raises(ConfigError, match=r"\[model\] has no setting 'zzz' for family 'ngram'; choose from width"):
        build_config(Sample, {"zzz": 3}, "model", "ngram")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": "three"}, "model.width is 'three'; it must be a whole number"),
        ({"width": 1.5}, "it must be a whole number"),
        ({"width": True}, "it must be a whole number"),
        ({"tie": "maybe"}, "it must be true or false"),
        ({"name": "c"}, "choose one of a, b"),
        ({"prune": "0,x"}, "it must be a whole number"),
        ({"prune": 3}, "write it as a list"),
    ],
)
def test_invalid_value_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config(Sample, settings, "model")


def test_config_round_trips_through_json() -> None:
    config = Config(order=3, prune=(0, 0, 1))
    assert build_config(Config, to_json(config), "model") == config


def test_read_toml(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[model]\norder = 3\n[tokenizer]\nkind = 'bpe'\n")
    assert read_toml(path) == {"model": {"order": 3}, "tokenizer": {"kind": "bpe"}}
    path.write_text("order = 3\n")
    with pytest.raises(ConfigError, match=r"'order' is not in a table; write it under one of \[model\]"):
        read_toml(path)
    path.write_text("[modle]\norder = 3\n")
    tables = r"\[model\], \[training\], \[tokenizer\], \[run\]$"
    with pytest.raises(ConfigError, match=rf"has a table \[modle\]; choose from {tables}"):
        read_toml(path)
    path.write_text("[model\n")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_toml(path)
    with pytest.raises(NotFoundError):
        read_toml(tmp_path / "none.toml")


def test_overrides_from_toml_tables(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        "[recipe]\ntitle = 'told, not chosen'\n[model]\nlayers = 2\ntie = false\n"
        "[training]\nepochs = 5\ntie = false\n[tokenizer]\nkind = 'char'\n[run]\ncontext = 'stream'\nseed = 3\n"
    )
    assert overrides_from_tables(read_toml(path), path) == ConfigOverrides(
        model={"layers": 2, "tie": False, "epochs": 5},
        tokenizer={"kind": "char"},
        run={"context": "stream", "seed": 3},
    )
    assert overrides_from_tables({}, path) == ConfigOverrides()


def test_model_and_training_tables_must_agree() -> None:
    with pytest.raises(ConfigError, match=r"a.toml: 'epochs' is 3 in \[model\] and 4 in \[training\]; keep one"):
        overrides_from_tables({"model": {"epochs": 3}, "training": {"epochs": 4}}, "a.toml")


def test_overrides_are_merged() -> None:
    below = ConfigOverrides(model={"a": 1, "b": 1}, tokenizer={"kind": "word"}, run={"seed": 1})
    above = ConfigOverrides(model={"b": 2}, tokenizer={"kind": "char"}, run={"context": "stream"})
    assert below | above == ConfigOverrides(
        model={"a": 1, "b": 2}, tokenizer={"kind": "char"}, run={"seed": 1, "context": "stream"}
    )
    assert below == ConfigOverrides(
        model={"a": 1, "b": 1}, tokenizer={"kind": "word"}, run={"seed": 1}
    )  # unchanged


def test_run_config() -> None:
    assert build_config(RunConfig, {}, "run") == RunConfig(context="line", seed=0)
    assert build_config(RunConfig, {"context": "stream", "seed": 7}, "run") == RunConfig(context="stream", seed=7)
    for wrong, message in (
        ({"seed": -1}, "run.seed is -1; choose 0 or more"),
        ({"context": "page"}, "run.context is 'page'; choose one of line, stream"),
        ({"sede": 1}, r"\[run\] has no setting 'sede'; did you mean 'seed'"),
    ):
        with pytest.raises(ConfigError, match=message):
            build_config(RunConfig, wrong, "run")


def test_parse_overrides() -> None:
    assert parse_overrides(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides(["order"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": 0},
        {"order": 10**6},
        {"smoothing": "kneser"},
        {"prune": (1,)},
        {"prune": (0, 2, 1)},
        {"prune": (0, 0, 0), "order": 2},
        {"k": 0.0},
        {"k": float("nan")},
        {"discount": 1.5},
        {"backoff": 0.0},
    ],
)
def test_ngram_settings_out_of_range_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        build_config(Config, wrong, "model")


def test_cut_offs_cover_every_order() -> None:
    assert Config(order=4, prune=(0, 0, 1)).cut_offs() == (0, 0, 1, 1)
    assert Config(order=2).cut_offs() == (0, 0)


def test_settings_are_merged_by_priority(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[model]\norder = 3\nk = 0.5\n[tokenizer]\nmin_count = 3\n[run]\nseed = 3\n")
    recipe = ConfigOverrides(
        model={"order": 2, "prune": "0"}, tokenizer={"kind": "char"}, run={"context": "stream"}
    )
    merged = merge_settings(
        recipe, file, ["order=4", "unk=?"], {"order": 5, "seed": 5}, tokenizer_config=TokenizerConfig
    )
    assert merged == ConfigOverrides(
        model={"order": 5, "prune": "0", "k": 0.5},
        tokenizer={"kind": "char", "min_count": 3, "unk": "?"},
        run={"context": "stream", "seed": 5},
    )
    assert merged.arguments() == merged.model | {"tokenizer": "char", "min_count": 3, "unk": "?"}
    assert recipe.model == {"order": 2, "prune": "0"}


def test_saved_tokenizer_replaces_the_recipe_s() -> None:
    recipe = ConfigOverrides(tokenizer={"kind": "char", "min_count": 2})
    for kind, tokenizer in (("runs/bpe", {"kind": "runs/bpe"}), ("word", {"kind": "word", "min_count": 2})):
        merged = merge_settings(recipe, options={"kind": kind}, tokenizer_config=TokenizerConfig)
        assert merged.tokenizer == tokenizer


def test_set_pairs_do_not_set_the_run() -> None:
    merged = merge_settings(pairs=["seed=1"], tokenizer_config=TokenizerConfig)
    assert (merged.run, merged.model) == ({}, {"seed": "1"})


@dataclass(frozen=True, kw_only=True)
class Steps:
    epochs: int = 20
    rate: float = 0.1
    betas: tuple[float, ...] = (0.9, 0.99)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ConfigError(f"training.epochs is {self.epochs}; choose 1 or more")


@dataclass(frozen=True, kw_only=True)
class Network:
    training: Steps = field(default_factory=lambda: Steps(epochs=5))
    width: int = 256


def test_settings_of_a_nested_config_are_flat() -> None:
    config = build_config(Network, {"width": "3", "rate": "0.5"}, "model")
    assert config == Network(width=3, training=Steps(epochs=5, rate=0.5))
    assert flatten(config) == {"epochs": 5, "rate": 0.5, "betas": (0.9, 0.99), "width": 3}
    assert to_json(config) == {"epochs": 5, "rate": 0.5, "betas": [0.9, 0.99], "width": 3}
    assert list(to_json(config)) == setting_names(Network)
    assert build_config(Network, to_json(config), "model", is_saved=True) == config
    assert with_settings(config, epochs=7, width=4) == Network(width=4, training=Steps(epochs=7, rate=0.5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": 3}, r"\[training\] has no setting 'epoch'; did you mean 'epochs'\?"),
        ({"zzz": 3}, "choose from epochs, rate, betas, width"),
        ({"epochs": "many"}, "training.epochs is 'many'; it must be a whole number"),
        ({"epochs": 0}, "training.epochs is 0; choose 1 or more"),
        ({"training": {"epochs": 3}}, r"\[model\] has no setting 'training'"),
        ({"width": "wide"}, "model.width is 'wide'"),
    ],
)
def test_messages_name_the_section_of_a_nested_config(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config(Network, settings, "model")
