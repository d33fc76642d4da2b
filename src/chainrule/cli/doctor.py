"""`chainrule doctor`: report versions, devices and missing dependencies."""

import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from importlib import metadata
from typing import Any

from chainrule import __version__
from chainrule.cli import options
from chainrule.cli.console import emit
from chainrule.errors import MissingExtra

PARTS = {
    "numpy": "",
    "tokenizers": "",
    "safetensors": "",
    "torch": "neural",
    "fastapi": "serve",
    "matplotlib": "plots",
    "zstandard": "data",
    "pyarrow": "data",
    "sacrebleu": "tasks",
    "tensorboard": "tensorboard",
    "pyspark": "spark",
    "pandas": "spark",
}
"""Packages and the extra that installs each; an empty string marks required dependencies."""


def doctor(json: options.Json = False) -> None:
    """Check versions, compiler, torch, devices, Java and disk space.

    For each missing package, the command that installs it is printed.

    Example: chainrule doctor
    """
    report = _collect()
    if json:
        emit(report)
        return
    for name, value in report.items():
        if isinstance(value, dict):
            print(name)
            for key, item in value.items():
                print(f"  {key:<14}{item}")
        else:
            print(f"{name:<16}{value}")


def _collect() -> dict[str, Any]:
    from chainrule import system

    try:
        built = system.load_extension().build_info()
        extension = f"built by {built.compiler} (C++ {built.standard}), processor has {built.simd}"
    except MissingExtra:
        extension = "absent: " + system.HOW_TO_BUILD
    compiler = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    return {
        "chainrule": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "compiler": compiler or "none: install g++ or clang++ to build the extension",
        "extension": extension,
        "threads": os.cpu_count(),
        "devices": _devices(),
        "gpus": _gpus(),
        "ranks": _ranks(),
        "java": _java(),
        "disk": _free_space(),
        "packages": {name: _version(name, extra) for name, extra in PARTS.items()},
    }


def _version(name: str, extra: str) -> str:
    if importlib.util.find_spec(name) is None:
        return f"absent: pip install 'chainrule[{extra}]'" if extra else f"absent: pip install {name}"
    return metadata.version(name)


def _devices() -> str:
    """Return the available devices, detected without importing torch."""
    return "cpu, cuda" if shutil.which("nvidia-smi") else "cpu"


def _gpus() -> str:
    """Return names and memory of the GPUs as nvidia-smi lists them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "none"
    return "; ".join(line.strip() for line in listed.splitlines() if line.strip()) or "none"


def _ranks() -> str:
    """Return how networks can be trained on several processes."""
    if importlib.util.find_spec("torch") is None:
        return "absent: pip install 'chainrule[neural]'"
    from chainrule.training import ranks

    backends = ranks.backends()
    return f"train --processes N, torchrun ({', '.join(backends)})" if backends else "absent: torch has no backend"


def _java() -> str:
    """Return the version of Java, which Spark needs, or how to install it."""
    from chainrule.distributed.spark import check_java
    from chainrule.errors import ChainruleError

    try:
        return check_java()
    except ChainruleError as error:
        return f"absent: {error}"


def _free_space() -> str:
    """Return the free space for temporary files."""
    folder = tempfile.gettempdir()
    return f"{shutil.disk_usage(folder).free / 1e9:,.1f} GB free in {folder}"
