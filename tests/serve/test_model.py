"""The clock rule as a property: what clients believe is held, however requests, gateways and answers are delayed, stopped or cut.

The client is examples/http/client.py, and the gateway is the application as it ships. Between them is no network but a schedule, and in
the place of the nodes is one lock, whose lease ends when its time is over, as the protocol promises. Time is a number that only the
schedule moves. tests/faults.toml has faults of the gateway.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from serve.serving import gateway_app
from starlette.applications import Starlette

from holdfast import LockLost, NoQuorum
from holdfast.face.lease import LeaseState
from holdfast.serve.leases import Leases

TTL = 10.0
CLIENT = Path(__file__).parents[2] / "examples/http/client.py"
# What is of the model in the client: its clock, and its connections.
SEAMS = {
    "time.clock_gettime(CLOCK)": "WORLD.now",
    'getattr(http.client, f"{GATEWAY.scheme.upper()}Connection")(GATEWAY.netloc, timeout=patience)': "WORLD.connected()",
}


@dataclass
class Step:
    """One thing that happens, and how long its parts take.

    Attributes:
        kind: A request of the client; or "disconnect", one that waits and whose connection breaks; or "drain"; or "stop".
        to_gateway: How long the request is on its way.
        at_gateway: How long the nodes' answers take.
        back: How long the answer is on its way.
        ttl: What a keepalive asks for.
        cut: Whether the connection breaks, so that the answer is lost.
        doubt: Whether too few nodes confirm an extension.
    """

    kind: str
    to_gateway: float = 0.0
    at_gateway: float = 0.0
    back: float = 0.0
    ttl: float = TTL
    cut: bool = False
    doubt: bool = False


class World:
    """One lock, the time, and the way between a client and its gateway."""

    def __init__(self, table: Table, max_hold: float | None) -> None:
        self.now = 0.0
        # Until when the nodes keep the lock for the holder. Later, anybody may have it.
        self.kept = 0.0
        self.step = Step("put")
        self.broken: list[str] = []
        self.max_hold = max_hold
        self._table = table
        names: dict[str, Any] = {"WORLD": self, "__name__": "client"}
        exec(_client(), names)
        self.client = names["Lease"]()

    def passes(self, seconds: float) -> None:
        """Let time pass. All the while, what is believed has to be so: it ends last where it is closest."""
        end, believed = self.now + seconds, self.client.until
        if believed > self.now and min(believed, end) > self.kept + 1e-9:
            self.broken.append(f"believed until {believed:.3f}, kept until {self.kept:.3f}, at {end:.3f}")
        self.now = end

    def connected(self) -> World:
        """Connect, which takes no time."""
        return self

    def request(self, method: str, path: str, body: str, headers: dict[str, str]) -> None:
        """Send a request. The gateway handles it when it has arrived."""
        self.passes(self.step.to_gateway)
        self._said = self._table.ask(method, path, body.encode(), headers, self.step.cut)

    def getresponse(self) -> Any:
        """Wait for the answer."""
        self.passes(self.step.back)
        if self.step.cut:
            raise ConnectionResetError
        return self._said

    def play(self, step: Step) -> None:
        """Let one thing happen."""
        self.step = step
        match step.kind:
            case "put":
                most = {} if self.max_hold is None else {"max_hold_ms": round(1000 * self.max_hold)}
                self.client.ask("PUT", "", {"names": ["the lock"], "ttl_ms": round(1000 * TTL), **most}, 30)
            case "keepalive":
                self.client.ask("POST", "/keepalive", {"ttl_ms": round(1000 * step.ttl)}, 30)
            case "get":
                self.client.ask("GET", "", {}, 30)
            case "disconnect":
                step.cut = True
                self.client.ask("GET", "?wait_ms=60000", {}, 30)
            case "drain":
                self._table.drain()
            case _:
                # The client, the gateway, or the network between them stands still.
                self.passes(step.at_gateway)


class Lease:
    """What the gateway has of the library: a lease that knows for how long it is certainly held."""

    fence, slots, waited, votes = 1, (), 0.0, 3
    contended = False

    def __init__(self, world: World, max_hold: float | None) -> None:
        self._world = world
        self._limit = float("inf") if max_hold is None else world.now + max_hold
        self._until = 0.0
        self._released = False
        self._extended(TTL)

    def _extended(self, ttl: float) -> None:
        # An extension never shortens a lease. It counts from when the nodes were asked.
        self._until = max(self._until, min(self._limit, self._world.now + ttl))
        self._world.kept = self._until

    @property
    def fences(self) -> dict[str, int]:
        return {"the lock": self.fence}

    @property
    def remaining(self) -> float:
        return 0.0 if self._released else max(0.0, self._until - self._world.now)

    @property
    def held(self) -> bool:
        return self.remaining > 0

    @property
    def state(self) -> LeaseState:
        if self._released:
            return LeaseState.RELEASED
        return LeaseState.HELD if self.held else LeaseState.LOST

    def check(self) -> None:
        if self.state is LeaseState.LOST:
            raise LockLost("the lock", "expired", 1)

    async def extend(self, ttl: float) -> float:
        self.check()
        if not self._world.step.doubt:
            self._extended(ttl)
        self._world.passes(self._world.step.at_gateway)
        if self._world.step.doubt:
            raise NoQuorum("the lock", 1.0, {}, 3, "extend")
        return self.remaining

    async def release(self, confirm: bool = False) -> int:
        self.check()
        self._released = True
        self._world.kept = self._world.now
        return 3


class Table:
    """The application, with leases that are new for each world. Time of the machine plays no part in it."""

    def __init__(self) -> None:
        self.world: World | None = None
        self._runner = asyncio.Runner()
        self._locks: Any = SimpleNamespace(
            settings=SimpleNamespace(ttl=TTL, owner="the gateway", guardian=False), lock=self._lock, ready=self._ready
        )
        self._application: Starlette = gateway_app(self._locks, page=False, max_lag=1e9, max_requests=10**9)

    async def _ready(self) -> None:
        """Say that all nodes are there."""

    def _lock(self, *names: str, renew: bool, max_hold: float | None, **options: Any) -> Any:
        assert not renew, "only the client renews its lease"

        async def acquire() -> Lease:
            assert self.world is not None
            return Lease(self.world, max_hold)

        return SimpleNamespace(acquire=acquire)

    def begin(self, max_hold: float | None) -> World:
        """Begin a world, in which nobody has the lock."""
        gateway = self._application.state.gateway
        gateway.leases = Leases(self._locks, gateway.name, gateway.options)
        gateway.draining = False
        self.world = World(self, max_hold)
        return self.world

    def drain(self) -> None:
        """Tell the gateway that it is about to end."""

        async def drained() -> None:
            self._application.state.gateway.drain()
            # What this may have begun by mistake comes to its end, too.
            for _ in range(10):
                await asyncio.sleep(0)

        self._runner.run(drained())

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str], cut: bool) -> Any:
        """Let the application answer a request, as a server would."""
        return self._runner.run(self._asked(method, path, body, headers, cut))

    async def _asked(self, method: str, path: str, body: bytes, headers: dict[str, str], cut: bool) -> Any:
        coming = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Any] = []
        place, _, query = path.partition("?")
        given = {"host": "localhost", "content-length": str(len(body)), **headers}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
            "method": method, "path": place, "raw_path": place.encode(), "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1), "server": ("localhost", 7420),
        }  # fmt: skip

        async def receive() -> Any:
            if coming:
                return coming.pop(0)
            if not cut:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        answer = io.BytesIO(b"".join(it.get("body", b"") for it in sent))
        answer.headers = Message()  # type: ignore[attr-defined]  # as http.client has it
        # A client that has gone gets no answer.
        for name, value in sent[0]["headers"] if sent else ():
            answer.headers[name.decode()] = value.decode()  # type: ignore[attr-defined]  # as above
        return answer

    def close(self) -> None:
        """End its loop."""
        self._runner.close()


def _client() -> Any:
    """Compile the client, with the model's clock and connections."""
    text = CLIENT.read_text()
    for before, after in SEAMS.items():
        assert before in text, f"client.py has changed: plant {after!r} elsewhere"
        text = text.replace(before, after)
    return compile(text, str(CLIENT), "exec")


@pytest.fixture
def table() -> Iterator[Table]:
    table = Table()
    yield table
    table.close()


delays = st.one_of(st.just(0.0), st.floats(0, 0.1), st.floats(0, 2 * TTL))
steps = st.builds(
    Step,
    kind=st.sampled_from(["keepalive", "keepalive", "put", "get", "disconnect", "drain", "stop"]),
    to_gateway=delays,
    at_gateway=delays,
    back=delays,
    ttl=st.floats(0.05, TTL),
    cut=st.sampled_from([False, False, False, True]),
    doubt=st.sampled_from([False, False, False, True]),
)
schedules = st.lists(steps, min_size=1, max_size=8)
ends = st.one_of(st.none(), st.floats(0.1, 2 * TTL))


def broken(table: Table, schedule: list[Step], max_hold: float | None) -> list[str]:
    """Carry out a schedule, after the lease was granted. Returns when the client believed what was not so."""
    world = table.begin(max_hold)
    for step in [Step("put"), *schedule, Step("stop", at_gateway=2 * TTL)]:
        world.play(step)
    return world.broken


def cases(most: int, *phases: Phase) -> Callable[[Any], Any]:
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=most, deadline=None, database=None, phases=phases or tuple(Phase), suppress_health_check=checks)


@cases(300)
@given(schedule=schedules, max_hold=ends)
def test_believed_is_held(table: Table, schedule: list[Step], max_hold: float | None) -> None:
    assert broken(table, schedule, max_hold) == []


def test_a_client_that_beats_keeps_its_lease(table: Table) -> None:
    """Keepalives that are answered at once keep a lease for longer than it was granted."""
    world = table.begin(None)
    for step in [Step("put"), *[Step("stop", at_gateway=TTL / 3), Step("keepalive")] * 6]:
        world.play(step)
    assert world.client.until - world.now > 0.95 * TTL
