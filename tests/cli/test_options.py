"""Options generated from the fields of configs, and groups of options."""

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from chainrule.cli import options
from chainrule.cli.training_options import TASK_SETTINGS
from chainrule.config import RunConfig, setting
from chainrule.decoding.settings import Decoding
from chainrule.embeddings.config import VectorConfig
from chainrule.neural.config import ModelConfig
from chainrule.ngram.config import Config as NgramConfig
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.training.config import TrainingConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    width: int = setting(3, "Width.", shows_default=True, min=1)
    rate: float | None = setting(None, "Rate.")
    shape: tuple[int, ...] = setting((), "Shape.", option="--form")
    is_open: bool = setting(False, "Open.")
    tie: bool = setting(True, "Tie.", option="--tie/--no-tie")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    out: Annotated[Path, typer.Option(help="Output.")]
    count: Annotated[int, typer.Option(help="Count.")] = 2


def run(*arguments: str) -> tuple[dict[str, Any], str]:
    """Run a command with the options of `Example` and `Group`; return its parameters and its output."""
    received: dict[str, Any] = {}

    @options.expand_option_groups(options.options_from_fields(Example, "width", "rate", "shape", "is_open", "tie"))
    def command(
        name: Annotated[str, typer.Argument()],
        *,
        group: Group,
        settings: dict[str, object],
        json: options.Json = False,
    ) -> None:
        received.update(name=name, group=group, settings=settings, json=json)

    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command()(command)
    return received, CliRunner().invoke(app, arguments).output


def test_options_are_grouped_by_parameter() -> None:
    received, _ = run("x", "--out", "folder", "--width", "5", "--form", "1,2", "--no-tie", "--is-open", "--json")
    settings = {"width": 5, "shape": "1,2", "tie": False, "is_open": True}
    assert received == {"name": "x", "group": Group(out=Path("folder")), "settings": settings, "json": True}


def test_omitted_options_are_not_settings() -> None:
    received, _ = run("x", "--out", "folder")
    assert received["settings"] == {}


def test_limits_and_required_options_are_checked() -> None:
    assert "--width" in run("x", "--out", "folder", "--width", "0")[1]
    assert "--out" in run("x")[1]


def test_help_comes_from_the_field() -> None:
    page = run("--help")[1]
    assert "Width.  [default: 3]" in page
    assert "--tie / --no-tie" in page
    assert "--no-is-open" not in page


@pytest.mark.parametrize(
    "config", [RunConfig, TokenizerConfig, NgramConfig, ModelConfig, TrainingConfig, VectorConfig, Decoding]
)
def test_setting_declares_the_field_default(config: type[Any]) -> None:
    """`setting` declares the default value of the field itself."""
    fields = [field for field in dataclasses.fields(config) if field.default is not dataclasses.MISSING]
    assert all(getattr(config(), field.name) == field.default for field in fields)


def test_no_command_has_an_option_twice() -> None:
    from chainrule.cli import classify, pretrain, tag, train, translate

    for command in (train.train, classify.train, tag.train, translate.train, pretrain.pretrain):
        names = list(inspect.signature(command).parameters)
        assert len(names) == len(set(names))
        assert "settings" not in names
    assert set(TASK_SETTINGS) <= set(inspect.signature(pretrain.pretrain).parameters)
