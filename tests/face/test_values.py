"""Values as bytes: by which serializer, how many, and what is complained of."""

from __future__ import annotations

import json
import marshal
import pickle
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.face.values import JSON, MOST, Unfit, checked, packed


class Odd:
    """A serializer that makes something else of everything."""

    def __init__(self, makes: Any) -> None:
        self.makes = makes

    def dumps(self, value: Any, /) -> Any:
        if isinstance(self.makes, Exception):
            raise self.makes
        return self.makes

    def loads(self, data: bytes, /) -> Any:
        return data


def test_json_is_short_and_is_text() -> None:
    data = packed({"a": [1, 2.5, None, "é"]}, JSON)
    assert data == '{"a":[1,2.5,null,"é"]}'.encode()
    assert JSON.loads(data) == {"a": [1, 2.5, None, "é"]}
    assert repr(JSON) == "JSON"


@pytest.mark.parametrize("serializer", [JSON, json, pickle, marshal, Odd(b"x"), Odd("x"), Odd(bytearray(b"x")), Odd(memoryview(b"x"))])
def test_what_is_a_serializer(serializer: Any) -> None:
    assert checked(serializer) is serializer
    data = packed([1, "a", None], serializer)
    assert type(data) is bytes
    assert serializer.loads(data) == (data if isinstance(serializer, Odd) else [1, "a", None])


@pytest.mark.parametrize("serializer", [None, "json", object(), 5, type("Half", (), {"dumps": print})])
def test_what_is_none(serializer: Any) -> None:
    with pytest.raises(ConfigError, match="a serializer has `dumps` and `loads`"):
        checked(serializer)


DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]
REFUSED = [
    *[(JSON, it) for it in (object(), {1, 2}, float("inf"), "\ud800", 10**5000, DEEP)],
    *[(pickle, it) for it in (lambda: 1, type("Local", (), {})(), DEEP)],
    *[(Odd(it), 1) for it in (None, 5, ValueError("no"), KeyError("no"), NotImplementedError())],
]


@pytest.mark.parametrize("serializer, value", REFUSED, ids=lambda it: type(it).__name__)
def test_what_cannot_be_made_bytes_of(serializer: Any, value: Any) -> None:
    with pytest.raises(Unfit, match=f"of type {type(value).__name__} ") as caught:
        packed(value, serializer)
    assert caught.value.__cause__ is not None


class TimeIsUp(Exception):
    """What the handler of a signal raises."""


@pytest.mark.parametrize("error", [TimeIsUp("now"), RuntimeError("no"), TimeoutError("now"), MemoryError()], ids=repr)
def test_what_interrupts_a_serializer_says_nothing_about_the_value(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        packed(1, Odd(error))
    assert caught.value is error


def test_a_value_may_have_a_megabyte() -> None:
    assert len(packed(None, Odd(b"a" * MOST))) == MOST
    with pytest.raises(Unfit, match=f"{MOST + 1} bytes"):
        packed(None, Odd("a" * (MOST + 1)))
    with pytest.raises(Unfit, match="bytes, and at most"):
        packed(None, Odd("é" * (MOST // 2 + 1)))
