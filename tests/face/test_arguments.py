"""Wrong arguments and right ones, in both faces: what is wrong is refused before anything is connected, started or said to a node.

Each argument has a row: values that are wrong, what the complaint says, and values that are right. `tests/test_checks.py` searches the
checks themselves, and `tests/wire/test_address.py` the addresses.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import os
import re
import ssl
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any

import pytest

import holdfast
import holdfast.aio
from holdfast.clock import clock
from holdfast.drivers.threads import io_thread as io_thread_module
from holdfast.errors import ConfigError, message_of
from holdfast.options import OPTIONS
from holdfast.typing import ElectionOptions, OnceOptions, Options, PermitOptions

SECRET = "sEcr3t"
HOSTS = ("redis://a:6379", "redis://b:6379", "redis://c:6379")
SECURE_HOSTS = ("rediss://a:6379", "valkeys://b:6379", "redis://c:6379")
LONGEST = 30  # seconds: max_ttl, unless it is what is being tried

KINDS = {"threads": holdfast.Holdfast, "asyncio": holdfast.aio.Holdfast}
FACES = pytest.mark.parametrize("face", KINDS)


# ------------------------------------------------ values, right and wrong


class Rude:
    """Cannot be printed, nor asked whether it is true, as an array cannot."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__

    def __bool__(self) -> bool:
        raise RuntimeError("no")

    def __index__(self) -> int:
        return 5


class Wordy:
    """Says more of itself than any log should hold."""

    def __repr__(self) -> str:
        return "x" * 10**6


class Tracer:
    """What `around=` takes."""

    def begin(self, kind: str, names: tuple[str, ...]) -> None:
        """Nothing hears of the end."""


# Values that no argument takes.
ODD = [b"1", 5j, [5], {}, Ellipsis, Decimal(1), Rude(), Wordy(), 10**5000]
NO_SECONDS = [*ODD, True, "5 s", math.nan, math.inf, -math.inf, -5e-324, -1, timedelta(microseconds=-1), 2**1024]
NO_TEXT = [*ODD, 5, "half of a pair \ud800", "x" * 5000]
NO_FLAGS = [*ODD, None, 0, 1, "yes"]
NO_FUNCTIONS = [b"1", 5j, Rude(), 5, "print"]
TOO_SHORT = [0, 0.0499, timedelta(milliseconds=49)]
MILLISECONDS = [2000, 30_000]
NO_NAMES = [*NO_TEXT, "", "x" * 513, "\U0001f512" * 129, "a}b", "{}}", "{t}:fence", "{t}:waiters:", "{t}:rfence"]
NAMES = ["a", "x" * 512, "\U0001f512" * 128, "{t}a}", "{", "{t}:x", "\0\n%s \u00e9"]


@dataclass(frozen=True)
class Argument:
    """What is wrong, what a complaint says of it, and what is right. `beside`: other arguments that it needs; `hosts`: the nodes."""

    wrong: list[Any]
    says: str
    right: list[Any]
    beside: tuple[tuple[str, Any], ...] = ()
    hosts: tuple[str, ...] = HOSTS


NUMBER = r"is a number of seconds or a timedelta|is \S+ or more seconds|is from \S+ to \S+ seconds"
TTL = f"^ttl (.*max_ttl=|.*did you mean ttl=|{NUMBER})"
NO_TTL = [*NO_SECONDS, *TOO_SHORT, 30.0001, timedelta(seconds=31), 12_500]
LENGTHS: list[Any] = [0.05, 5, 30, 1.2345, timedelta(seconds=7)]
CLIENT = {
    "ttl": Argument([*NO_TTL, None], TTL, LENGTHS),
    "max_ttl": Argument([*NO_SECONDS, *TOO_SHORT, None, 86401], f"^max_ttl ({NUMBER})", [0.05, 86400], (("ttl", 0.05),)),
    "node_timeout": Argument([*NO_SECONDS, 0, 0.0009], f"^node_timeout ({NUMBER})", [None, 0.001, 5]),
    "restart_guard": Argument([*NO_SECONDS, 0, 31.99], f"^restart_guard (is at least max_ttl|{NUMBER})", [None, 32, 10**6]),
    "outage": Argument(NO_SECONDS, f"^outage ({NUMBER})", [None, 0, 5]),
    "prefix": Argument(
        [*NO_TEXT, None, "x" * 257, "a{b"],
        "^prefix .*(is text|at most 256 are allowed|has a brace in it|UTF-8 cannot say)",
        ["", "app:", "\u00e9" * 128],
    ),
    "owner": Argument(
        [*NO_TEXT, "", "x" * 129, "a b", "\u00e9"],
        "^owner .*(is text|at most 128 are allowed|printable ASCII|UTF-8 cannot say)",
        [None, "web-3:118", "x" * 128],
    ),
    "observer": Argument(
        NO_FUNCTIONS, "^observer is a function of one argument, the event, or a list of such functions", [None, print, [], [print, len]]
    ),
    "around": Argument(ODD, "^around is an object with a method begin", [None, Tracer()]),
    "guardian": Argument(NO_FLAGS, "^guardian is True or False", [True, False]),
    "ssl": Argument(
        [*ODD, True, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)],
        r"^ssl is an ssl\.SSLContext|TLS cannot begin: .* context of a client",
        [None, ssl.create_default_context()],
        hosts=SECURE_HOSTS,
    ),
    "credentials": Argument(NO_FUNCTIONS, "^credentials is a function of one argument", [None, print]),
}
NAMED = "lock.*(is text|needs a name|at most 512 are allowed|leave the '}' out|looks like|UTF-8 cannot say)"
LOCK = {
    "names": Argument(
        [*[[it] for it in NO_NAMES], [], ["a", 5], ["a", "b", "a"]],
        f"{NAMED}|named twice in one lock",
        [*[[it] for it in NAMES], ["a", "b", "c"]],
    ),
    "ttl": Argument(NO_TTL, TTL, [None, *LENGTHS]),
    "wait": Argument([*NO_SECONDS, *MILLISECONDS, 10**9 + 1], f"^wait ({NUMBER})", [None, 0, 0.5, 2000.0, 3600, 10**9]),
    "renew": Argument(NO_FLAGS, "^renew is True or False", [True, False]),
    "max_hold": Argument([*NO_SECONDS, *TOO_SHORT, *MILLISECONDS], f"^max_hold ({NUMBER})", [None, 0.05, 10**9]),
    "at_least": Argument([*NO_SECONDS, *MILLISECONDS, 86401], f"^at_least ({NUMBER})", [None, 0, 86400]),
    "reentrant": Argument(NO_FLAGS, "^reentrant is True or False", [True, False]),
    "fail_open": Argument(NO_FLAGS, "^fail_open is True or False", [True, False]),
    "on_lost": Argument(NO_FUNCTIONS, "^on_lost is a function of one argument", [None, print]),
    "note": Argument([*NO_TEXT, "x" * 1025], "^a note .*(is text|at most 1024 are allowed|UTF-8 cannot say)", [None, "", "x" * 1024]),
}
ARGUMENTS = {**{f"Holdfast({name})": it for name, it in CLIENT.items()}, **{f"lock({name})": it for name, it in LOCK.items()}}


@pytest.fixture(scope="module", autouse=True)
def quiet() -> None:
    """The I/O threads of earlier tests' clients have ended: their threads and files would end while ours are counted."""
    gc.collect()
    for io_thread in io_thread_module._io_threads:
        ident = io_thread.ident
        if io_thread._running.acquire(timeout=io_thread_module.IDLE + 5):
            io_thread._running.release()
        # A thread is listed for a moment yet after its last word.
        deadline = clock() + 5
        while ident in sys._current_frames() and clock() < deadline:
            pass


# ------------------------------------------------ how they are tried


def outside() -> tuple[object, ...]:
    """What a client could have started: threads, and open files (where those can be listed)."""
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    return frozenset(sys._current_frames()), files


def complaint(call: Callable[[], object], says: str) -> None:
    """This is refused, as it has to be, and in the right words."""
    before = outside()
    with pytest.raises(ConfigError) as caught:
        call()
    assert outside() == before, "something was started before it was refused"
    refused(caught.value, says)


def refused(error: ConfigError, says: str) -> None:
    """The error says the right words, no secret, and nothing that would be right as it is told."""
    text = message_of(error)
    assert type(error) is ConfigError
    assert re.search(says, text, re.DOTALL), f"it says {text!r}"
    assert SECRET not in "".join([repr(error), text, *traceback.format_exception(error)])
    assert len(text) < 2500, "more than a log should hold"
    text.encode()
    said = re.search(r", not (-?[0-9.e+-]+)$", text)
    assert not said or not _asked_for(text, float(said[1])), f"as it is told, it is right: {text}"


def _asked_for(complaint: str, value: float) -> bool:
    """Is this number what the complaint asks for?"""
    least = re.search(r"is (?:from |at least max_ttl \+ 2 = )?([0-9.e+]+) (?:or|to|seconds)", complaint)
    most = re.search(r" to ([0-9.e+]+) seconds", complaint)
    return least is not None and float(least[1]) <= value <= (float(most[1]) if most else math.inf)


def tried(face: str, where: str, argument: Argument, value: Any) -> Callable[[], Any]:
    """Describes a client, or a lock, with this argument."""
    kind, (call, _, name) = KINDS[face], where.rstrip(")").partition("(")
    if call == "Holdfast":
        return lambda: kind(*argument.hosts, **{**dict(argument.beside), name: value})
    client = kind(*HOSTS)
    return (lambda: client.lock(*value)) if name == "names" else (lambda: client.lock("x", **{name: value}))  # type: ignore[misc]  # (mypy infers other types of the two lambdas)


@pytest.mark.parametrize("where", ARGUMENTS)
def test_b02_b36_b41_what_is_wrong_is_refused(where: str) -> None:
    argument = ARGUMENTS[where]
    for value, face in product(argument.wrong, KINDS):
        complaint(tried(face, where, argument, value), argument.says)


@pytest.mark.parametrize("where", ARGUMENTS)
def test_what_is_right_is_taken(where: str) -> None:
    argument = ARGUMENTS[where]
    for value, face in product(argument.right, KINDS):
        before = outside()
        made = tried(face, where, argument, value)()
        assert outside() == before, "nothing is connected before the first use"
        if where == "lock(names)":
            assert (made.names, made.name) == (tuple(value), ",".join(value))
        if where in ("lock(ttl)", "Holdfast(ttl)") and value == 1.2345:
            assert (made.ttl if where == "lock(ttl)" else made.settings.ttl) == 1.234, "rounded down to milliseconds"


@FACES
def test_every_argument_has_its_rule(face: str) -> None:
    def parameters(method: str) -> set[str]:
        return set(inspect.signature(getattr(KINDS[face], method)).parameters) - {"self", "unknown"}

    assert parameters("__init__") == {*CLIENT, "nodes", "shards", "previous"}  # (the last two: tests/face/test_spreading.py)
    assert parameters("lock") == {"names", "options"}
    assert {"names", *Options.__annotations__} == set(LOCK)
    for method in ("ready", "inspect", "locked_by", "is_locked", "names", "force_release"):
        assert {f"{method}({it})" for it in parameters(method)} == {it for it in ASKED if it.startswith(f"{method}(")}


@FACES
def test_an_unknown_option_is_refused_with_what_it_is_called_here(face: str) -> None:
    client = KINDS[face](*HOSTS)
    complaint(lambda: KINDS[face](*HOSTS, timeout=5), r"^unknown client option 'timeout'. Did you mean node_timeout")
    complaint(lambda: KINDS[face](nodes=HOSTS), r"^unknown client option 'nodes'. Did you mean the addresses themselves, Holdfast\(")
    valid = "ttl, max_ttl, .*, shards, previous"
    complaint(lambda: KINDS[face](*HOSTS, colour=5), rf"^unknown client option 'colour'. Valid options are {valid}.$")
    for options, told in (
        ({"timeout": 5}, r"'timeout'. Did you mean ttl \(.*\) or wait \("),
        ({"blocking_timeout": 5}, "'blocking_timeout'. Did you mean wait "),
        ({"blocking": False}, "'blocking'. Did you mean wait=0"),
        ({"name": "x"}, "'name'. Valid options are ttl, wait, max_hold, on_lost, renew, reentrant, fail_open, note, at_least.$"),
    ):
        for call in (partial(client.lock, "x"), client.rwlock("x").read):
            complaint(partial(call, **options), f"^unknown lock option {told}")
    complaint(partial(client.locked, "x", timeout=5), "^unknown lock option 'timeout'. Did you mean ttl")
    # Each primitive refuses what it does not have, and says what it has.
    for what, call, wrong, valid in (
        ("semaphore", partial(client.semaphore, "x", 3), "reentrant", "ttl, wait, max_hold, on_lost, renew, count, fail_open, note"),
        ("election", partial(client.election, "x"), "fail_open", "ttl, wait, max_hold, on_lost, renew"),
        ("once", partial(client.once, "x", keep=60), "reentrant", "ttl, .*, renew, note, per, zone, slack, serializer, same, cancel"),
    ):
        complaint(partial(call, **{wrong: True}), f"^unknown {what} option '{wrong}'. Valid options are {valid}.$")
        complaint(partial(call, timeout=5), f"^unknown {what} option 'timeout'. Did you mean ttl")


@FACES
def test_the_options_that_are_told_are_those_of_the_signatures(face: str) -> None:
    assert set(OPTIONS) == set(inspect.signature(KINDS[face]).parameters) - {"unknown"}
    for method, options in (("lock", Options), ("semaphore", PermitOptions), ("election", ElectionOptions), ("once", OnceOptions)):
        described = getattr(KINDS[face], method).__doc__
        assert [it for it in options.__annotations__ if f"{it}:" not in described and f"`{it}`" not in described] == []


# ------------------------------------------------ nodes

WRONG_NODES = [
    *("http://h", "://h", "redis://", "redis://[h]", "redis://h h", "redis://h:65536", "redis://h:0", f"redis://h:{SECRET}", "redis://h/x"),
    *(f"redis://h/{SECRET}", "redis://h?db=x", f"redis://h?pass={SECRET}", f"redis://h#{SECRET}", "unix://run/a.sock", "unix:///a%00.sock"),
    *(f"redis://me:{SECRET}@h?nonsense=1", f"rediss://h?ssl_password={SECRET}", "rediss://h?ssl_cert_reqs=maybe", 5, 5j, Rude(), Wordy()),
]
SERVERS = [f"redis://me:{SECRET}@h/1", "rediss://h:7000?ssl_cert_reqs=none", "valkey://[::1]", f"unix:///run/a.sock?password={SECRET}"]
TWICE = ["REDIS://H:6379?db=2", "valkeys://h:7000/3", "redis://[::1]:6379", "unix:///run/a.sock?db=1"]
SHAPES: list[Callable[[list[Any]], list[Any]]] = [lambda it: it, lambda it: [it], lambda it: [iter(it)], lambda it: [it[0], tuple(it[1:])]]


@FACES
@pytest.mark.parametrize("wrong", WRONG_NODES, ids=range(len(WRONG_NODES)))
def test_b15_b58_nodes_that_cannot_be_are_refused_and_their_passwords_not_shown(face: str, wrong: Any) -> None:
    for shape in SHAPES:
        complaint(lambda: KINDS[face](*shape([SERVERS[0], wrong])), "address|socket|host|port|database|option|ssl_")  # noqa: B023 (called within this turn of the loop)


@FACES
def test_b15_nodes_are_taken_if_all_of_them_are_different(face: str) -> None:
    """Any number of them, even ones too; the same one twice is refused, however it is written."""
    for count, shape in product(range(1, len(SERVERS) + 1), SHAPES):
        before = outside()
        client = KINDS[face](*shape(SERVERS[:count]))
        assert outside() == before
        assert len(client.urls) == count
        assert SECRET not in f"{client!r} {client.urls} {client.settings} {client.nodes() if face == 'threads' else ''}"
    for twin, shape in product(TWICE, SHAPES):
        complaint(lambda: KINDS[face](*shape([*SERVERS, twin])), "named twice: each node is a server of its own")  # noqa: B023 (as above)


@pytest.mark.parametrize("face", KINDS)
@pytest.mark.parametrize("text", ["localhost:6379", "redis://a,redis://a"])
def test_an_error_about_nodes_names_the_variable_that_has_them(monkeypatch: pytest.MonkeyPatch, face: str, text: str) -> None:
    monkeypatch.setenv("HOLDFAST_NODES", text)
    complaint(lambda: KINDS[face](), r" \(the environment sets HOLDFAST_NODES\)$")
    complaint(lambda: KINDS[face](*text.split(",")), r"^(?!.*HOLDFAST_NODES)")


@pytest.mark.parametrize("face", KINDS)
def test_the_usual_ttl_is_no_longer_than_the_longest(face: str) -> None:
    assert KINDS[face]("redis://a", max_ttl=5).settings.ttl == 5
    assert KINDS[face]("redis://a", max_ttl=50).settings.ttl == 10
    complaint(lambda: KINDS[face]("redis://a", max_ttl=5, ttl=10), "^ttl is 10 s, and max_ttl 5 s")


@FACES
@pytest.mark.parametrize("nothing", [([],), ((), []), (iter(()),)])
def test_b15_no_nodes_at_all(face: str, nothing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_NODES", raising=False)
    complaint(lambda: KINDS[face](*nothing), r"^no nodes: name them, .* or set HOLDFAST_NODES\. To try .*: Holdfast\.local\(\)$")
    # A configuration that came out empty must not lead to another cluster.
    monkeypatch.setenv("HOLDFAST_NODES", "redis://elsewhere")
    complaint(lambda: KINDS[face](*nothing), r"^no nodes")


@pytest.mark.parametrize("text", ["", "  "])
def test_without_nodes_a_client_describes_and_refuses_to_be_used(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only defines locks can be imported where the servers are not named, as `manage.py help` does."""
    monkeypatch.setenv("HOLDFAST_NODES", text)
    monkeypatch.setenv("HOLDFAST_PREVIOUS", "redis://a")
    told = r"^no nodes: name them, .* or set HOLDFAST_NODES"
    locks = holdfast.Holdfast()
    lock, rate = locks.lock("a", wait=5), locks.rate("b", 1, 1)
    once = locks.once("c", keep=60)
    calls = (lock.acquire, lock.try_acquire, lock.__enter__, rate.take, partial(once.run, print), locks.ready)
    for call in (*calls, partial(locks.inspect, "a")):
        complaint(call, told)
    locks.close()

    async def asyncio_too() -> None:
        locks = holdfast.aio.Holdfast()
        lock = locks.lock("a", wait=5)
        for call in (lock.acquire, lock.try_acquire, locks.ready, partial(locks.inspect, "a"), lock.__aenter__):
            with pytest.raises(ConfigError, match=told):
                await call()
        await locks.close()

    asyncio.run(asyncio_too())


# ------------------------------------------------ what is asked of a client and of a lease that there is

NAME = Argument(NO_NAMES, NAMED, NAMES)
# (`tests/contract/test_arguments.py` asks.)
ASKED: dict[str, tuple[Argument, Callable[[Any, Any], Callable[[Any], Any]]]] = {
    "extend(ttl)": (LOCK["ttl"], lambda client, lease: lease.extend),
    "ready(wait)": (Argument([*NO_SECONDS, None, *MILLISECONDS], f"^wait ({NUMBER})", [0, 5, 3600]), lambda client, lease: client.ready),
    "inspect(name)": (NAME, lambda client, lease: client.inspect),
    "locked_by(name)": (NAME, lambda client, lease: client.locked_by),
    "is_locked(name)": (NAME, lambda client, lease: client.is_locked),
    "names(pattern)": (
        Argument(NO_TEXT, "^a pattern of names .*(is text|at most 512 are allowed|UTF-8 cannot say)", ["*", "", "x" * 512]),
        lambda client, lease: client.names,
    ),
    "force_release(name)": (NAME, lambda client, lease: lambda it: client.force_release(it, "why")),
    "force_release(reason)": (
        Argument(
            [*NO_TEXT, "", "\t\n", "x" * 1025],
            "^the reason of a forced release .*(is text|at most 1024 are allowed|UTF-8 cannot say)|^a forced release needs a reason",
            ["why", "x" * 1024],
        ),
        lambda client, lease: lambda it: client.force_release("free", it),
    ),
    "force_release(only)": (
        Argument([*NO_TEXT, "", "x" * 513], "^only .*(is text|is a token|at most 512 are allowed|UTF-8 cannot say)", [None, "x" * 512]),
        lambda client, lease: lambda it: client.force_release("free", "why", only=it),
    ),
}


@pytest.mark.parametrize("wrong", [False, 5, "now"])
def test_what_cannot_end_a_wait_is_refused(wrong: Any) -> None:
    """`acquire(False)`, as of a `threading.Lock`, ended in an AttributeError if another client had the lock."""
    client = holdfast.Holdfast(*HOSTS)
    waits = (client.lock("a").acquire, client.election("a").campaign, client.latch("a", 2).wait, client.rate("a", 1, 1).acquire)
    for wait in (*waits, partial(client.barrier("a", 2).wait, "me")):
        with pytest.raises(ConfigError, match=r"^cancel .*threading\.Event"):
            wait(cancel=wrong)
