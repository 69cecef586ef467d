"""Results as SVG: one bar for each contender, on a logarithmic scale.

Knows shapes and colours, of which each reads on light and on dark. Must not know what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def chart(title: str, unit: str, marks: Sequence[Mark]) -> str:
    """A chart of these values; each whisker is as long as the spread of its rounds."""
    marks = [it for it in marks if it[2] > 0]
    lowest = min(it[2] * max(0.05, 1 - it[3] / 2) for it in marks)
    highest = max(it[2] * (1 + it[3] / 2) for it in marks)
    low = math.floor(math.log10(lowest * 0.8) * 2) / 2
    high = max(math.log10(highest * 1.05), low + 0.5)
    height = TOP + ROW * len(marks) + 16

    def x(value: float) -> float:
        return LABEL + (math.log10(max(value, 10**low)) - low) / (high - low) * (WIDTH - LABEL - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        STYLE,
        f'<text class="t" x="0" y="18">{escape(title)}</text>',
        f'<text class="s" x="0" y="36">{escape(unit)}, logarithmic; whiskers: spread of the rounds</text>',
    ]
    for decade in range(math.ceil(low), math.floor(high) + 1):
        at = x(10.0**decade)
        parts.append(f'<line x1="{at:.1f}" y1="{TOP - 8}" x2="{at:.1f}" y2="{height - 12}" stroke-opacity=".35"/>')
        power = short(10.0**decade) if decade < 6 else f"1e{decade}"
        parts.append(f'<text class="s" x="{at:.1f}" y="{TOP - 12}" text-anchor="middle">{power}</text>')
    for i, (label, kind, value, spread) in enumerate(marks):
        y = TOP + i * ROW
        end, left, right = x(value), x(value * max(0.05, 1 - spread / 2)), x(value * (1 + spread / 2))
        weight = ' font-weight="600"' if kind == OURS else ""
        parts += [
            f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end"{weight}>{escape(label)}</text>',
            f'<rect x="{LABEL}" y="{y + 3}" width="{max(1.0, end - LABEL):.1f}" height="{ROW - 8}" rx="2" fill="{COLOURS[kind]}"/>',
            f'<line x1="{left:.1f}" y1="{y + 10}" x2="{right:.1f}" y2="{y + 10}" stroke-width="1.5"/>',
            f'<text class="s" x="{max(end, right) + 6:.1f}" y="{y + 14}">{short(value)}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
