"""Import of the compiled extension."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chainrule import system
from chainrule.errors import MissingExtra


@pytest.mark.native
def test_extension_is_loaded_once() -> None:
    assert system.load_extension() is system.load_extension()


def test_missing_extension_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, system.EXTENSION, None)  # importing it then raises ModuleNotFoundError
    with pytest.raises(MissingExtra, match=r"_core is not built; build it: pip install \."):
        system.load_extension.__wrapped__()


@pytest.mark.parametrize(
    "error", [ImportError("undefined symbol: x"), ModuleNotFoundError("No module named 'numpy'", name="numpy")]
)
def test_broken_extension_reports_its_reason(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    def broken(name: str) -> Any:
        raise error

    monkeypatch.setattr(system, "import_module", broken)
    with pytest.raises(MissingExtra, match=re.escape(f"cannot be imported ({error}); build it: pip install .")):
        system.load_extension.__wrapped__()


@pytest.mark.native
def test_plain_kernels_are_always_available() -> None:
    core: Any = system.load_extension()
    assert core.kernel_names()[0] == "none"
    assert set(core.kernel_names()) <= {"none", "avx2", "avx512"}


@pytest.mark.native
def test_no_call_crashes_the_process(tmp_path: Path) -> None:
    """Hostile arguments to every exported function, in a separate process; see native_fuzz.py."""
    log = tmp_path / "last_call"
    program = Path(__file__).with_name("native_fuzz.py")
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(program), "1", "800", str(log)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, f"{log.read_text(encoding='utf-8')}\n{run.stderr}"
    called = re.search(r"(\d+) calls of (\d+) names, (\d+) refused", run.stdout)
    assert called is not None
    calls, names, refused = map(int, called.groups())
    assert calls > 800
    assert names > 150
    assert refused > calls / 3
