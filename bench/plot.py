"""Results as SVG: one bar for each contender, on a logarithmic scale or a linear one.

Knows shapes and colours, of which each reads on light and on dark. Must not know what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from .catalogue import FLOOR, OURS, PEER
from .figures import short

WIDTH, LABEL, RIGHT, ROW, TOP = 860, 270, 90, 22, 58
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;font-size:15px}.s{font-size:11px}line{stroke:#8a8f98}"
    "@media(prefers-color-scheme:dark){text{fill:#adb5bd}}</style>"
)
COLOURS = {OURS: "#2f7ed8", FLOOR: "#8a8f98", PEER: "#d98032"}

Mark = tuple[str, str, float, float]  # label, kind, value, spread


Scale = tuple[Callable[[float], float], list[tuple[float, str]], str]  # where a value is, from 0 to 1; marks of the axis; what to call it


def chart(title: str, unit: str, marks: Sequence[Mark], *, linear: bool = False) -> str:
    """A chart of these values; each whisker is as long as the spread of its rounds. `linear`: from nought; else nought is left out."""
    marks = [it for it in marks if linear or it[2] > 0]
    lowest = min(it[2] * max(0.05, 1 - it[3] / 2) for it in marks)
    highest = max(it[2] * (1 + it[3] / 2) for it in marks)
    place, axis, name = _linear(highest) if linear else _logarithmic(lowest, highest)
    height = TOP + ROW * len(marks) + 16
    left = max(LABEL, 7 * max(len(it[0]) for it in marks) + 8)  # where bars begin

    def x(value: float) -> float:
        return left + place(value) * (WIDTH - left - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        STYLE,
        f'<text class="t" x="0" y="18">{escape(title)}</text>',
        f'<text class="s" x="0" y="36">{escape(unit)}{name}</text>',
    ]
    for value, text in axis:
        at = x(value)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP - 8}" x2="{at:.1f}" y2="{height - 12}" stroke-opacity=".35"/>')
        parts.append(f'<text class="s" x="{at:.1f}" y="{TOP - 12}" text-anchor="middle">{text}</text>')
    for i, (label, kind, value, spread) in enumerate(marks):
        y = TOP + i * ROW
        end, low, high = x(value), x(value * max(0.05, 1 - spread / 2)), x(value * (1 + spread / 2))
        weight = ' font-weight="600"' if kind == OURS else ""
        parts += [
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end"{weight}>{escape(label)}</text>',
            f'<rect x="{left}" y="{y + 3}" width="{max(1.0, end - left):.1f}" height="{ROW - 8}" rx="2" fill="{COLOURS[kind]}"/>',
            f'<line x1="{low:.1f}" y1="{y + 10}" x2="{high:.1f}" y2="{y + 10}" stroke-width="1.5"/>',
            f'<text class="s" x="{max(end, high) + 6:.1f}" y="{y + 14}">{short(value)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _logarithmic(lowest: float, highest: float) -> Scale:
    low = math.floor(math.log10(lowest * 0.8) * 2) / 2
    high = max(math.log10(highest * 1.05), low + 0.5)
    decades = range(math.ceil(low), math.floor(high) + 1)
    axis = [(10.0**it, short(10.0**it) if it < 6 else f"1e{it}") for it in decades]
    return lambda value: (math.log10(max(value, 10**low)) - low) / (high - low), axis, ", logarithmic; whiskers: spread of the rounds"


def _linear(highest: float) -> Scale:
    high = highest * 1.05 or 1.0
    step = 10.0 ** math.floor(math.log10(high))
    step = next(it for it in (step / 5, step / 2, step) if high / it <= 6 or it == step)
    return lambda value: value / high, [(it * step, f"{it * step:g}") for it in range(int(high / step) + 1)], ""
