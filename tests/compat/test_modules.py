"""The rules for the locks of other libraries: how long they may be, and that they know public names of holdfast only."""

from __future__ import annotations

import ast
from pathlib import Path

import sizes

FOLDER = Path(__file__).parents[2] / "src/holdfast/compat"
MODULES = {it.relative_to(FOLDER).as_posix(): it.read_text() for it in sorted(FOLDER.rglob("*.py"))}
PUBLIC = {"holdfast", "holdfast.aio", "holdfast.clock", "holdfast.errors"}
MOST = 355  # lines of code, all together


def private(path: str, source: str) -> list[str]:
    """What a module imports of holdfast and is not public."""
    package = ["holdfast", "compat", *Path(path).parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*above, *([node.module] if node.module else [])])
            if name.startswith("holdfast") and name not in PUBLIC and not name.startswith("holdfast.compat"):
                found.append(name)
    return found


def test_they_import_public_names_only() -> None:
    assert [it for path, source in MODULES.items() for it in private(path, source)] == []


def test_they_are_short() -> None:
    assert sum(sizes.lines(it) for it in MODULES.values()) <= MOST
