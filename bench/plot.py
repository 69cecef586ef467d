"""Results as SVG: one bar for each contender, or a line over sizes, on a logarithmic scale or a linear one.

Knows shapes and colours, of which each reads on light and on dark. Must not know what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from .catalogue import FLOOR, OURS, PEER
from .figures import short

WIDTH, LABEL, RIGHT, ROW, TOP = 860, 270, 90, 22, 58
MARGIN = 20  # around everything
AXIS = 24  # below the marks: the name of the axis
STYLE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;font-size:15px}.s{font-size:11px}line{stroke:#8a8f98}"
    "@media(prefers-color-scheme:dark){text{fill:#adb5bd}}</style>"
)
COLOURS = {OURS: "#2f7ed8", FLOOR: "#8a8f98", PEER: "#d98032"}

Mark = tuple[str, str, float, float]  # label, kind, value, spread
Line = tuple[str, str, Sequence[tuple[float, float, float]]]  # label, kind, points: size, value, spread
HEIGHT = 320
DASHES = ("", "7 4", "2 4", "9 3 2 3")


Scale = tuple[Callable[[float], float], list[tuple[float, str]], str]  # where a value is, from 0 to 1; marks of the axis; what to call it


def chart(title: str, unit: str, marks: Sequence[Mark], *, linear: bool = False) -> str:
    """A chart of these values; each whisker is as long as the spread of its rounds. `linear`: from nought; else nought is left out."""
    marks = [it for it in marks if linear or it[2] > 0]
    lowest = min(it[2] * max(0.05, 1 - it[3] / 2) for it in marks)
    highest = max(it[2] * (1 + it[3] / 2) for it in marks)
    place, axis, name = _linear(highest) if linear else _logarithmic(lowest, highest)
    height = TOP + ROW * len(marks) + AXIS
    left = max(LABEL, 7 * max(len(it[0]) for it in marks) + 8)  # where bars begin

    def x(value: float) -> float:
        return left + place(value) * (WIDTH - left - RIGHT)

    parts = [
        *_opening(title, height),
        f'<text class="s" x="0" y="36">{escape(name)}</text>',
        _axis(unit, (left + WIDTH - RIGHT) / 2, height),
    ]
    for value, text in axis:
        at = x(value)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP - 8}" x2="{at:.1f}" y2="{height - AXIS + 4}" stroke-opacity=".35"/>')
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


def _opening(title: str, height: float) -> list[str]:
    """The first lines of an image, with a margin on all sides and its title."""
    box = f"{-MARGIN} {-MARGIN} {WIDTH + 2 * MARGIN} {height + 2 * MARGIN}"
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img" aria-label="{escape(title)}">',
        STYLE,
        f'<text class="t" x="0" y="18">{escape(title)}</text>',
    ]


def _axis(name: str, middle: float, height: float) -> str:
    """What the horizontal axis shows, and its unit."""
    return f'<text class="s" x="{middle:.1f}" y="{height - 2}" text-anchor="middle">{escape(name)}</text>'


def _logarithmic(lowest: float, highest: float) -> Scale:
    low = math.floor(math.log10(lowest * 0.8) * 2) / 2
    high = max(math.log10(highest * 1.05), low + 0.5)
    decades = range(math.ceil(low), math.floor(high) + 1)
    axis = [(10.0**it, short(10.0**it) if it < 6 else f"1e{it}") for it in decades]
    name = "logarithmic scale; whiskers show the spread of the rounds"
    return lambda value: (math.log10(max(value, 10**low)) - low) / (high - low), axis, name


def _linear(highest: float) -> Scale:
    high = highest * 1.05 or 1.0
    step = 10.0 ** math.floor(math.log10(high))
    step = next(it for it in (step / 5, step / 2, step) if high / it <= 6 or it == step)
    return lambda value: value / high, [(it * step, f"{it * step:g}") for it in range(int(high / step) + 1)], ""


def lines(title: str, unit: str, axis: str, found: Sequence[Line]) -> str:
    """A chart of these values over sizes, both logarithmic; a size of nought stands at the left edge."""
    points = [it for _, _, line in found for it in line if it[1] > 0]
    sizes = sorted({it[0] for it in points})
    least = next(it for it in sizes if it > 0)
    left, right = math.log10(least) - (0.5 if sizes[0] <= 0 else 0.0), math.log10(max(sizes[-1], least * 2))
    low = math.floor(math.log10(min(it[1] for it in points)) * 2) / 2
    high = max(math.ceil(math.log10(max(it[1] for it in points)) * 2) / 2, low + 0.5)

    def x(size: float) -> float:
        return 70 + (max(math.log10(size) if size > 0 else left, left) - left) / (right - left) * (WIDTH - LABEL - 70)

    def y(value: float) -> float:
        return HEIGHT - 40 - (math.log10(value) - low) / (high - low) * (HEIGHT - 40 - TOP)

    parts = [
        *_opening(title, HEIGHT),
        f'<text class="s" x="0" y="36">{escape(unit)}; both scales are logarithmic</text>',
        _axis(axis, (70 + x(sizes[-1])) / 2, HEIGHT),
    ]
    for tick in _ticks(low, high):
        parts.append(f'<line x1="70" y1="{y(tick):.1f}" x2="{x(sizes[-1]):.1f}" y2="{y(tick):.1f}" stroke-opacity=".35"/>')
        parts.append(f'<text class="s" x="62" y="{y(tick) + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    for size in sizes:
        told = f"{size:,g}" if size < 1e6 else f"{size:,.0f}"
        parts.append(f'<text class="s" x="{x(size):.1f}" y="{HEIGHT - 20}" text-anchor="middle">{told}</text>')
    for number, (label, kind, line) in enumerate(found):
        line = [it for it in line if it[1] > 0]
        path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value, _ in line)
        dash = f' stroke-dasharray="{DASHES[number % len(DASHES)]}"' if number else ""
        parts.append(f'<polyline points="{path}" fill="none" style="stroke:{COLOURS[kind]}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="3" fill="{COLOURS[kind]}"/>' for size, value, _ in line]
        at, weight = TOP + 20 * number, ' font-weight="600"' if kind == OURS else ""
        begin = WIDTH - LABEL + 20
        key = f'<line x1="{begin}" y1="{at}" x2="{begin + 28}" y2="{at}" style="stroke:{COLOURS[kind]}" stroke-width="2"{dash}/>'
        parts += [key, f'<text x="{begin + 36}" y="{at + 4}"{weight}>{escape(label)}</text>']
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ticks(low: float, high: float) -> list[float]:
    """Round values between these powers of ten: the decades, and of few decades 2 and 5 times each."""
    decades = range(math.floor(low), math.ceil(high) + 1)
    steps = (1.0,) if high - low > 3 else (1.0, 2.0, 5.0)
    return [step * 10.0**it for it in decades for step in steps if low - 1e-9 <= math.log10(step) + it <= high + 1e-9]
