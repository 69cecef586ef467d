"""Counts the lines of code of each folder of `src/holdfast` and `tests`: without docstrings, comments and blank lines.

`data` are the texts and tables of the tests, without the frozen interface and wire.

`tests/sizes.txt` has what each folder may have at most. A folder may shrink. If it has to grow, say why in the row, in the same commit:
`.venv/bin/python tests/sizes.py` writes the numbers as they are and keeps the reasons.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tests/sizes.txt"
FROZEN = ("api.txt", "wire.txt", FILE.name)


def lines(text: str) -> int:
    """Return how many lines of a module are code."""
    silent = set[int]()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            silent |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    kept = [it.strip() for row, it in enumerate(text.splitlines(), 1) if row not in silent]
    return sum(bool(it) and not it.startswith("#") for it in kept)


def counted() -> Counter[str]:
    """Return the lines of each folder: of what lies directly in `src/holdfast` and `tests`, and of each folder below."""
    found: Counter[str] = Counter()
    for top in ("src/holdfast", "tests"):
        for path in sorted((ROOT / top).rglob("*.py")):
            inner = path.relative_to(ROOT / top).parts[:-1]
            found[f"{top}/{inner[0]}" if inner else top] += lines(path.read_text())
    data = [it for kind in ("*.txt", "*.toml") for it in (ROOT / "tests").rglob(kind) if it.name not in FROZEN]
    found["data"] = sum(bool(row.strip()) and row[0] != "#" for it in data for row in it.read_text().splitlines())
    return found


def allowed() -> dict[str, tuple[int, str]]:
    """Return the rows of the file: by folder its lines, and why it grew last."""
    rows = [it.split(maxsplit=2) for it in FILE.read_text().splitlines() if not it.startswith("#")]
    return {folder: (int(most), " ".join(why)) for folder, most, *why in rows}


def grown() -> list[str]:
    """Return the folders that have more lines than they may."""
    most = allowed()
    return [f"{it} has {count} lines, not {most.get(it, (0,))[0]}" for it, count in counted().items() if count > most.get(it, (0,))[0]]


if __name__ == "__main__":
    before = allowed() if FILE.exists() else {}
    head = "# Lines of code of each folder, and why it grew last (tests/sizes.py).\n"
    FILE.write_text(head + "".join(f"{it:30} {count:6} {before.get(it, (0, ''))[1]}".rstrip() + "\n" for it, count in counted().items()))
