"""Writes docs/rules.md: which tests and planted faults show each rule of the protocol, by tests/rules.toml.

    ./task vectors
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
RULES: dict[str, dict[str, list[str]]] = tomllib.loads((ROOT / "tests/rules.toml").read_text())
FILE = ROOT / "docs/rules.md"
HEAD = """# What shows each rule

Each rule of [the lock](protocol.md), of [failover](protocol-failover.md) and of [the other
primitives](protocol-primitives.md), with the tests that fail without it, and the faults (*mutants*)
that are planted in the code and found. `./task vectors` writes this page from `tests/rules.toml`.

| Rule | Tests | Mutants |
| --- | --- | --- |
"""


def page() -> str:
    """The text of the page."""
    return HEAD + "".join(f"| {rule} | {_links('test', it)} | {_links('mutant', it)} |\n" for rule, it in RULES.items())


def _links(kind: str, shown: dict[str, list[str]]) -> str:
    found = (it.partition("::") for it in shown.get(f"{kind}s", []))
    return ", ".join(f'[{_label(Path(path))}](../tests/{path} "{name}")' for path, _, name in found)


def _label(test: Path) -> str:
    if test.suffix == ".txt":
        return f"{test.parent.name} {test.stem}"
    stem = test.stem.removeprefix("test_")
    return test.parent.name if stem in ("commands", "plan") else stem


if __name__ == "__main__":
    FILE.write_text(page())
