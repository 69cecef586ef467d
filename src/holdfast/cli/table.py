"""Columns for people, and lines of JSON for programs.

Knows text. Must not know locks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from ..errors import message_of
from .durations import moment
from .output import printable

LEAST = 12  # characters of a text that has to be shortened
GAP = 2  # spaces between two columns
COLORS = {"bad": "31", "good": "32", "warning": "33"}


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None, texts: Collection[str] = ()
) -> None:
    """Print rows in aligned columns, if there are any.

    Args:
        head: What stands above the columns.
        rows: The columns of each row.
        width: How long a line may be; None: as long as it is. Columns that have no room are left
            out, the last one first.
        texts: The heads of columns that may be shortened. All others are shown whole, or not.
    """
    found = [list(head), *[[printable(it).replace("\n", " ") for it in row] for row in rows]]
    if len(found) == 1:
        return
    widths = [max(len(row[at]) for row in found) for at in range(len(head))]
    if width is not None:
        widths = _fitted(widths, [it in texts for it in head], width)
    for row in found:
        shown = [it if len(it) <= wide else f"{it[: wide - 1]}…" for it, wide in zip(row, widths, strict=False)]
        print("  ".join(it.ljust(wide) for it, wide in zip(shown, widths, strict=True)).rstrip())


def _fitted(widths: list[int], texts: Sequence[bool], width: int) -> list[int]:
    """Return how wide the first columns are that have room. Texts share what the others leave."""
    least = [min(wide, LEAST) if text else wide for wide, text in zip(widths, texts, strict=True)]
    many = next(it for it in range(len(widths), 0, -1) if it == 1 or sum(least[:it]) + GAP * (it - 1) <= width)
    fitted, left = widths[:many], width - GAP * (many - 1) - sum(least[:many])
    for at in sorted(range(many), key=lambda it: widths[it]):
        more = min(widths[at] - least[at], max(0, left))
        fitted[at], left = least[at] + more, left - more
    return fitted


def objects(*found: object) -> None:
    """Print objects as JSON, one a line."""
    for it in found:
        print(json.dumps(it, ensure_ascii=False), flush=True)


def colored(text: str, kind: str) -> str:
    """Return the text in a color, if stdout is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{COLORS[kind]}m{text}\x1b[0m"


def facts(it: object, *names: str, **others: str) -> dict[str, Any]:
    """Return attributes of something for JSON.

    Args:
        it: What the library has returned.
        names: What the attributes are called in JSON.
        others: Their own names, where these are others.
    """
    return {name: _said(getattr(it, others.get(name, name))) for name in names}


def _said(value: Any) -> Any:
    match value:
        case float():
            # As many digits as mean something.
            return round(value, 3)
        case datetime():
            return moment(value)
        case Exception():
            return message_of(value)
        case tuple():
            return list(value)
    return value


def dash(value: Any) -> str:
    """A value for a column: "-" if there is none."""
    return "-" if value is None or value == "" else str(value)
