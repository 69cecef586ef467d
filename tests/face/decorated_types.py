"""What type checkers see of decorated functions: `./task lint types` reads this, and nobody runs it.

An error that has to be found is one that is ignored here: strict checkers complain of an `ignore` that ignores nothing.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator
from typing import Any, assert_type

import holdfast
import holdfast.aio

threads, asyncio = holdfast.Holdfast(), holdfast.aio.Holdfast()


@threads.lock("x")
def literal(day: int, *, depth: int = 0) -> str:
    return ""


@threads.locked("x:{day}", wait=5, ttl=5)
def named(day: int, *, depth: int = 0) -> str:
    return ""


@threads.locked("x:{day}", on_busy="skip")
def skipped(day: int, *, depth: int = 0) -> str:
    return ""


@threads.locked(lambda day: f"x:{day}")
def steps(day: int) -> Generator[int, str, bool]:
    yield 1
    return True


@threads.locked("x:{day}", on_busy="skip")
def skipped_steps(day: int) -> Generator[int, str, bool]:
    yield 1
    return True


@threads.locked("x:{day}", on_busy="skip")
def iterator(day: int) -> Iterator[int]:
    yield 1


class Account:
    @threads.locked("x:{self.number}")
    def charge(self, amount: int) -> str:
        return ""

    @asyncio.locked("x:{self.number}", on_busy="skip")
    async def charge_async(self, amount: int) -> str:
        return ""


@threads.once("x:{day}", keep=60)
def done(day: int, *, depth: int = 0) -> str:
    return ""


@asyncio.once(lambda day: f"x:{day}", keep=60, per=5)
async def done_async(day: int) -> str:
    return ""


def of_threads() -> None:
    assert_type(literal(5, depth=1), str)
    assert_type(named(5), str)
    assert_type(skipped(5), str | None)
    assert_type(steps(5), Generator[int, str, bool])
    assert_type(skipped_steps(5), Generator[int, str, bool | None])
    assert_type(iterator(5), Iterator[int])
    assert_type(Account().charge(5), str)
    assert_type(holdfast.current(), holdfast.Lease)
    assert_type(done(5), str)
    assert_type(threads.once("x", keep=60, serializer=pickle).run(done, 5, depth=1), str)
    assert_type(threads.once("x", keep=60, serializer=json).at(5).result(), holdfast.Result)
    done("5")  # type: ignore[arg-type]  # (the mistake)
    threads.once("x", keep=60).run(done, "5")  # type: ignore[arg-type]  # (the mistake)
    threads.once("x", keep=60, serializer=5)  # type: ignore[arg-type]  # (the mistake)
    literal("5")  # type: ignore[arg-type]  # (the mistake)
    named(5, 1)  # type: ignore[call-arg]  # (the mistake)
    skipped()  # type: ignore[call-arg]  # (the mistake)
    Account().charge("5")  # type: ignore[arg-type]  # (the mistake)
    threads.locked("x", on_busy="pass")  # type: ignore[call-overload]  # (the mistake)
    assert_type(threads.fill("x", 60, makes).get().value, int)
    assert_type(filled(5), str)
    threads.fill("x", 60, makes, patience=5)  # type: ignore[call-arg]  # (the mistake)
    threads.fill("x", 60, makes, stale="5")  # type: ignore[arg-type]  # (the mistake)
    threads.fill("x", 60, makes, serializer=5)  # type: ignore[arg-type]  # (the mistake)
    threads.locked("x", patience=5)  # type: ignore[call-overload]  # (the mistake)
    threads.locked("x", ttl="5")  # type: ignore[call-overload]  # (the mistake)


@threads.permitted("x:{day}", 4, count=2)
def permitted(day: int) -> str:
    return ""


@threads.read_locked("x:{day}", on_busy="skip")
def skipped_reading(day: int) -> str:
    return ""


@threads.limited("x", 10, 60, key="{day}", burst=1)
def limited(day: int) -> str:
    return ""


def of_templates() -> None:
    assert_type(permitted(5), str)
    assert_type(skipped_reading(5), str | None)
    assert_type(limited(5), str)
    threads.permitted("x", 4, reentrant=True)  # type: ignore[call-overload]  # (the mistake)
    threads.write_locked("x", on_busy="pass")  # type: ignore[call-overload]  # (the mistake)
    threads.limited("x", 10, 60, patience=5)  # type: ignore[call-arg]  # (the mistake)
    limited("5")  # type: ignore[arg-type]  # (the mistake)


@threads.filled("x:{day}", 60)
def filled(day: int) -> str:
    return ""


@asyncio.lock("x")
async def literal_async(day: int, *, depth: int = 0) -> str:
    return ""


@asyncio.locked("x:{day}", on_busy="skip")
async def skipped_async(day: int, *, depth: int = 0) -> str:
    return ""


@asyncio.filled("x:{day}", 60, stale=5)
async def filled_async(day: int) -> str:
    return ""


def makes() -> int:
    return 1


async def makes_async() -> int:
    return 1


@asyncio.locked("x:{day}")
async def steps_async(day: int) -> AsyncGenerator[int, str]:
    yield 1


@asyncio.locked("x:{day}", on_busy="skip")
async def iterator_async(day: int) -> AsyncIterator[int]:
    yield 1


@asyncio.write_locked("x:{day}", on_busy="skip")
async def skipped_writing_async(day: int) -> str:
    return ""


async def of_asyncio() -> None:
    assert_type(await skipped_writing_async(5), str | None)
    assert_type(await literal_async(5, depth=1), str)
    assert_type(await skipped_async(5), str | None)
    assert_type(await filled_async(5), str)
    assert_type((await asyncio.fill("x", 60, makes_async).get()).value, int)
    assert_type((await asyncio.fill("x", 60, makes, stale=5, serializer=json, cache={}).get()).value, int)
    assert_type(steps_async(5), AsyncGenerator[int, str])
    assert_type(iterator_async(5), AsyncIterator[int])
    assert_type(await Account().charge_async(5), str | None)
    assert_type(holdfast.aio.current(), holdfast.aio.Lease)
    assert_type(await done_async(5), str)
    assert_type(await asyncio.once("x", keep=60).run(done_async, 5), str)
    assert_type(await asyncio.once("x", keep=60).result(), holdfast.Result)
    await asyncio.once("x", keep=60).run(done, 5)  # type: ignore[arg-type]  # (the mistake)
    await literal_async("5")  # type: ignore[arg-type]  # (the mistake)
    asyncio.lock("x")(literal)  # type: ignore[type-var]  # (the mistake)
    given: Callable[[int], Coroutine[Any, Any, str]] = asyncio.lock("x")(_makes)
    assert_type(await given(5), str)


async def _makes(day: int) -> str:
    return ""
