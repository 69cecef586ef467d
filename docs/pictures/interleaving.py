"""The picture of five requests at once without a lock: recorded in the walkthrough's scene, then drawn.

Knows what the walkthrough writes down. Must not know how the service works: it draws when each request looked, how many
items it saw, and when it wrote. The drawing carries its trace, so that anybody can see what was measured and redraw it.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frame import Frame  # beside this file

import holdfast

WALKTHROUGH = Path(__file__).parents[2] / "examples/walkthrough.py"
REQUESTS = 5
ALLOWED = 3  # items
PATIENCE = 120.0  # seconds for the scene


# ------------------------------------------------ what happened


@dataclass(frozen=True)
class Request:
    """One request. Times are milliseconds since the first request was sent.

    Args:
        item: The name of the item that it asks for.
        process: Which process of the service worked on it, counted from 1.
        asked: When the client sent it.
        looked: When it looked how many items exist.
        saw: How many items it saw.
        wrote: When it wrote its own item.
        total: How many items existed then.
        answered: When the client had the answer.
        status: The status of the answer.
    """

    item: str
    process: int
    asked: float
    looked: float
    saw: int
    wrote: float
    total: int
    answered: float
    status: int


@dataclass(frozen=True)
class Trace:
    """Five requests at once; `made`: when, and with what."""

    made: str
    requests: tuple[Request, ...]


def complaints(trace: Trace) -> Iterator[str]:
    """What the picture claims and the trace does not show."""
    if len(trace.requests) != REQUESTS:
        yield f"these are {len(trace.requests)} requests and not {REQUESTS}"
        return
    if any(it.saw != 0 for it in trace.requests):
        yield "a request saw items"
    if max(it.looked for it in trace.requests) >= min(it.wrote for it in trace.requests):
        yield "a request wrote before all had looked"
    if sorted(it.total for it in trace.requests) != list(range(1, REQUESTS + 1)):
        yield f"the items did not grow from 1 to {REQUESTS}"
    if any(it.status != 201 for it in trace.requests):
        yield "a request was refused"
    if len({it.process for it in trace.requests}) < 2:
        yield "one process did all the work"
    for it in trace.requests:
        if not 0 <= it.asked < it.looked < it.wrote < it.answered:
            yield f"request {it.item} did not look, then write, then get its answer"


# ------------------------------------------------ recording it


def record() -> Trace:
    """Play the walkthrough's scenes without a lock, and return what happened in the one with five requests at once."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        command = [sys.executable, str(WALKTHROUGH), "--only", "bare", "--trace", str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if ended.returncode != 0:
            raise RuntimeError(f"the walkthrough failed:\n{ended.stdout}{ended.stderr}")
        return read(json.loads(file.read_text()))


def read(told: dict[str, Any]) -> Trace:
    """The trace in what the walkthrough has written down."""
    began = min(answer["asked"] for answer in told["answers"])
    processes: list[int] = []
    passed: dict[tuple[str, str], dict[str, Any]] = {}
    for line in told["journal"]:
        passed[line["item"], line["point"]] = line
        if line["process"] not in processes:
            processes.append(line["process"])
    requests = []
    for answer in sorted(told["answers"], key=lambda it: str(it["item"])):
        looked = passed[answer["item"], "looked"]
        wrote = passed[answer["item"], "wrote"]
        request = Request(
            item=answer["item"],
            process=processes.index(looked["process"]) + 1,
            asked=_ms(answer["asked"] - began),
            looked=_ms(looked["at"] - began),
            saw=looked["items"],
            wrote=_ms(wrote["at"] - began),
            total=wrote["items"],
            answered=_ms(answer["answered"] - began),
            status=answer["status"],
        )
        requests.append(request)
    made = (
        f"{datetime.now(UTC):%Y-%m-%d}, holdfast {holdfast.__version__}, "
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}"
    )
    return Trace(made, tuple(requests))


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


# ------------------------------------------------ drawing it

WIDTH, HEIGHT = 880, 560
LEFT, RIGHT = 192, 804  # of time
FIRST, STEP = 124, 48  # the middle of the lanes
FLOOR, RISE = 478, 20  # where no items are, and the height of one item
AXIS = 492
STYLE = """
    .hf .in { font-size: 14px } .hf .count { font-size: 13px; font-weight: 700; fill: #fff; text-anchor: middle }
    .hf .work { fill: var(--grey) } .hf .look { fill: var(--blue); stroke: var(--card); stroke-width: 2 }
    .hf .good { fill: var(--green); stroke: var(--card); stroke-width: 2 }
    .hf .bad { fill: var(--wrong); stroke: var(--card); stroke-width: 2 }
    .hf .moment { stroke: var(--look); stroke-width: 2; stroke-dasharray: 5 4 } .hf .all { fill: var(--look); font-weight: 600 }
    .hf .limit { stroke: var(--tick); stroke-dasharray: 2 4; stroke-width: 1.5 }
    .hf .under { stroke: var(--won); stroke-width: 3; fill: none } .hf .over { stroke: var(--red); stroke-width: 3; fill: none }
    .hf .wrong { fill: var(--red); font-weight: 600 }"""


def draw(trace: Trace) -> str:
    """The picture, as an SVG that needs nothing else, for light and dark pages."""
    last_look = max(it.looked for it in trace.requests)
    first_write = min(it.wrote for it in trace.requests)
    end = max(it.answered for it in trace.requests) * 1.02
    title = f"Without a lock, {REQUESTS} requests at once create {REQUESTS} items, although {ALLOWED} are allowed"
    frame = Frame(WIDTH, HEIGHT, title, f"recorded in two processes of the service, on one database: {trace.made}")
    text, line = frame.text, frame.line

    def x(at: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * at / end, 1)

    def dot(kind: str, at: float, y: float, number: int) -> None:
        frame.put(f'<circle class="{kind}" cx="{x(at)}" cy="{y}" r="11"/>')
        text("count", x(at), y + 4.5, str(number))

    # The lanes: when each request looked, with what it saw, and when it wrote, with what it made of it.
    for place, it in enumerate(trace.requests):
        y = FIRST + STEP * place
        text("name", 24, y + 5, f"request {it.item}")
        text("small", 118, y + 5, f"process {it.process}")
        line("lane", LEFT, y, RIGHT, y)
        wide = x(it.wrote) - x(it.looked)
        frame.box("work", x(it.looked), y - 13, wide, 26)
        if x(first_write) - x(last_look) > 300:
            text("in mid", (x(last_look) + x(first_write)) / 2, y + 5, f"saw {it.saw} items, so it may write one more")
    below = FIRST + STEP * (REQUESTS - 1) + 24
    line("moment", x(last_look), FIRST - 22, x(last_look), below)
    text("all", x(last_look) + 10, FIRST - 25, "all have looked before one writes")
    for place, it in enumerate(trace.requests):
        y = FIRST + STEP * place
        dot("look", it.looked, y, it.saw)
        dot("good" if it.total <= ALLOWED else "bad", it.wrote, y, it.total)
        text("name" if it.total <= ALLOWED else "wrong", RIGHT + 14, y + 5, str(it.status))

    # The items: how many exist at each moment, and how many are allowed.
    limit = FLOOR - RISE * ALLOWED
    text("name", 24, FLOOR - RISE * 2 + 5, "items")
    line("limit", LEFT, limit, RIGHT, limit)
    text("small", LEFT + 8, limit - 6, f"{ALLOWED} are allowed")
    at, count = 0.0, 0
    for it in sorted(trace.requests, key=lambda it: it.wrote):
        kind = "under" if count <= ALLOWED else "over"
        line(kind, x(at), FLOOR - RISE * count, x(it.wrote), FLOOR - RISE * count)
        line("under" if it.total <= ALLOWED else "over", x(it.wrote), FLOOR - RISE * count, x(it.wrote), FLOOR - RISE * it.total)
        at, count = it.wrote, it.total
    line("over", x(at), FLOOR - RISE * count, RIGHT, FLOOR - RISE * count)
    text("wrong", RIGHT + 14, FLOOR - RISE * count + 5, str(count))

    line("tick", LEFT, AXIS, RIGHT, AXIS)
    step = next(it for it in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if end / it <= 9)
    for moment in range(0, int(end) + 1, step):
        line("tick", x(moment), AXIS, x(moment), AXIS + 5)
        text("small mid", x(moment), AXIS + 20, f"{moment} ms" if moment == 0 else str(moment))
    text("", 24, HEIGHT - 18, "Blue: how many items a request saw. Green or red: how many exist after its write.")
    text("small right", WIDTH - 24, HEIGHT - 18, "./task site picture interleaving")

    described = (
        f"A time line of {REQUESTS} requests without a lock. All of them look within {last_look:.0f} milliseconds, and each sees 0 items. "
        f"The first writes after {first_write:.0f} milliseconds. Each writes one item, and all are answered with 201: "
        f"in the end {REQUESTS} items exist, although {ALLOWED} are allowed. "
        "(The walkthrough holds each request after its look until all have looked.)"
    )
    made = f"docs/pictures/interleaving.py (`./task site picture interleaving`): {trace.made}"
    return frame.done("interleaving", described, made, STYLE, asdict(trace))


def traced(picture: str) -> Trace:
    """The trace that a picture was drawn from."""
    found = re.search("<metadata>(.*)</metadata>", picture)
    if found is None:
        raise ValueError("this picture carries no trace")
    facts = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return Trace(facts["made"], tuple(Request(**it) for it in facts["requests"]))


def main() -> None:
    """Record, check, draw. The exit status is 1, and nothing is written, if the trace does not show what the picture claims."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    default = Path(__file__).with_name("interleaving.svg")
    parser.add_argument("output", type=Path, nargs="?", default=default, help="default: %(default)s")
    parser.add_argument("--again", action="store_true", help="record nothing: redraw the trace that the output carries")
    given = parser.parse_args()
    trace = traced(given.output.read_text()) if given.again else record()
    if wrong := list(complaints(trace)):
        sys.exit("no picture is drawn: " + "; ".join(wrong))
    given.output.write_text(draw(trace))
    last_look = max(it.looked for it in trace.requests)
    first_write = min(it.wrote for it in trace.requests)
    print(f"all had looked after {last_look:.0f} ms; the first wrote after {first_write:.0f} ms")


if __name__ == "__main__":
    main()
