"""The picture of one acquire over five nodes, one of them hung and one dead: recorded on real servers, then drawn.

Knows what passes a client's sockets. Must not know how a lock is decided: what it draws is what was sent and answered, and when the caller
had its lease. The drawing carries its trace, so that anybody can see what was measured, and draw it again.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hiredis
from frame import Frame  # beside this file

import holdfast
from holdfast import Holdfast
from holdfast.drivers import sockets, unyielding
from holdfast.embedded import Nodes
from holdfast.scripts import RELEASE, REQUEST

HUNG, DEAD, COUNT = 1, 3, 5  # nodes, counted from 0
QUORUM = 3
TRIES = 201  # acquires, of which the one that took the median time is drawn
BODY = 0.0002  # seconds that the lock is held for
PATIENCE = 20.0  # seconds for anything that must happen


# ------------------------------------------------ what happened


@dataclass(frozen=True)
class Word:
    """Something that was sent to a node, or that it answered. `at`: microseconds since the caller asked for the lock."""

    at: float
    node: int
    sent: bool
    text: str


@dataclass(frozen=True)
class Trace:
    """One acquire and its release. Microseconds since the caller asked; `healthy`, `faulty`: medians of `TRIES` acquires, before the two
    nodes failed and after; `made`: when, and with what."""

    made: str
    words: tuple[Word, ...]
    held: float
    left: float
    released: float
    healthy: float
    faulty: float

    def of(self, node: int, sent: bool, text: str) -> float | None:
        """When this was said, if it was."""
        return next((it.at for it in self.words if (it.node, it.sent, it.text) == (node, sent, text)), None)


def complaints(trace: Trace) -> Iterator[str]:
    """What the picture claims and the trace does not show."""
    granted = sorted(it.at for it in trace.words if not it.sent and it.text == "granted")
    if sum(it <= trace.held for it in granted) < QUORUM:
        yield f"the lock was held before {QUORUM} nodes had granted it"
    if any(it.node == HUNG and not it.sent for it in trace.words):
        yield "the hung node answered"
    if trace.of(HUNG, True, "request") is None:
        yield "the hung node was not asked"
    if any(it.node == DEAD for it in trace.words):
        yield "something passed between the client and the dead node"
    if not 0 < trace.held < trace.left < trace.released:
        yield "the lock was not held, then left, then released"
    for node in set(range(COUNT)) - {HUNG, DEAD}:
        times = [trace.of(node, *it) for it in ((True, "request"), (False, "granted"), (True, "release"), (False, "released"))]
        known = [it for it in times if it is not None]
        if len(known) < len(times) or known != sorted(known):
            yield f"node {node + 1} did not take part from request to release"


# ------------------------------------------------ recording it


class Recorded(socket.socket):
    """A socket that notes what passes it."""

    log: list[tuple[float, int, bool, bytes]] = []  # noqa: RUF012  (one for all of them, on purpose)
    port = 0

    def connect(self, address: Any) -> None:
        self.port = address[1]
        super().connect(address)

    def send(self, data: Any, flags: int = 0) -> int:
        at = time.perf_counter()
        count = super().send(data, flags)
        self.log.append((at, self.port, True, bytes(data[:count])))
        return count

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        count = super().recv_into(buffer, size, flags)
        self.log.append((time.perf_counter(), self.port, False, bytes(buffer[:count])))
        return count


def _open_recorded(family: int, plain: Any = sockets.open_socket) -> socket.socket:
    recorded = Recorded(fileno=plain(family).detach())
    recorded.setblocking(False)
    return recorded


def _not_without_the_socket(*_: object) -> int:
    return -1


def record() -> Trace:
    """Start five servers twice, hang one and kill one of the second five, and record acquires: the trace of the most typical one.

    Both fives have their turn one after the other, so that whatever else the machine does strikes both alike.
    """
    with (
        patch.object(sockets, "open_socket", _open_recorded),
        patch.multiple(unyielding, send=_not_without_the_socket, recv=_not_without_the_socket),
        Nodes(COUNT, tcp=True) as healthy_servers,
        Nodes(COUNT, tcp=True) as servers,
        Holdfast(*healthy_servers.urls) as well,
        Holdfast(*servers.urls) as locks,
    ):
        places = {int(url.rpartition(":")[2]): node for node, url in enumerate(locks.urls)}
        # With its first use a client also notes its settings on each node: that is not what the picture shows.
        for client in (well, locks):
            client.lock("first").acquire().release(confirm=True)
        time.sleep(BODY)
        for _ in range(TRIES):  # the first ones find everything cold
            _acquire(well)
            _acquire(locks)
        servers.kill(DEAD)
        with _deadline("the client does not see that the node is dead") as late:
            while locks.nodes()[DEAD].state != "down":
                late()
        servers.freeze(HUNG)
        pairs = [(_acquire(well), _acquire(locks)) for _ in range(TRIES)]
        version = locks.nodes()[0].version
        servers.thaw(HUNG)
    healthy = statistics.median(held - began for (began, held, *_), _ in pairs)
    faulty = statistics.median(held - began for _, (began, held, *_) in pairs)
    # (later than `node_timeout` the hung node's connection is reset, and it is not asked any more: those are not what the picture shows)
    shown = [it for _, it in pairs if any(places[port] == HUNG for _, port, *_ in it[4])]
    if not shown:
        raise TimeoutError("this machine is so slow that the hung node was known to be down before the first acquire")
    whole = statistics.median(it[4][-1][0] - it[0] for it in shown)
    began, held, left, released, log = min(shown, key=lambda it: abs(it[1] - it[0] - faulty) + abs(it[4][-1][0] - it[0] - whole))
    return Trace(
        made=f"{datetime.now(UTC):%Y-%m-%d}, holdfast {holdfast.__version__}, {version}, "
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}, loopback",
        words=tuple(Word(_us(at - began), places[port], sent, text) for at, port, sent, data in log for text in _said(sent, data)),
        held=_us(held - began),
        left=_us(left - began),
        released=_us(released - began),
        healthy=_us(healthy),
        faulty=_us(faulty),
    )


Try = tuple[float, float, float, float, list[tuple[float, int, bool, bytes]]]


def _acquire(locks: Holdfast) -> Try:
    """One acquire and release: when it began, was held, was left and was released, and what passed meanwhile."""
    ports = {int(url.rpartition(":")[2]) for url in locks.urls}
    Recorded.log.clear()
    began = time.perf_counter()
    lease = locks.lock("invoice:42").acquire()
    held = time.perf_counter()
    time.sleep(BODY)
    left = time.perf_counter()
    lease.release()
    released = time.perf_counter()
    with _deadline("the release is not answered") as late:
        while True:
            log = [it for it in list(Recorded.log) if it[1] in ports]  # (and not what the other five say late)
            if sum(_said(sent, data).count("released") for _, _, sent, data in log if not sent) >= QUORUM:
                return began, held, left, released, log
            late()


def _said(sent: bool, data: bytes) -> list[str]:
    """What these bytes say, in the picture's words."""
    reader = hiredis.Reader()
    reader.feed(data)
    said = []
    while (it := reader.gets()) is not False:
        if sent:
            said.append({REQUEST.sha: "request", RELEASE.sha: "release"}[it[1]])
        else:
            said.append("released" if it == 1 else "granted" if isinstance(it, bytes) or (isinstance(it, list) and it[0]) else "denied")
    return said


@contextmanager
def _deadline(what: str) -> Iterator[Any]:
    until = time.monotonic() + PATIENCE

    def late() -> None:
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.001)

    yield late


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 1)


# ------------------------------------------------ drawing it

WIDTH, HEIGHT = 880, 504
LEFT, RIGHT = 128, 852  # of time
CALLER, FIRST, STEP = 112, 184, 50  # the middle of the lanes
AXIS = 428
STYLE = """
    .hf .in { font-size: 14px } .hf .count { font-size: 13px; font-weight: 700; fill: #fff; text-anchor: middle }
    .hf .talk { fill: var(--blue) } .hf .wait { fill: var(--grey) } .hf .held { fill: var(--green) }
    .hf .moment { stroke: var(--won); stroke-width: 2; stroke-dasharray: 5 4 }
    .hf .yes { fill: var(--green); stroke: var(--card); stroke-width: 2 } .hf .won { fill: var(--won); font-weight: 600 }
    .hf .hung { fill: var(--warned); stroke: var(--warn); stroke-width: 1.5; stroke-dasharray: 6 4 }
    .hf .warn { fill: var(--warn); font-weight: 600 } .hf .gone { fill: var(--faint); font-weight: 600 }
    .hf .dead { stroke: var(--tick); stroke-width: 2; stroke-dasharray: 2 6 }"""


def draw(trace: Trace) -> str:
    """The picture, as an SVG that needs nothing else, for light and dark pages."""
    answered = sorted((it.at, it.node) for it in trace.words if not it.sent and it.text == "granted")[:QUORUM]
    quorum = answered[-1][0]
    end = max([trace.released, *(it.at for it in trace.words)]) * 1.04
    title = "One acquire over five nodes, of which one hangs and one is dead"
    frame = Frame(WIDTH, HEIGHT, title, f"recorded on real servers: {trace.made}")
    text, line = frame.text, frame.line

    def x(at: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * at / end, 1)

    def bar(kind: str, start: float, stop: float, y: int, high: int) -> None:
        frame.box(kind, x(start), y - high / 2, x(stop) - x(start), high)

    def node_y(node: int) -> int:
        return FIRST + STEP * node

    text("name", 24, CALLER + 5, "your code")
    bar("wait", 0, trace.held, CALLER, 32)
    bar("held", trace.held, trace.left, CALLER, 32)
    bar("wait", trace.left, trace.released, CALLER, 32)
    text("in", x(0) + 10, CALLER + 5, "acquire()")
    text("in", x(trace.held) + 10, CALLER + 5, "the lock is held")
    if x(trace.released) - x(trace.left) > 86:
        text("in", x(trace.left) + 10, CALLER + 5, "release()")
    else:
        text("", x(trace.released) + 8, CALLER + 5, "release()")

    for node in range(COUNT):
        y = node_y(node)
        text("name", 24, y + 5, f"node {node + 1}")
        line("dead" if node == DEAD else "lane", LEFT, y, x(quorum) if node == DEAD else RIGHT, y)
        asked, freed = trace.of(node, True, "request"), trace.of(node, True, "release")
        if node == DEAD:
            text("gone", x(quorum) + 18, y + 5, "dead: not asked, and not missed")
        elif node == HUNG and asked is not None:
            bar("hung", asked, end, y, 30)
            text("warn", x(quorum) + 18, y + 5, "hung: asked, silent, and not waited for")
        elif asked is not None and freed is not None:
            granted, released = trace.of(node, False, "granted"), trace.of(node, False, "released")
            assert granted is not None
            assert released is not None
            for word, start, stop in ("request", asked, granted), ("release", freed, released):
                bar("talk", start, stop, y, 26)
                if x(stop) - x(start) > 86:  # else it does not fit; another node's does
                    text("in", x(start) + 9, y + 5, word)
    line("moment", x(quorum), CALLER + 17, x(quorum), AXIS)
    for place, (at, node) in enumerate(answered, 1):
        frame.put(f'<circle class="yes" cx="{x(at)}" cy="{node_y(node)}" r="11"/>')
        text("count", x(at), node_y(node) + 4.5, str(place))
    text("won", x(quorum) + 10, CALLER + 37, f"{QUORUM} of {COUNT} have said yes: a majority")

    line("tick", LEFT, AXIS, RIGHT, AXIS)
    step = next(it for it in (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10**9) if end / it <= 9)
    for at in range(0, int(end) + 1, step):
        line("tick", x(at), AXIS, x(at), AXIS + 5)
        text("small mid", x(at), AXIS + 20, f"{at} µs" if at == 0 else f"{at:,}".replace(",", "\u202f"))
    text("", 24, HEIGHT - 20, f"Median of {TRIES}: {trace.faulty:.0f} µs like this, {trace.healthy:.0f} µs with all five nodes well.")
    text("small right", RIGHT, HEIGHT - 20, "./task site picture")

    described = (
        f"A time line. The client asks the four nodes to which it has a connection, all at once. Three answer within {quorum:.0f} "
        f"microseconds, which is a majority, and the caller has the lock after {trace.held:.0f}. The hung node was asked and stays silent, "
        f"the dead one was not asked. After {trace.left - trace.held:.0f} microseconds more the lock is released."
    )
    made = f"docs/pictures/acquire.py (`./task site picture`): {trace.made}"
    return frame.done("acquire", described, made, STYLE, asdict(trace))


def traced(picture: str) -> Trace:
    """The trace that a picture was drawn from."""
    found = re.search("<metadata>(.*)</metadata>", picture)
    if found is None:
        raise ValueError("this picture carries no trace")
    facts = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return Trace(**{**facts, "words": tuple(Word(**it) for it in facts["words"])})


def main() -> None:
    """Record, check, draw. The exit status is 1, and nothing is written, if the trace does not show what the picture claims."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("output", type=Path, nargs="?", default=Path(__file__).with_name("acquire.svg"), help="default: %(default)s")
    parser.add_argument("--again", action="store_true", help="record nothing: draw the trace anew that the output carries")
    given = parser.parse_args()
    trace = traced(given.output.read_text()) if given.again else record()
    if wrong := list(complaints(trace)):
        sys.exit("no picture is drawn: " + "; ".join(wrong))
    given.output.write_text(draw(trace))
    print(f"held after {trace.held:.0f} µs; median of {TRIES}: {trace.faulty:.0f} µs like this, {trace.healthy:.0f} µs with all nodes well")


if __name__ == "__main__":
    main()
