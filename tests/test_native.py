"""The door to the compiled module."""

from typing import Any

import pytest

from chainrule import native


@pytest.mark.native
def test_the_module_is_loaded_once() -> None:
    assert native.load() is not None
    assert native.load() is native.load()


def test_none_where_it_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(native, "import_module", absent)
    assert native.load.__wrapped__() is None


@pytest.mark.native
def test_the_plain_kernels_always_run() -> None:
    core: Any = native.load()
    assert core.kernel_names()[0] == "none"
    assert set(core.kernel_names()) <= {"none", "avx2", "avx512"}
