"""A driver for the engine's tests: virtual time, and fake nodes that answer by script. The connections are real, and write real RESP.

Knows a driver's duties (`Engine.ready`), and how servers introduce themselves. Must not know what a lock is: a node grants
what nobody holds there, and whatever else a test wants a node to say, the test says.
"""

from __future__ import annotations

import hashlib
import heapq
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from typing import Any
from unittest import mock

import hiredis
import pytest
from proof.books import word
from wire.servers import bulk

from holdfast.engine import upkeep as upkeep_module
from holdfast.engine.engine import Engine
from holdfast.engine.health import Health
from holdfast.engine.notices import Notices
from holdfast.engine.ready import Want
from holdfast.engine.settings import DEFAULT_GUARD, settings
from holdfast.engine.upkeep import Upkeep
from holdfast.events import Event
from holdfast.protocol import exclusive
from holdfast.protocol.claim import Claim
from holdfast.protocol.command import Command, Recipe
from holdfast.protocol.exclusive import Exclusive
from holdfast.protocol.query import Answers, Query
from holdfast.protocol.semaphore import Slots
from holdfast.protocol.ticket import Tickets
from holdfast.protocol.timing import Timing
from holdfast.scripts import BASIC, LOADED, PROBE, REGISTRY, RELEASE, REQUEST, RW_RELEASE, RW_REQUEST, Script
from holdfast.wire.address import Address
from holdfast.wire.connection import Connection, ConnectionState
from holdfast.wire.resp import pack

INBOX = b"0123456789abcdef0123456789abcdef"
START = 1000.0  # the monotonic time at which every test begins
WALL = 1_700_000_000.0  # the wall clock at that time, here and on the nodes
TRIP = 1 / 1024  # seconds that bytes are under way, in each direction (sums of such numbers are exact)
OK = b"+OK\r\n"
ANOTHER = b"1600000000000000:ffffffffffffffffffffffffffffffff:00000001"  # the token of somebody who came earlier
# What few nodes here say.
SPECIAL = dict.fromkeys(("connected_slaves", "master_replid", "master_replid2", "min_slaves_good_slaves", "second_repl_offset"))
SCRIPTS = b"".join(b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%d\r\n%b\r\n" % (len(it.source), it.source) for it in BASIC)


def run_id(number: int) -> str:
    """The run_id of the node with this number."""
    return f"{number:08x}" * 5


def granted(fence: int, lower: int = 0, fresh: int = 0) -> bytes:
    return b"*3\r\n:%d\r\n:%d\r\n:%d\r\n" % (fence, lower, fresh) if lower or fresh else b":%d\r\n" % fence


def usual(fence: int) -> bytes:
    """The answer of the usual case: P's own text."""
    return b"$16\r\n%016d\r\n" % fence


def denied(left: int = 9000, place: int = 0, holder: bytes | None = ANOTHER) -> bytes:
    return b"*4\r\n:0\r\n:%d\r\n:%d\r\n%b" % (left, place, b"_\r\n" if holder is None else bulk(holder))


@dataclass
class Asked:
    """A command that reached a node. `word`: request, release, or what a server calls it; `at`: when; `connection`: on which."""

    word: str
    at: float
    connection: int
    name: bytes = b""
    token: bytes = b""
    ttl: int = 0
    mode: bytes = b""
    fence: int = 0


@dataclass
class Node:
    """A fake node. `dialled`: accepts, refuses or hangs; `mute`: reads and never answers; `answer`: to requests and releases."""

    number: int
    dialled: str = "accepts"
    mute: bool = False
    facts: dict[str, object] = field(default_factory=dict)
    ahead: float = 0.0  # its clock less the wall clock
    answer: Callable[[Asked], bytes] = lambda asked: b""
    holders: dict[bytes, bytes] = field(default_factory=dict)
    values: dict[bytes, bytes] = field(default_factory=dict)  # what clients have said of themselves, by key
    asked: list[Asked] = field(default_factory=list)  # all but notes of the registry
    noted: list[tuple[float, bytes, bytes]] = field(default_factory=list)  # in the registry: when, by whom, and what
    registry: dict[bytes, tuple[float, bytes]] = field(default_factory=dict)  # by client: when, and what it noted last
    forbids: bool = False  # to call the script of the registry
    scripts: set[bytes] = field(default_factory=set)  # the digests of those that it knows
    called: list[tuple[float, str]] = field(default_factory=list)  # those that are no lock's and not the registry's: when, and which
    refusal: bytes = b""  # what it says to every probe, request and release; empty: it does what it is asked
    takes: bytes = OK  # what it says to a mark
    probed: list[float] = field(default_factory=list)  # when
    connection: int = 0  # the number of the last one
    linked: bool = False
    writes: list[bytes] = field(default_factory=list)  # of the last connection
    _parser: hiredis.Reader = field(default_factory=hiredis.Reader)

    def __post_init__(self) -> None:
        self.answer = self.first_come

    def begins(self) -> None:
        """A connection begins."""
        self.connection, self.linked, self.writes, self._parser = self.connection + 1, True, [], hiredis.Reader()

    def reads(self, data: bytes, now: float) -> bytes:
        """What it answers to these bytes."""
        self._parser.feed(data)
        answers = []
        while (words := self._parser.gets()) is not False:
            answers.append(self._answers(words, now))
        return b"" if self.mute else b"".join(answers)

    def _answers(self, words: list[bytes], now: float) -> bytes:
        if words[0] == b"EVALSHA":
            return self._runs(words, now) if words[1] in self.scripts else b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
        if words[:2] == [b"SCRIPT", b"LOAD"]:
            self.scripts.add(hashlib.sha1(words[2]).hexdigest().encode())
            if words[2] == PROBE.source:
                return OK
        self.asked.append(Asked(words[0].decode(), now, self.connection))
        match words:
            case [b"HELLO", *_]:
                return b"%1\r\n+proto\r\n:3\r\n"
            case [b"SUBSCRIBE", inbox]:
                return b">3\r\n$9\r\nsubscribe\r\n" + bulk(inbox) + b":1\r\n"
            case [b"INFO", b"server"]:
                told = {"redis_version": "7.0.15", "run_id": run_id(self.number), "uptime_in_seconds": 10**6}
                return self._info(**told, redis_mode=None, garnet_version=None)
            case [b"INFO", b"replication"]:
                return self._info(role="master", **SPECIAL)
            case [b"CLUSTER", b"INFO"]:
                return bulk(b"cluster_size:1\r\n")
            case [b"INFO", b"persistence"]:
                return self._info(aof_enabled=0, loading=0)
            case [b"INFO", b"memory"]:
                return self._info(maxmemory_policy="noeviction")
            case [b"TIME"]:
                wall = now - START + WALL + self.ahead
                return b"*2\r\n" + bulk(b"%d" % wall) + bulk(b"%06d" % (wall % 1 * 1e6))
            case [b"SET", key, value, b"NX", b"PX", _]:
                return b"_\r\n" if self.values.setdefault(key, value) != value else OK
            case [b"SET", key, value, b"PX", _]:
                if self.takes == OK:
                    self.values[key] = value
                return self.takes
            case [b"GET", key]:
                return bulk(self.values[key]) if key in self.values else b"_\r\n"
            case [b"SET", key, value, b"PX", _, b"GET"]:
                before, self.values[key] = self.values.get(key), value
                return b"_\r\n" if before is None else bulk(before)
        return OK

    def _runs(self, words: list[bytes], now: float) -> bytes:
        """What a script answers."""
        match words[1]:
            case PROBE.sha:
                self.probed.append(now)
                return b"-%b\r\n" % self.refusal if self.refusal else b"*0\r\n"
            case REGISTRY.sha:
                if self.forbids:
                    return b"-NOPERM no\r\n"
                self.noted.append((now, words[7], words[8]))
                self.registry[words[7]] = now, words[8]
                others = [(note, who, now - then) for who, (then, note) in self.registry.items() if note != words[8]]
                entries = [b"*3\r\n%b%b:%d\r\n" % (bulk(note), bulk(who), age * 1000) for note, who, age in others]
                return b"*%d\r\n%b" % (len(entries), b"".join(entries))
            case REQUEST.sha:
                token, ttl, mode, fence = words[7], int(words[8]), words[9], int(words[10])
                self.asked.append(Asked("request", now, self.connection, words[3], token, ttl, mode, fence))
            case RELEASE.sha:
                self.asked.append(Asked("release", now, self.connection, words[3], words[7]))
            case RW_REQUEST.sha:
                token, ttl, mode, fence = words[9], int(words[11]), words[12], int(words[13])
                self.asked.append(Asked("request", now, self.connection, words[3], token, ttl, mode, fence))
            case RW_RELEASE.sha:
                self.asked.append(Asked("release", now, self.connection, words[3], words[9]))
            case _:
                self.called.append((now, next(it.name for it in LOADED if it.sha == words[1])))
                return b":1\r\n"
        return b"-%b\r\n" % self.refusal if self.refusal else self.answer(self.asked[-1])

    def _info(self, **facts: object) -> bytes:
        facts = {**facts, **{key: value for key, value in self.facts.items() if key in facts or key == "valkey_version"}}
        return bulk("".join(f"{key}:{value}\r\n" for key, value in facts.items() if value is not None).encode())

    def first_come(self, asked: Asked) -> bytes:
        """Its usual script: whoever asks first has it until the release."""
        holder = self.holders.get(asked.name)
        if asked.word == "release":
            if holder == asked.token:
                del self.holders[asked.name]
            return b":%d\r\n" % (holder == asked.token)
        if holder is None:
            self.holders[asked.name] = asked.token
            return usual(asked.fence)
        return granted(asked.fence) if holder == asked.token else denied(holder=holder)

    def of(self, word: str) -> list[Asked]:
        """What it was asked by this word."""
        return [it for it in self.asked if it.word == word]


def part(method: str) -> type:
    """The part of an engine that has a method of this name."""
    return next(it for it in (Engine, Upkeep, Health, Notices) if method in vars(it))


class InStep(Tickets):
    """Tickets whose claims all have the same place: what begins together asks together."""

    __slots__ = ()

    def place(self, ticket: int) -> float:
        return 0.0


class PlantedConnection(Connection[Command]):
    """A connection on which a test can put a method of its own."""


class Notebook:
    """A guardian that only notes what it is told. `told`: without addresses, and with the number of a token in place of it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._tokens: list[bytes] = []

    def _note(self, what: str, token: bytes) -> None:
        self._tokens += [] if token in self._tokens else [token]
        self.told.append(f"{what} {self._tokens.index(token)}")

    def connected(self, node: int, address: Address) -> None:
        self.told.append(f"node {node} {address.label}")

    def asks(self, claim: Claim, token: bytes) -> None:
        self._note("asks", token)

    def ends(self, token: bytes) -> None:
        self._note("ends", token)

    def stays(self, token: bytes) -> None:
        self._note("stays", token)

    def close(self) -> None:
        self.told.append("close")


class World:
    """An engine, its nodes, and the time between them.

    `in_step`: its claims have no places of their own, and ask every ttl/3 exactly; `query`: the options of each address.
    """

    def __init__(
        self, nodes: int = 3, *, telling: bool = False, inbox: bytes = INBOX, in_step: bool = False, query: str = "", **options: Any
    ) -> None:
        usual: dict[str, Any] = {"ttl": 10.0, "max_ttl": 30.0, "prefix": "", "node_timeout": None, "restart_guard": DEFAULT_GUARD}
        usual |= {"outage": None, "owner": "me"}
        self.settings = settings([f"redis://n{number}:1{query}" for number in range(nodes)], **(usual | options))
        with mock.patch.object(upkeep_module, "Connection", PlantedConnection):
            self.engine = Engine(self.settings, inbox, exclusive.undo, "1.2")
        if in_step:
            self.engine.tickets = InStep(inbox)
        self.engine.record.telling, self.engine.record.epoch = telling, WALL - START
        self.nodes = [Node(number) for number in range(nodes)]
        self.now = START
        self.events: list[Event] = []
        self.settled: list[Want] = []
        self.found: list[Query] = []
        self.dials = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    # ------------------------------------------------ what a test does

    def run(self, seconds: float) -> None:
        """Let the time pass."""
        end, turns = self.now + seconds, 0
        self._send()
        while (then := min(self._due[0][0] if self._due else inf, self.engine.next_wake())) <= end:
            turns = turns + 1 if then <= self.now else 0
            assert turns < 100, "it spins"
            self.now = max(self.now, then)
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()
            if self.engine.next_wake() <= self.now:
                self.engine.tick(self.now)
            self._send()
        self.now = end

    def connect(self) -> World:
        """Have every node that can be connected to be connected to."""
        self.run(0.5)
        self.events.clear()
        return self

    def claim(self, name: str = "a", ttl: float = 10.0, **options: Any) -> Claim:
        """A claim that has begun."""
        recipe = Exclusive(name, ttl=ttl, horizon=self.settings.horizon)
        claim: Claim = self.wanted([recipe], ttl, **options).claims[0]
        self.engine.begin(claim, self.now)
        self._send()
        return claim

    def wanted(self, recipes: Sequence[Recipe], ttl: float, patient: bool = True, deadline: float = inf, **options: Any) -> Want:
        """A claim, or a joint request, that has not begun. `options`: of its timing."""
        return self.engine.want(recipes, Timing(ttl, None if patient else 0.0, **options), self.now, deadline)

    def want(self, *names: str, ttl: float = 10.0, **options: Any) -> Any:
        """A joint request for these names, which has begun; a claim, if it is one name."""
        recipes = [Exclusive(it, ttl=ttl, horizon=self.settings.horizon) for it in names]
        want = self.wanted(recipes, ttl, **options)
        self.engine.begin(want, self.now)
        self._send()
        return want

    def consult(self, *numbers: int, enough: Callable[[Answers], bool] | None = None, share: str | None = None) -> Query:
        """A query that asks these nodes for a word."""
        query = self.engine.consult(dict.fromkeys(numbers, pack(b"PING")), self.now, enough, share)
        self._send()
        return query

    def end(self, claim: Want, heard: bool = False) -> None:
        self.engine.end(claim, self.now, heard)
        self._send()

    def cut(self, number: int, *, dialled: str | None = None) -> None:
        """The connection to a node breaks."""
        node = self.nodes[number]
        node.linked, node.dialled = False, dialled or node.dialled
        self.engine.upkeep.lost(number, self.now, ConnectionResetError(f"cut {number}"))
        self._send()

    def says(self, number: int, data: bytes) -> None:
        """A node says something of its own accord, which arrives at once."""
        self.engine.upkeep.received(number, data, self.now)
        self._send()

    def publishes(self, number: int, message: bytes) -> None:
        """A node pushes a message to the engine's inbox."""
        self.says(number, b">3\r\n$7\r\nmessage\r\n" + bulk(INBOX) + bulk(message))

    # ------------------------------------------------ a driver's duties

    def _send(self) -> None:
        while True:
            ready = self.engine.ready()
            for number in ready.hangups:
                self.nodes[number].linked = False
            for number in ready.dials:
                self._dial(number)
            for number, connection in enumerate(self.engine.connections):
                assert ready.speaks or not connection.out, "a connection has something to say, and the driver is not told"
                if connection.out:
                    self._write(number, connection.take())
            self.settled += ready.settled
            self.found += ready.queries
            self.events += ready.events
            if not self.engine.upkeep.broken:
                break

    def _later(self, delay: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + delay, next(self._order), what))

    def _dial(self, number: int) -> None:
        node = self.nodes[number]
        assert not node.linked
        self.dials += 1
        if node.dialled == "accepts":
            self._later(TRIP, partial(self._accepted, number))
        elif node.dialled == "refuses":
            self._later(TRIP, lambda: self.engine.upkeep.lost(number, self.now, ConnectionRefusedError(f"refused {number}")))

    def _accepted(self, number: int) -> None:
        self.nodes[number].begins()
        self.engine.upkeep.connected(number, self.now)

    def _write(self, number: int, data: bytes) -> None:
        node = self.nodes[number]
        assert node.linked, "bytes for a node that there is no connection to"
        first = (b"*2\r\n$5\r\nHELLO\r\n", SCRIPTS, b"*")[min(len(node.writes), 2)]
        # (The greeting of a server that was promoted, or is in a cluster, or whose answers were read late, has a second part.)
        again = self.engine.connections[number].state is ConnectionState.GREETING and data == pack(b"TIME")
        if not again and b":reign:" not in data[:80] and b"CLUSTER" not in data[:20]:
            assert data.startswith(first), "first the greeting, then, when the guard is over, the scripts, then the rest"
            node.writes.append(data)
        self._later(TRIP, partial(self._arrived, number, node.connection, data))

    def _arrived(self, number: int, connection: int, data: bytes) -> None:
        node = self.nodes[number]
        if node.linked and node.connection == connection and (answers := node.reads(data, self.now)):
            self._later(TRIP, partial(self._answered, number, connection, answers))

    def _answered(self, number: int, connection: int, answers: bytes) -> None:
        node = self.nodes[number]
        if node.linked and node.connection == connection:
            self.engine.upkeep.received(number, answers, self.now)


# ------------------------------------------------ what tests ask of it


def near(value: Any, abs: float | None = None) -> Any:  # noqa: A002 (pytest.approx calls it so)
    return pytest.approx(value, abs=abs)


def busy(world: World, name: bytes = b"a", numbers: tuple[int, ...] = (0, 1, 2)) -> None:
    """Somebody else has it there."""
    for number in numbers:
        world.nodes[number].holders[name] = ANOTHER


def away(world: World, *numbers: int) -> None:
    """These nodes break, and refuse to be connected to."""
    for number in numbers:
        world.cut(number, dialled="refuses")


def lines(world: World) -> list[str]:
    return [it.state for it in world.engine.health.status(world.now)]


def noted(world: World) -> bytes:
    """What the engine notes of its settings when it has met all nodes."""
    known = ",".join(run_id(it.number)[:8] for it in world.nodes)
    return f"v2 30000 {len(world.nodes)} {known}  0 1.2".encode()


def rests(world: World) -> bool:
    """Does nothing wake the engine but its next note in the registry?"""
    return world.now < world.engine.next_wake() == world.engine.notices._registry.due


def guarded(world: World, *numbers: int, uptime: int = 0) -> None:
    for number in numbers:
        world.nodes[number].facts = {"uptime_in_seconds": uptime}


def warnings(world: World) -> list[tuple[str, str]]:
    """What was warned of so far: about which node, and the first words."""
    return [(it.node[8:10], it.warning) for it in world.events if word(it) == "warned"]


def semaphore(world: World, permits: int) -> Any:
    """A request for one permit, which has begun."""
    joint = world.engine.want(Slots("s", permits, 1, ttl=10, horizon=world.settings.horizon), Timing(10.0), world.now)
    world.engine.begin(joint, world.now)
    return joint


def timers(world: World) -> int:
    return len(world.engine._timers)


def slow(world: World, trip: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on bytes take so long, each way."""
    monkeypatch.setattr(sys.modules[__name__], "TRIP", trip)


def plant(world: World, number: int, call: str, error: Exception) -> list[str]:
    """Have this call of one node's connection raise, each time. What is returned grows with each call."""
    called: list[str] = []

    def raises(*_: object) -> Any:
        called.append(call)
        raise error

    setattr(world.engine.connections[number], call, raises)
    return called


FULL = b"OOM command not allowed when used memory > 'maxmemory'."


def loads(script: Script) -> bytes:
    return pack(b"SCRIPT", b"LOAD", script.source)
