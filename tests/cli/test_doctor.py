"""`chainrule doctor`: what is here and what is not."""

import importlib.util
import platform
import sys
from importlib import metadata
from typing import Any

import pytest

from chainrule import system
from cli.command import done


def test_json() -> None:
    found = done("doctor", "--json").json()
    assert found["schema_version"] == 1
    keys = {"chainrule", "python", "platform", "compiler", "extension", "threads", "devices", "packages"}
    assert found.keys() >= keys
    assert found["python"] == platform.python_version()
    assert found["packages"]["numpy"] == metadata.version("numpy")
    assert "torch" in found["packages"]


def test_as_text() -> None:
    shown = done("doctor").out
    assert f"numpy         {metadata.version('numpy')}" in shown
    assert "{" not in shown


def test_what_is_missing_comes_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    really = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name in ("torch", "zstandard") else really(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    monkeypatch.setitem(sys.modules, system.EXTENSION, None)
    system.load.cache_clear()
    monkeypatch.setenv("PATH", "")
    found = done("doctor", "--json").json()
    assert found["packages"]["torch"] == "absent: pip install 'chainrule[neural]'"
    assert found["packages"]["zstandard"] == "absent: pip install 'chainrule[data]'"
    assert found["extension"].startswith("absent: pip install .")
    assert "install g++" in found["compiler"]
