"""Values on their way to nodes and back: their serializers, and the limit of their size.

Shared by both faces. Knows values. Must not know what they are for, or where they are kept.
"""

from __future__ import annotations

from typing import Any, Protocol

from .. import checks
from ..errors import ConfigError

# Bytes of a value: a node that copies one serves nobody else meanwhile.
MOST = 1 << 20


class Serializer(Protocol):
    """Turns a value into bytes and back, as the modules `json`, `pickle` and `marshal` do.

    Errors of these kinds mean that a value or bytes cannot be converted: TypeError, ValueError,
    ArithmeticError, AttributeError, EOFError, ImportError, LookupError, NotImplementedError,
    RecursionError and PickleError. Whatever else a serializer raises interrupts it, as a time limit
    does. It is passed on to the caller, and nothing is stored.
    """

    def dumps(self, value: Any, /) -> bytes | str:
        """Serialize a value.

        Args:
            value: The value.

        Returns:
            The value as bytes, or as text, which is encoded as UTF-8. At most 1 MiB.

        Raises:
            TypeError, ValueError: The value cannot be serialized, or another error named above.
        """

    def loads(self, data: bytes, /) -> Any:
        """Restore a value.

        Args:
            data: Bytes that `dumps` has returned.

        Returns:
            An equal value.

        Raises:
            TypeError, ValueError: The bytes cannot be read, or another error named above.
        """


def verdicts() -> tuple[type[Exception], ...]:
    """Return the kinds of errors by which a serializer says that a value or bytes are wrong.

    A signal handler, such as that of a task queue's time limit, may raise anything else while a
    serializer runs. That says nothing about the value.
    """
    from pickle import PickleError

    return (
        ArithmeticError, AttributeError, EOFError, ImportError, LookupError, NotImplementedError, PickleError,
        RecursionError, TypeError, ValueError,
    )  # fmt: skip


class Unfit(ValueError):
    """The value cannot be kept. The message says why."""


class _Json:
    """JSON without spaces, and without infinite numbers, which JSON does not have.

    The module is loaded with the first use.
    """

    @staticmethod
    def dumps(value: Any, /) -> str:
        import json

        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @staticmethod
    def loads(data: bytes, /) -> Any:
        import json

        return json.loads(data)

    def __repr__(self) -> str:
        return "JSON"


JSON: Serializer = _Json()


def checked(serializer: object) -> Serializer:
    """Return a serializer. Raise ConfigError if it lacks a method."""
    if not callable(getattr(serializer, "dumps", None)) or not callable(getattr(serializer, "loads", None)):
        raise ConfigError(
            "a serializer has `dumps` and `loads`, as the modules json and pickle do; "
            f"{checks.shown(serializer)} has not"
        )
    return serializer  # type: ignore[return-value]  # (it has both)


def packed(value: object, serializer: Serializer) -> bytes:
    """Return the value as bytes. Raise Unfit if it cannot be kept."""
    try:
        told = serializer.dumps(value)
        data = told.encode() if isinstance(told, str) else bytes(memoryview(told))
    except verdicts() as error:
        raise Unfit(f"{serializer!r} cannot make bytes of a value of type {type(value).__name__} ({error})") from error
    if len(data) > MOST:
        raise Unfit(f"it has {len(data)} bytes, and at most {MOST} are kept: keep it elsewhere, and return where it is")
    return data
