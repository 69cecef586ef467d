"""Values on their way to nodes and back: who makes bytes of them, and how many bytes that may be. Shared by both faces.

Knows values. Must not know what they are for, or where they are kept.
"""

from __future__ import annotations

import json
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


class _Json:
    """JSON, as short as it can be."""

    @staticmethod
    def dumps(value: Any, /) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def loads(data: bytes, /) -> Any:
        return json.loads(data)

    def __repr__(self) -> str:
        return "JSON"


JSON: Serializer = _Json()


def checked(serializer: object) -> Serializer:
    """A serializer, or what looks like one."""
    if not callable(getattr(serializer, "dumps", None)) or not callable(getattr(serializer, "loads", None)):
        raise ConfigError(f"a serializer has `dumps` and `loads`, as the modules json and pickle do; {checks.shown(serializer)} has not")
    return serializer  # type: ignore[return-value]  # (it has both)


def packed(value: object, serializer: Serializer, whose: str) -> bytes:
    """The value as bytes. `whose`: who wants it kept, for complaints. ConfigError if it cannot be kept."""
    try:
        told = serializer.dumps(value)
        data = told.encode() if isinstance(told, str) else bytes(memoryview(told))
    except Exception as error:
        raise ConfigError(
            f"{whose} has a value of type {type(value).__name__}, of which {serializer!r} cannot make bytes ({error}): return another "
            "one, or give a serializer that can"
        ) from error
    if len(data) > MOST:
        raise ConfigError(f"{whose} has a value of {len(data)} bytes; at most {MOST} are kept: keep it elsewhere, and return where it is")
    return data
