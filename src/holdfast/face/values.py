"""Values on their way to nodes and back: who makes bytes of them, and how many bytes that may be. Shared by both faces.

Knows values. Must not know what they are for, or where they are kept.
"""

from __future__ import annotations

from typing import Any, Protocol

from .. import checks
from ..errors import ConfigError

MOST = 1 << 20  # bytes of a value: a node that copies one serves nobody else meanwhile


class Serializer(Protocol):
    """Makes bytes of a value, and a value of bytes again. The modules `json`, `pickle`, `marshal` and many others are such."""

    def dumps(self, value: Any, /) -> bytes | str:
        """The value as bytes, or as text."""

    def loads(self, data: bytes, /) -> Any:
        """The value that the bytes mean."""


class Unfit(Exception):
    """A value that cannot be kept: says why."""


class _Json:
    """JSON, as short as it can be, without numbers that it does not know. (It is loaded by the first who needs it.)"""

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
    """A serializer, or what looks like one."""
    if not callable(getattr(serializer, "dumps", None)) or not callable(getattr(serializer, "loads", None)):
        raise ConfigError(f"a serializer has `dumps` and `loads`, as the modules json and pickle do; {checks.shown(serializer)} has not")
    return serializer  # type: ignore[return-value]  # (it has both)


def packed(value: object, serializer: Serializer) -> bytes:
    """The value as bytes; Unfit if it cannot be kept."""
    try:
        told = serializer.dumps(value)
        data = told.encode() if isinstance(told, str) else bytes(memoryview(told))
    except Exception as error:
        raise Unfit(f"{serializer!r} cannot make bytes of a value of type {type(value).__name__} ({error})") from error
    if len(data) > MOST:
        raise Unfit(f"it has {len(data)} bytes, and at most {MOST} are kept: keep it elsewhere, and return where it is")
    return data
