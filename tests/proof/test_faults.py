"""Each fault of `tests/faults.toml` can be planted, and names the test that has to find it. `./task mutants --planted` plants them."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import planted

pytestmark = pytest.mark.guards

TESTS = Path(__file__).parent.parent
FAULTS = planted()


def test_each_fault_can_be_planted_and_names_a_test() -> None:
    texts = {file: (TESTS.parent / file).read_text() for file in {it.test.partition("::")[0] for it in FAULTS}}
    wrong = []
    for it in FAULTS:
        file, _, test = it.test.partition("::")
        name = test.partition("[")[0]
        if it.source.count(it.text) != 1:
            wrong.append(f"{it.name}: {it.module} has changed, and so must this fault")
        if f"def {name}(" not in texts[file] and f"\n{name}\n" not in texts[file]:
            wrong.append(f"{it.name}: {it.test} is not there")
    assert wrong == []
