"""Names that are loaded when somebody asks for them: all of them are there, and a wrong one is told as ever."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import holdfast
import holdfast.aio
import holdfast.kit
from holdfast.lazy import lazy

pytestmark = pytest.mark.slow

PACKAGES = [holdfast, holdfast.aio, holdfast.kit]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda it: it.__name__)
def test_a_name_that_it_does_not_show_is_told_as_ever(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Elections'"):
        package.Elections  # noqa: B018 (to look is what is tested)
    with pytest.raises(ImportError, match="cannot import name 'Elections'"):
        exec(f"from {package.__name__} import Elections")


def test_a_name_is_loaded_once_and_is_what_its_module_has(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("shown")
    package.__package__ = "shown"
    monkeypatch.setitem(sys.modules, "shown", package)
    get, names = lazy("shown", {"holdfast.checks": ["seconds"], "holdfast.nowhere": ["gone"]})
    assert "seconds" not in vars(package) and {"seconds", "gone"} <= set(names())
    assert get("seconds") is holdfast.checks.seconds is package.seconds  # (kept: it is not asked again)
    with pytest.raises(ModuleNotFoundError, match=r"holdfast\.nowhere"):
        get("gone")


def test_a_program_that_imports_everything_gets_everything() -> None:
    program = "from holdfast import *; from holdfast.aio import *; assert Election.__module__ == 'holdfast.primitives.election.aio'"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
