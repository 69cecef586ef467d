"""What a decorator says before anything is sent: kinds of functions, templates of names, options, the current lease."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import dataclasses
import enum
import functools
import inspect
import itertools
import os
import subprocess
import sys
import types
import unittest.mock
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from proof.misuse import misuse

import holdfast
import holdfast.aio
from holdfast.errors import ConfigError, Misuse
from holdfast.face.decorators import Current, Kind, current, finished, kind_of, kinds, named, unlocked
from holdfast.primitives.once import plan as once
from holdfast.protocol.timing import Timing

URLS = ("redis://a", "redis://b", "redis://c")
THREADS, ASYNCIO = holdfast.Holdfast(*URLS), holdfast.aio.Holdfast(*URLS)
FACES = pytest.mark.parametrize("locks", [THREADS, ASYNCIO], ids=["threads", "asyncio"])


def plain(day: int, *, depth: int = 0) -> int:
    """A plain function."""
    return day + depth


def steps(day: int) -> Any:
    """A generator."""
    yield day


async def coroutine(day: int, *, depth: int = 0) -> int:
    """A coroutine."""
    return day + depth


async def async_steps(day: int) -> Any:
    """An async generator."""
    yield day


class Called:
    """An object with `__call__`."""

    def __call__(self, day: int) -> int:
        return day


class Awaited:
    """The same, with a coroutine function."""

    async def __call__(self, day: int) -> int:
        return day


KINDS: dict[Kind, list[Any]] = {
    Kind.FUNCTION: [plain, functools.partial(plain, depth=1), Called(), len, Called().__call__, lambda: 5, functools.lru_cache(plain)],
    Kind.GENERATOR: [steps, functools.partial(steps, 5)],
    Kind.COROUTINE: [coroutine, functools.partial(coroutine, depth=1), Awaited(), Awaited().__call__],
    Kind.ASYNC_GENERATOR: [async_steps, functools.partial(async_steps, 5)],
}
OURS = {Kind.FUNCTION: THREADS, Kind.GENERATOR: THREADS, Kind.COROUTINE: ASYNCIO, Kind.ASYNC_GENERATOR: ASYNCIO}
EVERY = [(kind, function) for kind, functions in KINDS.items() for function in functions]
IS = {
    Kind.GENERATOR: inspect.isgeneratorfunction,
    Kind.COROUTINE: inspect.iscoroutinefunction,
    Kind.ASYNC_GENERATOR: inspect.isasyncgenfunction,
}

# ------------------------------------------------ functions


@pytest.mark.parametrize("kind, function", EVERY)
def test_a_function_is_decorated_by_its_own_face_and_refused_by_the_other(kind: Kind, function: Any) -> None:
    assert kind_of(function) is kind
    ours, other = OURS[kind], ASYNCIO if OURS[kind] is THREADS else THREADS
    for locks in (ours, other):
        for decorator in (locks.lock("x"), locks.locked("x"), locks.locked("x", on_busy="skip"), locks.locked(lambda *_: "x")):
            if locks is other:
                instead = "from holdfast import Holdfast" if other is ASYNCIO else "from holdfast.aio import Holdfast"
                with pytest.raises(ConfigError, match=kind.value) as caught:
                    decorator(function)
                assert instead in str(caught.value)
            else:
                decorated = decorator(function)
                assert [it(decorated) for it in IS.values()] == [it is kind for it in IS]


# What else calls a function: none of these can hold anything for a generator.
CALLERS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "rate": lambda locks: locks.rate("x", 1, 1),
    "limited": lambda locks: locks.limited("x", 1, 1),
    "once": lambda locks: locks.once("x", keep=60),
    "filled": lambda locks: locks.filled("x", 60),
    "fill": lambda locks: functools.partial(locks.fill, "x", 60),
}


@FACES
@pytest.mark.parametrize("caller", CALLERS)
def test_what_calls_a_function_takes_those_of_its_own_face(locks: Any, caller: str) -> None:
    takes = {Kind.FUNCTION if locks is THREADS else Kind.COROUTINE} | ({Kind.FUNCTION} if caller == "fill" else set())
    for kind, function in [*EVERY, (None, 5), (None, object())]:
        if kind in takes:
            CALLERS[caller](locks)(function)
        else:
            with pytest.raises(ConfigError):
                CALLERS[caller](locks)(function)


@pytest.mark.parametrize("function", [plain, steps, coroutine, async_steps])
def test_a_decorated_function_looks_like_itself(function: Any) -> None:
    locks = OURS[kind_of(function)]
    calls = [] if function in (steps, async_steps) else [CALLERS[it](locks) for it in CALLERS if it != "fill"]
    for decorator in (locks.lock("x"), locks.locked("x:{day}"), *calls):
        decorated = decorator(function)
        assert decorated is not function
        assert decorated.__wrapped__ is function
        assert (decorated.__name__, decorated.__qualname__, decorated.__module__) == (function.__name__, function.__name__, __name__)
        assert decorated.__doc__ == function.__doc__
        assert inspect.signature(decorated) == inspect.signature(function)
        assert decorated.__annotations__ == function.__annotations__


Command = type("Command", (Called,), {"__module__": "click.core"})


@pytest.mark.parametrize("make", [pytest.fixture, lambda it: Command(), lambda it: functools.wraps(Command())(lambda: None)])
def test_what_a_framework_has_made_of_a_function_is_refused(make: Any) -> None:
    """The framework runs the function, and knows nothing of what is above its own decorator."""

    def function() -> None: ...

    made = make(function)
    one, other = THREADS.lock("x"), THREADS.locked("x")
    for decorator in (one, other, THREADS.limited("x", 1, 1), THREADS.once("x", keep=60), THREADS.filled("x", 1)):
        with pytest.raises(ConfigError, match=r"below the one of (_pytest|click)"):
            decorator(made)


App = type("Flask", (types.SimpleNamespace,), {"__module__": "flask.app"})


def test_what_an_application_has_registered_is_refused_unless_it_has_another_name_too() -> None:
    app = App(view_functions={"view": lambda: None})
    with pytest.raises(ConfigError, match="below the route, not above it: Flask has registered"):
        THREADS.lock("x")(app.view_functions["view"])
    view = app.view_functions["view"]
    THREADS.lock("x")(view)


def test_what_runs_without_the_decorators_above_it_is_found() -> None:
    def noting(function: Any) -> Any:
        return functools.wraps(function)(lambda: function())

    def made() -> Any:
        return lambda: None

    locked, limited = THREADS.locked("x"), THREADS.limited("x", 1, 1)
    below, above, twice, other = made(), made(), made(), made()
    between, before = locked(made()), noting(above)
    locked(below)
    limited(between)
    locked(noting(above))
    registered = {
        "below": below,
        "between": between,
        "with what is not ours": before,
        "under all": limited(locked(noting(made()))),
        "without": twice,
        "with": noting(locked(noting(twice))),
        "nothing": other,
        "an object": functools.lru_cache(other),
        "no function": None,
    }
    found = unlocked(registered.items())
    assert list(found) == ["below", "between", "with what is not ours"]
    assert all("<lambda>) was registered without the decorator of holdfast" in it for it in found.values())
    assert [kinds(registered[it]) for it in ("below", "under all", "with")] == [set(), {"Locked", "rate"}, {"Locked"}]
    del registered["with"]
    assert "without" in unlocked(registered.items())
    other.__wrapped__ = other
    locked(other)
    assert list(unlocked([("a ring", other)])) == ["a ring"], "and it ends"


@FACES
@pytest.mark.parametrize(
    "what, complaint",
    [
        (staticmethod(plain), "put @staticmethod above the lock"),
        (classmethod(plain), "put @classmethod above the lock"),
        (property(plain), "put @property above the lock"),
        (functools.cached_property(plain), "put @cached_property above the lock"),
        (functools.partialmethod(plain, 5), "put @partialmethod above the lock"),
        (Called, "Called is a class: decorate the methods"),
        (5, "a lock decorates functions, not 5"),
        (None, "a lock decorates functions. If this is the call of a decorated function"),
    ],
)
def test_what_is_no_function_is_refused(locks: Any, what: Any, complaint: str) -> None:
    for decorator in (locks.lock("x"), locks.locked("x:{day}")):
        with pytest.raises(ConfigError, match=complaint):
            decorator(what)


@FACES
def test_decorating_sends_nothing_and_needs_no_loop(locks: Any) -> None:
    function = plain if locks is THREADS else coroutine
    locks.lock("x")(function)
    locks.locked("x:{day}")(function)
    if locks is THREADS:
        assert locks._driver._io_thread.unused
    else:
        assert locks._loops == ({},)


def test_what_only_begins_its_work_is_misuse() -> None:
    def begins() -> Any:
        return coroutine(5)

    returned = begins()
    for later, what in ((returned, "a coroutine"), (steps(5), "a generator"), (async_steps(5), "an async generator")):
        with pytest.raises(Misuse, match=f"begins returned {what}"):
            finished(begins, later)
    assert inspect.getcoroutinestate(returned) == inspect.CORO_CLOSED  # or Python would complain that nobody awaits it
    for result in (None, 5, [1], iter([1]), asyncio):
        assert finished(begins, result) is result


# ------------------------------------------------ names


def name_of(template: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The name of the lock that this call takes."""
    name: str = named(template, THREADS.lock)(function)(*args, **kwargs).name
    return name


class User:
    """Somebody."""

    id = 7
    roles = ("admin", "user")

    def report(self, day: date, *rest: str, depth: int = 3, **more: Any) -> None:
        """A method with everything."""


def positional(a: int, b: int = 2, /, c: int = 3, *, d: int = 4) -> None:
    """Parameters of every kind but the last two."""


DAY = date(2026, 2, 1)


@pytest.mark.parametrize(
    "template, name",
    [
        ("report:{day}", "report:2026-02-01"),
        ("report:{day:%Y}:{self.id}:{self.roles[1]}", "report:2026:7:user"),
        ("{0.id}:{1}", "7:2026-02-01"),
        ("{self}:{day}", "<User>:2026-02-01"),
        ("{rest[0]}:{2}:{3}", "x:x:y"),
        ("{more[key]}:{more}", "v:{'key': 'v'}"),
        ("{depth:03d}:{depth!r:>{depth}}", "003:  3"),
        ("{day!s}", "2026-02-01"),
        ("{{tag}}:{depth}", "{tag}:3"),
        ("{day.year.real}", "2026"),
    ],
)
def test_a_template_is_filled_as_str_format_does(monkeypatch: pytest.MonkeyPatch, template: str, name: str) -> None:
    monkeypatch.setattr(User, "__str__", lambda self: "<User>")
    user = User()
    assert name_of(template, User.report, user, DAY, "x", "y", key="v") == name
    arguments = {"self": user, "day": DAY, "rest": ("x", "y"), "depth": 3, "more": {"key": "v"}}
    assert template.format(user, DAY, "x", "y", **arguments) == name


def test_defaults_count_and_places_do_not_depend_on_how_a_call_is_written() -> None:
    template = "{a}{b}{c}{d}-{0}{1}{2}"
    assert name_of(template, positional, 1) == name_of(template, positional, 1, 2, c=3, d=4) == "1234-123"
    assert name_of(template, positional, 1, 5, c=6) == "1564-156"
    assert name_of("{day}", plain, day=None) == "None"  # as `str.format` has it


class Alike(enum.Enum):
    """What every process writes alike."""

    RED = 1


@dataclasses.dataclass
class Pair:
    """A dataclass, whose text is made of its fields."""

    first: Any
    second: Any = dataclasses.field(default=None, repr=False)


class Slotted:
    """As attrs makes a class."""

    __slots__ = __match_args__ = ("tags",)

    def __init__(self, tags: Any) -> None:
        self.tags = tags

    def __repr__(self) -> str:
        return f"Slotted(tags={self.tags})"


class Telling(User):
    """Has a text of its own, and sets and functions that do not stand in it."""

    def __init__(self) -> None:
        self.tags, self.call, self.own = {"a", "b"}, plain, object()

    def __str__(self) -> str:
        return "ben {x}"


class Lazy:
    """Answers to every name."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __repr__(self) -> str:
        return "lazy {"


class Formats:
    """Has a text of its own only for a format specification."""

    def __format__(self, spec: str) -> str:
        return "7" if spec == "id" else object.__format__(self, spec)


LOOKS_LIKE_ONE = "<x at 0x7f12ab>"


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 7, 1.5, "ben", b"x", Decimal("1.0"), UUID(int=7), DAY, datetime(2026, 2, 1, tzinfo=UTC), timedelta(7), Path("/x")),
        *(Alike.RED, [1, "a"], (1, [DAY]), {"a": (1, 2)}, Pair(1), Pair({"b": Pair("x")}), Timing(1.0), Telling(), Lazy(), User),
        *(LOOKS_LIKE_ONE, [LOOKS_LIKE_ONE], {"a": [LOOKS_LIKE_ONE]}, Pair(LOOKS_LIKE_ONE), Pair(1, {1}), Pair(1, object()), range(3)),
        *(collections.OrderedDict(a=1), collections.deque([1]), Pair(Telling), types.SimpleNamespace(a=1), Slotted([1])),
    ],
    ids=str,
)
def test_a_value_that_every_process_writes_alike_is_filled_in(value: Any) -> None:
    assert name_of("a:{it}", lambda it: it, value) == f"a:{value}"
    assert name_of("a:{it!r}", lambda it: it, [value] if isinstance(value, Telling) is False else 7)
    assert name_of("a:{it:id}", lambda it: it, Formats()) == "a:7"


class Bare:
    """An object whose text is its address."""

    def method(self, it: Any = None) -> None:
        """A method."""


async def _nothing() -> None:
    """A coroutine function."""


BARE, CYCLE = Bare(), Pair(1)
CYCLE.first = [CYCLE, BARE]
WAITED = _nothing()
VARYING = [
    *(BARE, [BARE], {"a": (BARE,)}, {BARE: 1}, Pair(BARE), Pair([Pair(BARE)]), CYCLE, types.SimpleNamespace(a=BARE), BARE.method),
    *({"b", "a"}, frozenset("ab"), {1}, set(), ({"a"},), {"a": {"b"}}, Pair({"a"}), Pair(Pair(frozenset("a"))), collections.deque([{"a"}])),
    *({"a": 1}.keys(), {"a": 1}.values(), {"a": 1}.items(), Pair({"a": 1}.keys()), types.SimpleNamespace(a={"b"}), Slotted({"a"})),
    *(plain, lambda: 1, len, iter([1]), itertools.count(3), [{Alike.RED}], [frozenset()], (it for it in ()), map(str, ()), WAITED, types),
    *(functools.partial(plain, BARE), unittest.mock.Mock(), [LOOKS_LIKE_ONE, BARE], Pair([LOOKS_LIKE_ONE, {"a"}]), ValueError(BARE)),
]


@pytest.mark.parametrize("value", VARYING, ids=[f"{place}" for place in range(len(VARYING))])
@pytest.mark.parametrize("template", ["a:{it}", "a:{it!r:.3}", "a:{rest[0]}"])
def test_b8_a_value_that_another_process_would_write_differently_is_refused(template: str, value: Any) -> None:
    def takes(it: Any, *rest: Any) -> None:
        """A function of any argument."""

    with pytest.raises(ConfigError, match="which another process would write differently") as caught:
        name_of(template, takes, value, value)
    told = str(caught.value)
    field, first = ("{rest[0]}", "{rest.id}") if "rest" in template else ("{it}", "{it.id}")
    assert all(it in told for it in (template, "takes", f"{field} is ", f"such as {first}"))


def test_b8_what_a_function_names_has_no_address_in_it() -> None:
    with pytest.raises(ConfigError, match=r"'a:<.*Bare object at 0x"):
        name_of(lambda it: f"a:{it}", plain, BARE)
    assert name_of(lambda it: f"a:{it}", plain, "look at 0x12") == "a:look at 0x12"


@pytest.mark.parametrize("template", ["a:{0}", "a:{}", "a:{0!r}"])
def test_b8_the_first_place_of_a_method_is_not_its_object(template: str) -> None:
    with pytest.raises(ConfigError, match=r"\{0\} is self of Bare.method"):
        named(template, THREADS.lock)(Bare.method)
    assert name_of("a:{1}", Bare.method, BARE, 5) == "a:5"
    with pytest.raises(ConfigError, match=r"{self} is <.*Bare object at"):
        name_of("a:{self}", Bare.method, BARE)


def test_a_function_of_the_arguments_names_the_lock_too() -> None:
    assert name_of(lambda day, *, depth=9: f"{day}/{depth}", plain, 5) == "5/9"  # its own defaults: it is called as the function is
    with pytest.raises(TypeError, match="unexpected"):
        name_of(lambda day: "x", plain, 5, depth=1)
    with pytest.raises(ConfigError, match="name is text, not 5"):
        name_of(lambda day: day, plain, 5)
    for wrong in (coroutine, steps, async_steps, Awaited()):
        with pytest.raises(ConfigError, match="comes from a plain function"):
            THREADS.locked(wrong)


@FACES
@pytest.mark.parametrize(
    "template, complaint",
    [
        ("report:{", "[Ss]ingle|expected"),
        ("report:}", "[Ss]ingle"),
        ("{day!z}", "conversion"),
        ("{day.}", "attribute"),
        ("{day[}", "Missing|expected"),
        ("{day!s:d}", "format code"),
        ("{}:{0}", "automatic|manual"),
        ("{day:{depth:{x}}}", "recursion"),
        (5, "a template like"),
        (None, "a template like"),
        (b"x", "a template like"),
        ("", "a lock needs a name"),
        ("x" * 513, "513 bytes"),
        ("a}}b", "no hash tag"),
    ],
)
def test_a_broken_template_is_refused_at_once(locks: Any, template: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        locks.locked(template)


@pytest.mark.parametrize(
    "template, function, complaint",
    [
        ("{dya}", plain, "needs 'dya', which plain does not have: it has day, depth"),
        ("{dya.year}", plain, "'dya'"),
        ("{dya[0]!r:>5}", plain, "'dya'"),
        ("{day:{width}}", plain, "'width'"),
        ("{1}", plain, "more positional parameters, which plain"),
        ("{}{}", plain, "more positional"),
        ("{day}", User().report, None),
        ("{self}", User().report, "'self'"),
        ("{user}", User.report, r"'user', which User.report does not have: .*what \*\*more takes is written {more\[user\]}"),
        ("{9}", User.report, None),  # may come
        ("{day}", functools.partial(plain, day=5), None),
        ("{day}", functools.partial(plain, 5), "'day'"),
        ("{0}", lambda: 5, "it has no parameters"),
        ("{x}", Called(), "'x', which <.*Called object.*> does not have: it has day"),
        ("{x}", dict.fromkeys, "does not tell its parameters|'x'"),
        ("{x}", type("Secret", (), {"__call__": lambda self: 5, "__signature__": 5})(), "does not tell its parameters"),
    ],
)
def test_a_field_that_is_no_parameter_is_refused_when_it_decorates(template: str, function: Any, complaint: str | None) -> None:
    decorator = THREADS.locked(template)
    if complaint is None:
        decorator(function)
        return
    with pytest.raises(ConfigError, match=complaint):
        decorator(function)


@pytest.mark.parametrize(
    "template, call, complaint",
    [
        ("{day.id}", (5,), "cannot be filled from this call of plain: AttributeError"),
        ("{day[id]}", ({},), "KeyError"),
        ("{day[3]}", ("x",), "IndexError"),
        ("{day[3]}", (5,), "TypeError"),
        ("{day:%Q}", (5,), "ValueError"),
        ("{day}", ("",), "a lock needs a name"),
        ("{day}", ("x" * 513,), "513 bytes"),
        ("{day}", ("a}b",), "no hash tag"),
        ("{day}", ("\ud800",), "surrogate"),
    ],
)
@FACES
def test_a_name_that_is_none_is_refused_at_the_call(locks: Any, template: str, call: Any, complaint: str) -> None:
    if locks is THREADS:
        decorated = locks.locked(template)(plain)
    else:
        given = locks.locked(template)(functools.wraps(plain)(coroutine))
        decorated = lambda *args: asyncio.run(given(*args))  # noqa: E731 (it takes the place of a function)
    with pytest.raises(ConfigError, match=complaint):
        decorated(*call)
    test_decorating_sends_nothing_and_needs_no_loop(locks)


# ------------------------------------------------ options


@FACES
@pytest.mark.parametrize("template", ["x", "{day}", str])
def test_options_are_checked_before_anything_is_decorated(locks: Any, template: Any) -> None:
    for wrong in ({"ttl": 31}, {"wait": "1"}, {"renew": 1}, {"max_hold": 0}, {"on_lost": 5}, {"on_busy": "pass"}, {"on_busy": None}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            locks.locked(template, **wrong)
    with pytest.raises(ConfigError, match="unknown lock option 'patience'"):
        locks.locked(template, patience=5)
    with pytest.raises(TypeError):
        locks.locked(template, "skip")  # options have names


def test_options_reach_the_lock() -> None:
    lock = named("{day}", functools.partial(THREADS.lock, ttl=5, wait=0, renew=False, max_hold=7, on_lost=print))(plain)(5)
    terms = lock._terms
    assert (terms.name, terms.timing, terms.on_lost) == ("5", Timing(5, 0, False, 7), print)


# ------------------------------------------------ literal names with braces


class Literal:
    """A way to write a literal name: what it describes, and the decorator that a message shows instead."""

    def __init__(self, describe: Callable[[Any, str], Any], instead: str) -> None:
        self.describe, self.instead = describe, instead


LITERALS = {
    "lock": Literal(lambda locks, name: locks.lock(name), "@locks.locked({!r})"),
    "semaphore": Literal(lambda locks, name: locks.semaphore(name, 4), "@locks.permitted({!r}, 4)"),
    "read": Literal(lambda locks, name: locks.rwlock(name).read(), "@locks.read_locked({!r})"),
    "write": Literal(lambda locks, name: locks.rwlock(name).write(), "@locks.write_locked({!r})"),
    "rate": Literal(lambda locks, name: locks.rate("api", 10, 60, key=name), "@locks.limited('api', 10, 60, key={!r})"),
    "rates": Literal(
        lambda locks, name: locks.rate("api", [(10, 1), (100, 60)], key=name),
        "@locks.limited('api', [(10, 1), (100, 60)], key={!r})",
    ),
    "several": Literal(lambda locks, name: locks.lock(name, "b"), "No decorator fills it: use a `with` block in the function"),
    "election": Literal(lambda locks, name: locks.election(name), "No decorator fills it: use a `with` block in the function"),
}
EVERY_LITERAL = pytest.mark.parametrize("literal", LITERALS.values(), ids=LITERALS)


def of_the_face(locks: Any) -> Any:
    """A function of the face's own kind, with the parameters `day` and `depth`."""
    return plain if locks is THREADS else coroutine


@FACES
@EVERY_LITERAL
@pytest.mark.parametrize("name", ["order:{day}", "{day}:7", "{day.id}", "{day[0]}:x", "{x}:{day:%Y}", "{x:{depth}}", "{day!r}", "{0}:x"])
def test_a_literal_name_that_looks_like_a_template_is_refused_where_it_decorates(locks: Any, literal: Literal, name: str) -> None:
    with pytest.raises(ConfigError, match="is not filled in") as caught:
        literal.describe(locks, name)(of_the_face(locks))
    told = str(caught.value)
    assert told.startswith(f"{name!r} is taken literally here, so all calls of {of_the_face(locks).__name__} would share it: {{")
    assert literal.instead.format(name) in told
    if "{!r}" in literal.instead:
        assert literal.instead.format(name.replace("{", "{{").replace("}", "}}")) in told


@FACES
@EVERY_LITERAL
@pytest.mark.parametrize("name", ["order", "{account}:7", "{{day}}", "{1}:x", "{account}:day", "{x.day}", "{account"])
def test_braces_that_name_no_parameter_stay_a_tag(locks: Any, literal: Literal, name: str) -> None:
    described = literal.describe(locks, name)
    assert described(of_the_face(locks)).__wrapped__ is of_the_face(locks)
    assert name in (described.names if hasattr(described, "names") else (described.key,))


def test_what_a_message_shows_works() -> None:
    """Both forms that the message shows: the template, and the literal name in doubled braces."""
    assert name_of("order:{day}", plain, 5) == "order:5"
    assert name_of("order:{{day}}", plain, 5) == "order:{day}"


@FACES
def test_what_is_run_once_is_not_a_template_either(locks: Any) -> None:
    def run(key: str, function: Any) -> None:
        outcome = locks.once(key, keep=60).run(function, "tuesday")
        if locks is ASYNCIO:
            asyncio.run(outcome)

    with pytest.raises(ConfigError, match=r"\{day\} is not filled in") as caught:
        run("report:{day}", of_the_face(locks))
    assert "once(f'report:{day}', ...).run(...)" in str(caught.value)
    assert "@locks.once('report:{day}', ...)" in str(caught.value)


def test_the_key_of_what_is_run_is_looked_at() -> None:
    described = THREADS.once("report:{day}", keep=60)
    for function, terms in ((plain, described._terms), (lambda day, depth: day, THREADS.once("report:{1}", keep=60)._terms)):
        with pytest.raises(ConfigError, match=r"\{(day|1)\} is not filled in"):
            once.runs(function, Kind.FUNCTION, terms)
    once.runs(functools.partial(plain, "tuesday"), Kind.FUNCTION, described._terms)
    once.runs(plain, Kind.FUNCTION, dataclasses.replace(described._terms, filled=True))
    for wrong in (coroutine, steps, 5, None):
        with pytest.raises(ConfigError, match=r"what is run here is|`run` is given a function"):
            once.runs(wrong, Kind.FUNCTION, described._terms)


def method(self: Any, day: int, tags: Any = (), *rest: Any, user: Any = BARE, **more: Any) -> None:
    """What is a method elsewhere: its object is no argument, and a default is compared with nothing."""


def digest(template: str, *args: Any, **kwargs: Any) -> bytes:
    """The digest of a call of `method`."""
    return once.digest(method, template, (BARE, *args), kwargs)


def test_d21_the_digest_of_a_call_is_that_of_the_arguments_that_are_not_in_the_key() -> None:
    plain_call = digest("a:{day}", 5)
    assert len(plain_call) == 32
    for template, args, kwargs in (
        ("a:{day}", (6,), {}),
        ("a:{day}", (5, ()), {"user": BARE}),
        ("a:{1}:{day.real}", (7,), {}),
        ("a:{}:{}", (7,), {}),
        ("a:{day}:{tags[0]}", (5, ["x"]), {}),
        ("a:{day}:{rest[0]}:{more[a]}", (5, (), 1), {"a": 1}),
        ("a:{day}:{user.id}", (5,), {"user": object()}),
    ):
        assert digest(template, *args, **kwargs) == plain_call, template
    for args, kwargs in (((5, ["x"]), {}), ((5, (), 1), {}), ((5,), {"user": 7}), ((5,), {"a": 1})):
        assert digest("a:{day}", *args, **kwargs) not in (plain_call, digest("a:{day}", 5, "x"))
    assert digest("a", 5, {"a": 1, "b": {2, 1}}) == digest("a", 5, {"b": {1, 2}, "a": 1}) != digest("a", 5, {"a": 1, "b": {1}})
    assert digest("a", 5, [1, "2"]) == digest("a", 5, (1, "2")) != digest("a", 5, [1, 2])
    assert once.digest(lambda day: day, "{day}", (5,), {}) == b"", "nothing is left to be compared"
    for unfit in (BARE, [BARE], {"a": {"b": BARE}}, {BARE}, Pair({1}), lambda: 1, {(1, 2): 3}):
        with pytest.raises(ConfigError, match=r"arguments of method .*same=False"):
            digest("a", 5, unfit)


def test_d21_every_process_has_the_same_digest() -> None:
    program = (
        "from holdfast.primitives.once.plan import digest\nprint(digest(lambda it: 1, '', ({'x': {'a', 'b', 'c'}, 'y': [None, 1.5]},), {}))"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{once.digest(lambda it: 1, '', ({'y': [None, 1.5], 'x': {'c', 'b', 'a'}},), {})}\n"


# ------------------------------------------------ templates for what is no lock


def asked(decorator: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """The description that a call of a decorated function uses."""
    found = decorator._choice(function)(*args, **kwargs)
    return getattr(found, "__self__", found)


@FACES
def test_each_call_uses_what_its_template_says(locks: Any) -> None:
    function = of_the_face(locks)
    for name in ("tenant:{day}", lambda day: f"tenant:{day}"):
        lock = asked(locks.locked(name, wait=5, on_busy="skip"), function, 7)
        assert (lock.name, lock._terms.timing.wait) == ("tenant:7", 5)
        permit = asked(locks.permitted(name, 4, count=2, wait=5, on_busy="skip"), function, 7)
        assert (permit.name, permit._terms.recipes.permits, permit._terms.timing.wait) == ("tenant:7", 4, 5)
        for method, kind in (("read_locked", b"r"), ("write_locked", b"w")):
            side = asked(getattr(locks, method)(name, wait=0, on_busy="skip"), function, 7)
            twin = locks.rwlock("tenant:7").read() if kind == b"r" else locks.rwlock("tenant:7").write()
            assert (side.name, side._terms.kind, side._terms.timing.wait) == ("tenant:7", twin._terms.kind, 0)
        limit = asked(locks.limited(name, 10, 60, wait=5), function, 7)
        assert (limit.name, limit.key, limit.limit, limit.period, limit._terms.wait) == ("tenant:7", None, 10, 60, 5)
    for key in ("{day}", lambda day: day):
        limit = asked(locks.limited("api", 10, 60, key=key, algorithm="fixed window"), function, 7)
        assert (limit.name, limit.key) == ("api", "7")
    assert asked(locks.limited("api:{day}", 10, 60, key="{depth}"), function, 7, depth=2).key == "2"
    assert asked(locks.limited("api:{day}", 10, 60, key=3), function, 7).key == "3"
    assert asked(locks.limited("api", 10, 60), function, 7).key is None


@FACES
def test_what_cannot_work_is_said_where_a_template_is_written(locks: Any) -> None:
    function = of_the_face(locks)
    for wrong in (
        lambda: locks.permitted("x:{day}", 0),
        lambda: locks.permitted("x:{day}", 4, count=5),
        lambda: locks.permitted("x:{day}", 4, patience=5),
        lambda: locks.permitted("x:{day}", 4, on_busy="pass"),
        lambda: locks.permitted(5, 4),
        lambda: locks.permitted("", 4),
        lambda: locks.read_locked("x:{day}", ttl=99),
        lambda: locks.write_locked("x:{day}", on_busy="pass"),
        lambda: locks.write_locked("x:{"),
        lambda: locks.limited("x:{day}", 0, 60),
        lambda: locks.limited("x:{day}", 10, 60, burst=0),
        lambda: locks.limited("x:{day}", [(10, 60), (0, 1)]),
        lambda: locks.limited("x", 10, 60, key="{"),
        lambda: locks.limited("x", 10, 60, key=b"x"),
        lambda: locks.limited("{{x}}", 10, 60),
        lambda: locks.permitted("x:{dya}", 4)(function),
        lambda: locks.read_locked("x:{dya}")(function),
        lambda: locks.write_locked("x:{dya}")(function),
        lambda: locks.limited("x:{dya}", 10, 60)(function),
        lambda: locks.limited("x", 10, 60, key="{dya}")(function),
        lambda: locks.once("x:{dya}", keep=60)(function),
        lambda: locks.filled("x:{dya}", 60)(function),
    ):
        with pytest.raises(ConfigError):
            wrong()


def test_a_name_and_a_key_are_called_what_they_are() -> None:
    with pytest.raises(ConfigError, match="a semaphore's name is a template"):
        THREADS.permitted(5, 4)  # type: ignore[call-overload]  # (the mistake)
    with pytest.raises(ConfigError, match="a rate's name is a template"):
        THREADS.limited(5, 10, 60)  # type: ignore[arg-type]  # (the mistake)
    with pytest.raises(ConfigError, match="a rate's key is a template"):
        THREADS.limited("x", 10, 60, key=b"x")  # type: ignore[arg-type]  # (the mistake)


# ------------------------------------------------ the current lease


def test_outside_there_is_no_current_lease() -> None:
    assert holdfast.current is holdfast.aio.current is current
    with misuse("not_held", match="decorated with a lock"):
        current()
    with pytest.raises(Misuse):
        current()


class Lease:
    """What `current` looks at."""

    _released = False


def test_the_current_lease_is_that_of_the_innermost_and_belongs_to_nobody_here() -> None:
    outer, inner = Lease(), Lease()
    with Current(outer):  # type: ignore[arg-type]  # (a stand-in)
        assert current() is outer
        heir = contextvars.copy_context()
        assert heir.run(current) is outer, "what is started here inherits it"
        with Current(inner):  # type: ignore[arg-type]  # (a stand-in)
            assert current() is inner
            inner._released = True
            with misuse("not_held"):
                current()
        assert current() is outer
        del outer  # an interrupted end: the context must not keep a lease alive, which would be renewed for ever
        with misuse("not_held"):
            current()
        with misuse("not_held"):
            heir.run(current)
    with misuse("not_held"):
        current()


def test_what_was_entered_in_one_context_may_be_left_in_another() -> None:
    lease = Lease()

    async def works() -> None:
        with Current(lease):  # type: ignore[arg-type]  # (a stand-in)
            await asyncio.sleep(0)

    thrown = works()

    async def main() -> None:
        thrown.send(None)

    asyncio.run(main())
    thrown.close()  # in another context than that of the task in which it began
    with misuse("not_held"):
        current()


@pytest.mark.parametrize("arguments", [(), (7,), ("monday",)])
def test_a_decorator_without_a_name_is_told_at_the_first_call(arguments: tuple[object, ...]) -> None:
    @THREADS.locked  # type: ignore[arg-type]  # (the mistake)
    def report(*days: object) -> None: ...

    with pytest.raises(ConfigError, match=r'its decorator lacks the lock.s name: write @locks.locked\("name"\)'):
        report(*arguments)  # type: ignore[arg-type]  # (the mistake)
