"""How locks decorate functions: kinds of functions, the lock that a call takes, the current lease.

Knows functions, their parameters and templates of names. Must not know threads or tasks, nor how a
function is run under its lock: `sync` and `aio` do that.
"""

from __future__ import annotations

import enum
import re
import sys
import weakref
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, cached_property, partialmethod, wraps
from types import AsyncGeneratorType, CoroutineType, FrameType, FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .. import checks
from ..errors import ConfigError, Misuse
from .lease import Lease, LeaseState

if TYPE_CHECKING:
    # Takes as long to load as all of holdfast's core, and a program without decorators has no use
    # for it.
    import inspect
    from string import Formatter

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Function = Callable[..., Any]
# Takes a call's arguments, and returns the lock that the call is to hold.
LockOf = Callable[..., Any]
Choice = Callable[[Function], LockOf]  # the same, once it is known which function is called
# Stands for the function where a decorator is called without one.
NOTHING: Any = None
Name = str | Callable[..., str]  # a template, or a function of the call's arguments
# The first parameter of a method, which no argument of a call is for.
OBJECT = ("self", "cls")
_PART = r"[.\[]"  # where an attribute or an item of a parameter begins


# ------------------------------------------------ the current lease

# Weak: an exception that strikes while a function is left must not keep the lease here, where it
# would be renewed for ever.
_current: ContextVar[weakref.ref[Lease]] = ContextVar("holdfast.current")


def current() -> Any:
    """Return the lease of the decorated function that runs here, the innermost of several.

    A task that the function starts, or `asyncio.to_thread`, inherits its context and finds the same
    lease until the function ends. A thread that the function starts finds none. Code that uses the
    lease outside of the function must call `check()`, and with asyncio run on the same event loop.

    Returns:
        The lease.

    Raises:
        Misuse: No decorated function runs here, or its lease was released (`not_held`).
    """
    found = _current.get(None)
    lease = None if found is None else found()
    if lease is None or lease._released:
        raise Misuse(
            "there is no current lease here: it is that of a function decorated with a lock, while the function runs",
            "not_held",
        )
    return lease


class Current:
    """While this is entered, the lease is the current one."""

    def __init__(self, lease: Lease) -> None:
        self._lease = weakref.ref(lease)

    def __enter__(self) -> None:
        self._before = _current.set(self._lease)

    def __exit__(self, *raised: object) -> None:
        try:
            _current.reset(self._before)
        except ValueError:
            # Python may close an abandoned coroutine in another context, which has nothing to reset.
            pass


# ------------------------------------------------ functions


class Kind(enum.Enum):
    """The kinds of functions."""

    FUNCTION = "a plain function"
    GENERATOR = "a generator function"
    COROUTINE = "a coroutine function"
    ASYNC_GENERATOR = "an async generator function"


_ABOVE = (staticmethod, classmethod, property, cached_property, partialmethod)
_LATER = {GeneratorType: "a generator", CoroutineType: "a coroutine", AsyncGeneratorType: "an async generator"}


def kind_of(function: Any) -> Kind:
    """Return the kind of a function, of a partial, or of an object with `__call__`.

    Raises:
        ConfigError: It is no function, or a decorator above the lock will make something else of
            it.
    """
    if isinstance(function, _ABOVE):
        what = type(function).__name__
        raise ConfigError(
            f"a lock decorates functions, and {what} makes something else of one: put @{what} above the lock"
        )
    if isinstance(function, type):
        name = function.__qualname__
        raise ConfigError(f"a lock decorates functions; {name} is a class: decorate the methods that need the lock")
    if not callable(function):
        given = "" if function is NOTHING else f", not {checks.shown(function)}"
        raise ConfigError(
            f"a lock decorates functions{given}. "
            "If this is the call of a decorated function, its decorator lacks the lock's name: "
            'write @locks.locked("name")'
        )
    return kind_of_call(function)


def kind_of_call(function: Function) -> Kind:
    """Return the kind of a callable, by what its call does."""
    import inspect

    tests = {
        Kind.COROUTINE: inspect.iscoroutinefunction,
        Kind.ASYNC_GENERATOR: inspect.isasyncgenfunction,
        Kind.GENERATOR: inspect.isgeneratorfunction,
    }
    for kind, test in tests.items():
        if test(function) or test(type(function).__call__):
            return kind
    return Kind.FUNCTION


# Frameworks whose decorators make an object of a function, and run the function that is in it.
_MAKERS = {
    "_pytest", "airflow", "celery", "click", "dagster", "dramatiq", "huey", "invoke", "litestar", "prefect",
    "procrastinate", "ray", "taskiq",
}  # fmt: skip
# Frameworks whose decorators register a function, and return it as it is.
_ROUTERS = {"fastapi", "flask", "quart", "starlette"}
# The attribute of functions that decorators make, and of those below them: what each is, by its id. Functions that
# `functools.wraps` makes of them have a copy.
_NOTES = "__holdfast__"
_BELOW = "below a decorator"
_DEEPEST = 1000  # decorators above each other


def _chain(function: Any) -> Iterator[Any]:
    """Yield a function, and those below it that `functools.wraps` has noted."""
    for _ in range(_DEEPEST):
        yield function
        # Only types are looked at: any other look at a proxy of Celery's would finalize its application.
        function = vars(function).get("__wrapped__") if type(function) is FunctionType else None
        if function is None:
            break


def _refuse_made(function: Any) -> None:
    """Refuse what a framework has made of a function, which it would run without the decorator."""
    for it in _chain(function):
        for maker in {kind.__module__.partition(".")[0] for kind in type(it).__mro__} & _MAKERS:
            raise ConfigError(
                f"holdfast's decorators go below the one of {maker}, not above it: {maker} has made "
                f"{type(it).__name__} of a function, and would run that function without them"
            )


def _refuse_registered(function: Any, frame: FrameType | None) -> None:
    """Refuse a function that an application has registered, and would run without the decorator.

    Args:
        function: The function.
        frame: Where it is decorated. An application whose decorator is below is named there.
    """
    while frame is not None and frame.f_globals.get("__name__", "").startswith("holdfast."):
        frame = frame.f_back
    seen = () if frame is None else (*frame.f_globals.values(), *frame.f_locals.values())
    # A function that has a name already may be registered twice, with a lock and without it.
    if any(it is function for it in seen):
        return
    for app in [it for it in seen if type(it).__module__.partition(".")[0] in _ROUTERS]:
        registered = {id(it) for it in _registered(app)}
        if any(id(it) in registered for it in _chain(function)):
            raise ConfigError(
                f"holdfast's decorators go below the route, not above it: {type(app).__name__} has registered "
                f"{label(function)}, and would run it without them"
            )


def _registered(app: Any) -> Iterator[Any]:
    """Yield the functions that an application or a router has registered."""
    yield from getattr(app, "view_functions", {}).values()
    for it in getattr(app, "routes", ()):
        yield getattr(it, "endpoint", None)
    # A blueprint of Flask keeps them for later.
    for later in getattr(app, "deferred_functions", ()):
        yield from (it.cell_contents for it in later.__closure__ or ())


def _notes(function: Any) -> dict[int, set[str]]:
    return getattr(function, _NOTES, {}) if type(function) is FunctionType else {}


def noted(decorated: Function, function: Function, kind: str) -> Any:
    """Note that a function is what a decorator has made of the other one. Returns the first.

    Args:
        decorated: What it made.
        function: What it was put on.
        kind: What is done around each call, such as "Locked".
    """
    for it, what in [(decorated, kind), *[(it, _BELOW) for it in _chain(function) if type(it) is FunctionType]]:
        setattr(it, _NOTES, {**_notes(it), id(it): {*_notes(it).get(id(it), ()), what}})
    return decorated


def kinds(function: Any) -> set[str]:
    """Return what decorators of holdfast do around each call of this function."""
    return set().union(*_notes(function).values()) - {_BELOW}


def unlocked(registered: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Find the functions that a framework runs without the decorators of holdfast above them.

    A program may register the same function twice, with a lock and without it.

    Args:
        registered: All functions that the framework has, each with how a message calls it.

    Returns:
        Messages about those that were decorated after they were registered, by how each is called.
    """
    bare, covered = list[tuple[str, Any]](), set[int]()
    for name, function in registered:
        above = False
        for it in _chain(function):
            own = _notes(it).get(id(it), set())
            if above:
                covered.add(id(it))
            elif _BELOW in own:
                bare.append((name, it))
            above = above or bool(own - {_BELOW})
    told = "was registered without the decorator of holdfast that is above it, and would run without its lock"
    advice = "write holdfast's decorators below those of the framework"
    return {name: f"{name} ({label(it)}) {told}: {advice}" for name, it in bare if id(it) not in covered}


def label(function: Function) -> str:
    """Return the name of a function for messages."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def finished(function: Function, result: T) -> T:
    """Return the result of a function.

    Raises:
        Misuse: The result is a generator or a coroutine, whose body would run without the lock.
    """
    if type(result) in _LATER:
        if isinstance(result, CoroutineType):
            # Otherwise Python warns that nobody awaits it.
            result.close()
        raise Misuse(
            f"{label(function)} returned {_LATER[type(result)]}, whose body would run without the lock: "
            "decorate the function that makes it, below its other decorators"
        )
    return result


def outlived(lease: Lease) -> bool:
    """Whether the lease was lost while its generator was suspended, so that it must not run on."""
    return lease.state is LeaseState.LOST


class Decorator:
    """Makes every call of a function hold a lock, which depends on the call's arguments."""

    _runs: Mapping[Kind, Callable[[Function, LockOf, bool], Function]]
    _otherwise: str  # what to do with functions of other kinds

    def __init__(self, choice: Choice, skip: bool = False) -> None:
        self._choice, self._skip = choice, skip
        self._noted = type(self).__name__

    def __call__(self, function: F = NOTHING) -> F:
        """Decorate this function."""
        _refuse_made(function)
        _refuse_registered(function, sys._getframe(1))
        kind = kind_of(function)
        if kind not in self._runs:
            raise ConfigError(f"{label(function)} is {kind.value}, which this lock cannot decorate: {self._otherwise}")
        run = self._runs[kind](function, self._choice(function), self._skip)
        decorated: F = noted(wraps(function)(run), function, self._noted)
        return decorated


# ------------------------------------------------ which lock


def unfilled(function: Function, texts: Iterable[str], spelled: Callable[[str], str] | None) -> None:
    """Refuse a literal name that was meant as a template for the decorated function.

    Its braces name a parameter of that function.

    Braces in a literal name are a hash tag, which is useful with shards. Where they name no
    parameter, they stay one.

    Args:
        function: The decorated function.
        texts: The names, or the key, which are the same for every call.
        spelled: Writes the decorator that fills a template. None if there is no such decorator.

    Raises:
        ConfigError: A field names a parameter. The message shows the decorator to use instead.
    """
    for text in texts:
        field = fillable(text, function)
        if field is None:
            continue
        told = (
            f"{text!r} is taken literally here, so all calls of {label(function)} would share it: "
            f"{field} is not filled in"
        )
        if spelled is None:
            raise ConfigError(
                f"{told}. No decorator fills it: use a `with` block in the function, with an f-string as the name"
            )
        literal = text.replace("{", "{{").replace("}", "}}")
        raise ConfigError(
            f"{told}. Write @locks.{spelled(text)}, which fills it from each call's arguments. "
            f"If the braces belong to the name, write @locks.{spelled(literal)}"
        )


def fillable(text: str, function: Function) -> str | None:
    """Return the first field that a call of the function would fill, if the text were a template.

    Returns:
        The field in its braces. None if there is no such field, or the text is no template.
    """
    import inspect

    try:
        found = list(fields(text))
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    names = {it.name for it in parameters}
    rest = any(it.kind is it.VAR_POSITIONAL for it in parameters)
    places = sum(it.kind in (it.POSITIONAL_ONLY, it.POSITIONAL_OR_KEYWORD) for it in parameters)
    for field in found:
        if field in names or (field.isdecimal() and (rest or int(field) < places)):
            return f"{{{field}}}"
    return None


def fields(text: str) -> Iterator[str]:
    """Yield the parameters that a template's fields name, also those in format specifications."""
    for _, field, spec, _ in _formatter().parse(text):
        if field is not None:
            yield re.split(_PART, field, maxsplit=1)[0]
            yield from fields(spec or "")


def named(name: Name, lock: Callable[[str], Any], what: str = "a lock's name") -> Choice:
    """Return a choice of the lock that a template, or a function, names for each call.

    Args:
        name: The template, or the function.
        lock: Makes a description for a name.
        what: How messages call the name.

    Raises:
        ConfigError: It can name nothing, whatever the arguments are.
    """
    if callable(name):
        if kind_of_call(name) is not Kind.FUNCTION:
            raise ConfigError(
                f"{label(name)} is {kind_of_call(name).value}: "
                f"{what} comes from a plain function of the call's arguments"
            )
        return lambda function: lambda *args, **kwargs: lock(_asked(written(name(*args, **kwargs), name), function))
    if not isinstance(name, str):
        raise ConfigError(f"{what} is a template like 'report:{{day}}', or a function that returns it; not {name!r}")
    try:
        _formatter().vformat(name, _ANYTHING, _ANYTHING)
    except ValueError as error:
        raise ConfigError(f"{name!r} is no template: {error}; a brace that is meant literally is doubled") from None
    if all(field is None for _, field, _, _ in _formatter().parse(name)):
        made, text = lock(name.format()), name.format()
        return lambda function: lambda *args, **kwargs: _asked(text, function) and made
    return lambda function: _filled(name, function, lock)


# Which decorated function asked for a name last: for metrics, which hear of it a moment later.
_functions = OrderedDict[str, str]()
_REMEMBERED = 10_000  # names


def _asked(name: str, function: Function) -> str:
    """Note that a function asks for this name. Returns the name."""
    _functions[name] = label(function)
    if len(_functions) > _REMEMBERED:
        _functions.popitem(last=False)
    return name


def function_of(name: str) -> str:
    """Return the name of the decorated function that asked for a lock of this name last."""
    return _functions.get(name, "")


def keyed(name: Name, key: Name, rate: Callable[[str, str], Any]) -> Choice:
    """Return a choice of the rate whose name and key two templates, or functions, give."""
    names = named(name, str, "a rate's name")
    keys = named(key, str, "a rate's key")

    def choice(function: Function) -> LockOf:
        name_of, key_of = names(function), keys(function)
        return lambda *args, **kwargs: rate(name_of(*args, **kwargs), key_of(*args, **kwargs))

    return choice


def _filled(template: str, function: Function, lock: Callable[[str], Any]) -> LockOf:
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{label(function)} does not tell its parameters, which {template!r} needs: {error}"
        ) from None
    _check_fields(template, function, signature)

    def lock_of(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        name = fill(template, bound.args, bound.arguments, f"this call of {label(function)}")
        return lock(_asked(name, function))

    return lock_of


def fill(template: str, args: Sequence[Any], kwargs: Mapping[str, Any], source: str) -> str:
    """Fill a template, by the rules of `str.format`.

    Args:
        template: The template.
        args: The values of its numbered fields.
        kwargs: Those of its named fields.
        source: Where the values come from, for errors.

    Raises:
        ConfigError: A field has no value, or one that another process would write differently.
    """
    try:
        return _formatter().vformat(template, args, kwargs)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(f"{template!r} cannot be filled from {source}: {error!r}") from error


def written(name: object, function: Function) -> Any:
    """Return a name that a function has returned. Raise ConfigError if it has an address in it."""
    if isinstance(name, str) and re.search(f"{_ADDRESS}>", name):
        told = f"{label(function)} returned {checks.shown(name)}, and every process has another address there"
        raise ConfigError(f"{told}. Return what identifies the object, such as its id")
    return name


# ------------------------------------------------ values that every process writes alike

_ADDRESS = " at 0x[0-9a-fA-F]+"
_QUOTED = r"""'(\\.|[^'\\])*'|"(\\.|[^"\\])*\""""
# A set in the text of another value, where texts and objects are replaced by a letter: a dict has colons.
_UNORDERED = r"\{[^{}:]+\}|\b(frozen)?set\(|\bdict_(keys|values|items)\("
# Types whose text may have no address, and says nothing of use in a name.
_NAMELESS = (Iterator, AsyncIterator, Awaitable, type(len), type(re))


class _Varies(ValueError):
    """A field has a value that another process would write differently."""

    __repr__ = ValueError.__str__


def varies(value: object, text: str) -> bool:
    """Whether another process would write an equal value differently.

    A text is taken as it is, whatever stands in it.

    Args:
        value: The value.
        text: How this process writes it.
    """
    # Python has written what a collection contains, or an object's fields. Others write what they like.
    composed = isinstance(value, Collection) or "=" in text
    bare = re.sub(_QUOTED, "s", text) if composed else text
    found = re.search(_ADDRESS, bare) or (composed and re.search(_UNORDERED, re.sub("<[^<>]*>", "s", bare)))
    # Mocks show their id as a number.
    nameless = isinstance(value, _NAMELESS) or str(id(value)) in text
    return not isinstance(value, str | bytes | bytearray) and bool(found or nameless)


def _check_fields(template: str, function: Function, signature: inspect.Signature) -> None:
    import inspect

    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    first = next(iter(kinds), "")
    if first in OBJECT and any(field in ("0", "") for _, field, _, _ in _formatter().parse(template)):
        raise ConfigError(f"{template!r}: {{0}} is {first} of {label(function)}. Write the parameter's name instead")
    rest = {kind: name for name, kind in kinds.items()}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(kind in positional for kind in kinds.values())
    places = _ANYTHING if inspect.Parameter.VAR_POSITIONAL in rest else (_ANYTHING,) * count
    try:
        _formatter().vformat(template, places, dict.fromkeys(kinds, _ANYTHING))
    except LookupError as error:
        missing = repr(error.args[0]) if isinstance(error, KeyError) else "more positional parameters"
        has = f"it has {', '.join(kinds)}" if kinds else "it has no parameters"
        hint = ""
        if isinstance(error, KeyError) and (others := rest.get(inspect.Parameter.VAR_KEYWORD)):
            hint = f"; what **{others} takes is written {{{others}[{error.args[0]}]}}"
        raise ConfigError(f"{template!r} needs {missing}, which {label(function)} does not have: {has}{hint}") from None


class _Anything:
    """Stands for every argument while a template is tried out."""

    def __getattr__(self, name: str) -> Self:
        return self

    def __getitem__(self, key: object) -> Self:
        return self

    def __repr__(self) -> str:
        return "1"

    def __format__(self, spec: str) -> str:
        # A digit, so that it can also be a width or a precision.
        return "1"


_ANYTHING: Any = _Anything()


@cache
def _formatter() -> Formatter:
    """As `str.format`, which however accepts only real arguments, and refuses no value."""
    from string import Formatter

    class Stable(Formatter):
        """Hands on each field's name and value beside what it converts and formats."""

        def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
            value, first = super().get_field(field_name, args, kwargs)
            return (field_name, value, value), first

        def convert_field(self, value: Any, conversion: Any) -> Any:
            return (*value[:2], super().convert_field(value[2], conversion))

        def format_field(self, value: Any, format_spec: str) -> str:
            field, given, converted = value
            text = str(format(converted, format_spec))
            if varies(given, text if converted is given else converted):
                told = f"{{{field}}} is {checks.shown(given)}, which another process would write differently"
                raise _Varies(f"{told}. Write what identifies it, such as {{{re.split(_PART, field)[0]}.id}}")
            return text

    return Stable()
