"""RESP: the gateway for every client of Redis, for redis-cli and for nc.

Knows RESP 2 and 3, inline commands, and leases. Must not know HTTP. One connection's commands are
answered one after the other.

A lease that was asked for with SESSION ends with its connection. On a Unix socket, and on loopback,
the kernel closes the connection when the process dies, and nothing else does. So the gateway renews
such a lease for as long as the connection lives, and releases it at the end. A connection from
another machine says less: there the client has to say something within a third of the ttl, which
extends its leases, and a connection that breaks releases nothing.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from json import dumps
from typing import Any, NamedTuple

from ..errors import readable
from ..version import VERSION
from .audit import asking
from .gateway import Gateway
from .identity import Arrived, Identity, anybody
from .leases import VERBS, Hold, Wanted
from .once import Known, begun, keep
from .problems import Problem, milliseconds, problem_of
from .server import REQUEST, is_loopback

LARGEST = 65_536  # bytes of a command
LONGEST = 2**53  # a number of milliseconds, or anything else that is counted
# Commands that have arrived before others are answered. Then no more is read until all are answered.
AHEAD = 100
# The header of a command, that of a word, and the beginning of either.
_COUNT = re.compile(rb"\*([0-9]{1,2})\r\n")
_SIZE = re.compile(rb"\$([0-9]{1,5})\r\n")
_BEGUN = re.compile(rb"\*([0-9]{0,2}|[0-9]{1,2}\r)|\$([0-9]{0,5}|[0-9]{1,5}\r)|")
# What errors begin with, by the kinds of problems. Others begin with ERR.
CODES = {
    "lost": "LOST", "released": "LOST", "unknown-lease": "LOST", "no-quorum": "NOQUORUM", "in-doubt": "INDOUBT",
    "unauthenticated": "NOAUTH", "forbidden": "NOPERM", "too-many": "TOOMANY", "draining": "DRAINING",
    "overloaded": "OVERLOADED",
}  # fmt: skip


class Malformed(Exception):
    """What has arrived is no command. The connection cannot go on."""


Serve = Callable[["RespConnection", list[str], dict[str, str]], Awaitable[Any]]


class CommandSpec(NamedTuple):
    """A command.

    Attributes:
        serve: Answers it.
        least: How many words follow it at least.
        options: What may follow those, and whether a value follows each.
        urgent: Whether it is served however busy the gateway is: it keeps or releases a lease.
        stranger: Whether it is served before the client has said who it is.
        usage: How it is written.
    """

    serve: Serve
    least: int
    options: dict[str, bool] | None
    urgent: bool
    stranger: bool
    usage: str


COMMANDS: dict[str, CommandSpec] = {}
# What follows a command that acquires.
TERMS = "[WAIT ms] [TTL ms] [LABEL text] [SESSION]"


def command(usage: str, *, urgent: bool = False, stranger: bool = False) -> Callable[[Serve], Serve]:
    """Add a command to the table.

    Args:
        usage: How it is written: its name, the words that it needs, and options in brackets. With
            "..." any words may follow.
        urgent: See `CommandSpec`.
        stranger: See `CommandSpec`.
    """
    name, *words = usage.replace("[", "\0[").partition("\0")[0].split()
    found = [it.split() for it in usage.replace("]", "").split("[")[1:]]
    options = None if "..." in usage else {option: bool(value) for option, *value in found}
    least = len([it for it in words if it != "..."])

    def added(serve: Serve) -> Serve:
        COMMANDS[name] = CommandSpec(serve, least, options, urgent, stranger, usage)
        return serve

    return added


class Resp:
    """The door that speaks RESP."""

    def __init__(self) -> None:
        self._open = set["RespConnection"]()

    async def open(self, gateway: Gateway) -> None:
        """Begin to serve."""
        self._gateway = gateway

    def speak(self, arrived: Arrived) -> RespConnection:
        """Make what serves one connection."""
        return RespConnection(self._gateway, arrived, self._open)

    async def close(self) -> None:
        """Close all connections."""
        for it in self._open:
            it.close()
        # Their tasks end, and sessions are released.
        await asyncio.gather(*[it.ended for it in self._open])


class RespConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, gateway: Gateway, arrived: Arrived, connections: set[RespConnection]) -> None:
        self.gateway = gateway
        self._arrived = arrived
        # All that are open. One whose TLS handshake fails is never among them.
        self._connections = connections
        self._loop = loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.client: Identity | None = anybody(arrived.uid) if gateway.clients is None else None
        # Whether the kernel closes the connection when the client's process dies, and nothing else does.
        self.near = arrived.uid is not None or is_loopback(arrived.address)
        self.sessions: dict[Hold, None] = {}
        self.version = 2
        # What has arrived of a command that is not complete.
        self._rest = b""
        # Commands that are not answered yet. Nothing follows what is malformed.
        self._commands = asyncio.Queue[list[bytes] | Malformed]()
        # Whether the gateway has ended it. That says nothing of the client.
        self._closed = False
        self._late: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None

    # ------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as asyncio calls it
        """Begin to serve."""
        self._transport = transport
        self._connections.add(self)
        self._task = self._loop.create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        """Take the commands that have arrived."""
        data, at, after = self._rest + data, 0, 0
        try:
            while at < len(data):
                words, after = _command(data, at)
                if (after or len(data)) - at > LARGEST:
                    raise Malformed(f"a command has at most {LARGEST} bytes")
                if not after:
                    break
                at = after
                if words:
                    self._commands.put_nowait(words)
        except Malformed as error:
            self._commands.put_nowait(error)
            self._transport.pause_reading()
        self._rest = data[at:]
        if at:
            # Now, and not when it is answered: it may come after a command that waits.
            self._touch()
        if at and self._late is not None:
            self._late.cancel()
            self._late = None
        if self._rest and self._late is None:
            self._late = self._loop.call_later(REQUEST, self.close)
        if self._commands.qsize() > AHEAD:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Close: who says nothing any more has no session."""
        return False

    def pause_writing(self) -> None:
        """Stop to answer a client that does not read."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Go on."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the leases of the session, if only the end of the client can have ended it."""
        if self._late is not None:
            self._late.cancel()
        self._task.cancel()
        gone = not (self._closed or self._arrived.cut())
        for hold in self.sessions if self.near else ():
            hold.abandon() if gone else hold.leave()
        self._connections.discard(self)
        self._arrived.gone()
        self.ended.set_result(None)

    def close(self) -> None:
        """Close it, once what was answered is sent. Leases of its session run out by themselves."""
        self._closed = True
        self._transport.close()

    # ------------------------------------------------ its commands

    async def _serve(self) -> None:
        asking.set({"address": self._arrived.address})
        while True:
            if self._commands.empty():
                self._transport.resume_reading()
            words = await self._commands.get()
            if isinstance(words, Malformed):
                self._transport.write(_packed(Problem("malformed", str(words)), self.version))
                self.close()
                return
            self._transport.write(_packed(await self._answer(words), self.version))
            if self._writable is not None:
                await self._writable

    async def _answer(self, said: list[bytes]) -> Any:
        """Answer a command, or say what is wrong."""
        try:
            words = [it.decode() for it in said]
        except UnicodeDecodeError:
            return Problem("invalid", "words are UTF-8")
        name, words = words[0].upper(), words[1:]
        found = COMMANDS.get(name)
        try:
            if found is None:
                raise Problem("not-found", f"unknown command '{readable(name, 64)}'; there are {' '.join(COMMANDS)}")
            self._admit(found)
            answer = await found.serve(self, words, self._options(found, words))
        except Exception as error:
            answer = problem_of(error)
            if answer.kind == "fault":
                self._loop.call_exception_handler({"message": f"{name} failed", "exception": error})
        self.gateway.answers[answer.status if isinstance(answer, Problem) else 200] += 1
        return answer

    def _admit(self, found: CommandSpec) -> None:
        """Refuse a client that may not ask this now.

        Raises:
            Problem: unauthenticated; overloaded; or too-many.
        """
        gateway, client = self.gateway, self.client
        if client is not None:
            # A local client is bounded by its connection, whose commands are answered one after the other.
            if gateway.clients is not None:
                self.client = client = gateway.now(client)
                gateway.refuse_too_many(client.name, 1 if found.urgent else 0)
        elif not found.stranger:
            gateway.audit.note("unauthenticated")
            raise Problem("unauthenticated", "this gateway asks who you are: AUTH token")
        else:
            gateway.refuse_too_many(self._arrived.address)
        if gateway.busy and not (found.urgent or found.stranger):
            raise Problem("overloaded", f"the gateway is {gateway.lag.late:.2f} s behind; it serves UNLOCK and KEEP")

    def _touch(self) -> None:
        """Extend the session of a client elsewhere. It is alive, for it has just said something."""
        with suppress(Problem):
            if self.client is not None and not self.near:
                self.gateway.now(self.client)
                for hold in self.sessions:
                    hold.touch()

    @staticmethod
    def _options(found: CommandSpec, words: list[str]) -> dict[str, str]:
        """Take the options from the end of the words.

        Raises:
            Problem: invalid.
        """
        if len(words) < found.least:
            raise Problem("invalid", f"usage: {found.usage}")
        if found.options is None or len(words) == found.least:
            return {}
        rest, given = deque(words[found.least :]), dict[str, str]()
        del words[found.least :]
        while rest:
            option = rest.popleft().upper()
            if option not in found.options or option in given or (found.options[option] and not rest):
                raise Problem("invalid", f"usage: {found.usage}")
            given[option] = rest.popleft() if found.options[option] else ""
        return given

    def allowed(self, verb: str, *names: str) -> Identity:
        """Return the client, if it may do this.

        Raises:
            Problem: forbidden; or name-too-long.
        """
        assert self.client is not None
        self.gateway.authorize(self.client, verb, *names)
        return self.client

    def lease(self, lease_id: str) -> Hold:
        """Return the lease of this id.

        Raises:
            Problem: unknown-lease.
        """
        name, _, part = lease_id.rpartition(".")
        assert self.client is not None
        hold = self.gateway.leases.found(self.client, part) if name == self.gateway.name else None
        if hold is None:
            raise Problem("unknown-lease", f"this gateway has no lease {readable(lease_id, 80)} of {self.client.name}")
        hold.heard()
        return hold

    async def acquire(self, kind: str, name: str, given: dict[str, str], begin: Any = None, **more: Any) -> Any:
        """Acquire a lease.

        Returns:
            Its id, its fence, and for how many milliseconds it is valid. None: it is taken.

        Raises:
            Problem: It cannot be acquired.
        """
        client = self.allowed(VERBS[kind], name)
        self.gateway.refuse_unless_open()
        if not name:
            raise Problem("invalid", "a name has at least one character")
        wait, ttl = _number("WAIT", given.get("WAIT", "0")), _number("TTL", given["TTL"], 1) if "TTL" in given else None
        session = "SESSION" in given
        wanted = Wanted(
            names=(name,), kind=kind, ttl_ms=ttl, wait_ms=wait, label=given.get("LABEL", ""),
            renew=session and self.near, **more,
        )  # fmt: skip
        leases = self.gateway.leases
        # The answer to a try does not say who has it.
        begin = begin or (None if wait else leases.tried)
        hold, acquiring = leases.admit(client, secrets.token_urlsafe(16), wanted, begin)
        try:
            async with asyncio.timeout(wait / 1000 if wait else None):
                await hold.acquire(acquiring)
            told = self.told(hold)
        except TimeoutError:
            return None
        except Problem as problem:
            if problem.kind == "busy":
                return None
            raise
        self._arrived.known(client.name)
        if session:
            self.sessions = {it: None for it in (*self.sessions, hold) if it.state != "over"}
        return told

    @staticmethod
    def told(hold: Hold) -> list[Any]:
        """Return what is said of a lease that was acquired.

        Raises:
            Problem: It is over.
        """
        if not (valid := hold.valid_ms):
            hold.refuse_if_over()
        assert hold.lease is not None
        slots = hold.lease.slots if hold.wanted.kind == "permit" else ()
        return [hold.id, next(iter(hold.lease.fences.values())), valid, *slots]


# ------------------------------------------------ what it serves


async def _lock(kind: str, its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    return await its.acquire(kind, words[0], given)


for _name, _kind in (("LOCK", "exclusive"), ("RLOCK", "read"), ("WLOCK", "write")):
    command(f"{_name} name {TERMS}")(partial(_lock, _kind))


@command(f"PERMIT name permits [COUNT n] {TERMS}")
async def _permit(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    count = _number("COUNT", given.get("COUNT", "1"), 1)
    return await its.acquire("permit", words[0], given, permits=_number("permits", words[1], 1), count=count)


@command(f"LEAD name [VALUE text] {TERMS}")
async def _lead(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    return await its.acquire("election", words[0], given, value=given.get("VALUE"))


@command("LEADER name")
async def _leader(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    its.allowed("look", words[0])
    found = await its.gateway.locks.election(words[0]).leader()
    return [_text(found.value), found.term] if found else None


@command("UNLOCK id", urgent=True)
async def _unlock(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    hold = its.lease(words[0])
    its.sessions.pop(hold, None)
    await hold.release(False, remembered=False)
    return 1


@command("KEEP id [TTL ms]", urgent=True)
async def _keep(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    hold = its.lease(words[0])
    await hold.extend(_number("TTL", given["TTL"], 1) if "TTL" in given else None)
    return hold.valid_ms


@command("CHECK id", urgent=True)
async def _check(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    hold = its.lease(words[0])
    hold.refuse_if_over()
    return hold.valid_ms


@command(f"ONCE key keep_ms {TERMS}")
async def _once(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    key, kept = words[0], _number("keep_ms", words[1], 1) / 1000
    try:
        found = await its.acquire("once", key, given, lambda hold: begun(its.gateway.locks, hold, kept))
    except Known as known:
        return ["done", _text(known.value)]
    return found and ["run", *found]


@command("DONE id value", urgent=True)
async def _done(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    hold = its.lease(words[0])
    if hold.work is not None:
        # The nodes keep the result, also if the client goes meanwhile.
        its.sessions.pop(hold, None)
    return _text(await keep(hold, hold.wanted.names[0], words[1]))


@command("RATE name limit period_ms [COST n] [KEY text]")
async def _rate(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    its.allowed("rate", words[0])
    limit, period = _number("limit", words[1], 1), _number("period_ms", words[2], 1) / 1000
    rate = its.gateway.locks.rate(words[0], limit, period, key=given.get("KEY"))
    found = await rate.take(_number("COST", given.get("COST", "1"), 1))
    return [1, found.remaining, milliseconds(found.reset_after)] if found else [0, 0, milliseconds(found.retry_after)]


@command("AUTH ...", stranger=True)
async def _auth(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    clients = its.gateway.clients
    if clients is None:
        return "OK"
    its.client = clients.of_token(words[-1]) if words else None
    if its.client is None:
        its.gateway.audit.note("unauthenticated")
        raise Problem("unauthenticated", "this gateway does not know the token that was sent")
    its._arrived.known(its.client.name)
    return "OK"


@command("HELLO ...", stranger=True)
async def _hello(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    if words and words[0] not in ("2", "3"):
        raise Problem("invalid", "NOPROTO it speaks RESP 2 and 3")
    if "AUTH" in (upper := [it.upper() for it in words]):
        at = upper.index("AUTH")
        await _auth(its, words[at + 1 : at + 3], given)
    if its.client is None:
        raise Problem("unauthenticated", "HELLO 3 AUTH default token, for this gateway asks who you are")
    its.version = int(words[0]) if words else its.version
    return {
        "server": "holdfast", "version": VERSION, "proto": its.version, "id": its.gateway.name, "mode": "standalone",
        "role": "master", "modules": [],
    }  # fmt: skip


@command("PING ...", stranger=True, urgent=True)
async def _ping(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    return words[0].encode() if words else "PONG"


@command("INFO ...")
async def _info(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    leases, nodes = its.gateway.leases, its.gateway.locks.nodes()
    facts = {
        "holdfast_version": VERSION,
        "gateway": its.gateway.name,
        "leases": len(leases) - leases.waiting,
        "waiting": leases.waiting,
        "nodes": len(nodes),
        "nodes_up": sum(it.state == "up" for it in nodes),
        "answers": its.gateway.answers.total(),
        "refused": its.gateway.answers.total() - its.gateway.answers[200],
    }
    return "".join(["# holdfast\r\n", *[f"{name}:{value}\r\n" for name, value in facts.items()]]).encode()


# What clients of Redis say by themselves.
@command("CLIENT ...", stranger=True)
@command("SELECT ...", stranger=True)
async def _ok(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    return "OK"


@command("COMMAND ...", stranger=True)
async def _command_docs(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    return []


@command("QUIT ...", stranger=True, urgent=True)
async def _quit(its: RespConnection, words: list[str], given: dict[str, str]) -> Any:
    its._loop.call_soon(its._transport.close)
    return "OK"


def _number(what: str, text: str, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text[:20]) < LONGEST):
        raise Problem("invalid", f"{what} is a whole number of at least {least}, not {readable(text, 32)!r}")
    return int(text)


def _text(value: Any) -> bytes:
    return (value if isinstance(value, str) else dumps(value)).encode()


# ------------------------------------------------ bytes


def _command(data: bytes, at: int) -> tuple[list[bytes], int]:
    """Take the command that begins there.

    Returns:
        Its words, which may be none, and where the next one begins: 0 if it is not complete.

    Raises:
        Malformed: It is none.
    """
    if data[at] != ord("*"):
        end = data.find(b"\n", at) + 1
        words = data[at:end].split()
        if any(it.startswith((b'"', b"'")) for it in words):
            # To Redis, the name would be what is between them, and so to other clients.
            raise Malformed("a command in a line has no quotes; send words with spaces by their length")
        return words, end
    words = []
    if (head := _COUNT.match(data, at)) is None:
        return words, _unfinished(data, at)
    at = head.end()
    for _ in range(int(head[1])):
        if (head := _SIZE.match(data, at)) is None:
            return words, _unfinished(data, at)
        at = head.end()
        end = at + int(head[1])
        if end + 2 > len(data):
            return words, 0
        words.append(data[at:end])
        at = end + 2
    return words, at


def _unfinished(data: bytes, at: int) -> int:
    """Return 0 if a header may begin there that is not complete."""
    if _BEGUN.fullmatch(data, at) is None:
        said = readable(data[at : at + 16].decode("latin-1"))
        raise Malformed(f"expected *, the number of words, and for each word $ and its length; not {said!r}")
    return 0


def _packed(it: Any, version: int, inside: bool = False) -> bytes:
    """Return an answer as bytes. A str is a simple string, or a bulk string inside of a list."""
    if isinstance(it, int):
        return b":%d\r\n" % it
    if isinstance(it, list):
        return b"*%d\r\n" % len(it) + b"".join([_packed(part, version, True) for part in it])
    if isinstance(it, str):
        if not inside:
            return b"+%b\r\n" % it.encode()
        it = it.encode()
    if isinstance(it, bytes):
        return b"$%d\r\n%b\r\n" % (len(it), it)
    if isinstance(it, Problem):
        return f"-{CODES.get(it.kind, 'ERR')} {readable(it.detail, 512)}\r\n".encode()
    if it is None:
        return b"_\r\n" if version == 3 else b"$-1\r\n"
    head = b"%%%d\r\n" % len(it) if version == 3 else b"*%d\r\n" % (2 * len(it))
    return head + b"".join([_packed(part, version, True) for pair in it.items() for part in pair])
