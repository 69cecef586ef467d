"""The header Fencing-Token: what is said is read again, by others too; and what a receiver answers."""

from __future__ import annotations

import email.message
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import http_sfv
import httpx
import pytest
import starlette.datastructures
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadFence, ConfigError, LockLost, Misuse, StaleFence
from holdfast.fencing.bearer import MOST
from holdfast.fencing.http import FENCING_TOKEN, fences_in, header_of, received, status_of

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
FENCES = st.dictionaries(NAMES, st.integers(1, MOST), min_size=1, max_size=4)


def test_what_it_looks_like() -> None:
    assert FENCING_TOKEN == "Fencing-Token"
    assert header_of(SimpleNamespace(name="invoice:42", fence=1795290426499700)) == '"invoice:42";fence="1795290426499700"'
    assert len(f"{FENCING_TOKEN}: {header_of({'': 1795290426499700})}\r\n") == 44, "as the docs say"
    assert header_of({"b": 2, "a": 1}) == '"a";fence="1", "b";fence="2"'
    assert header_of({'ü "100 %" \\': 7}) == '"%C3%BC %22100 %25%22 %5C";fence="7"'


@given(FENCES)
def test_what_is_said_is_read(fences: dict[str, int]) -> None:
    header = header_of(fences)
    assert header.isascii() and header.isprintable()
    assert fences_in(header) == fences


@given(FENCES)
def test_it_is_a_structured_field_to_others(fences: dict[str, int]) -> None:
    header = header_of(fences)
    read = http_sfv.List()
    read.parse(header.encode())
    assert len(read) == len(fences)
    assert str(read) == header, "and in its canonical form"
    for item in read:
        item.params["since"] = http_sfv.Token("t/1:x")
        item.params["a"] = True
        item.params["bytes"] = b"\xff"
        item.params["n"] = -1.5
    assert fences_in(str(read)) == fences, "parameters that we do not know are ignored"


@pytest.mark.parametrize(
    "value, fences",
    [
        ("", {}),
        ('"a";fence="5"', {"a": 5}),
        ('"a";fence=5', {"a": 5}),
        ('  "a";  fence="5"\t,\t"b";fence="6" ', {"a": 5, "b": 6}),
        ('"a";fence="5","a";fence="5"', {"a": 5}),
        ('"a";x;fence="4";fence="5";y=?0', {"a": 5}),
        (r'"\"\\";fence="5"', {'"\\': 5}),
        ('"100%";fence="5"', {"100%": 5}),
        (f'"a";fence="{MOST}"', {"a": MOST}),
        (f'"a";fence=5;x="{"y" * (16_384 - 16)}"', {"a": 5}),
    ],
)
def test_what_can_be_read(value: str, fences: dict[str, int]) -> None:
    assert fences_in(value) == fences


@pytest.mark.parametrize(
    "value",
    [
        "a;fence=5",
        '"a"',
        '"a";fence',
        '"a";fence=""',
        '"a";fence="05"',
        '"a";fence="-5"',
        '"a";fence=5.0',
        '"a";fence="5',
        '"a";fence="5" "b";fence="6"',
        '"a";fence="5",',
        ',"a";fence="5"',
        '"a";fence="5";',
        '"a";FENCE="5"',
        '"\\a";fence="5"',
        '"ü";fence="5"',
        '"%FF";fence="5"',
        '"a";fence="5","a";fence="6"',
        f'"a";fence="{MOST + 1}"',
        '"a";fence="99999999999999999"',
        '"a";fence="5"\n',
        f'"a";fence=5;x="{"y" * (16_385 - 16)}"',
    ],
)
def test_what_cannot_be_read(value: str) -> None:
    with pytest.raises(BadFence) as raised:
        fences_in(value)
    assert raised.value.said and status_of(raised.value) == 400
    assert len(str(raised.value)) < 400


@given(st.text(max_size=60))
def test_anything_is_read_or_refused(value: str) -> None:
    try:
        fences = fences_in(value)
    except BadFence:
        return
    assert all(0 < it <= MOST for it in fences.values())


def test_a_receiver_takes_the_fences_of_its_own_locks() -> None:
    # Rule X4.
    header = header_of({"a": 5, "b": 6})
    assert received(header, "a") == {"a": 5}
    assert received(header, "b", "a") == {"a": 5, "b": 6}
    for value in (None, "", header):
        with pytest.raises(BadFence, match="has to say the fence of the lock 'c'") as raised:
            received(value, "c")
        assert status_of(raised.value) == 428


LINES: list[tuple[str, str]] = [("fencing-token", '"a";fence="5"'), ("other", "x"), ("fencing-token", '"a";fence="6"')]


def standard(lines: list[tuple[str, str]]) -> Any:
    message = email.message.Message()
    for name, value in lines:
        message[name] = value
    return message


class Multi(dict[str, Any]):
    """As aiohttp's: `get` is the first line, `getall` all of them, and KeyError if there is none."""

    def __init__(self, lines: list[tuple[str, str]]) -> None:
        super().__init__(reversed(lines))
        self._lines = lines

    def getall(self, name: str) -> list[str]:
        found = [value for key, value in self._lines if key == name.lower()]
        if not found:
            raise KeyError(name)
        return found


FRAMEWORKS: dict[str, Callable[[list[tuple[str, str]]], Any]] = {
    "starlette": lambda lines: starlette.datastructures.Headers(raw=[(k.encode(), v.encode()) for k, v in lines]),
    "httpx": httpx.Headers,
    "the standard library": standard,
    "aiohttp": Multi,
    "lines": lambda lines: [value for name, value in lines if name == "fencing-token"],
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_lines_that_contradict_each_other_are_refused(framework: str) -> None:
    make = FRAMEWORKS[framework]
    assert received(make(LINES[:2]), "a") == {"a": 5}
    assert received(make([*LINES[:2], ("fencing-token", '"b";fence="6"'), LINES[0]]), "a", "b") == {"a": 5, "b": 6}
    with pytest.raises(BadFence, match="two fences for 'a'") as raised:
        received(make(LINES), "a")
    assert status_of(raised.value) == 400
    with pytest.raises(BadFence) as raised:
        received(make(LINES[1:2]), "a")
    assert status_of(raised.value) == 428


def test_other_headers() -> None:
    assert received({"Accept": "*/*", "FENCING-TOKEN": '"a";fence="5"'}, "a") == {"a": 5}
    assert received(["", '"a";fence="5"'], "a") == {"a": 5}
    for nothing in (None, "", {}, [], [""], {"Accept": "*/*"}):
        with pytest.raises(BadFence, match="has to say the fence"):
            received(nothing, "a")
    for strange in (5, [b"x"], {"Fencing-Token": 5}, object()):
        with pytest.raises(ConfigError, match="headers are a mapping"):
            received(strange, "a")


def test_what_a_receiver_answers() -> None:
    assert status_of(StaleFence("a", 5, 6)) == 412
    lost = LockLost("a", "expired", 5)
    with pytest.raises(LockLost) as raised:
        status_of(lost)
    assert raised.value is lost


def test_an_open_lease_says_nothing() -> None:
    with pytest.raises(Misuse, match="bears no fence"):
        header_of(SimpleNamespace(name="a", fence=None))
