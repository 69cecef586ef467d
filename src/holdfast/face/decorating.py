"""How locks decorate functions: which kinds there are, which lock a call takes, and which lease is the current one.

Knows functions, their parameters and templates of names. Must not know threads or tasks, nor how a function of a kind is run
under its lock: that is the faces' part.
"""

from __future__ import annotations

import enum
import inspect
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cached_property, partialmethod, wraps
from string import Formatter
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Literal, TypedDict, TypeVar

from .. import checks
from ..checks import Seconds
from ..errors import ConfigError, Misuse, NotHeld
from .lease import Lease, LeaseState

T = TypeVar("T")

Function = Callable[..., Any]
LockOf = Callable[..., Any]  # takes a call's arguments, gives the lock that the call is to hold
Choice = Callable[[Function], LockOf]  # the same, once it is known which function is called
NOTHING: Any = None  # stands for the function where a decorator is called without one
Name = str | Callable[..., str]  # a template, or a function of the call's arguments


class Options(TypedDict, total=False):
    """The options that `lock` and `locked` have in common, as type checkers see them: `def mine(**options: Unpack[Options])`."""

    ttl: Seconds | None
    wait: Seconds | None
    renew: bool
    max_hold: Seconds | None
    reentrant: bool
    fail_open: bool
    on_lost: Callable[[Any], object] | None


class PermitOptions(TypedDict, total=False):
    """The options that `semaphore` and `permitted` have in common, as type checkers see them."""

    count: int
    ttl: Seconds | None
    wait: Seconds | None
    renew: bool
    max_hold: Seconds | None
    fail_open: bool
    on_lost: Callable[[Any], object] | None


class RateOptions(TypedDict, total=False):
    """The options that `rate` and `limited` have in common, except for `key`, as type checkers see them."""

    algorithm: Literal["gcra", "fixed window"]
    burst: int | None
    wait: Seconds | None
    fail_open: bool


# ------------------------------------------------ the current lease

# Weak: an exception that strikes while a function is left must not make this the lease's owner, who has it renewed for ever.
_current: ContextVar[weakref.ref[Lease]] = ContextVar("holdfast.current")


def current() -> Any:
    """The lease of the decorated function that runs here: of the innermost, if there are several.

    Raises NotHeld where no decorated function runs, and when its lease was released. What inherits the context of a decorated
    function (a task that it starts, `asyncio.to_thread`) finds that function's lease until the function is over, and NotHeld from
    then on; a thread that it starts by itself inherits nothing. The lease is still the function's: who else uses it has to look
    at `check()`, and in asyncio only from the same event loop.
    """
    found = _current.get(None)
    lease = None if found is None else found()
    if lease is None or lease._released:
        raise NotHeld("there is no current lease here: it is that of a function decorated with a lock, while the function runs")
    return lease


class Current:
    """While this is entered, the lease is the current one."""

    __slots__ = ("_before", "_lease")

    def __init__(self, lease: Lease) -> None:
        self._lease = weakref.ref(lease)

    def __enter__(self) -> None:
        self._before = _current.set(self._lease)

    def __exit__(self, *raised: object) -> None:
        try:
            _current.reset(self._before)
        except ValueError:  # a coroutine that was thrown away is closed in any context: nothing was changed in this one
            pass


# ------------------------------------------------ functions


class Kind(enum.Enum):
    """The kinds of functions."""

    FUNCTION = "a plain function"
    GENERATOR = "a generator function"
    COROUTINE = "a coroutine function"
    ASYNC_GENERATOR = "an async generator function"


_TESTS = {
    Kind.COROUTINE: inspect.iscoroutinefunction,
    Kind.ASYNC_GENERATOR: inspect.isasyncgenfunction,
    Kind.GENERATOR: inspect.isgeneratorfunction,
}
_ABOVE = (staticmethod, classmethod, property, cached_property, partialmethod)
_LATER = {GeneratorType: "a generator", CoroutineType: "a coroutine", AsyncGeneratorType: "an async generator"}


def kind_of(function: Any) -> Kind:
    """Which kind of function this is; a partial or an object with `__call__` is of the kind of what it calls.

    ConfigError for what is no function, or will only become one.
    """
    if isinstance(function, _ABOVE):
        what = type(function).__name__
        raise ConfigError(f"a lock decorates functions, and {what} makes something else of one: put @{what} above the lock")
    if isinstance(function, type):
        raise ConfigError(f"a lock decorates functions; {function.__qualname__} is a class: decorate the methods that need the lock")
    if not callable(function):
        given = "" if function is NOTHING else f", not {checks.shown(function)}"
        raise ConfigError(
            f"a lock decorates functions{given}. If this is the call of a decorated function, its decorator lacks the lock's name: "
            'write @locks.locked("name")'
        )
    return kind_of_call(function)


def kind_of_call(function: Function) -> Kind:
    """Of which kind it is when it is called."""
    for kind, test in _TESTS.items():
        if test(function) or test(type(function).__call__):
            return kind
    return Kind.FUNCTION


def label(function: Function) -> str:
    """How messages call a function."""
    return str(getattr(function, "__qualname__", None) or repr(function))


def finished(function: Function, result: T) -> T:
    """What a function returned. Misuse if that is only the beginning of its work, which nobody would hold the lock for."""
    if type(result) in _LATER:
        if isinstance(result, CoroutineType):
            result.close()  # (or Python complains that nobody awaits it)
        raise Misuse(
            f"{label(function)} returned {_LATER[type(result)]}, whose body would run without the lock: decorate the function "
            "that makes it, below its other decorators"
        )
    return result


def outlived(lease: Lease) -> bool:
    """Was the lease lost while its generator was suspended? Then the generator does not run on."""
    return lease.state is LeaseState.LOST


class Decorator:
    """Has every call of a function hold a lock: which one, the call's arguments say. A face adds how, for the kinds that it knows."""

    __slots__ = ("_choice", "_skip")
    _runs: Mapping[Kind, Callable[[Function, LockOf, bool], Function]]
    _otherwise: str  # what to do with functions of other kinds

    def __init__(self, choice: Choice, skip: bool = False) -> None:
        self._choice, self._skip = choice, skip

    def _decorate(self, function: Function) -> Any:
        kind = kind_of(function)
        if kind not in self._runs:
            raise ConfigError(f"{label(function)} is {kind.value}, which this lock cannot decorate: {self._otherwise}")
        return wraps(function)(self._runs[kind](function, self._choice(function), self._skip))


# ------------------------------------------------ which lock


def always(lock: object) -> Choice:
    """The same lock, or rate, for every call."""
    return lambda function: lambda *args, **kwargs: lock


def unfilled(function: Function, texts: Iterable[str], spelled: Callable[[str], str] | None) -> None:
    """Refuse a literal name that was meant as a template: its braces name a parameter of the decorated function.

    Braces in a literal name are a hash tag, which is useful with shards. Where they name no parameter, they stay one.

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
        told = f"{text!r} is taken literally here, so all calls of {label(function)} would share it: {field} is not filled in"
        if spelled is None:
            raise ConfigError(f"{told}. No decorator fills it: use a `with` block in the function, with an f-string as the name")
        literal = text.replace("{", "{{").replace("}", "}}")
        raise ConfigError(
            f"{told}. Write @locks.{spelled(text)}, which fills it from each call's arguments. If the braces belong to the name, "
            f"write @locks.{spelled(literal)}"
        )


def fillable(text: str, function: Function) -> str | None:
    """The first field of this text that would be filled from a call of the function, if the text were a template.

    Returns:
        The field in its braces. None if there is no such field, or the text is no template.
    """
    try:
        fields = list(_fields(text))
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    names = {it.name for it in parameters}
    rest = any(it.kind is it.VAR_POSITIONAL for it in parameters)
    places = sum(it.kind in (it.POSITIONAL_ONLY, it.POSITIONAL_OR_KEYWORD) for it in parameters)
    for field in fields:
        if field in names or (field.isdecimal() and (rest or int(field) < places)):
            return f"{{{field}}}"
    return None


def _fields(text: str) -> Iterator[str]:
    """The parameters that the fields of a template name, also those in format specifications."""
    for _, field, spec, _ in _FORMATTER.parse(text):
        if field is not None:
            yield re.split(r"[.\[]", field, maxsplit=1)[0]
            yield from _fields(spec or "")


def named(name: Name, lock: Callable[[str], Any], what: str = "a lock's name") -> Choice:
    """The lock that a template, or a function of the call's arguments, names for each call.

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
                f"{label(name)} is {kind_of_call(name).value}: {what} comes from a plain function of the call's arguments"
            )
        return lambda function: lambda *args, **kwargs: lock(name(*args, **kwargs))
    if not isinstance(name, str):
        raise ConfigError(f"{what} is a template like 'report:{{day}}', or a function that returns it; not {name!r}")
    try:
        _FORMATTER.vformat(name, _ANYTHING, _ANYTHING)
    except ValueError as error:
        raise ConfigError(f"{name!r} is no template: {error}; a brace that is meant literally is doubled") from None
    if all(field is None for _, field, _, _ in _FORMATTER.parse(name)):
        return always(lock(name.format()))
    return lambda function: _filled(name, function, lock)


def keyed(name: Name, key: Name, rate: Callable[[str, str], Any]) -> Choice:
    """The rate that two templates, or functions of the call's arguments, say for each call: one for its name, one for its key."""
    names = named(name, _itself, "a rate's name")
    keys = named(key, _itself, "a rate's key")

    def choice(function: Function) -> LockOf:
        name_of, key_of = names(function), keys(function)
        return lambda *args, **kwargs: rate(name_of(*args, **kwargs), key_of(*args, **kwargs))

    return choice


def _itself(text: str) -> str:
    return text


def _filled(template: str, function: Function, lock: Callable[[str], Any]) -> LockOf:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{label(function)} does not tell its parameters, which {template!r} needs: {error}") from None
    _check_fields(template, function, signature)

    def lock_of(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            name = _FORMATTER.vformat(template, bound.args, bound.arguments)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"{template!r} cannot be filled from this call of {label(function)}: {error!r}") from error
        return lock(name)

    return lock_of


def _check_fields(template: str, function: Function, signature: inspect.Signature) -> None:
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    rest = {kind: name for name, kind in kinds.items()}
    count = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds.values())
    places = _ANYTHING if inspect.Parameter.VAR_POSITIONAL in rest else (_ANYTHING,) * count
    try:
        _FORMATTER.vformat(template, places, dict.fromkeys(kinds, _ANYTHING))
    except LookupError as error:
        missing = repr(error.args[0]) if isinstance(error, KeyError) else "so many positional parameters"
        has = f"it has {', '.join(kinds)}" if kinds else "it has no parameters"
        hint = ""
        if isinstance(error, KeyError) and (others := rest.get(inspect.Parameter.VAR_KEYWORD)):
            hint = f"; what **{others} takes is written {{{others}[{error.args[0]}]}}"
        raise ConfigError(f"{template!r} needs {missing}, which {label(function)} does not have: {has}{hint}") from None


class _Anything:
    """Stands for every argument while a template is tried out."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, key: object) -> _Anything:
        return self

    def __format__(self, spec: str) -> str:
        return "1"  # good for a width and a precision, too


_ANYTHING: Any = _Anything()
_FORMATTER = Formatter()  # `str.format`, but that it also takes what only looks like arguments
