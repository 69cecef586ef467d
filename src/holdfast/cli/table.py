"""Columns for people, and lines of JSON for programs.

Knows text. Must not know locks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from .voice import printable

COLORS = {"bad": "31", "good": "32", "warning": "33"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None) -> None:
    """Print rows in aligned columns, if there are any.

    Args:
        head: What stands above the columns.
        rows: The columns of each row.
        width: How long a line may be; None: as long as it is.
    """
    found = [[printable(it).replace("\n", " ") for it in row] for row in rows]
    if not found:
        return
    widths = [max(len(row[at]) for row in [list(head), *found]) for at in range(len(head))]
    for row in [list(head), *found]:
        print("  ".join(it.ljust(wide) for it, wide in zip(row, widths, strict=True)).rstrip()[:width])


def objects(*found: object) -> None:
    """Print objects as JSON, one a line."""
    for it in found:
        print(json.dumps(it, ensure_ascii=False), flush=True)


def colored(text: str, kind: str) -> str:
    """Return the text in a color, if stdout is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{COLORS[kind]}m{text}\x1b[0m"


def rounded(seconds: float | None) -> float | None:
    """Seconds with as many digits as mean something."""
    return None if seconds is None else round(seconds, 3)


def dash(value: Any) -> str:
    """A value for a column: "-" if there is none."""
    return "-" if value is None or value == "" else str(value)
