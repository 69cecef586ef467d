"""One simulated node: a small Redis in memory, which runs the shipped scripts in Lua 5.1, under a
clock of your own.

Knows the commands of holdfast's scripts and handshake, as real servers answer them: `tests/scripts`
talks to both alike, and compares. Must not know locks, networks, or time that passes by itself:
bytes come in by `feed`, and leave by `deliver`.
"""

from __future__ import annotations

import functools
import hashlib
import re
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf, isnan
from typing import Any, TypeAlias, TypeVar

import hiredis

from ..errors import ConfigError

__all__ = [
    "REDIS_6_2",
    "REDIS_7_0",
    "REDIS_7_2",
    "VALKEY_9",
    "Connection",
    "Dialect",
    "Keyspace",
    "Lua",
    "Server",
    "SortedSet",
]

# ---- answers, and their bytes

Reply: TypeAlias = "int | float | bytes | list[Reply] | dict[bytes, Reply] | None"


class Status(bytes):
    """An answer such as OK."""


class Text(bytes):
    """An answer for people."""


class Encoded(bytes):
    """A script's answer: bytes for the wire already."""


class Pairs(list[Reply]):
    """Pairs to a client; to a script, which speaks RESP2, one flat list."""


class Refused(Exception):
    """The answer is an error. `line`: what it says, beginning with its code."""

    def __init__(self, line: bytes) -> None:
        super().__init__(line)
        self.line = line


OK = Status(b"OK")
SYNTAX = b"ERR syntax error"
WRONGTYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"


def encode(reply: Reply) -> bytes:
    """An answer in RESP3."""
    match reply:
        case Encoded():
            return reply
        case Status():
            return b"+%b\r\n" % reply
        case Text():
            return b"=%d\r\ntxt:%b\r\n" % (len(reply) + 4, reply)
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case int():
            return b":%d\r\n" % reply
        case float():
            return b",%.17g\r\n" % reply
        case None:
            return b"_\r\n"
        case list():
            return b"*%d\r\n" % len(reply) + b"".join(map(encode, reply))
        case dict():
            return b"%%%d\r\n" % len(reply) + b"".join(encode(key) + encode(value) for key, value in reply.items())


def push(*items: Reply) -> bytes:
    """A push in RESP3."""
    return b">%d\r\n" % len(items) + b"".join(map(encode, items))


# ---- how servers differ


def exact(number: float) -> bytes:
    """A number that a script hands to a command, as text."""
    return b"%.17g" % number


def scientific(number: float) -> bytes:
    """The same as Redis 7.2.0 to 7.2.4 write it (redis#13113): 1.8e+15, where commands expect
    digits.
    """
    digits = b"%.0f" % abs(number)
    told = digits.rstrip(b"0")
    if number % 1 or len(digits) < len(told) + 8:
        return exact(number)
    return b"-"[: number < 0] + told[:1] + b"."[: len(told) > 1] + told[1:] + b"e+%d" % (len(digits) - 1)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server's version shows to clients and scripts.

    `own_push_last`: what a connection publishes to itself comes after the answer, not before it;
    `takes_setinfo`: CLIENT SETINFO is known; `takes_sections`: INFO takes several; `wraps_errors`:
    the error of a command in a script becomes part of one that begins with ERR, whatever its own
    code; `number`: see `exact`.
    """

    software: bytes
    version: bytes
    own_push_last: bool = True
    takes_setinfo: bool = True
    takes_sections: bool = True
    wraps_errors: bool = False
    number: Callable[[float], bytes] = exact


REDIS_6_2 = Dialect(
    b"redis", b"6.2.14", own_push_last=False, takes_setinfo=False, takes_sections=False, wraps_errors=True
)
REDIS_7_0 = Dialect(b"redis", b"7.0.15", own_push_last=False, takes_setinfo=False)
REDIS_7_2 = Dialect(b"redis", b"7.2.4", number=scientific)
VALKEY_9 = Dialect(b"valkey", b"9.1.2")


# ---- what a server keeps


class SortedSet:
    """Members in the order of their scores; those of one score in the order of their bytes."""

    __slots__ = ("_line", "_scores")

    def __init__(self) -> None:
        self._scores: dict[bytes, float] = {}
        self._line: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._line)

    def score(self, member: bytes) -> float | None:
        return self._scores.get(member)

    def rank(self, member: bytes) -> int | None:
        score = self._scores.get(member)
        return None if score is None else bisect_left(self._line, (score, member))

    def put(self, member: bytes, score: float) -> None:
        self.drop(member)
        self._scores[member] = score
        insort(self._line, (score, member))

    def drop(self, member: bytes) -> bool:
        score = self._scores.pop(member, None)
        if score is not None:
            del self._line[bisect_left(self._line, (score, member))]
        return score is not None

    def line(self, first: int = 0, last: int = -1) -> list[tuple[float, bytes]]:
        """From one rank to another, both included; negative ones count from the end."""
        first, last = (max(at + len(self), 0) if at < 0 else at for at in (first, last + 1 or len(self)))
        return self._line[first:last]

    def copy(self) -> SortedSet:
        other = SortedSet()
        other._scores = self._scores.copy()
        other._line = self._line.copy()
        return other


class Hash(dict[bytes, bytes]):
    """Fields and their values."""

    def copy(self) -> Hash:
        return Hash(self)


Value: TypeAlias = bytes | Hash | SortedSet
V = TypeVar("V", bytes, Hash, SortedSet)


class Keyspace:
    """The keys of one database.

    `values`; `deadlines`: of those that expire, in ms of the server's clock.

    As in Redis, a key is there until its deadline has *passed*.
    """

    __slots__ = ("deadlines", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, Value] = {}
        self.deadlines: dict[bytes, int] = {}

    def put(self, key: bytes, value: Value, deadline: int | None = None) -> None:
        self.values[key] = value
        if deadline is None:
            self.deadlines.pop(key, None)
        else:
            self.deadlines[key] = deadline

    def drop(self, key: bytes) -> None:
        del self.values[key]
        self.deadlines.pop(key, None)

    def clear(self) -> None:
        self.values.clear()
        self.deadlines.clear()

    def expired(self, now: int) -> list[bytes]:
        return [key for key, deadline in self.deadlines.items() if deadline < now]

    def copy(self) -> Keyspace:
        other = Keyspace()
        other.values = {key: value if isinstance(value, bytes) else value.copy() for key, value in self.values.items()}
        other.deadlines = self.deadlines.copy()
        return other


# ---- scripts

# Answers are encoded here and not in Python: one string crosses the border instead of a table, and
# %d truncates as Redis's cast does.
PRELUDE = rb"""
local command = ...                                 -- Python's: executes one command; an error comes back as a table

local redis = {pcall = command}
function redis.call(...)
    local reply = command(...)
    if type(reply) == 'table' and reply.err then error(reply, 0) end
    return reply
end
function redis.error_reply(line) return {err = line} end
function redis.status_reply(line) return {ok = line} end

-- What scripts see, and cannot change: it is the same for all servers.
local function kept(things)
    return setmetatable({}, {__index = things, __newindex = function()
        error('Attempt to modify a readonly table', 2)
    end})
end
local world = {
    redis = kept(redis), string = kept(string), math = kept(math), table = kept(table),
    assert = assert, error = error, ipairs = ipairs,
    next = next, pairs = pairs, pcall = pcall, select = select, tonumber = tonumber,
    tostring = tostring, type = type, unpack = unpack,
}
local globals = kept(setmetatable(world, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
}))

local function line(text) return (string.gsub(text, '[\r\n]', ' ')) end

local function encode(answer)
    local kind = type(answer)
    if kind == 'string' then return '$' .. #answer .. '\r\n' .. answer .. '\r\n' end
    if kind == 'number' then return string.format(':%d\r\n', answer) end
    if kind == 'boolean' and answer then return ':1\r\n' end
    if kind ~= 'table' then return '_\r\n' end
    if answer.err then return '-' .. line(answer.err) .. '\r\n' end
    if answer.ok then return '+' .. line(answer.ok) .. '\r\n' end
    local parts = {}
    for at, item in ipairs(answer) do parts[at] = encode(item) end              -- (to the first nil, as in Redis)
    return '*' .. #parts .. '\r\n' .. table.concat(parts)
end

local function compile(source)
    local script, wrong = loadstring(source, '@user_script')
    if script then return setfenv(script, globals) end
    return nil, wrong
end

local function failed(wrong)
    local level, at = 2, debug.getinfo(2, 'Sl')
    while at and at.source ~= '@user_script' do
        level = level + 1
        at = debug.getinfo(level, 'Sl')
    end
    return {type(wrong) == 'table' and wrong.err or 'ERR ' .. tostring(wrong), at and at.currentline or 0}
end

local function run(script, keys, ...)
    local words, KEYS, ARGV = {...}, {}, {}
    for at = 1, keys do KEYS[at] = words[at] end
    for at = keys + 1, #words do ARGV[at - keys] = words[at] end
    rawset(world, 'KEYS', KEYS)
    rawset(world, 'ARGV', ARGV)
    local done, answer = xpcall(script, failed)
    if done then return encode(answer) end
    return nil, answer[1], answer[2]
end

return compile, run
"""


class Lua:
    """A Lua 5.1 that runs the scripts of any number of servers, one at a time; scripts leave
    nothing behind in it.
    """

    def __init__(self) -> None:
        try:
            from lupa import lua51
        except ImportError:
            raise ConfigError(
                "simulated nodes run holdfast's scripts in Lua 5.1: `pip install 'holdfast[testing]'` brings it"
            ) from None
        runtime = lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
        self._compile, self._run = runtime.execute(PRELUDE, self._command)
        self._table = runtime.table_from
        self._ok = self._table({b"ok": bytes(OK)})
        self._compiled: dict[bytes, Any] = {}
        self._caller: Connection
        self._bug: Exception | None = None

    def compile(self, source: bytes) -> bytes:
        """Make a script ready to run; its digest."""
        sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        if sha not in self._compiled:
            script = self._compile(source)
            if isinstance(script, tuple):
                raise Refused(b"ERR Error compiling script (new function): %b" % script[1])
            self._compiled[sha] = script
        return sha

    def run(self, caller: Connection, sha: bytes, keys: int, words: Sequence[bytes]) -> Encoded:
        """Run a script for a client. `words`: its KEYS, and then its ARGV."""
        self._caller = caller
        answer = self._run(self._compiled[sha], keys, *words)
        if self._bug is not None:
            bug = self._bug
            self._bug = None
            raise bug
        if isinstance(answer, bytes):
            return Encoded(answer)
        _, wrong, line = answer
        if caller.server.dialect.wraps_errors:
            raise Refused(b"ERR Error running script (call to f_%b): @user_script:%d: %b" % (sha, line, wrong))
        raise Refused(b"%b script: %b, on @user_script:%d." % (wrong, sha, line))

    def _command(self, *given: object) -> object:
        try:
            words = [word if type(word) is bytes else self._word(word) for word in given]
            reply = self._caller.execute(words, scripted=True)
        except Refused as refused:
            return self._table({b"err": refused.line})
        except Exception as bug:
            # It must not pass for an error of the script.
            self._bug = bug
            raise
        kind = type(reply)
        # Most answers are one of these.
        if kind is bytes or kind is int:
            return reply
        if reply is OK:
            return self._ok
        return False if reply is None else self._shown(reply)

    def _word(self, value: object) -> bytes:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self._caller.server.dialect.number(value)
        raise Refused(b"ERR Command arguments must be strings or integers")

    def _shown(self, reply: Reply) -> object:
        """A reply as a script sees it."""
        match reply:
            # Within another.
            case None:
                return False
            case Status():
                return self._table({b"ok": bytes(reply)})
            case float():
                return exact(reply)
            case Pairs():
                return self._shown([item for pair in reply if isinstance(pair, list) for item in pair])
            case list():
                return self._table([self._shown(item) for item in reply])
            case dict():
                return self._table([item for pair in reply.items() for item in pair])
        return reply


@functools.cache
def shared_lua() -> Lua:
    """The one that servers use unless they are given another: making one takes a millisecond, and
    compiling the scripts another.
    """
    return Lua()


# ---- the server


def _ignore(message: bytes) -> None:
    pass


class Server:
    """One node. `connect` to it, and `feed` the connection.

    `clock`: what its own clock says, in seconds since 1970; it may step. `run_id`; `uptime`: for
    how long it has been up, in seconds; `password`: of the user "default"; `data`: what it starts
    with, by number of the database: a node that restarts empty is a new `Server` without, one that
    restarts with what it had, now or once, is a new one with `saved()`.

    To be changed at any time: `refuse`: commands that are answered with an error, such as
    {b"EVALSHA": b"LOADING Redis is loading the dataset in memory"}, also where a script calls them
    (servers let a script go on that has written, whatever has begun to be in the way of writes);
    `role`, `policy`, `replicas`, `writes`: what INFO says; `commands`: what it can do. `calls`: how
    often each command was executed. `published` is called with each message that is published,
    before anybody hears it.
    """

    # Has the command or script that runs changed anything?
    wrote = False

    def __init__(
        self,
        clock: Callable[[], float],
        run_id: str,
        *,
        uptime: float = 0.0,
        password: bytes | None = None,
        dialect: Dialect = REDIS_7_0,
        data: Mapping[int, Keyspace] | None = None,
        lua: Lua | None = None,
    ) -> None:
        self.run_id = run_id.encode()
        self.password = password
        self.dialect = dialect
        self.lua = lua or shared_lua()
        self.data = {database: Keyspace() for database in range(16)} | dict(data or {})
        self.refuse: dict[bytes, bytes] = {}
        self.commands: Mapping[bytes, Command] = COMMANDS
        self.role = b"master"
        self.policy = b"noeviction"
        self.replicas = 0
        # An append-only file.
        self.writes = False
        # Its replication ids, one for each time that it became a primary.
        self.reigns = [self.run_id[::-1]]
        self.calls: dict[bytes, int] = {}
        self.scripts: set[bytes] = set()
        # The time by which keys expire, in ms. It stands still during a command or script.
        self.now = 0
        # Whose command it is.
        self.speaker: Connection | None = None
        self.connections: dict[Connection, None] = {}
        self.channels: dict[bytes, dict[Connection, None]] = {}
        self.published: Callable[[bytes], object] = _ignore
        self.tracked: dict[bytes, dict[Connection, None]] = {}
        self.ids = count(1)
        self._clock = clock
        self._started = int(clock() - uptime)
        # Those with something to deliver.
        self._spoken: dict[Connection, None] = {}

    def connect(self, deliver: Callable[[bytes], None]) -> Connection:
        """A new connection.

        `deliver` is called with answers and pushes, in the order of the stream, after the commands
        that made them.
        """
        return Connection(self, deliver)

    def saved(self) -> dict[int, Keyspace]:
        """A copy of all data."""
        return {database: space.copy() for database, space in self.data.items() if space.values}

    def promote(self) -> None:
        """It was a replica until now, and becomes a primary."""
        self.role = b"master"
        self.reigns.append(b"%040x" % (int(self.reigns[-1], 16) + 1))

    def peek(self, key: bytes, database: int = 0) -> Value | None:
        """What a key holds by now, for who watches from outside: looking changes nothing."""
        space = self.data[database]
        return space.values.get(key) if space.deadlines.get(key, inf) >= self.micros() // 1000 else None

    def expire(self) -> None:
        """Delete all keys that have run out, and tell the clients that track them.

        A real server does this a few times a second.
        """
        self.now = self.micros() // 1000
        for space in self.data.values():
            for key in space.expired(self.now):
                space.drop(key)
                self.changed(key)
        self.deliver()

    def micros(self) -> int:
        return round(self._clock() * 1e6)

    def uptime(self) -> int:
        return int(self._clock()) - self._started

    def changed(self, key: bytes) -> None:
        """Tell the clients that track a key that it has changed, once.

        As in Redis, NOLOOP also means that a client does not hear of a key that its own command
        found expired. It has to track such a key again.
        """
        self.wrote = True
        if self.tracked:
            for connection in self.tracked.pop(key, ()):
                if connection.tracking and not (connection is self.speaker and connection.noloop):
                    connection.push(push(b"invalidate", [key]), last=True)

    def speak(self, connection: Connection) -> None:
        self._spoken[connection] = None

    def deliver(self) -> None:
        spoken = self._spoken
        self._spoken = {}
        for connection in spoken:
            connection.deliver()


class Connection:
    """One client's connection to a server.

    It speaks RESP3 from the first byte, whether or not it has said HELLO 3.
    """

    def __init__(self, server: Server, deliver: Callable[[bytes], None]) -> None:
        self.server = server
        self.space = server.data[0]
        self.id = next(server.ids)
        self.name = b""
        self.admitted = server.password is None
        self.channels: dict[bytes, None] = {}
        self.tracking = self.optin = self.noloop = False
        # CLIENT CACHING YES was said, for the next command.
        self.caching = False
        self._deliver: Callable[[bytes], None] | None = deliver
        self._reader = hiredis.Reader()
        self._out: list[bytes] = []
        # Pushes to itself that come after the answer.
        self._last: list[bytes] = []
        # The keys that this command reads are tracked.
        self._remembers = False
        server.connections[self] = None

    def feed(self, data: bytes) -> None:
        """Bytes arrive: execute the commands in them, then deliver what they made.

        After `disconnect` too: what a client has sent before its connection broke may be executed
        later, and nobody hears the answer.
        """
        server = self.server
        self._reader.feed(data)
        while (words := self._reader.gets()) is not False:
            server.now = server.micros() // 1000
            server.wrote = False
            server.speaker = self
            self._remembers = self.tracking and (self.caching or not self.optin)
            self.caching = False
            try:
                reply = encode(self.execute(words))
            except Refused as refused:
                reply = b"-%b\r\n" % refused.line
            if reply:
                self._out.append(reply)
            self._out += self._last
            self._last.clear()
        server.speaker = None
        server.speak(self)
        server.deliver()

    def disconnect(self) -> None:
        """The server notices that the connection has ended: nothing is delivered any more, and it
        is nobody's subscriber.
        """
        self._deliver = None
        self.tracking = False
        for channel in list(self.channels):
            self.leave(channel)
        self.server.connections.pop(self, None)

    def deliver(self) -> None:
        out = b"".join(self._out)
        self._out = []
        if self._deliver and out:
            self._deliver(out)

    def push(self, data: bytes, last: bool = False) -> None:
        """Say something that is no answer.

        `last`: where the connection's own command is the reason, after the answer to that.
        """
        if last and self.server.speaker is self:
            self._last.append(data)
        else:
            self._out.append(data)
            self.server.speak(self)

    def execute(self, words: Sequence[bytes], scripted: bool = False) -> Reply:
        """Execute one command, for the client or for its script."""
        server = self.server
        name = words[0]
        arguments = words[1:]
        command = server.commands.get(name)
        if command is None:
            name = name.upper()
            command = server.commands.get(name)
        if command is None:
            given = b"".join(b"'%b' " % argument for argument in arguments)
            raise Refused(b"ERR unknown command '%b', with args beginning with: %b" % (words[0], given))
        if not command.least <= len(arguments) <= command.most:
            raise Refused(b"ERR wrong number of arguments for '%b' command" % name.lower())
        if not self.admitted and name not in (b"HELLO", b"AUTH"):
            raise Refused(b"NOAUTH Authentication required.")
        if scripted and command.alone:
            raise Refused(b"ERR This Redis command is not allowed from script")
        told = server.refuse.get(name)
        if told and not (scripted and server.wrote and told.startswith(PASSING)):
            raise Refused(told)
        server.calls[name] = server.calls.get(name, 0) + 1
        reply = command.run(self, *arguments)
        if self._remembers:
            for key in arguments[command.reads]:
                server.tracked.setdefault(key, {})[self] = None
        return reply

    # What commands are made of

    def look(self, key: bytes) -> Value | None:
        """A key's value, if it has one that has not run out."""
        value = self.space.values.get(key)
        if value is not None and self.space.deadlines.get(key, inf) < self.server.now:
            wrote = self.server.wrote
            self.space.drop(key)
            self.server.changed(key)
            self.server.wrote = wrote
            return None
        return value

    def typed(self, key: bytes, kind: type[V]) -> V | None:
        value = self.look(key)
        if value is None or isinstance(value, kind):
            return value
        raise Refused(WRONGTYPE)

    def made(self, key: bytes, kind: type[V]) -> V:
        """The value of a key that is about to be changed: a new one if there is none."""
        value = self.typed(key, kind)
        if value is None:
            value = kind()
            self.space.put(key, value)
        return value

    def changed(self, key: bytes) -> None:
        value = self.space.values.get(key)
        # Nothing left in it.
        if not value and not isinstance(value, bytes):
            self.space.drop(key)
        self.server.changed(key)

    def drop(self, key: bytes) -> bool:
        there = self.look(key) is not None
        if there:
            self.space.drop(key)
            self.server.changed(key)
        return there

    def join(self, channel: bytes) -> None:
        if self._deliver:
            self.channels[channel] = None
            self.server.channels.setdefault(channel, {})[self] = None

    def leave(self, channel: bytes) -> None:
        if channel in self.channels:
            del self.channels[channel], self.server.channels[channel][self]


# ---- commands


@dataclass(frozen=True, slots=True)
class Command:
    """What a server does when it is told `run`'s name.

    `reads`: which of its arguments are keys that it only reads.
    """

    run: Callable[..., Reply]
    least: int
    most: float
    reads: slice
    # Scripts cannot call it.
    alone: bool


COMMANDS: dict[bytes, Command] = {}
# How errors begin that refuse no write of a script which has written.
PASSING = b"OOM", b"MISCONF", b"NOREPLICAS"
NOTHING = slice(0)
FIRST = slice(1)
ALL = slice(None)
C = TypeVar("C", bound=Callable[..., Reply])


def command(name: bytes, least: int, most: float, reads: slice = NOTHING, alone: bool = False) -> Callable[[C], C]:
    def named(run: C) -> C:
        COMMANDS[name] = Command(run, least, most, reads, alone)
        return run

    return named


def integer(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if digits.isdigit() and len(digits) < 20 and (digits[:1] != b"0" or text == b"0") and -(2**63) <= int(text) < 2**63:
        return int(text)
    raise Refused(b"ERR value is not an integer or out of range")


def real(text: bytes, wrong: bytes = b"ERR value is not a valid float") -> float:
    try:
        number = float(text)
    except ValueError:
        raise Refused(wrong) from None
    if isnan(number) or b"_" in text or text != text.strip():
        raise Refused(wrong)
    return number


@command(b"PING", 0, 1)
def _ping(c: Connection, text: bytes = b"") -> Reply:
    return text or Status(b"PONG")


@command(b"TIME", 0, 0)
def _time(c: Connection) -> Reply:
    # Redis 7.0 does not stop it during a script, others do. A virtual clock stands still anyway.
    return [b"%d" % part for part in divmod(c.server.micros(), 1_000_000)]


# The handshake


@command(b"HELLO", 0, inf, alone=True)
def _hello(c: Connection, version: bytes = b"3", *options: bytes) -> Reply:
    if version != b"3":
        raise Refused(b"NOPROTO unsupported protocol version")
    words = list(options)
    name = c.name
    while words:
        option = words.pop(0)
        if option.upper() == b"AUTH" and len(words) >= 2:
            _auth(c, words.pop(0), words.pop(0))
        elif option.upper() == b"SETNAME" and words:
            name = _checked(words.pop(0))
        else:
            raise Refused(b"ERR Syntax error in HELLO option '%b'" % option)
    if not c.admitted:
        raise Refused(
            b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
            b"<user> <pass> "
            b"option can be used to authenticate the client and select the RESP protocol version at the same time"
        )
    c.name = name
    dialect = c.server.dialect
    return {
        b"server": dialect.software,
        b"version": dialect.version,
        b"proto": 3,
        b"id": c.id,
        b"mode": b"standalone",
        b"role": c.server.role,
        b"modules": [],
    }


@command(b"AUTH", 1, 2, alone=True)
def _auth(c: Connection, *words: bytes) -> Reply:
    password = c.server.password
    if len(words) == 1 and password is None:
        raise Refused(
            b"ERR AUTH <password> called without any password configured for the "
            b"default user. Are you sure your configuration is correct?"
        )
    if words[:-1] not in ((), (b"default",)) or password not in (None, words[-1]):
        raise Refused(b"WRONGPASS invalid username-password pair or user is disabled.")
    c.admitted = True
    return OK


@command(b"SELECT", 1, 1, alone=True)
def _select(c: Connection, database: bytes) -> Reply:
    space = c.server.data.get(integer(database))
    if space is None:
        raise Refused(b"ERR DB index is out of range")
    c.space = space
    return OK


def _checked(name: bytes) -> bytes:
    if re.search(rb"[^!-~]", name):
        raise Refused(b"ERR Client names cannot contain spaces, newlines or special characters.")
    return name


@command(b"CLIENT", 1, inf, alone=True)
def _client(c: Connection, *words: bytes) -> Reply:
    match [words[0].upper(), *words[1:]]:
        case [b"ID"]:
            return c.id
        case [b"GETNAME"]:
            return c.name or None
        case [b"SETNAME", name]:
            c.name = _checked(name)
        case [b"SETINFO", attribute, _] if c.server.dialect.takes_setinfo:
            if attribute.upper() not in (b"LIB-NAME", b"LIB-VER"):
                raise Refused(b"ERR Unrecognized option '%b'" % attribute)
        case [b"TRACKING", state, *options]:
            _track(c, state.upper(), {option.upper() for option in options})
        case [b"CACHING", answer]:
            if not c.optin:
                raise Refused(
                    b"ERR CLIENT CACHING can be called only when the client is in tracking "
                    b"mode with OPTIN or OPTOUT mode enabled"
                )
            if answer.upper() != b"YES":
                raise Refused(SYNTAX)
            c.caching = True
        case _:
            raise Refused(b"ERR unknown subcommand '%b'. Try CLIENT HELP." % words[0])
    return OK


def _track(c: Connection, state: bytes, options: set[bytes]) -> None:
    if state not in (b"ON", b"OFF") or not options <= {b"OPTIN", b"NOLOOP"}:
        raise Refused(SYNTAX)
    c.tracking = state == b"ON"
    c.optin, c.noloop = (c.tracking and option in options for option in (b"OPTIN", b"NOLOOP"))


@command(b"INFO", 0, inf)
def _info(c: Connection, *sections: bytes) -> Reply:
    server = c.server
    if len(sections) > 1 and not server.dialect.takes_sections:
        raise Refused(SYNTAX)
    told: dict[bytes, dict[bytes, bytes]] = {
        b"Server": {
            b"%b_version" % server.dialect.software: server.dialect.version,
            b"run_id": server.run_id,
            b"uptime_in_seconds": b"%d" % server.uptime(),
        },
        b"Memory": {b"maxmemory_policy": server.policy},
        b"Replication": {
            b"role": server.role,
            b"connected_slaves": b"%d" % server.replicas,
            b"master_replid": server.reigns[-1],
            b"master_replid2": server.reigns[-2] if len(server.reigns) > 1 else b"0" * 40,
            b"second_repl_offset": b"1" if len(server.reigns) > 1 else b"-1",
        },
        b"Persistence": {b"aof_enabled": b"%d" % server.writes},
        b"Commandstats": {b"cmdstat_%b" % name.lower(): b"calls=%d" % calls for name, calls in server.calls.items()},
    }
    # Which still says which Redis it is like.
    if server.dialect.software == b"valkey":
        told[b"Server"][b"redis_version"] = b"7.2.4"
    wanted = {section.lower() for section in sections} or {b"default"}
    if wanted & {b"default", b"all", b"everything"}:
        wanted |= {b"server", b"memory", b"persistence", b"replication"}
    if wanted & {b"all", b"everything"}:
        wanted.add(b"commandstats")
    parts = [
        b"# %b\r\n%b" % (section, b"".join(b"%b:%b\r\n" % fact for fact in facts.items()))
        for section, facts in told.items()
        if section.lower() in wanted
    ]
    return Text(b"\r\n".join(parts))


# Channels


@command(b"SUBSCRIBE", 1, inf, alone=True)
def _subscribe(c: Connection, *channels: bytes) -> Reply:
    for channel in channels:
        c.join(channel)
        c.push(push(b"subscribe", channel, len(c.channels)))
    return Encoded()


@command(b"UNSUBSCRIBE", 0, inf, alone=True)
def _unsubscribe(c: Connection, *channels: bytes) -> Reply:
    for channel in channels or tuple(c.channels) or (None,):
        if channel is not None:
            c.leave(channel)
        c.push(push(b"unsubscribe", channel, len(c.channels)))
    return Encoded()


@command(b"PUBLISH", 2, 2)
def _publish(c: Connection, channel: bytes, message: bytes) -> Reply:
    c.server.published(message)
    receivers = c.server.channels.get(channel, {})
    for receiver in receivers:
        receiver.push(push(b"message", channel, message), last=c.server.dialect.own_push_last)
    return len(receivers)


# Scripts


@command(b"SCRIPT", 1, inf, alone=True)
def _script(c: Connection, *words: bytes) -> Reply:
    match [words[0].upper(), *words[1:]]:
        case [b"LOAD", source]:
            sha = c.server.lua.compile(source)
            c.server.scripts.add(sha)
            return sha
        case [b"EXISTS", *shas]:
            return [int(sha in c.server.scripts) for sha in shas]
        case [b"FLUSH"] | [b"FLUSH", b"SYNC" | b"ASYNC"]:
            c.server.scripts.clear()
            return OK
    raise Refused(b"ERR unknown subcommand '%b'. Try SCRIPT HELP." % words[0])


@command(b"EVAL", 2, inf, alone=True)
def _eval(c: Connection, source: bytes, *words: bytes) -> Reply:
    sha = c.server.lua.compile(source)
    c.server.scripts.add(sha)
    return _evalsha(c, sha, *words)


@command(b"EVALSHA", 2, inf, alone=True)
def _evalsha(c: Connection, sha: bytes, number: bytes, *words: bytes) -> Reply:
    if sha not in c.server.scripts:
        raise Refused(b"NOSCRIPT No matching script. Please use EVAL.")
    keys = integer(number)
    if keys > len(words):
        raise Refused(b"ERR Number of keys can't be greater than number of args")
    if keys < 0:
        raise Refused(b"ERR Number of keys can't be negative")
    return c.server.lua.run(c, sha, keys, words)


# Keys


@command(b"DEL", 1, inf)
def _del(c: Connection, *keys: bytes) -> Reply:
    return sum([c.drop(key) for key in keys])


@command(b"EXISTS", 1, inf, reads=ALL)
def _exists(c: Connection, *keys: bytes) -> Reply:
    return sum([c.look(key) is not None for key in keys])


@command(b"TYPE", 1, 1, reads=FIRST)
def _type(c: Connection, key: bytes) -> Reply:
    match c.look(key):
        case bytes():
            return Status(b"string")
        case Hash():
            return Status(b"hash")
        case SortedSet():
            return Status(b"zset")
        case None:
            return Status(b"none")


@command(b"PTTL", 1, 1, reads=FIRST)
def _pttl(c: Connection, key: bytes) -> Reply:
    if c.look(key) is None:
        return -2
    deadline = c.space.deadlines.get(key)
    return -1 if deadline is None else deadline - c.server.now


@command(b"PEXPIRE", 2, 2)
def _pexpire(c: Connection, key: bytes, ttl: bytes) -> Reply:
    return _expire(c, key, c.server.now + integer(ttl))


@command(b"PEXPIREAT", 2, 2)
def _pexpireat(c: Connection, key: bytes, deadline: bytes) -> Reply:
    return _expire(c, key, integer(deadline))


def _expire(c: Connection, key: bytes, deadline: int) -> Reply:
    if c.look(key) is None:
        return 0
    if deadline <= c.server.now:
        c.drop(key)
    else:
        c.space.deadlines[key] = deadline
        c.changed(key)
    return 1


@command(b"SCAN", 1, inf)
def _scan(c: Connection, cursor: bytes, *options: bytes) -> Reply:
    # All in one go: a server may, whatever COUNT says.
    if not cursor.isdigit():
        raise Refused(b"ERR invalid cursor")
    keys = _live(c)
    for option, value in zip(options[::2], options[1::2], strict=False):
        match option.upper():
            case b"MATCH":
                keys = list(filter(_glob(value).fullmatch, keys))
            case b"TYPE":
                keys = [key for key in keys if _type(c, key) == value]
            case b"COUNT":
                integer(value)
            case _:
                raise Refused(SYNTAX)
    return [b"0", [*keys]]


def _live(c: Connection) -> list[bytes]:
    return [key for key in list(c.space.values) if c.look(key) is not None]


def _glob(pattern: bytes) -> re.Pattern[bytes]:
    """Redis's patterns: * and ?, [a-c], [^a-c], and a backslash before what is meant literally."""
    parts = []
    for escaped, negated, kinds, other in re.findall(
        rb"\\(.)|\[(\^?)((?:\\.|[^]\\])*)(?:\]|$)|(.)", pattern, re.DOTALL
    ):
        if kinds or negated:
            parts.append(b"[%b%b]" % (negated, re.sub(rb"(?<!\\)[\[&|~]", rb"\\\g<0>", kinds)))
        elif other in (b"*", b"?"):
            parts.append(b".*" if other == b"*" else b".")
        else:
            parts.append(re.escape(escaped + other))
    return re.compile(b"".join(parts), re.DOTALL)


@command(b"DBSIZE", 0, 0)
def _dbsize(c: Connection) -> Reply:
    return len(_live(c))


@command(b"FLUSHALL", 0, 1)
def _flushall(c: Connection, how: bytes = b"SYNC") -> Reply:
    if how.upper() not in (b"SYNC", b"ASYNC"):
        raise Refused(SYNTAX)
    for space in c.server.data.values():
        space.clear()
    c.server.tracked.clear()
    for connection in c.server.connections:
        if connection.tracking:
            connection.push(push(b"invalidate", None), last=True)
    return OK


# Strings


@command(b"GET", 1, 1, reads=FIRST)
def _get(c: Connection, key: bytes) -> Reply:
    return c.typed(key, bytes)


@command(b"MGET", 1, inf, reads=ALL)
def _mget(c: Connection, *keys: bytes) -> Reply:
    found = [c.look(key) for key in keys]
    return [it if isinstance(it, bytes) else None for it in found]


@command(b"SET", 2, inf)
def _set(c: Connection, key: bytes, value: bytes, *options: bytes) -> Reply:
    said: dict[bytes, bytes] = {}
    rest = list(options)
    while rest:
        option = rest.pop(0).upper()
        if option in (b"NX", b"XX", b"GET"):
            said[option] = b""
        elif option in (b"PX", b"PXAT") and option not in said and rest:
            said[option] = rest.pop(0)
        else:
            raise Refused(SYNTAX)
    if said.keys() >= {b"NX", b"XX"} or said.keys() >= {b"PX", b"PXAT"}:
        raise Refused(SYNTAX)
    deadline = None
    for option, since in (b"PX", c.server.now), (b"PXAT", 0):
        if option in said:
            deadline = since + integer(said[option])
            if deadline <= since:
                raise Refused(b"ERR invalid expire time in 'set' command")
    old = c.typed(key, bytes) if b"GET" in said else c.look(key)
    kept = (b"NX" if old is not None else b"XX") in said
    if not kept:
        c.space.put(key, value, deadline)
        c.changed(key)
    if b"GET" in said:
        return old if isinstance(old, bytes) else None
    return None if kept else OK


# Hashes


@command(b"HSET", 3, inf)
def _hset(c: Connection, key: bytes, *pairs: bytes) -> Reply:
    if len(pairs) % 2:
        raise Refused(b"ERR wrong number of arguments for 'hset' command")
    fields = c.made(key, Hash)
    before = len(fields)
    fields.update(zip(pairs[::2], pairs[1::2], strict=True))
    c.changed(key)
    return len(fields) - before


@command(b"HGET", 2, 2, reads=FIRST)
def _hget(c: Connection, key: bytes, field: bytes) -> Reply:
    return (c.typed(key, Hash) or Hash()).get(field)


@command(b"HGETALL", 1, 1, reads=FIRST)
def _hgetall(c: Connection, key: bytes) -> Reply:
    return dict(c.typed(key, Hash) or Hash())


@command(b"HDEL", 2, inf)
def _hdel(c: Connection, key: bytes, *fields: bytes) -> Reply:
    there = c.typed(key, Hash) or Hash()
    gone = sum([there.pop(field, None) is not None for field in fields])
    if gone:
        c.changed(key)
    return gone


# Sorted sets


@command(b"ZADD", 3, inf)
def _zadd(c: Connection, key: bytes, *words: bytes) -> Reply:
    # Of the options only GT, which no command of ours mixes with another.
    raising = words[0].upper() == b"GT"
    pairs = words[raising:]
    if len(pairs) % 2 or not pairs:
        raise Refused(SYNTAX)
    scores = [real(score) for score in pairs[::2]]
    members = c.made(key, SortedSet)
    before = len(members)
    for score, member in zip(scores, pairs[1::2], strict=True):
        old = members.score(member)
        if not raising or old is None or score > old:
            members.put(member, score)
    c.changed(key)
    return len(members) - before


@command(b"ZREM", 2, inf)
def _zrem(c: Connection, key: bytes, *members: bytes) -> Reply:
    line = c.typed(key, SortedSet)
    gone = sum([line.drop(member) for member in members]) if line else 0
    if gone:
        c.changed(key)
    return gone


@command(b"ZREMRANGEBYSCORE", 3, 3)
def _zremrangebyscore(c: Connection, key: bytes, lowest: bytes, highest: bytes) -> Reply:
    low, high = (real(bound, b"ERR min or max is not a float") for bound in (lowest, highest))
    line = c.typed(key, SortedSet)
    return _zrem(c, key, *[member for score, member in line.line() if low <= score <= high]) if line else 0


@command(b"ZPOPMIN", 1, 1)
def _zpopmin(c: Connection, key: bytes) -> Reply:
    line = c.typed(key, SortedSet)
    if not line:
        return []
    [(score, member)] = line.line(0, 0)
    line.drop(member)
    c.changed(key)
    return [member, score]


@command(b"ZRANGE", 3, 4, reads=FIRST)
def _zrange(c: Connection, key: bytes, first: bytes, last: bytes, option: bytes = b"") -> Reply:
    if option.upper() not in (b"", b"WITHSCORES"):
        raise Refused(SYNTAX)
    ranks = integer(first), integer(last)
    line = c.typed(key, SortedSet)
    found = line.line(*ranks) if line else []
    return Pairs([[member, score] for score, member in found]) if option else [member for _, member in found]


@command(b"ZRANK", 2, 2, reads=FIRST)
def _zrank(c: Connection, key: bytes, member: bytes) -> Reply:
    line = c.typed(key, SortedSet)
    return line.rank(member) if line else None


@command(b"ZSCORE", 2, 2, reads=FIRST)
def _zscore(c: Connection, key: bytes, member: bytes) -> Reply:
    line = c.typed(key, SortedSet)
    return line.score(member) if line else None


@command(b"ZCARD", 1, 1, reads=FIRST)
def _zcard(c: Connection, key: bytes) -> Reply:
    return len(c.typed(key, SortedSet) or ())
