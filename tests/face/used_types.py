"""What type checkers see of locks and leases in use: mypy and pyright read this, and nobody runs it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from typing import assert_type

import holdfast
import holdfast.aio


def threads(locks: holdfast.Holdfast) -> None:
    lock = locks.lock("x", wait=5)
    as_manager: AbstractContextManager[holdfast.Lease] = lock
    with ExitStack() as stack:
        assert_type(stack.enter_context(lock), holdfast.Lease)
        assert_type(stack.enter_context(locks.rwlock("y").read()), holdfast.Lease)
        stack.enter_context(as_manager)
    with lock as lease:
        assert_type(lease.lost, threading.Event)
    # A block that swallows no exception: what follows it can be reached, and `lease` is bound.
    assert_type(lease, holdfast.Lease)
    assert_type(lock.try_acquire(), holdfast.Lease | None)


async def tasks(locks: holdfast.aio.Holdfast) -> None:
    lock = locks.lock("x", wait=5)
    as_manager: AbstractAsyncContextManager[holdfast.aio.Lease] = lock
    async with AsyncExitStack() as stack:
        assert_type(await stack.enter_async_context(lock), holdfast.aio.Lease)
        await stack.enter_async_context(as_manager)
    async with lock as lease:
        assert_type(lease.lost, asyncio.Event)
    assert_type(lease, holdfast.aio.Lease)
    locks.lock("x", timeout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # (an option that does not exist)
