"""What the proxy does to bytes: each kind of harm, before a server that repeats what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from nemesis.proxy import DOWN, UP, Proxy

SOON = 5.0
TEXT = bytes(range(256)) * 4


class Echo:
    """A server that remembers what it has had, and says it again."""

    def __init__(self) -> None:
        self.had = b""
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.had += data
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            self.ended.set()
            writer.close()


@asynccontextmanager
async def between() -> AsyncIterator[tuple[Echo, Proxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that is connected to it through a proxy."""
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    proxy = Proxy("127.0.0.1", server.sockets[0].getsockname()[1])
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    try:
        async with asyncio.timeout(SOON):
            yield echo, proxy, reader, writer
    finally:
        writer.transport.abort()
        await proxy.close()
        server.close()
        await asyncio.sleep(0.01)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Everything up to its end, however it ends."""
    found = b""
    try:
        while data := await reader.read(65536):
            found += data
    except ConnectionError:
        pass
    return found


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.002)


async def test_bytes_go_through_it_unchanged() -> None:
    async with between() as (echo, proxy, reader, writer):
        writer.write(TEXT)
        assert await reader.readexactly(len(TEXT)) == TEXT
        assert echo.had == TEXT
        assert (proxy.seen[f"{UP} bytes"], proxy.seen[f"{DOWN} bytes"]) == (len(TEXT), len(TEXT))


@pytest.mark.parametrize("count", [1, 2, 7, 100, 1023])
@pytest.mark.parametrize("pieces", [1, 3, 1024])
async def test_a_request_is_cut_after_exactly_so_many_bytes(count: int, pieces: int) -> None:
    async with between() as (echo, proxy, reader, writer):
        await until(lambda: proxy.links)
        proxy.cut_after(count, UP)
        for start in range(0, len(TEXT), len(TEXT) // pieces):
            writer.write(TEXT[start : start + len(TEXT) // pieces])
            if pieces == 3:
                await asyncio.sleep(0.002)
        await rest(reader)
        await echo.ended.wait()
        assert echo.had == TEXT[:count]
        assert proxy.seen[f"{UP} truncated"] == 1
        assert not proxy.links


@pytest.mark.parametrize("count", [1, 2, 7, 100, 1023])
async def test_an_answer_is_cut_after_exactly_so_many_bytes(count: int) -> None:
    async with between() as (echo, proxy, reader, writer):
        await until(lambda: proxy.links)
        proxy.cut_after(count, DOWN)
        writer.write(TEXT)
        assert await rest(reader) == TEXT[:count]
        await echo.ended.wait()
        assert echo.had == TEXT, "it was executed all the same"
        assert proxy.seen[f"{DOWN} truncated"] == 1


@pytest.mark.parametrize("way, had", [(UP, b""), (DOWN, TEXT)])
async def test_what_is_held_back_goes_on_later(way: str, had: bytes) -> None:
    async with between() as (echo, proxy, reader, writer):
        proxy.hold(way)
        writer.write(TEXT)
        await until(lambda: proxy.seen[f"{way} kept"])
        await asyncio.sleep(0.05)
        assert echo.had == had
        proxy.free(way)
        assert await reader.readexactly(len(TEXT)) == TEXT


async def test_what_was_held_back_is_delivered_though_its_sender_has_gone() -> None:
    async with between() as (echo, proxy, _, writer):
        proxy.hold(UP)
        writer.write(TEXT)
        await until(lambda: proxy.seen[f"{UP} kept"])
        writer.close()
        await asyncio.sleep(0.05)
        assert echo.had == b""
        proxy.free(UP)
        await echo.ended.wait()
        assert echo.had == TEXT
        await until(lambda: not proxy.links)


async def test_two_who_hold_it_back_must_both_free_it() -> None:
    async with between() as (echo, proxy, reader, writer):
        await until(lambda: proxy.links)
        proxy.hold(UP)
        (link,) = proxy.links
        link.up.hold()
        writer.write(TEXT)
        await until(lambda: proxy.seen[f"{UP} kept"])
        proxy.free(UP)
        await asyncio.sleep(0.05)
        assert echo.had == b""
        link.up.free()
        assert await reader.readexactly(len(TEXT)) == TEXT


async def test_everything_takes_long() -> None:
    async with between() as (_, proxy, reader, writer):
        proxy.delay = 0.05
        began = asyncio.get_running_loop().time()
        for piece in (TEXT[:500], TEXT[500:]):
            writer.write(piece)
            await asyncio.sleep(0.002)
        assert await reader.readexactly(len(TEXT)) == TEXT, "in order"
        assert asyncio.get_running_loop().time() - began > 0.1
        assert proxy.seen[f"{UP} late"] >= 2


async def test_a_reset_is_felt_on_both_sides() -> None:
    async with between() as (echo, proxy, reader, _):
        await until(lambda: proxy.links and next(iter(proxy.links)).up.to)
        assert proxy.reset() == 1
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        await echo.ended.wait()


async def test_half_open_swallows_for_ever() -> None:
    async with between() as (echo, proxy, reader, writer):
        proxy.hold(UP, DOWN)
        writer.write(TEXT)
        await until(lambda: proxy.seen[f"{UP} kept"])
        proxy.reset()
        proxy.free(UP, DOWN)
        await rest(reader)
        await echo.ended.wait()
        assert echo.had == b""


async def test_a_node_that_is_dead_refuses() -> None:
    proxy = Proxy("127.0.0.1", 1)
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    assert await rest(reader) == b""
    assert proxy.seen["refused"] == 1
    writer.transport.abort()
    await proxy.close()


async def test_something_is_done_at_a_byte() -> None:
    async with between() as (echo, proxy, reader, writer):
        proxy.at(UP, 10, proxy.reset)
        writer.write(TEXT[:9])
        await reader.readexactly(9)
        writer.write(TEXT[9:])
        await rest(reader)
        await echo.ended.wait()
        assert echo.had == TEXT[:9], "before the bytes go on that it was waiting for"
