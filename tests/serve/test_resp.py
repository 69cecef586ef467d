"""The gateway speaks RESP: to clients of Redis, and for sessions that end with their connections."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from cli.kit import Command, until
from serve.serving import PATIENT, address

from holdfast import Holdfast as Locks
from holdfast.aio import Holdfast
from holdfast.embedded import Nodes
from holdfast.serve import resp
from holdfast.serve.gateway import Gateway
from holdfast.serve.identity import Arrived
from holdfast.serve.options import Options

NEAR, FAR = "127.0.0.1", "10.0.0.7"


class Client:
    """A connection, and what it says and hears in RESP 2."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def __call__(self, line: str) -> Any:
        self.say(line)
        return await self.hear()

    def say(self, line: str) -> None:
        words = line.encode().split()
        self.writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(it), it) for it in words))

    async def hear(self) -> Any:
        line = await self.reader.readline()
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"*":
            return [await self.hear() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == "-1" else (await self.reader.readexactly(int(rest) + 2))[:-2].decode()
        return int(rest) if kind == b":" else line.decode().strip()


Connect = Callable[..., Any]


@asynccontextmanager
async def served(nodes: Nodes, **options: Any) -> AsyncIterator[tuple[Gateway, Connect]]:
    """A gateway, and what connects to it from an address."""
    async with Holdfast(*nodes.urls) as locks:
        gateway, door = Gateway(locks, Options(max_lag=PATIENT, **options)), resp.Resp()
        await door.open(gateway)
        where, room, clients = NEAR, False, list[Client]()
        server = await asyncio.get_running_loop().create_server(
            lambda: door.speak(Arrived(where, None, lambda client: None, lambda: room), lambda: None), "127.0.0.1"
        )

        async def connect(of: str = NEAR, makes_room: bool = False) -> Client:
            nonlocal where, room
            where, room = of, makes_room
            client = Client(*await asyncio.open_connection(*server.sockets[0].getsockname()))
            clients.append(client)
            assert (await client("PING hello")) == "hello"
            return client

        try:
            yield gateway, connect
        finally:
            await door.close()
            server.close()
            for it in clients:
                it.writer.close()
            await asyncio.gather(*[it.writer.wait_closed() for it in clients], return_exceptions=True)
            await gateway.stop()


@pytest.fixture
async def connect(nodes: Nodes) -> AsyncIterator[Connect]:
    async with served(nodes) as (_, connect):
        yield connect


async def test_a_lock_is_taken_kept_and_given_back(connect: Connect) -> None:
    one, other = await connect(), await connect()
    lease, fence, valid = await one("LOCK resp:a TTL 5000")
    assert 4000 < valid < 5000
    assert await other("LOCK resp:a") is None
    assert 9000 < await one(f"KEEP {lease} TTL 10000") < 10_000
    assert 9000 < await one(f"CHECK {lease}") < 10_000
    assert await one(f"UNLOCK {lease}") == 1
    assert (await one(f"UNLOCK {lease}")).startswith("-LOST")
    again = await other("LOCK resp:a")
    assert again[1] > fence
    assert await other(f"UNLOCK {again[0]}") == 1


async def test_waiters_are_served_in_order_and_one_that_waits_for_too_long_leaves(connect: Connect) -> None:
    holder, short, long = await connect(), await connect(), await connect()
    lease, *_ = await holder("LOCK resp:b")
    short.say("LOCK resp:b WAIT 300")
    long.say("LOCK resp:b WAIT 30000")
    assert await short.hear() is None
    await holder(f"UNLOCK {lease}")
    found = await long.hear()
    assert await long(f"UNLOCK {found[0]}") == 1


async def test_a_session_is_renewed_and_ends_with_its_connection(connect: Connect) -> None:
    one, other = await connect(), await connect()
    lease, fence, _ = await one("LOCK resp:c TTL 1000 SESSION")
    await asyncio.sleep(2.5)
    assert await one(f"CHECK {lease}") > 0
    one.writer.close()
    began = time.monotonic()
    assert (await other("LOCK resp:c WAIT 30000"))[1] > fence
    assert time.monotonic() - began < 1


async def test_a_gateway_that_ends_a_connection_releases_nothing(connect: Connect) -> None:
    """Its client lives, and may not have noticed."""
    one, other = await connect(), await connect()
    await one("LOCK resp:g TTL 2000 SESSION")
    one.writer.write(b"*1\r\n+x\r\n")
    assert (await one.reader.read()).startswith(b"-ERR")
    assert await other("LOCK resp:g WAIT 300") is None
    assert await other("LOCK resp:g WAIT 30000")


async def test_a_connection_that_makes_room_for_another_releases_nothing(connect: Connect) -> None:
    one, other = await connect(makes_room=True), await connect(makes_room=True)
    await one("LOCK resp:h TTL 2000 SESSION")
    one.writer.close()
    assert await other("LOCK resp:h WAIT 300") is None


async def test_a_lease_without_a_session_stays_after_its_connection(connect: Connect) -> None:
    one, other = await connect(), await connect()
    lease, *_ = await one("LOCK resp:d TTL 5000")
    one.writer.close()
    assert await other("LOCK resp:d WAIT 200") is None
    # A client that knows its id goes on with it.
    assert await other(f"UNLOCK {lease}") == 1


async def test_a_waiter_whose_connection_ends_leaves_the_queue(connect: Connect) -> None:
    one, gone, last = await connect(), await connect(), await connect()
    lease, *_ = await one("LOCK resp:e")
    gone.say("LOCK resp:e WAIT 30000")
    gone.writer.close()
    await one(f"UNLOCK {lease}")
    assert await last("LOCK resp:e WAIT 5000")


async def test_a_broken_connection_from_elsewhere_says_nothing_of_its_client(connect: Connect) -> None:
    one, other = await connect(FAR), await connect()
    await one("LOCK resp:f TTL 1500 SESSION")
    for _ in range(6):
        # It lives on while its client speaks.
        await asyncio.sleep(0.4)
        await one("PING")
    one.writer.close()
    began = time.monotonic()
    assert await other("LOCK resp:f WAIT 30000")
    assert time.monotonic() - began > 0.5


@pytest.mark.parametrize(
    "line, answer",
    [
        ("RLOCK {} TTL 5000", 3), ("WLOCK {} TTL 5000", 3), ("PERMIT {} 3 TTL 5000", 4), ("PERMIT {} 3 COUNT 2 TTL 5000", 5),
        ("LEAD {} VALUE me TTL 5000", 3), ("LOCK {} LABEL me TTL 5000", 3),
    ],
)  # fmt: skip
async def test_each_kind_of_lease(connect: Connect, line: str, answer: int) -> None:
    one = await connect()
    found = await one(line.format(f"resp:{line.split()[0]}:{answer}"))
    assert len(found) == answer
    if line.startswith("LEAD"):
        assert (await one(f"LEADER resp:LEAD:{answer}"))[0] == "me"
    assert await one(f"UNLOCK {found[0]}") == 1


async def test_work_is_done_once(connect: Connect) -> None:
    one, other = await connect(), await connect()
    state, lease, *_ = await one("ONCE resp:job 60000")
    assert state == "run"
    other.say("ONCE resp:job 60000 WAIT 30000")
    assert await one(f"DONE {lease} 42") == "42"
    assert await other.hear() == ["done", "42"]
    assert await one("ONCE resp:job 60000") == ["done", "42"]


async def test_rates(connect: Connect) -> None:
    one = await connect()
    assert [(await one("RATE resp:rate 2 60000 KEY me"))[0] for _ in range(3)] == [1, 1, 0]


@pytest.mark.parametrize(
    "line, error",
    [
        ("LOCK", "-ERR usage: LOCK name"), ("LOCK a WAIT", "-ERR usage"), ("LOCK a FOR ever", "-ERR usage"), ("LOCK a TTL 0", "-ERR TTL"),
        ("LOCK a TTL 10s", "-ERR TTL is a whole number"), ("LOCK a TTL 99999999", "-ERR"), ("NAP", "-ERR unknown command 'NAP'"),
        ("KEEP nobodys", "-LOST"), ("PERMIT a 0", "-ERR permits"), ("LOCK " + "x" * 600, "-ERR A name has at most 512"),
        ("HELLO 4", "-ERR NOPROTO"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_refused_in_words(connect: Connect, line: str, error: str) -> None:
    assert (await (await connect())(line)).startswith(error)


@pytest.mark.parametrize(
    "bytes_", [b"*2\r\n:1\r\n", b"*99\r\n", b"$3\r\nfoo\r\n\r\n*1\r\n+x\r\n", b"*1\r\n$x\r\n", b"*" + b"1" * 40, b"x" * 70_000]
)
async def test_what_is_no_command_ends_the_connection(connect: Connect, bytes_: bytes) -> None:
    one = await connect()
    one.writer.write(bytes_)
    said = await one.reader.read()
    assert said.startswith(b"-ERR")


async def test_a_command_that_does_not_end_is_not_waited_for(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resp, "REQUEST", 0.05)
    one = await connect()
    one.writer.write(b"*2\r\n$4\r\nLOCK")
    with suppress(ConnectionResetError):
        assert await one.reader.read() == b""


async def test_clients_show_tokens_and_may_do_what_their_scopes_say(nodes: Nodes, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[client.me]\nsha256 = "{hashlib.sha256(b"secret").hexdigest()}"\nscopes = ["lock:mine:*"]\n')
    tokens.chmod(0o600)
    async with served(nodes, tokens=str(tokens), max_requests=8, max_keepalives=1) as (_, connect):
        one, other = await connect(), await connect()
        assert (await one("LOCK mine:1")).startswith("-NOAUTH")
        assert (await one("AUTH wrong")).startswith("-NOAUTH")
        assert await one("AUTH secret") == "+OK"
        lease, *_ = await one("LOCK mine:1")
        assert (await one("LOCK other:1")).startswith("-NOPERM")
        assert "proto" in await other("HELLO 2 AUTH default secret")
        assert await other(f"UNLOCK {lease}") == 1
        said = [str(await one("PING")) for _ in range(9)]
        assert said[-1].startswith("-TOOMANY"), said


# ------------------------------------------------ real processes


@contextmanager
def gateway_of(holdfast: Command, *options: str) -> Iterator[str]:
    """A gateway that speaks RESP only. Returns where."""
    with holdfast.started("serve", *options, "--max-lag", "1m", stderr=subprocess.PIPE) as process:
        yield address(process)


@pytest.fixture
def port(holdfast: Command) -> Iterator[str]:
    with gateway_of(holdfast, "--resp", "127.0.0.1:0") as url:
        yield str(urlsplit(url).port)


def test_redis_cli_is_a_client(port: str) -> None:
    if (program := shutil.which("redis-cli")) is None:
        pytest.fail("redis-cli is not installed: it comes with Debian's redis-tools")

    def say(*words: str) -> list[str]:
        return subprocess.run([program, "-p", port, *words], capture_output=True, text=True, check=True).stdout.split()

    lease, _fence, _valid = say("LOCK", "resp:cli")
    assert say("LOCK", "resp:cli") == []
    assert say("UNLOCK", lease) == ["1"]
    assert "gateway:" in " ".join(say("INFO"))


def test_redis_py_is_a_client(port: str) -> None:
    for protocol in (2, 3):
        with redis.Redis(port=int(port), protocol=protocol) as client:
            lease, fence, valid = client.execute_command("LOCK", "resp:py", "WAIT", 5000)
            assert fence > valid > 0
            assert client.execute_command("UNLOCK", lease) == 1


def test_lines_by_hand_are_a_client(port: str) -> None:
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'LOCK resp:nc TTL 1000\\r\\nPING\\n' >&3; head -n 6 <&3"
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    assert said[0] == "*3"
    assert said[-1] == "+PONG"


def test_the_process_loads_nothing_of_http() -> None:
    heavy = "{'pydantic', 'starlette', 'uvicorn', 'h11', 'httpx', 'prometheus_client'}"
    program = f"import sys, holdfast.cli.serving, holdfast.serve.resp; print(sorted({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


HOLDER = """
import os, socket, sys
its = socket.socket(socket.AF_UNIX); its.connect(sys.argv[1])
its.sendall(b"LOCK resp:killed TTL 30000 WAIT 60000 SESSION\\n")
print(its.recv(4096).split()[3].decode(), flush=True)
if sys.argv[2] == "fork" and os.fork():
    os._exit(0)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "forked"])
def test_the_lock_of_a_killed_process_is_free_at_once(holdfast: Command, tmp_path: Path, nodes: Nodes, how: str) -> None:
    place = tmp_path / "resp.sock"
    with gateway_of(holdfast, "--resp", f"unix:{place}"), Locks(*nodes.urls) as locks:
        words = [sys.executable, "-c", HOLDER, str(place), "fork" if how == "forked" else ""]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(words, text=True, **pipes) as process:
            assert process.stdout is not None
            first = int(process.stdout.readline()[1:])
            if how == "forked":
                process.wait(30)
                # The child has the connection, and may work.
                assert locks.lock("resp:killed", wait=1).try_acquire() is None
                process.communicate()
            else:
                os.kill(process.pid, signal.SIGKILL)
            began = time.monotonic()
            with locks.lock("resp:killed", wait=20) as lease:
                assert lease.fence > first
                assert time.monotonic() - began < 5


def test_a_gateway_drains(holdfast: Command, nodes: Nodes) -> None:
    with holdfast.started("serve", "--resp", "127.0.0.1:0", "--max-lag", "1m", stderr=subprocess.PIPE) as process:
        with socket.create_connection(("127.0.0.1", urlsplit(address(process)).port or 0)) as its:
            its.sendall(b"LOCK resp:drain TTL 20000\n")
            lease = its.recv(4096).split(b"\r\n")[2]
            process.terminate()
            until(lambda: its.sendall(b"LOCK resp:other\n") or its.recv(4096).startswith(b"-DRAINING"))
            its.sendall(b"UNLOCK %b\n" % lease)
            assert its.recv(4096) == b":1\r\n"
            assert process.wait(30) == 0


PAGE = (Path(__file__).parent.parent.parent / "docs/resp.md").read_text()


def block(first: str) -> str:
    """The block of the page that begins like this."""
    return first + PAGE.partition(f"```text\n{first}")[2].partition("```")[0]


def test_the_clients_of_the_page(port: str, tmp_path: Path, nodes: Nodes) -> None:
    script, python = (tmp_path / it for it in ("with-lock", "client.py"))
    script.write_text(block("#!/bin/bash").replace("7421", port))
    python.write_text(block("import redis").replace("7421", port))
    with subprocess.Popen(["bash", script, "invoice:42", "sleep", "30"]) as process, Locks(*nodes.urls) as locks:
        until(lambda: locks.is_locked("invoice:42"))
        busy = subprocess.run([sys.executable, python], capture_output=True, text=True, check=False)
        assert (busy.returncode, busy.stderr) == (1, "another process has it\n")
        process.kill()
        process.wait()
        said = subprocess.run([sys.executable, python], capture_output=True, text=True, check=True).stdout
        assert said.startswith("working with fence 1")
