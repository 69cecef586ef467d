"""Many wrong arguments, and many right ones, in both faces; which are wrong is decided by rules that are told again here.

The rules of the house, as dumbly as they can be said, in exact fractions and without a look at the code: what they refuse has to be
refused, with a ConfigError that names the argument and says what to write, before anything is connected, started or said to a node;
and what they allow has to be taken. The cases are the same in every run, but at night, when there are more, of another seed each time.
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
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from contract.cluster import Cluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seeds import FROZEN

import holdfast
import holdfast.aio
from holdfast.clock import clock
from holdfast.drivers.threads import io_thread as io_thread_module
from holdfast.embedded import Nodes
from holdfast.errors import ConfigError, message_of
from holdfast.options import OPTIONS
from holdfast.typing import ElectionOptions, OnceOptions, Options, PermitOptions

WRONG, RIGHT = (20, 8) if FROZEN else (54, 20)  # cases of each argument and face
SECRET = "sEcr3t"
HOSTS = ("redis://a:6379", "redis://b:6379", "redis://c:6379")
SECURE_HOSTS = ("rediss://a:6379", "valkeys://b:6379", "redis://c:6379")
LONGEST = 30  # seconds: max_ttl, unless it is what is being tried

KINDS = {"threads": holdfast.Holdfast, "asyncio": holdfast.aio.Holdfast}
FACES = pytest.mark.parametrize("face", KINDS)


def repeatable(count: int) -> settings:
    """So many examples, always the same ones but at night."""
    return settings(max_examples=count, derandomize=FROZEN, database=None, deadline=None, suppress_health_check=list(HealthCheck))


# ------------------------------------------------ the rules, told again


def exact(value: Any) -> Fraction | None:
    """How many seconds that is, to the last digit; None if it is no number of seconds, or none that ends, or one beyond all floats."""
    if isinstance(value, timedelta):
        return Fraction(value.days * 86400 + value.seconds) + Fraction(value.microseconds, 10**6)
    if not isinstance(value, int | float) or value is True or value is False:
        return None
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        return None
    number = Fraction(value)
    return number if abs(number) < 2**1024 else None


def between(least: str, most: str | None = None, *, none: bool = False, waits: bool = False) -> Callable[[Any], bool]:
    """From `least` to `most` seconds, both allowed; or None where that says something. `waits`: and what was not meant as milliseconds."""

    def allowed(value: Any) -> bool:
        if value is None:
            return none
        number = exact(value)
        if waits and type(value) is int and value in range(2000, 10**7, 1000) and value not in range(0, 10**7, 3600):
            return False
        return number is not None and number >= Fraction(least) and (most is None or number <= Fraction(most))

    return allowed


def bytes_of(value: Any) -> int | None:
    """How long a text is on the wire; None if it is no text, or cannot be said there."""
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        return None
    return len(value.encode())


def is_name(value: Any) -> bool:
    """1 to 512 bytes; no closing brace without a hash tag before it; not the beginning of a key that we keep beside a lock's own."""
    size = bytes_of(value)
    if size is None or not 1 <= size <= 512:
        return False
    opened = value.find("{")
    closed = value.find("}", opened + 1) if opened >= 0 else -1
    tagged = closed > opened + 1
    if "}" in value and not tagged:
        return False
    return not (opened == 0 and tagged and any(value[closed + 1 :].startswith(it) for it in OURS))


def is_prefix(value: Any) -> bool:
    size = bytes_of(value)
    return size is not None and size <= 256 and "{" not in value and "}" not in value


def is_owner(value: Any) -> bool:
    return value is None or (isinstance(value, str) and 1 <= len(value) <= 128 and all(33 <= ord(letter) <= 126 for letter in value))


def is_function(value: Any) -> bool:
    return value is None or callable(value)


def are_observers(value: Any) -> bool:
    several = isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray)
    return is_function(value) or (several and all(map(callable, value)))


class Tracer:
    """What `around=` takes."""

    def begin(self, kind: str, names: tuple[str, ...]) -> None:
        """Nothing hears of the end."""


def is_around(value: Any) -> bool:
    return value is None or isinstance(value, Tracer)


def are_names(value: list[Any]) -> bool:
    """At least one, and none of them twice."""
    return bool(value) and all(map(is_name, value)) and len(set(value)) == len(value)


def is_context(value: Any) -> bool:
    """One with which a client can begin. (Of those that are tried, that is one that checks host names, or says that it does not.)"""
    return value is None or (isinstance(value, ssl.SSLContext) and value.protocol is not ssl.PROTOCOL_TLS_SERVER)


def is_pattern(value: Any) -> bool:
    size = bytes_of(value)
    return size is not None and size <= 512


def is_note(value: Any) -> bool:
    size = bytes_of(value)
    return value is None or (size is not None and size <= 1024)


def is_reason(value: Any) -> bool:
    size = bytes_of(value)
    return size is not None and size <= 1024 and not value.isspace() and size > 0


def is_value(value: Any) -> bool:
    size = bytes_of(value)
    return value is None or (size is not None and 1 <= size <= 512)


# ------------------------------------------------ values, right and wrong


class Numeric:
    """Looks like a number to whoever converts it, as other libraries' numbers do."""

    def __float__(self) -> float:
        return 5.0

    def __index__(self) -> int:
        return 5

    def __ge__(self, other: object) -> bool:
        return True

    __le__ = __gt__ = __lt__ = __ge__


class Rude:
    """Cannot be printed, nor asked whether it is true, as an array cannot."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__

    def __bool__(self) -> bool:
        raise RuntimeError("no")


class Unprinted(Fraction):
    """A fraction that hypothesis need not print."""

    def __repr__(self) -> str:
        raise ValueError("too many digits")


class Wordy:
    """Says more of itself than any log should hold."""

    def __repr__(self) -> str:
        return "x" * 10**6


def url_with_a_password() -> st.SearchStrategy[str]:
    return st.just(f"redis://me:{SECRET}@h:6379")


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(["1", "5 s", "", "None", b"1", b"", bytearray(b"x"), (), [], {}, set(), [5]]),
    st.sampled_from([object, object(), 5j, Ellipsis, date.min]),
    st.builds(Rude),
    st.builds(Numeric),
    st.builds(Wordy),
    st.binary(max_size=8),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.lists(st.integers(), max_size=3),
    st.just(Decimal("NaN")),
    st.integers(4400, 5000).map(lambda digits: 10**digits * (-1) ** digits),  # (which Python does not print)
    st.integers(4400, 5000).map(lambda digits: Unprinted(10**digits, 3)),
    url_with_a_password(),
)
LIMITS = ("0", "0.001", "0.05", "2", "30", "32", "86400", "1000000000")


def around(text: str) -> list[Any]:
    """A limit, its neighbours, and the same as a whole number and as a timedelta."""
    limit = float(text)
    found: list[Any] = [limit, math.nextafter(limit, -math.inf), math.nextafter(limit, math.inf), limit * 0.9999999, limit * 1.0000001]
    found += [int(limit), int(limit) + 1, int(limit) - 1]
    return found + [timedelta(seconds=limit) + timedelta(microseconds=it) for it in (-1, 0, 1)]


SECONDS = st.one_of(
    st.floats(),
    st.floats(-1, 40),
    st.floats(0, 0.06),
    st.integers(-5, 40),
    st.integers(),
    st.integers(2**1023, 2**1030).flatmap(lambda it: st.sampled_from([it, -it])),
    st.timedeltas(),
    st.timedeltas(timedelta(seconds=-1), timedelta(seconds=40)),
    st.sampled_from([it for limit in LIMITS for it in around(limit)]),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, sys.float_info.max, timedelta.max, timedelta.min]),
    ODD,
)
OURS = (":fence", ":queue", ":waiters", ":readers", ":rfence")
PIECES = ("{", "}", "{}", "{t}", "}:", *OURS, ":", "a", "\0", "\n", "%s", "é", "\U0001f512", " ")
NAMES = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.builds("{{{}}}{}{}".format, st.text(max_size=2), st.sampled_from(["", "x", *OURS]), st.text(max_size=2)),
    st.text(max_size=12),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2).map("lock".__add__),
    st.builds(str.__mul__, st.sampled_from(["x", "é", "\U0001f512"]), st.sampled_from([127, 128, 129, 255, 256, 257, 511, 512, 513, 5000])),
    ODD,
)
SEVERAL = NAMES.map(lambda it: [it]) | st.lists(NAMES, max_size=3) | NAMES.map(lambda it: [it, "x", it])
CONTEXTS = st.one_of(
    st.sampled_from([None, ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)]),
    st.just(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)),
    ODD,
)
TEXTS = NAMES | st.text(st.characters(min_codepoint=30, max_codepoint=130), min_size=1, max_size=10)
FLAGS = st.one_of(st.booleans(), st.integers(-1, 2), st.floats(), ODD)
FUNCTIONS = st.one_of(st.sampled_from([None, print, len, str, Rude]), st.integers().map(lambda n: lambda it: n), st.integers(), ODD)
OBSERVERS = FUNCTIONS | st.lists(FUNCTIONS, max_size=3)


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


@dataclass(frozen=True)
class Argument:
    """What may be given, the rule, how a complaint names it, and what it says of what is allowed."""

    values: st.SearchStrategy[Any]
    allowed: Callable[[Any], bool]
    says: str
    beside: tuple[tuple[str, Any], ...] = ()  # other arguments, that it can be tried freely
    right: int = RIGHT  # how many right values are tried
    hosts: tuple[str, ...] = HOSTS


NUMBER = r"is a number of seconds or a timedelta|is \S+ or more seconds|is from \S+ to \S+ seconds"
CLIENT = {
    "ttl": Argument(SECONDS, between("0.05", str(LONGEST)), f"^ttl (.*max_ttl=|.*did you mean ttl=|{NUMBER})"),
    "max_ttl": Argument(SECONDS, between("0.05", "86400"), f"^max_ttl ({NUMBER})", (("ttl", 0.05),)),
    "node_timeout": Argument(SECONDS, between("0.001", none=True), f"^node_timeout ({NUMBER})"),
    "restart_guard": Argument(SECONDS, between(str(LONGEST + 2), none=True), f"^restart_guard (is at least max_ttl|{NUMBER})"),
    "outage": Argument(SECONDS, between("0", none=True), f"^outage ({NUMBER})"),
    "prefix": Argument(TEXTS, is_prefix, "^prefix .*(is text|at most 256 are allowed|has a brace in it|UTF-8 cannot say)"),
    "owner": Argument(TEXTS, is_owner, "^owner .*(is text|at most 128 are allowed|printable ASCII|UTF-8 cannot say)"),
    "observer": Argument(OBSERVERS, are_observers, "^observer is a function of one argument, the event, or a list of such functions"),
    "around": Argument(
        st.one_of(ODD, st.none(), st.builds(Tracer), st.integers()), is_around, "^around is an object with a method begin", right=2
    ),
    "guardian": Argument(FLAGS, lambda it: it is True or it is False, "^guardian is True or False", right=2),
    "ssl": Argument(
        CONTEXTS, is_context, r"^ssl is an ssl\.SSLContext|TLS cannot begin: .* context of a client", right=3, hosts=SECURE_HOSTS
    ),
    "credentials": Argument(FUNCTIONS, is_function, "^credentials is a function of one argument"),
}
NAMED = "lock.*(is text|needs a name|at most 512 are allowed|leave the '}' out|looks like|UTF-8 cannot say)"
LOCK = {
    "names": Argument(SEVERAL, are_names, f"{NAMED}|named twice in one lock"),
    "ttl": Argument(SECONDS, lambda it: it is None or between("0.05", str(LONGEST))(it), f"^ttl (.*max_ttl=|.*did you mean ttl=|{NUMBER})"),
    "wait": Argument(SECONDS, between("0", "1000000000", none=True, waits=True), f"^wait ({NUMBER})"),
    "renew": Argument(FLAGS, lambda it: it is True or it is False, "^renew is True or False", right=2),
    "max_hold": Argument(SECONDS, between("0.05", none=True, waits=True), f"^max_hold ({NUMBER})"),
    "at_least": Argument(SECONDS, between("0", "86400", none=True, waits=True), f"^at_least ({NUMBER})"),
    "reentrant": Argument(FLAGS, lambda it: it is True or it is False, "^reentrant is True or False", right=2),
    "fail_open": Argument(FLAGS, lambda it: it is True or it is False, "^fail_open is True or False", right=2),
    "on_lost": Argument(FUNCTIONS, is_function, "^on_lost is a function of one argument"),
    "note": Argument(
        TEXTS | st.sampled_from(["x" * 1024, "x" * 1025]),
        is_note,
        "^a note .*(is text|at most 1024 are allowed|UTF-8 cannot say)",
    ),
}
EXTEND = Argument(SECONDS, lambda it: it is None or between("0.05", str(LONGEST))(it), f"^ttl (.*max_ttl=|.*did you mean ttl=|{NUMBER})")
READY = Argument(SECONDS, between("0", waits=True), f"^wait ({NUMBER})")
NAME = Argument(NAMES, is_name, NAMED)
PATTERN = Argument(TEXTS, is_pattern, "^a pattern of names .*(is text|at most 512 are allowed|UTF-8 cannot say)")
REASON = Argument(
    TEXTS | st.sampled_from(["x" * 1024, "x" * 1025, " ", "\t\n"]),
    is_reason,
    "^the reason of a forced release .*(is text|at most 1024 are allowed|UTF-8 cannot say)|^a forced release needs a reason",
)
ONLY = Argument(TEXTS, is_value, "^only .*(is text|is a token|at most 512 are allowed|UTF-8 cannot say)")
ARGUMENTS = {
    **{f"Holdfast({name})": it for name, it in CLIENT.items()},
    **{f"lock({name})": it for name, it in LOCK.items()},
}


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
    error, text = caught.value, message_of(caught.value)
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


def tried(face: str, where: str, argument: Argument, value: object) -> Callable[[], Any]:
    """Describes a client, or a lock, with this argument."""
    kind, (call, _, name) = KINDS[face], where.rstrip(")").partition("(")
    if call == "Holdfast":
        return lambda: kind(*argument.hosts, **{**dict(argument.beside), name: value})
    client = kind(*HOSTS)
    return (lambda: client.lock(*value)) if name == "names" else (lambda: client.lock("x", **{name: value}))  # type: ignore[misc]  # (mypy infers other types of the two lambdas)


@pytest.mark.parametrize("where", ARGUMENTS)
def test_b02_b36_b41_what_is_wrong_is_refused(where: str) -> None:
    argument, count = ARGUMENTS[where], [0]

    @repeatable(WRONG)
    @given(argument.values.filter(lambda it: not argument.allowed(it)))
    def refused(value: object) -> None:
        for face in KINDS:
            complaint(tried(face, where, argument, value), argument.says)
            count[0] += 1

    refused()
    assert count[0] >= len(KINDS) * WRONG


@pytest.mark.parametrize("where", ARGUMENTS)
def test_what_is_right_is_taken(where: str) -> None:
    argument, count = ARGUMENTS[where], [0]

    @repeatable(argument.right)
    @given(argument.values.filter(argument.allowed))
    def taken(value: Any) -> None:
        before = outside()
        for face in KINDS:
            made = tried(face, where, argument, value)()
            assert outside() == before, "nothing is connected before the first use"
            if where == "lock(names)":
                assert (made.names, made.name) == (tuple(value), ",".join(value))
            if where in ("lock(ttl)", "Holdfast(ttl)") and (seconds := exact(value)) is not None:
                ttl = Fraction(made.ttl if where == "lock(ttl)" else made.settings.ttl)
                assert ttl <= seconds + Fraction(1, 10**9) < ttl + Fraction(11, 10000), "rounded down to milliseconds"
            count[0] += 1

    taken()
    assert count[0] >= len(KINDS) * argument.right


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


@dataclass(frozen=True)
class Url:
    """An address. `server`: what it names, whatever else it says."""

    text: str
    server: str


WRONG_TLS = [
    "?ssl_certfile=",
    "?ssl_cert_reqs=maybe",
    "?ssl_check_hostname=2",
    "?ssl_keyfile=/k",
    f"?ssl_password={SECRET}",
    "?ssl_ciphers=x",
]
PARTS: dict[str, tuple[list[str], list[str]]] = {  # of an address over TCP: right ones, wrong ones
    "scheme": (
        ["redis", "REDIS", "Redis", "valkey", "rediss", "valkeys"],
        ["http", "redis+tcp", "tcp", "", "redis ", "ftp", "redisss", "valkey\t", "sredis"],
    ),
    "host": (
        ["h", "H", "127.0.0.1", "a.example", "x_y", "a" * 63, "[::1]", "[2001:db8::2]", "[fe80::1%25eth0]"],
        ["", "[::1", "[h]", "h h", "h\n.example", "h\0", "\x7f", "h%41", "a" * 64, "a..b"],
    ),
    "port": (["", ":6379", ":1", ":65535"], [":65536", ":port", ":-1", ":63 79", f":{SECRET}", ":6379:1", ":0"]),
    "path": (["", "/", "/0", "/1", "/999999999"], ["/x", "/-1", "/1.5", "/1/2", "/1234567890", f"/{SECRET}"]),
    "rest": (
        ["", "?db=2", "?username=you", f"?password={SECRET}%2F+", f"?db=1&username=you&password={SECRET}"],
        ["?nonsense=1", "?db=x", "?db=", "?db", f"?pass={SECRET}", "#1", "?db=1&nonsense=2", f"#{SECRET}", *WRONG_TLS],
    ),
}
LOCAL_PARTS: dict[str, tuple[list[str], list[str]]] = {  # of a unix socket
    "path": (["/run/a.sock", "/b", "/run/r%20s.sock"], ["", "run/r.sock", "s", "/run/a%00.sock", "/run/a%0Aforged.sock", "/%7F", "/a b"]),
    "rest": (["", "?db=2", "?db=0", f"?password={SECRET}"], ["?nonsense=1", "?db=x", "#1", "?ssl_ca_certs=/c", "?ssl_cert_reqs=none"]),
}
SECURE_REST = ["?ssl_cert_reqs=none", "?ssl_check_hostname=no&db=3"]  # right after rediss:// and valkeys://, else wrong


@st.composite
def urls(draw: st.DrawFn, right: bool) -> Url:
    """An address in which everything is right, or one or two parts are wrong. (One server is one server, whatever database and scheme.)"""
    parts = draw(st.sampled_from([PARTS, LOCAL_PARTS]))
    wrong = set() if right else draw(st.sets(st.sampled_from(sorted(parts)), min_size=1, max_size=2))
    it = {name: draw(st.sampled_from(choices[name in wrong])) for name, choices in parts.items()}
    if parts is PARTS and ("rest" in wrong or right) and (it["scheme"] in ("rediss", "valkeys")) is right:
        it["rest"] = draw(st.sampled_from([it["rest"], *SECURE_REST]))
    password = quote(f"{SECRET}{draw(st.text(max_size=3, alphabet='/?#@:% é'))}", safe="")
    who = draw(st.sampled_from(["", f":{password}@", f"me:{password}@"]))
    if "name=" in it["rest"] or "word=" in it["rest"]:
        who = ""  # (said once: twice is wrong)
    if parts is LOCAL_PARTS:
        return Url(f"unix://{who}{it['path']}{it['rest']}", f"unix {it['path']}")
    server = f"{it['host'].lower()} {it['port'] or ':6379'}"
    return Url(f"{it['scheme']}://{who}{it['host']}{it['port']}{it['path']}{it['rest']}", server)


NO_ADDRESS = ODD.filter(lambda it: not isinstance(it, str | list | tuple | dict | set | bytes | bytearray) and it is not None)


def shaped(shape: str, given_urls: list[Any]) -> list[Any]:
    """One by one, in an iterable, or both."""
    match shape:
        case "apart":
            return given_urls
        case "list":
            return [given_urls]
        case "iterator":
            return [iter(given_urls)]
    return [given_urls[0], tuple(given_urls[1:])]


SHAPES = st.sampled_from(["apart", "list", "iterator", "mixed"])


def test_b15_b58_nodes_that_cannot_be_are_refused_and_their_passwords_not_shown() -> None:
    count = [0]

    @repeatable(2 * WRONG)
    @given(st.lists(urls(right=True), max_size=2), urls(right=False).map(lambda it: it.text) | NO_ADDRESS, st.integers(0, 2), SHAPES)
    def refused(others: list[Url], wrong: object, at: int, shape: str) -> None:
        nodes: list[Any] = [it.text for it in others]
        nodes.insert(at, wrong)
        for kind in KINDS.values():
            complaint(lambda: kind(*shaped(shape, nodes)), "address|socket|host|port|database|option|ssl_")  # noqa: B023 (called within this turn of the loop)
            count[0] += 1

    refused()
    assert count[0] >= len(KINDS) * 2 * WRONG


@FACES
def test_b15_nodes_are_taken_if_all_of_them_are_different(face: str) -> None:
    """Any number of them, even ones too; the same one twice is refused, however it is written."""
    seen = {"taken": 0, "twice": 0, "even": 0}

    @repeatable(2 * WRONG)
    @given(st.lists(urls(right=True), min_size=1, max_size=4), SHAPES)
    def looked_at(given_urls: list[Url], shape: str) -> None:
        nodes = shaped(shape, [it.text for it in given_urls])
        if len({it.server for it in given_urls}) < len(given_urls):
            complaint(lambda: KINDS[face](*nodes), "named twice: each node is a server of its own")
            seen["twice"] += 1
        else:
            before = outside()
            client = KINDS[face](*nodes)
            assert outside() == before
            assert len(client.urls) == len(given_urls)
            assert SECRET not in f"{client!r} {client.urls} {client.settings} {client.nodes() if face == 'threads' else ''}"
            seen["taken"] += 1
            seen["even"] += len(given_urls) % 2 == 0

    looked_at()
    assert min(seen.values()) > 5, seen


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


class Real:
    """A client of real nodes in one of the faces, and a lease that is only extended when a test asks for it."""

    def __init__(self, face: str, nodes: Nodes) -> None:
        self.runner = asyncio.Runner() if face == "asyncio" else None
        self.client: Any = KINDS[face](*nodes.urls, max_ttl=LONGEST)
        self.cluster = Cluster(nodes)
        self.call(self.client.ready)
        self.lease: Any = self.call(self.client.lock(f"arguments.{face}", ttl=LONGEST, renew=False).acquire)

    def look(self) -> float:
        """What remains of the lease."""

        async def look() -> Any:
            return self.lease.remaining

        return self.lease.remaining if self.runner is None else self.runner.run(look())  # type: ignore[no-any-return]  # (what the lease says)

    def asked(self) -> list[list[int]]:
        """How often every node was asked anything of a lock."""
        return [self.cluster.calls(it) for it in ("evalsha", "eval", "get")]

    def call(self, method: Callable[..., Any], *arguments: object) -> Any:
        """Call what waits."""
        if self.runner is None:
            return method(*arguments)

        async def call() -> Any:
            return await method(*arguments)

        return self.runner.run(call())

    def close(self) -> None:
        self.call(self.lease.release)
        self.call(self.client.close)
        if self.runner is not None:
            self.runner.close()


@pytest.fixture
def real(face: str, nodes: Nodes) -> Iterator[Real]:
    real = Real(face, nodes)
    yield real
    real.close()


ASKED: dict[str, tuple[Argument, Callable[[Real], Callable[[Any], Any]]]] = {
    "extend(ttl)": (EXTEND, lambda real: real.lease.extend),
    "ready(wait)": (READY, lambda real: real.client.ready),
    "inspect(name)": (NAME, lambda real: real.client.inspect),
    "locked_by(name)": (NAME, lambda real: real.client.locked_by),
    "is_locked(name)": (NAME, lambda real: real.client.is_locked),
    "names(pattern)": (PATTERN, lambda real: real.client.names),
    "force_release(name)": (NAME, lambda real: lambda it: real.client.force_release(it, "why")),
    "force_release(reason)": (REASON, lambda real: lambda it: real.client.force_release("free", it)),
    "force_release(only)": (ONLY, lambda real: lambda it: real.client.force_release("free", "why", only=it)),
}


@FACES
@pytest.mark.parametrize("where", ASKED)
def test_b02_b36_what_cannot_be_asked_for_is_refused_and_nobody_is_asked(face: str, where: str, real: Real) -> None:
    argument, method = ASKED[where]
    asks = method(real)
    before, left, count = real.asked(), real.look(), [0]

    @repeatable(WRONG)
    @given(argument.values.filter(lambda it: not argument.allowed(it)))
    def refused(value: object) -> None:
        complaint(lambda: real.call(asks, value), argument.says)
        count[0] += 1

    refused()
    assert count[0] >= WRONG
    assert real.look() < left, "it was not extended"
    assert real.asked() == before, "nothing was said to any node"


@FACES
@pytest.mark.parametrize("where", ASKED)
def test_what_can_be_asked_for_is_answered(face: str, where: str, real: Real) -> None:
    argument, method = ASKED[where]
    asks = method(real)

    @repeatable(RIGHT)
    @given(argument.values.filter(argument.allowed))
    def answered(value: Any) -> None:
        answer = real.call(asks, value)
        match where:
            case "extend(ttl)":
                assert float(exact(value) or LONGEST) * 0.98 - 2 < answer <= LONGEST
            case "ready(wait)":
                assert {it.state for it in answer} == {"up"}
            case "inspect(name)":
                assert (answer.name, answer.state) == (value, "free")
            case "names(pattern)":
                assert set(answer) <= {real.lease.name}
            case _:  # nobody has it
                assert not answer

    answered()


def test_there_are_many_of_them() -> None:
    """Each test above counts its own and fails if it had fewer; this is their sum."""
    assert len(KINDS) * (WRONG * len(ARGUMENTS) + 2 * WRONG + WRONG * len(ASKED)) >= (750 if FROZEN else 2000)
