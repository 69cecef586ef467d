"""One simulated node: a small Redis in memory, which runs the shipped scripts in Lua 5.1, under a
clock of your own.

Knows the commands of holdfast's scripts and handshake, as real servers answer them: `tests/scripts`
talks to both alike, and compares. Must not know locks, networks, or time that passes by itself:
bytes come in by `feed`, and leave by `deliver`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import hiredis

from ..errors import ConfigError
from .commands import COMMANDS, PASSING, ServedCommand
from .values import (
    OK,
    REDIS_7_0,
    WRONGTYPE,
    Dialect,
    Encoded,
    Keyspace,
    Pairs,
    Refusal,
    Reply,
    Status,
    V,
    Value,
    encode,
    exact,
    push,
)

# ---- scripts


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
        text = Path(__file__).with_name("server.lua").read_bytes()
        self._compile, self._run = runtime.execute(text, self._command)
        self._table = runtime.table_from
        self._ok = self._table({b"ok": bytes(OK)})
        self._compiled: dict[bytes, Any] = {}
        self._caller: ServedConnection
        self._bug: Exception | None = None

    def compile(self, source: bytes) -> bytes:
        """Make a script ready to run; its digest."""
        sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
        if sha not in self._compiled:
            script = self._compile(source)
            if isinstance(script, tuple):
                raise Refusal(b"ERR Error compiling script (new function): %b" % script[1])
            self._compiled[sha] = script
        return sha

    def run(self, caller: ServedConnection, sha: bytes, keys: int, words: Sequence[bytes]) -> Encoded:
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
            raise Refusal(b"ERR Error running script (call to f_%b): @user_script:%d: %b" % (sha, line, wrong))
        raise Refusal(b"%b script: %b, on @user_script:%d." % (wrong, sha, line))

    def _command(self, *given: object) -> object:
        try:
            words = [word if type(word) is bytes else self._word(word) for word in given]
            reply = self._caller.execute(words, scripted=True)
        except Refusal as refused:
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
        raise Refusal(b"ERR Command arguments must be strings or integers")

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
        self.commands: Mapping[bytes, ServedCommand] = COMMANDS
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
        self.speaker: ServedConnection | None = None
        self.connections: dict[ServedConnection, None] = {}
        self.channels: dict[bytes, dict[ServedConnection, None]] = {}
        self.published: Callable[[bytes], object] = _ignore
        self.tracked: dict[bytes, dict[ServedConnection, None]] = {}
        self.ids = count(1)
        self._clock = clock
        self._started = int(clock() - uptime)
        # Those with something to deliver.
        self._spoken: dict[ServedConnection, None] = {}

    def connect(self, deliver: Callable[[bytes], None]) -> ServedConnection:
        """A new connection.

        `deliver` is called with answers and pushes, in the order of the stream, after the commands
        that made them.
        """
        return ServedConnection(self, deliver)

    def saved(self) -> dict[int, Keyspace]:
        """A copy of all data."""
        return {database: space.copy() for database, space in self.data.items() if space.values}

    def promote(self) -> None:
        """It was a replica until now, and becomes a primary."""
        self.role = b"master"
        self.reigns.append(b"%040x" % (int(self.reigns[-1], 16) + 1))

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

    def speak(self, connection: ServedConnection) -> None:
        self._spoken[connection] = None

    def deliver(self) -> None:
        spoken = self._spoken
        self._spoken = {}
        for connection in spoken:
            connection.deliver()


class ServedConnection:
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
            except Refusal as refused:
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
            raise Refusal(b"ERR unknown command '%b', with args beginning with: %b" % (words[0], given))
        if not command.least <= len(arguments) <= command.most:
            raise Refusal(b"ERR wrong number of arguments for '%b' command" % name.lower())
        if not self.admitted and name not in (b"HELLO", b"AUTH"):
            raise Refusal(b"NOAUTH Authentication required.")
        if scripted and command.alone:
            raise Refusal(b"ERR This Redis command is not allowed from script")
        told = server.refuse.get(name)
        if told and not (scripted and server.wrote and told.startswith(PASSING)):
            raise Refusal(told)
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
        raise Refusal(WRONGTYPE)

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
