"""What happened in a world, as a picture: a connection for each client and node, time to the right, what
was sent as lines between them.

Knows records, flights, and how a drawing is made that needs nothing else, on light and on dark
pages. Must not know what should have been.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from xml.sax.saxutils import escape, quoteattr

from holdfast.testing.client import SimulatedClient
from holdfast.testing.network import Node, SimulatedConnection
from holdfast.testing.process import Process
from holdfast.testing.timeline import kind_of, said, short
from holdfast.testing.world import BytesInFlight, World

from .campaign import Outcome
from .stage import Stage

# Before a violation: what is drawn if nobody says otherwise.
SECONDS = 1.0
# And where nothing is wrong: so much of the beginning.
FIRST = 1.5
WIDTH = 1400
LEFT = 132
RIGHT = 1372
TOP = 132
STEP = 62
FOOT = 92
SHOWN = 92  # characters of a title
STYLE = """
    text { font: 14px ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial,
      sans-serif; fill: #1f2328 }
    .title { font-size: 19px; font-weight: 600 } .small { font-size: 12px; fill: #59636e }
    .name { font-weight: 600 }
    .mid { text-anchor: middle } .right { text-anchor: end }
    .in { font-size: 12px; font-weight: 600; fill: #fff; pointer-events: none }
    .card { fill: #fff; stroke: #d1d9e0 } .connection { stroke: #d1d9e0; stroke-width: 2 } .tick { stroke: #818b98 }
    .grid { stroke: #eff2f5 } .message { fill: none; stroke-width: 1.6; stroke-opacity: .75 }
    .end { stroke: none }
    .message:hover, .bar:hover { stroke-opacity: 1; stroke-width: 4 }
    .ask { stroke: #0969da; fill: #0969da } .give { stroke: #8250df; fill: #8250df }
    .make { stroke: #bc4c00; fill: #bc4c00 }
    .yes { stroke: #1a7f37; fill: #1a7f37 } .no { stroke: #818b98; fill: #818b98 }
    .push { stroke: #bf3989; fill: #bf3989 }
    .other { stroke: #afb8c1; fill: #afb8c1 } .never { stroke-dasharray: 3 4 }
    .held { fill: #1a7f37 } .down { fill: #ffebe9; stroke: #cf222e; stroke-dasharray: 5 4 }
    .fault { fill: #cf222e; stroke: #fff; stroke-width: 1.5 } .broken { stroke: #cf222e; stroke-width: 2.5 }
    .law { fill: #cf222e; font-weight: 600 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc } .small { fill: #9198a1 } .in { fill: #fff }
      .card { fill: #0d1117; stroke: #3d444d } .connection { stroke: #3d444d }
      .grid { stroke: #1c2128 } .ask { stroke: #4493f8; fill: #4493f8 }
      .give { stroke: #ab7df8; fill: #ab7df8 }
      .make { stroke: #f0883e; fill: #f0883e } .yes { stroke: #3fb950; fill: #3fb950 }
      .push { stroke: #db61a2; fill: #db61a2 }
      .no { stroke: #9198a1; fill: #9198a1 } .other { stroke: #545d68; fill: #545d68 }
      .held { fill: #238636 } .down { fill: #3c1618; stroke: #f85149 }
      .fault { fill: #f85149; stroke: #0d1117 } .broken { stroke: #f85149 }
      .law { fill: #f85149 }
    }"""
KINDS = {"ask": "request", "yes": "granted", "no": "denied", "push": "pushed", "make": "cede", "give": "release", "other": "anything else"}
_LASTS = re.compile(r"is (?:paused|frozen) for ([\d.]+) s|cannot be reached for ([\d.]+) s")
# And not that a subscription is made.
# What is no fault, and drawn as something else, or not at all.
_QUIET = ("sends to", "hears from", "has news of", "is resumed")


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that lasts, on somebody's connection.

    `text`: written on it; `title`: shown by a pointer on it.
    """

    who: object
    begins: float
    ends: float
    kind: str
    text: str
    title: str


def window(world: World, failed: bool) -> tuple[float, float]:
    """What to draw if nobody says otherwise: the last second before a violation, or the beginning."""
    return (max(0.0, world.now - SECONDS), world.now) if failed else (0.0, min(FIRST, world.now))


def holds(world: World) -> Iterator[Bar]:
    """When clients believed that they held a lock."""
    open_: dict[tuple[object, object], tuple[float, object, object]] = {}
    for now, who, what, *details in world.record:
        assert isinstance(now, float)
        if what == "has news of" and details[1] == "HELD":
            open_.setdefault((who, details[0]), (now, details[2], details[5]))
        elif what == "has news of":
            if (begun := open_.pop((who, details[0]), None)) is not None:
                how = "given back" if details[1] == "OVER" else " ".join(str(it) for it in (details[1], details[3]) if it).lower()
                yield _hold(who, details[0], *begun, now, how)
        elif what == "is crashed" and isinstance(who, Process):
            for whose, token in [it for it in open_ if it[0] in who.clients]:
                yield _hold(whose, token, *open_.pop((whose, token)), now, "killed")
    for (who, token), begun in open_.items():
        yield _hold(who, token, *begun, world.now, "held to the end")


def _hold(who: object, token: object, begins: float, fence: object, name: object, ends: float, how: str) -> Bar:
    whose = short(token.decode()) if isinstance(token, bytes) else str(token)
    title = f"{name} held by {whose} with fence {fence}, {begins:.6f} to {ends:.6f} s; {how}"
    return Bar(who, begins, ends, "held", f"{name}  {fence}", title)


def troubles(world: World) -> Iterator[Bar]:
    """What went wrong: what lasted has an end."""
    down: dict[object, float] = {}
    for now, who, what, *details in world.record:
        assert isinstance(now, float)
        text = short(" ".join([str(what), *[it.decode("utf-8", "replace") if isinstance(it, bytes) else str(it) for it in details]]))
        lasts = _LASTS.match(str(what))
        where = who.node if isinstance(who, SimulatedConnection) else who
        if isinstance(who, Process):
            where = who.clients[0]
        if what in _QUIET:
            continue
        if what == "is killed" and isinstance(who, Node):
            down[who] = now
        elif str(what).startswith("starts"):
            yield Bar(who, down.pop(who, now), now, "down", "", f"{who} was killed, and {text}")
        elif lasts is not None:
            yield Bar(where, now, now + float(lasts[1] or lasts[2]), "down", "", f"{who} {text}")
        else:
            yield Bar(where, now, now, "fault", "", f"{who} {text}")
    for who, since in down.items():
        yield Bar(who, since, inf, "down", "", f"{who} was killed")


class Sheet:
    """The paper: where moments and connections are on it, and what has been drawn."""

    def __init__(self, begins: float, ends: float, connections: Sequence[object]) -> None:
        self.begins = begins
        self.ends = ends
        self._shapes = list[str]()
        self.connections = {who: TOP + STEP * at for at, who in enumerate(connections)}
        self.height = TOP + STEP * len(self.connections) + FOOT

    def x(self, moment: float) -> float:
        """Where a moment is, or the edge that it lies behind."""
        moment = min(max(moment, self.begins), self.ends)
        return round(LEFT + (RIGHT - LEFT) * (moment - self.begins) / max(self.ends - self.begins, 1e-9), 1)

    def shows(self, begins: float, ends: float) -> bool:
        """Is any of it on the paper?"""
        return begins <= self.ends and ends >= self.begins

    def put(self, shape: str) -> None:
        """Draw this."""
        self._shapes.append(shape)

    def text(self, kind: str, x: float, y: float, words: str) -> None:
        """Write this."""
        self.put(f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>')

    def line(self, kind: str, x1: float, y1: float, x2: float, y2: float, title: str = "") -> None:
        """A straight line. `title`: shown by a pointer on it."""
        shown = f"<title>{escape(title)}</title>" if title else ""
        self.put(f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}">{shown}</line>')

    def done(self, title: str, described: str) -> str:
        """All of it, as an SVG."""
        size = f'viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}"'
        head = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={quoteattr(title)}>']
        return "\n".join([*head, f"  <desc>{escape(described)}</desc>", f"  <style>{STYLE}\n  </style>", *self._shapes, "</svg>\n"])


def picture(stage: Stage, outcome: Outcome, begins: float, ends: float) -> str:
    """The picture of what a world went through, between two moments, as an SVG that needs nothing
    else.
    """
    world = stage.world
    flights = [it for it in world.flights if begins <= (it.leaves if it.lands is None else it.lands) and it.leaves <= ends]
    there = {it for flight in flights for it in (flight.sender, flight.receiver)}
    bars = [*troubles(world), *holds(world)]
    there |= {it.who for it in bars if it.begins <= ends and it.ends >= begins}
    clients = dict.fromkeys(who for _, who, *_ in world.record if isinstance(who, SimulatedClient) and who in there)
    sheet = Sheet(begins, ends, [*clients, *stage.nodes])
    title = f"Seed {world.seed}, {stage.name}: {begins:.3f} to {ends:.3f} s"
    _frame(sheet, title)
    for bar in bars:
        if bar.kind == "down":
            _bar(sheet, bar, 34)
    for flight in flights:
        _message(sheet, flight)
    for bar in bars:
        if bar.kind == "held":
            _bar(sheet, bar, 24)
    for bar in bars:
        if bar.kind == "fault" and sheet.shows(bar.begins, bar.ends) and bar.who in sheet.connections:
            _diamond(sheet, bar)
    if outcome.law:
        _violation(sheet, outcome)
    return sheet.done(title, f"{title}. {len(clients)} clients, {len(stage.nodes)} nodes, {len(flights)} messages. {outcome.wrong}")


def _frame(sheet: Sheet, title: str) -> None:
    foot = sheet.height - FOOT + 18
    sheet.put(f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{sheet.height - 1}" rx="10"/>')
    sheet.text("title", 24, 38, title)
    long = sheet.ends - sheet.begins
    step = next(it for it in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10**9) if long / it <= 12)
    at = int(sheet.begins / step) + 1
    while at * step <= sheet.ends:
        x = sheet.x(at * step)
        sheet.line("grid", x, TOP - 34, x, foot)
        sheet.line("tick", x, foot, x, foot + 5)
        sheet.text("small mid", x, foot + 20, f"{at * step:.10g} s")
        at += 1
    sheet.line("tick", LEFT, foot, RIGHT, foot)
    for who, y in sheet.connections.items():
        sheet.text("name", 24, y + 5, str(who))
        sheet.line("connection", LEFT, y, RIGHT, y)
    x = 24.0
    for kind, words in KINDS.items():
        sheet.put(f'<circle class="{kind} end" cx="{x + 5}" cy="{sheet.height - 22}" r="5"/>')
        sheet.text("small", x + 16, sheet.height - 18, words)
        x += 34 + 7 * len(words)
    sheet.line("other never message", x, sheet.height - 22, x + 26, sheet.height - 22)
    sheet.text("small", x + 34, sheet.height - 18, "never arrived")
    sheet.text("small", x + 140, sheet.height - 18, "\N{BLACK DIAMOND SUIT} something went wrong")


def _bar(sheet: Sheet, bar: Bar, high: int) -> None:
    if not sheet.shows(bar.begins, bar.ends) or bar.who not in sheet.connections:
        return
    x = sheet.x(bar.begins)
    y = sheet.connections[bar.who]
    wide = max(sheet.x(bar.ends) - sheet.x(bar.begins), 2.0)
    title = f"<title>{escape(bar.title)}</title>"
    size = f'width="{wide:.1f}" height="{high}"'
    sheet.put(f'<rect class="bar {bar.kind}" x="{x}" y="{y - high / 2}" {size} rx="3">{title}</rect>')
    for words in (bar.text, bar.text.partition("  ")[0]):
        if words and wide > 7.4 * len(words) + 10:
            sheet.text("in", x + 6, y + 4, words)
            break


def _message(sheet: Sheet, flight: BytesInFlight) -> None:
    y1 = sheet.connections.get(flight.sender)
    y2 = sheet.connections.get(flight.receiver)
    if y1 is None or y2 is None:
        return
    kind = kind_of(flight)
    words = short(" | ".join(said(flight.data)))
    told = f"{flight.sender} to {flight.receiver}: {words[:SHOWN]}"
    # Half the way, to nowhere.
    if flight.lands is None:
        x = sheet.x(flight.leaves)
        told = f"{told}; sent at {flight.leaves:.6f} s, and never arrived"
        sheet.line(f"{kind} never message", x, y1, min(x + 12, RIGHT), y1 + (y2 - y1) / 3, told)
        return
    times = f"{flight.leaves:.6f} to {flight.lands:.6f} s"
    spans = max(flight.lands - flight.leaves, 1e-9)
    # What leaves the paper is cut off at its edge.
    first = max(flight.leaves, sheet.begins)
    last = min(flight.lands, sheet.ends)
    at1, at2 = (y1 + (y2 - y1) * (it - flight.leaves) / spans for it in (first, last))
    sheet.line(f"{kind} message", sheet.x(first), round(at1, 1), sheet.x(last), round(at2, 1), f"{told}; {times}")
    if flight.lands <= sheet.ends:
        sheet.put(f'<circle class="{kind} end" cx="{sheet.x(flight.lands)}" cy="{y2}" r="3"/>')


def _diamond(sheet: Sheet, bar: Bar) -> None:
    x = sheet.x(bar.begins)
    y = sheet.connections[bar.who]
    title = f"<title>{escape(f'{bar.begins:.6f} s: {bar.title}')}</title>"
    sheet.put(f'<path class="fault" d="M{x} {y - 9}l7 9l-7 9l-7 -9z">{title}</path>')


def _violation(sheet: Sheet, outcome: Outcome) -> None:
    first = next((line for line in reversed(outcome.wrong.splitlines()) if line.strip()), "")
    sheet.text("law", 24, 66, short(first)[:170])
    if sheet.shows(outcome.seconds, outcome.seconds):
        x = sheet.x(outcome.seconds)
        sheet.line("broken", x, TOP - 40, x, sheet.height - FOOT + 18, outcome.wrong)
        sheet.text("law right", x, TOP - 46, f"{outcome.law}, at {outcome.seconds:.6f} s")
