"""An exception at any line of what users pass: as a signal handler raises it for a time limit. Over every driver with callers of its own.

Each case calls something of the library once for each line of its callbacks, and the exception strikes at that line. Then it has
reached the caller, or for callbacks that no caller waits for, the log. The lock is free, and the next call has the right result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from types import FrameType
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

VALUE = {"a": [1, "b"]}


class TimeIsUp(Exception):
    """What the handler of a signal raises."""


class Strike:
    """Raises TimeIsUp at the line with this number, counted over all that it watches. 0: never."""

    def __init__(self, at: int) -> None:
        self.left, self.done = at, False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, watched."""
        code = function.__code__

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_code is code and event == "line" and self.left:
                self.left -= 1
                if not self.left:
                    self.done = True
                    raise TimeIsUp
            return trace

        def watched(*args: Any, **kwargs: Any) -> Any:
            before = sys.gettrace()
            sys.settrace(trace)
            try:
                return function(*args, **kwargs)
            finally:
                sys.settrace(before)

        return watched


class Json:
    """A serializer whose methods are watched."""

    def __init__(self, strike: Strike) -> None:
        self.dumps, self.loads = strike(self._dumps), strike(self._loads)

    @staticmethod
    def _dumps(value: Any) -> bytes:
        text = json.dumps(value)
        data = text.encode()
        return data

    @staticmethod
    def _loads(data: bytes) -> Any:
        text = data.decode()
        value = json.loads(text)
        return value


class Shelf(dict[str, Any]):
    """A cache whose methods are watched."""

    def __init__(self, strike: Strike) -> None:
        super().__init__()
        self.__dict__["get"] = strike(self._get)

    def _get(self, key: str) -> Any:
        value = dict.get(self, key)
        return value


class Word:
    """An argument that fills a template."""

    def __init__(self, text: str, strike: Strike) -> None:
        self._text = text
        self._shown = strike(self._show)

    def _show(self) -> str:
        text = self._text
        return text

    def __format__(self, spec: str) -> str:
        return str(self._shown())


def works(*args: Any) -> Any:
    value = dict(VALUE)
    return value


# ------------------------------------------------ what callers wait for

Case = Callable[[Face, Any, str, Strike], Awaitable[Any]]


async def runs_once(face: Face, client: Any, name: str, strike: Strike) -> Any:
    return await face.call(client.once(name, keep=60, wait=2, serializer=Json(strike)).run, face.function(strike(works)))


async def finds_a_result(face: Face, client: Any, name: str, strike: Strike) -> Any:
    never = Strike(0)
    await face.call(client.once(name, keep=60, wait=2, serializer=Json(never)).run, face.function(never(works)))
    found = await face.call(client.once(name, keep=60, wait=2, serializer=Json(strike)).result)
    return found.value


async def fills(face: Face, client: Any, name: str, strike: Strike) -> Any:
    found = await face.call(client.fill(name, 60, face.function(strike(works)), wait=2, serializer=Json(strike)).get)
    return found.value


async def fills_a_mapping(face: Face, client: Any, name: str, strike: Strike) -> Any:
    found = await face.call(client.fill(name, 60, face.function(strike(works)), wait=2, cache=Shelf(strike)).get)
    return found.value


async def finds_what_is_filled(face: Face, client: Any, name: str, strike: Strike) -> Any:
    never = Strike(0)
    await face.call(client.fill(name, 60, face.function(never(works)), wait=2, serializer=Json(never)).get)
    return await fills(face, client, name, strike)


def decorated(decorator: Callable[[Any, str, Strike], Any], **texts: str) -> Case:
    async def case(face: Face, client: Any, name: str, strike: Strike) -> Any:
        watched = strike(works)

        # (A decorator looks at the function's own parameters.)
        def takes(word: Any) -> Any:
            return watched(word)

        call = decorator(client, name, strike)(face.function(takes))
        return await face.call(call, Word("x", strike))

    return case


def key(name: str, strike: Strike) -> Callable[..., str]:
    """A function that makes a name of a call's arguments."""

    def named(word: Any) -> str:
        text = f"{name}:{word}"
        return text

    return strike(named)


CASES: dict[str, Case] = {
    "once": runs_once,
    "once, result": finds_a_result,
    "fill": fills,
    "fill, kept": finds_what_is_filled,
    "fill, cache": fills_a_mapping,
    "locked, template": decorated(lambda client, name, strike: client.locked(name + ":{word}", wait=2)),
    "locked, key": decorated(lambda client, name, strike: client.locked(key(name, strike), wait=2)),
    "once, template": decorated(lambda client, name, strike: client.once(name + ":{word}", keep=60, wait=2)),
    "once, key": decorated(lambda client, name, strike: client.once(key(name, strike), keep=60, wait=2)),
    "filled, template": decorated(lambda client, name, strike: client.filled(name + ":{word}", 60, wait=2)),
    "filled, key": decorated(lambda client, name, strike: client.filled(key(name, strike), 60, wait=2)),
    "limited, key": decorated(lambda client, name, strike: client.limited(name, 5, 60, key=key(name, strike))),
}


async def strikes_everywhere(face: Face, nodes: Cluster, name: str, case: Case) -> int:
    """Strike at each line of a case. Returns how many lines it has."""
    # A lease that nobody gives back is renewed, so that the next call would get LockBusy.
    client, other = [await face.connected(nodes, ttl=2) for _ in range(2)]
    for at in count(1):
        strike = Strike(at)
        try:
            assert await case(face, client, f"{name}.{at}", strike) == VALUE
        except TimeIsUp:
            assert strike.done
        else:
            assert not strike.done, f"the exception at line {at} did not reach the caller"
            return at - 1
        await face.until(lambda at=at: not held(nodes, f"{name}.{at}"), within=1.5)  # type: ignore[misc]  # (a lambda's default)
        for it in (other, client):
            assert await case(face, it, f"{name}.{at}", Strike(0)) == VALUE, f"after an exception at line {at}"
    raise AssertionError


def held(nodes: Cluster, name: str) -> list[str]:
    """The locks of a case that any node has granted."""
    locks = [f"{name}{word}{kind}" for word in ("", ":x") for kind in ("", "[once]", "[fill]")]
    return [it for it in locks if any(nodes.holders(it))]


@pytest.mark.parametrize("case", CASES)
async def test_an_exception_at_any_line_of_a_callback_reaches_the_caller(face: Face, five: Cluster, name: str, case: str) -> None:
    assert await strikes_everywhere(face, five, name, CASES[case]) > 2


# ------------------------------------------------ what no caller waits for


@pytest.mark.parametrize("what", ["observer", "on_lost"])
async def test_an_exception_at_any_line_of_what_no_caller_waits_for_is_logged(
    face: Face, five: Cluster, name: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    def hears(news: Any) -> None:
        kind = type(news)
        text = kind.__name__
        text.lower()

    for at in (1, 2, 3):
        strike = Strike(at)
        client = await face.connected(five, observer=strike(hears) if what == "observer" else None)
        lost = await face.acquire(client.lock(name, ttl=0.1, renew=False, on_lost=strike(hears) if what == "on_lost" else None))
        await face.until_lost(lost)
        await face.until(lambda strike=strike: strike.done)  # type: ignore[misc]  # (a lambda's default)
        await face.release(await face.acquire(client.lock(name, wait=2)))
        await face.until(lambda at=at: caplog.text.count("contract.test_interrupted.TimeIsUp") >= at)  # type: ignore[misc]  # (the same)
