"""The commands of a simulated node, as real servers answer them.

Knows keys and arguments. Must not know how bytes come and go, or how scripts run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isnan
from typing import TYPE_CHECKING, TypeVar

from .values import OK, SYNTAX, Encoded, Hash, Pairs, Refusal, Reply, SortedSet, Status, Text, push

if TYPE_CHECKING:
    from .server import ServedConnection


@dataclass(frozen=True, slots=True)
class ServedCommand:
    """What a server does when it is told `run`'s name.

    `reads`: which of its arguments are keys that it only reads.
    """

    run: Callable[..., Reply]
    least: int
    most: float
    reads: slice
    # Scripts cannot call it.
    alone: bool


COMMANDS: dict[bytes, ServedCommand] = {}
# How errors begin that refuse no write of a script which has written.
PASSING = b"OOM", b"MISCONF", b"NOREPLICAS"
NOTHING = slice(0)
FIRST = slice(1)
ALL = slice(None)
C = TypeVar("C", bound=Callable[..., Reply])


def command(name: bytes, least: int, most: float, reads: slice = NOTHING, alone: bool = False) -> Callable[[C], C]:
    def named(run: C) -> C:
        COMMANDS[name] = ServedCommand(run, least, most, reads, alone)
        return run

    return named


def integer(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if digits.isdigit() and len(digits) < 20 and (digits[:1] != b"0" or text == b"0") and -(2**63) <= int(text) < 2**63:
        return int(text)
    raise Refusal(b"ERR value is not an integer or out of range")


def real(text: bytes, wrong: bytes = b"ERR value is not a valid float") -> float:
    try:
        number = float(text)
    except ValueError:
        raise Refusal(wrong) from None
    if isnan(number) or b"_" in text or text != text.strip():
        raise Refusal(wrong)
    return number


@command(b"PING", 0, 1)
def _ping(c: ServedConnection, text: bytes = b"") -> Reply:
    return text or Status(b"PONG")


@command(b"TIME", 0, 0)
def _time(c: ServedConnection) -> Reply:
    # Redis 7.0 does not stop it during a script, others do. A virtual clock stands still anyway.
    return [b"%d" % part for part in divmod(c.server.micros(), 1_000_000)]


# The handshake


@command(b"HELLO", 0, inf, alone=True)
def _hello(c: ServedConnection, version: bytes = b"3", *options: bytes) -> Reply:
    if version != b"3":
        raise Refusal(b"NOPROTO unsupported protocol version")
    words = list(options)
    name = c.name
    while words:
        option = words.pop(0)
        if option.upper() == b"AUTH" and len(words) >= 2:
            _auth(c, words.pop(0), words.pop(0))
        elif option.upper() == b"SETNAME" and words:
            name = _checked(words.pop(0))
        else:
            raise Refusal(b"ERR Syntax error in HELLO option '%b'" % option)
    if not c.admitted:
        raise Refusal(
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
def _auth(c: ServedConnection, *words: bytes) -> Reply:
    password = c.server.password
    if len(words) == 1 and password is None:
        raise Refusal(
            b"ERR AUTH <password> called without any password configured for the "
            b"default user. Are you sure your configuration is correct?"
        )
    if words[:-1] not in ((), (b"default",)) or password not in (None, words[-1]):
        raise Refusal(b"WRONGPASS invalid username-password pair or user is disabled.")
    c.admitted = True
    return OK


@command(b"SELECT", 1, 1, alone=True)
def _select(c: ServedConnection, database: bytes) -> Reply:
    space = c.server.data.get(integer(database))
    if space is None:
        raise Refusal(b"ERR DB index is out of range")
    c.space = space
    return OK


def _checked(name: bytes) -> bytes:
    if re.search(rb"[^!-~]", name):
        raise Refusal(b"ERR Client names cannot contain spaces, newlines or special characters.")
    return name


@command(b"CLIENT", 1, inf, alone=True)
def _client(c: ServedConnection, *words: bytes) -> Reply:
    match [words[0].upper(), *words[1:]]:
        case [b"ID"]:
            return c.id
        case [b"GETNAME"]:
            return c.name or None
        case [b"SETNAME", name]:
            c.name = _checked(name)
        case [b"SETINFO", attribute, _] if c.server.dialect.takes_setinfo:
            if attribute.upper() not in (b"LIB-NAME", b"LIB-VER"):
                raise Refusal(b"ERR Unrecognized option '%b'" % attribute)
        case [b"TRACKING", state, *options]:
            _track(c, state.upper(), {option.upper() for option in options})
        case [b"CACHING", answer]:
            if not c.optin:
                raise Refusal(
                    b"ERR CLIENT CACHING can be called only when the client is in tracking "
                    b"mode with OPTIN or OPTOUT mode enabled"
                )
            if answer.upper() != b"YES":
                raise Refusal(SYNTAX)
            c.caching = True
        case _:
            raise Refusal(b"ERR unknown subcommand '%b'. Try CLIENT HELP." % words[0])
    return OK


def _track(c: ServedConnection, state: bytes, options: set[bytes]) -> None:
    if state not in (b"ON", b"OFF") or not options <= {b"OPTIN", b"NOLOOP"}:
        raise Refusal(SYNTAX)
    c.tracking = state == b"ON"
    c.optin, c.noloop = (c.tracking and option in options for option in (b"OPTIN", b"NOLOOP"))


@command(b"INFO", 0, inf)
def _info(c: ServedConnection, *sections: bytes) -> Reply:
    server = c.server
    if len(sections) > 1 and not server.dialect.takes_sections:
        raise Refusal(SYNTAX)
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
def _subscribe(c: ServedConnection, *channels: bytes) -> Reply:
    for channel in channels:
        c.join(channel)
        c.push(push(b"subscribe", channel, len(c.channels)))
    return Encoded()


@command(b"UNSUBSCRIBE", 0, inf, alone=True)
def _unsubscribe(c: ServedConnection, *channels: bytes) -> Reply:
    for channel in channels or tuple(c.channels) or (None,):
        if channel is not None:
            c.leave(channel)
        c.push(push(b"unsubscribe", channel, len(c.channels)))
    return Encoded()


@command(b"PUBLISH", 2, 2)
def _publish(c: ServedConnection, channel: bytes, message: bytes) -> Reply:
    c.server.published(message)
    receivers = c.server.channels.get(channel, {})
    for receiver in receivers:
        receiver.push(push(b"message", channel, message), last=c.server.dialect.own_push_last)
    return len(receivers)


# Scripts


@command(b"SCRIPT", 1, inf, alone=True)
def _script(c: ServedConnection, *words: bytes) -> Reply:
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
    raise Refusal(b"ERR unknown subcommand '%b'. Try SCRIPT HELP." % words[0])


@command(b"EVAL", 2, inf, alone=True)
def _eval(c: ServedConnection, source: bytes, *words: bytes) -> Reply:
    sha = c.server.lua.compile(source)
    c.server.scripts.add(sha)
    return _evalsha(c, sha, *words)


@command(b"EVALSHA", 2, inf, alone=True)
def _evalsha(c: ServedConnection, sha: bytes, number: bytes, *words: bytes) -> Reply:
    if sha not in c.server.scripts:
        raise Refusal(b"NOSCRIPT No matching script. Please use EVAL.")
    keys = integer(number)
    if keys > len(words):
        raise Refusal(b"ERR Number of keys can't be greater than number of args")
    if keys < 0:
        raise Refusal(b"ERR Number of keys can't be negative")
    return c.server.lua.run(c, sha, keys, words)


# Keys


@command(b"DEL", 1, inf)
def _del(c: ServedConnection, *keys: bytes) -> Reply:
    return sum([c.drop(key) for key in keys])


@command(b"EXISTS", 1, inf, reads=ALL)
def _exists(c: ServedConnection, *keys: bytes) -> Reply:
    return sum([c.look(key) is not None for key in keys])


@command(b"TYPE", 1, 1, reads=FIRST)
def _type(c: ServedConnection, key: bytes) -> Reply:
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
def _pttl(c: ServedConnection, key: bytes) -> Reply:
    if c.look(key) is None:
        return -2
    deadline = c.space.deadlines.get(key)
    return -1 if deadline is None else deadline - c.server.now


@command(b"PEXPIRE", 2, 2)
def _pexpire(c: ServedConnection, key: bytes, ttl: bytes) -> Reply:
    return _expire(c, key, c.server.now + integer(ttl))


@command(b"PEXPIREAT", 2, 2)
def _pexpireat(c: ServedConnection, key: bytes, deadline: bytes) -> Reply:
    return _expire(c, key, integer(deadline))


def _expire(c: ServedConnection, key: bytes, deadline: int) -> Reply:
    if c.look(key) is None:
        return 0
    if deadline <= c.server.now:
        c.drop(key)
    else:
        c.space.deadlines[key] = deadline
        c.changed(key)
    return 1


@command(b"SCAN", 1, inf)
def _scan(c: ServedConnection, cursor: bytes, *options: bytes) -> Reply:
    # All in one go: a server may, whatever COUNT says.
    if not cursor.isdigit():
        raise Refusal(b"ERR invalid cursor")
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
                raise Refusal(SYNTAX)
    return [b"0", [*keys]]


def _live(c: ServedConnection) -> list[bytes]:
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
def _dbsize(c: ServedConnection) -> Reply:
    return len(_live(c))


@command(b"FLUSHALL", 0, 1)
def _flushall(c: ServedConnection, how: bytes = b"SYNC") -> Reply:
    if how.upper() not in (b"SYNC", b"ASYNC"):
        raise Refusal(SYNTAX)
    for space in c.server.data.values():
        space.clear()
    c.server.tracked.clear()
    for connection in c.server.connections:
        if connection.tracking:
            connection.push(push(b"invalidate", None), last=True)
    return OK


# Strings


@command(b"GET", 1, 1, reads=FIRST)
def _get(c: ServedConnection, key: bytes) -> Reply:
    return c.typed(key, bytes)


@command(b"MGET", 1, inf, reads=ALL)
def _mget(c: ServedConnection, *keys: bytes) -> Reply:
    found = [c.look(key) for key in keys]
    return [it if isinstance(it, bytes) else None for it in found]


@command(b"SET", 2, inf)
def _set(c: ServedConnection, key: bytes, value: bytes, *options: bytes) -> Reply:
    said: dict[bytes, bytes] = {}
    rest = list(options)
    while rest:
        option = rest.pop(0).upper()
        if option in (b"NX", b"XX", b"GET"):
            said[option] = b""
        elif option in (b"PX", b"PXAT") and option not in said and rest:
            said[option] = rest.pop(0)
        else:
            raise Refusal(SYNTAX)
    if said.keys() >= {b"NX", b"XX"} or said.keys() >= {b"PX", b"PXAT"}:
        raise Refusal(SYNTAX)
    deadline = None
    for option, since in (b"PX", c.server.now), (b"PXAT", 0):
        if option in said:
            deadline = since + integer(said[option])
            if deadline <= since:
                raise Refusal(b"ERR invalid expire time in 'set' command")
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
def _hset(c: ServedConnection, key: bytes, *pairs: bytes) -> Reply:
    if len(pairs) % 2:
        raise Refusal(b"ERR wrong number of arguments for 'hset' command")
    fields = c.made(key, Hash)
    before = len(fields)
    fields.update(zip(pairs[::2], pairs[1::2], strict=True))
    c.changed(key)
    return len(fields) - before


@command(b"HGET", 2, 2, reads=FIRST)
def _hget(c: ServedConnection, key: bytes, field: bytes) -> Reply:
    return (c.typed(key, Hash) or Hash()).get(field)


@command(b"HGETALL", 1, 1, reads=FIRST)
def _hgetall(c: ServedConnection, key: bytes) -> Reply:
    return dict(c.typed(key, Hash) or Hash())


@command(b"HDEL", 2, inf)
def _hdel(c: ServedConnection, key: bytes, *fields: bytes) -> Reply:
    there = c.typed(key, Hash) or Hash()
    gone = sum([there.pop(field, None) is not None for field in fields])
    if gone:
        c.changed(key)
    return gone


# Sorted sets


@command(b"ZADD", 3, inf)
def _zadd(c: ServedConnection, key: bytes, *words: bytes) -> Reply:
    # Of the options only GT, which no command of ours mixes with another.
    raising = words[0].upper() == b"GT"
    pairs = words[raising:]
    if len(pairs) % 2 or not pairs:
        raise Refusal(SYNTAX)
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
def _zrem(c: ServedConnection, key: bytes, *members: bytes) -> Reply:
    line = c.typed(key, SortedSet)
    gone = sum([line.drop(member) for member in members]) if line else 0
    if gone:
        c.changed(key)
    return gone


@command(b"ZREMRANGEBYSCORE", 3, 3)
def _zremrangebyscore(c: ServedConnection, key: bytes, lowest: bytes, highest: bytes) -> Reply:
    low, high = (real(bound, b"ERR min or max is not a float") for bound in (lowest, highest))
    line = c.typed(key, SortedSet)
    return _zrem(c, key, *[member for score, member in line.line() if low <= score <= high]) if line else 0


@command(b"ZPOPMIN", 1, 1)
def _zpopmin(c: ServedConnection, key: bytes) -> Reply:
    line = c.typed(key, SortedSet)
    if not line:
        return []
    [(score, member)] = line.line(0, 0)
    line.drop(member)
    c.changed(key)
    return [member, score]


@command(b"ZRANGE", 3, 4, reads=FIRST)
def _zrange(c: ServedConnection, key: bytes, first: bytes, last: bytes, option: bytes = b"") -> Reply:
    if option.upper() not in (b"", b"WITHSCORES"):
        raise Refusal(SYNTAX)
    ranks = integer(first), integer(last)
    line = c.typed(key, SortedSet)
    found = line.line(*ranks) if line else []
    return Pairs([[member, score] for score, member in found]) if option else [member for _, member in found]


@command(b"ZRANK", 2, 2, reads=FIRST)
def _zrank(c: ServedConnection, key: bytes, member: bytes) -> Reply:
    line = c.typed(key, SortedSet)
    return line.rank(member) if line else None


@command(b"ZSCORE", 2, 2, reads=FIRST)
def _zscore(c: ServedConnection, key: bytes, member: bytes) -> Reply:
    line = c.typed(key, SortedSet)
    return line.score(member) if line else None


@command(b"ZCARD", 1, 1, reads=FIRST)
def _zcard(c: ServedConnection, key: bytes) -> Reply:
    return len(c.typed(key, SortedSet) or ())
