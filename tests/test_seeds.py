"""What hypothesis draws is the same in every clone."""

from __future__ import annotations

from pathlib import Path

import pytest
import seeds
from hypothesis.internal import constants_ast
from hypothesis.internal.conjecture import providers


def test_constants_are_drawn_from_the_sources_wherever_the_clone_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is_local_module_file" in vars(providers), "hypothesis has another name for it: tell it another way which files are ours"
    assert providers._get_local_constants.__globals__["is_local_module_file"] is seeds.is_ours
    assert len(providers._get_local_constants()) > 100
    module = Path("/home/me/tests/holdfast/src/holdfast/node.py")
    monkeypatch.setattr(seeds, "SOURCES", module.parent)
    assert seeds.is_ours(str(module)) and not constants_ast.is_local_module_file(str(module)), "as hypothesis has it"
    assert not seeds.is_ours("/home/me/tests/holdfast/tests/kit.py")
