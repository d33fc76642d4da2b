"""`chainrule doctor`: installed and missing components."""

import importlib.util
import platform
import sys
from importlib import metadata
from typing import Any

import pytest

from chainrule import system
from cli.command import run_ok


def test_doctor_json() -> None:
    document = run_ok("doctor", "--json").json()
    assert document["schema_version"] == 1
    keys = {
        "chainrule",
        "python",
        "platform",
        "compiler",
        "extension",
        "threads",
        "devices",
        "gpus",
        "ranks",
        "packages",
        "java",
        "disk",
    }
    assert document.keys() >= keys
    assert document["python"] == platform.python_version()
    assert document["packages"]["numpy"] == metadata.version("numpy")
    assert "torch" in document["packages"]
    assert "train --processes N" in document["ranks"]
    assert "gloo" in document["ranks"]
    assert ("cuda" in document["devices"]) == (document["gpus"] != "none")


def test_doctor_text() -> None:
    output = run_ok("doctor").out
    assert f"numpy         {metadata.version('numpy')}" in output
    assert "{" not in output


def test_doctor_names_the_remedy_for_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    really = importlib.util.find_spec

    def find_spec_without(name: str, package: str | None = None) -> Any:
        return None if name in ("torch", "zstandard") else really(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec_without)
    monkeypatch.setitem(sys.modules, system.EXTENSION, None)
    system.load_extension.cache_clear()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    document = run_ok("doctor", "--json").json()
    assert document["packages"]["torch"] == "absent: pip install 'chainrule[neural]'"
    assert document["ranks"] == "absent: pip install 'chainrule[neural]'"
    assert document["packages"]["zstandard"] == "absent: pip install 'chainrule[data]'"
    assert document["extension"].startswith("absent: pip install .")
    assert "Spark needs Java 17" in document["java"]
    assert "apt-get install openjdk-17-jre-headless" in document["java"]
    assert "install g++" in document["compiler"]
