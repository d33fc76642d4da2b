import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import chainrule
from chainrule import families
from chainrule.errors import ConfigError, ModelFileError
from chainrule.families import FAMILIES
from chainrule.text.corpus import Corpus


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_the_required_attributes(name: str) -> None:
    module = families.get(name)
    for attribute in ("Config", "train", "files", "load", "parameters", "candidates", "facets"):
        assert hasattr(module, attribute), attribute


@pytest.mark.parametrize("name", FAMILIES)
def test_load_signature_matches_the_design_page(name: str) -> None:
    page = (Path(__file__).parents[1] / "docs" / "design.md").read_text(encoding="utf-8")
    (signature,) = re.findall(r"^ {4}load\((.*)\) -> model$", page, re.MULTILINE)
    assert list(inspect.signature(families.get(name).load).parameters) == signature.split(", ")
    assert [p for p in inspect.signature(families.Family.load).parameters if p != "self"] == signature.split(", ")


class Plugin:
    """A family of another package: n-grams with a `load` that fails in its own code."""

    def __getattr__(self, name: str) -> Any:
        return getattr(families.get("ngram"), name)

    def load(self, *_: Any) -> Any:
        return len(3)  # type: ignore[arg-type]


def test_error_in_plug_in_code_is_not_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_families.plugin", Plugin(), raising=False)
    monkeypatch.setitem(families.FAMILIES, "plugin", "test_families:plugin")
    model = chainrule.train("ngram", Corpus.from_lines(["a b", "b a"]), order=1, smoothing="laplace")
    dataclasses.replace(model, family="plugin").save(tmp_path / "m")
    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        chainrule.load(tmp_path / "m")
    config = dataclasses.replace(model.config, order=1)
    object.__setattr__(config, "order", -1)
    dataclasses.replace(model, family="plugin", config=config).save(tmp_path / "bad")
    with pytest.raises(ModelFileError, match="is not a config of this version of chainrule"):
        chainrule.load(tmp_path / "bad")


def test_unknown_family_lists_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match="no family 'lstmm'; choose one of ngram"):
        families.get("lstmm")


def test_mixture_is_not_trainable() -> None:
    assert "mixture" not in families.trainable()
