"""The frame that all pictures share: a card with a title, a text for screen readers, and colours for light and dark pages.

Knows SVG. Must not know what is drawn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

LIGHT = {
    "ink": "#1f2328",
    "faint": "#59636e",
    "card": "#ffffff",
    "rule": "#d1d9e0",
    "tick": "#818b98",
    "blue": "#0969da",
    "green": "#1a7f37",
    "won": "#1a7f37",
    "look": "#0969da",
    "wrong": "#cf222e",
    "red": "#cf222e",
    "purple": "#8250df",
    "orange": "#bc4c00",
    "grey": "#59636e",
    "warn": "#7d4e00",
    "warned": "#fff8c5",
    "broken": "#ffebe9",
}
DARK = {
    "ink": "#f0f6fc",
    "faint": "#9198a1",
    "card": "#0d1117",
    "rule": "#3d444d",
    "tick": "#818b98",
    "blue": "#1f6feb",
    "green": "#238636",
    "won": "#3fb950",
    "look": "#4493f8",
    "wrong": "#da3633",
    "red": "#f85149",
    "purple": "#8957e5",
    "orange": "#c2571a",
    "grey": "#656c76",
    "warn": "#e3b341",
    "warned": "#272115",
    "broken": "#3c1618",
}
FONT = 'ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif'
STYLE = f"""
    .hf text {{ font: 15px {FONT}; fill: var(--ink) }}
    .hf .title {{ font-size: 19px; font-weight: 600 }} .hf .small {{ font-size: 13px; fill: var(--faint) }}
    .hf .name {{ font-weight: 600 }} .hf .right {{ text-anchor: end }} .hf .mid {{ text-anchor: middle }}
    .hf .in {{ font-size: 13px; font-weight: 600; fill: #fff }}
    .hf .card {{ fill: var(--card); stroke: var(--rule) }} .hf .lane {{ stroke: var(--rule); stroke-width: 2 }}
    .hf .tick {{ stroke: var(--tick) }}"""


def colours(selector: str, chosen: Mapping[str, str]) -> str:
    """The colours of a theme, for what the selector matches."""
    return f"{selector} {{ {'; '.join(f'--{name}: {value}' for name, value in chosen.items())} }}"


def styles(rules: str) -> str:
    """The rules twice: in the light theme's colours for readers without variables, and in those of the reader's theme."""
    fixed = re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], rules)
    themed = "\n    ".join(re.findall(r"\.hf[^{}]*\{[^{}]*var\([^{}]*\}", rules))
    dark = f"@media (prefers-color-scheme: dark) {{ {colours('.hf', DARK)} }}"
    return f"{fixed}\n    @supports (fill: var(--ink)) {{\n    {colours('.hf', LIGHT)}\n    {dark}\n    {themed}\n    }}"


def themes() -> str:
    """The colours for a page that has its own switch between themes."""
    rules = [colours('[data-md-color-scheme="default"] .hf', LIGHT), colours('[data-md-color-scheme="slate"] .hf', DARK)]
    return "\n".join(rules) + "\n"


class Frame:
    """A picture in the making. Coordinates are pixels, from the upper left corner."""

    def __init__(self, width: int, height: int, title: str, below: str = "") -> None:
        self.width, self.height, self.title = width, height, title
        self.shapes: list[str] = []
        self.put(f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>')
        self.text("title", 24, 38, title)
        if below:
            self.text("small", 24, 62, below)

    def put(self, shape: str) -> None:
        """Draw this."""
        self.shapes.append(shape)

    def text(self, kind: str, x: float, y: float, words: str) -> None:
        """Write this."""
        self.put(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>')

    def line(self, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
        """Draw a straight line."""
        self.put(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    def box(self, kind: str, x: float, y: float, width: float, height: float) -> None:
        """Draw a bar with round corners."""
        self.put(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{max(width, 1):g}" height="{height:g}" rx="4"/>')

    def done(self, name: str, described: str, made: str, style: str, trace: Any = None) -> str:
        """The picture, as an SVG that needs nothing else.

        Args:
            name: What its parts are called in pages that show several pictures.
            described: What it shows, in sentences, for screen readers.
            made: With what it was made.
            style: The rules of what only this picture has. Each begins with `.hf`.
            trace: What it was drawn from, if the picture carries it.
        """
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        labels = f'role="img" aria-labelledby="{name}-t {name}-d"'
        told = [] if trace is None else [f"  <metadata>{escape(json.dumps(trace, ensure_ascii=True))}</metadata>"]
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="hf" {size} {labels}>',
                f'  <title id="{name}-t">{escape(self.title)}</title>',
                f'  <desc id="{name}-d">{escape(described)}</desc>',
                f"  <!-- drawn by {made.replace('--', '-')} -->",
                *told,
                f"  <style>{styles(STYLE + style)}\n  </style>",
                *(f"  {it}" for it in self.shapes),
                "</svg>\n",
            ]
        )
