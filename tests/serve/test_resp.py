"""The gateway speaks RESP: to clients of Redis, and for sessions that end with their connections."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from inspect import signature
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hiredis
import pytest
import redis
from cli.kit import Command
from nemesis.processes import until
from serve.serving import PATIENT, served, write_tokens

from holdfast import Holdfast as Locks
from holdfast.aio import Holdfast
from holdfast.embedded import Nodes
from holdfast.serve import resp
from holdfast.serve.gateway import Gateway
from holdfast.serve.identity import Arrived
from holdfast.serve.options import Options
from holdfast.testing.simulation import Simulation

NEAR, FAR = "127.0.0.1", "10.0.0.7"
END, MORE = "(end)", object()
IOREDIS = "ioredis@5.9.2"


class Client:
    """A client, and the transport of its connection, without a socket."""

    def __init__(self, door: resp.Resp, of: str = NEAR, makes_room: bool = False) -> None:
        self._heard = asyncio.Queue[Any]()
        self._parser = hiredis.Reader(encoding="utf-8", notEnoughData=MORE)
        self.gone = self.paused = False
        self.raw = b""
        self._connection = door.speak(Arrived(of, cut=lambda: makes_room))
        self._connection.connection_made(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self.raw = data
        self._parser.feed(data)
        while (it := self._parser.gets()) is not MORE:
            self._heard.put_nowait(f"-{it}" if isinstance(it, hiredis.ReplyError) else it)

    def close(self) -> None:
        if not self.gone:
            self.gone = True
            self._heard.put_nowait(END)
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def say(self, line: str) -> None:
        words = line.encode().split()
        self.send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(it), it) for it in words))

    def send(self, data: bytes) -> None:
        if not self.gone:
            self._connection.data_received(data)

    async def hear(self) -> Any:
        return await self._heard.get()

    def heard(self) -> list[Any]:
        return [self._heard.get_nowait() for _ in range(self._heard.qsize())]

    async def __call__(self, line: str) -> Any:
        self.say(line)
        return await self.hear()


Connect = Callable[..., Client]


async def gateway_for(locks: Holdfast, **options: Any) -> resp.Resp:
    door = resp.Resp()
    await door.open(Gateway(locks, Options(**{"max_lag": PATIENT, **options})))
    return door


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in virtual time. `connect` makes a connection to a gateway."""

    def run(**arguments: Any) -> None:
        async def whole() -> None:
            async with world.client() as locks:
                door = await gateway_for(locks)
                await test(partial(Client, door), **arguments)
                await door.close()

        world = Simulation(3)
        world.run(whole())

    its = signature(test)
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = its.replace(parameters=list(its.parameters.values())[1:])  # type: ignore[attr-defined]
    return run


async def test_a_connection_whose_tls_handshake_has_failed_keeps_no_door_open() -> None:
    door = await gateway_for(Holdfast("redis://nowhere"))
    # asyncio makes the protocol before the handshake, and then tells it nothing.
    door.speak(Arrived("192.0.2.1"))
    await asyncio.wait_for(door.close(), 1)


def told(answer: Any, leases: list[str], fences: set[int]) -> str:
    """An answer as a conversation has it."""
    if isinstance(answer, list):
        return f"[{' '.join(told(it, leases, fences) for it in answer)}]"
    if isinstance(answer, int) and answer > 10**15:
        fences.add(answer)
        return f"F{sorted(fences).index(answer) + 1}"
    text = "nil" if answer is None else str(answer).replace("\r\n", "\\r\\n")
    for it in re.findall(r"\bg[a-z0-9]{7}\.[\w-]{22}", text):
        leases += [it] if it not in leases else []
        text = text.replace(it, f"L{leases.index(it) + 1}")
    return text


def fits(wanted: str, answer: str) -> bool:
    least = [0.9 * int(it) for it in re.findall(r"~(\d+)", wanted)]
    pattern = re.sub(r"~\d+", r"(\\d+)", re.escape(wanted).replace("\\~", "~").replace(r"\.\.\.", ".*"))
    found = re.fullmatch(pattern, answer)
    return found is not None and all(it < int(got) <= it / 0.9 for it, got in zip(least, found.groups(), strict=True))


TALKS = {title: lines for title, *lines in (it.splitlines() for it in Path(__file__).with_name("resp.txt").read_text().split("\n# ")[1:])}


@pytest.mark.parametrize("title", TALKS)
@simulated
async def test_a_conversation(connect: Connect, title: str) -> None:
    clients, leases, fences = dict[str, Client](), list[str](), set[int]()
    for who, said, wanted in (re.fullmatch(r"(\S.*?)(?:  (?!->)(.+?))?(?:  ->  (.+))?", it).groups() for it in filter(None, TALKS[title])):
        if who == "time":
            await asyncio.sleep(float(said))
            continue
        if who not in clients:
            clients[who] = connect(FAR if who.startswith("far") else NEAR, who.startswith("cut"))
        its, line = clients[who], re.sub(r"L(\d)\b", lambda it: leases[int(it[1]) - 1], said or "")
        if line == "(ends)":
            its.close()
        elif line:
            its.send(ast.literal_eval(line)) if line.startswith(('b"', "b'")) else its.say(line)
        if wanted:
            answer = told(await its.hear(), leases, fences)
            assert fits(wanted, answer), (who, said, answer)


async def use(doors: list[resp.Resp], dice: random.Random, believes: dict[object, float]) -> None:
    """One client of many, and until when each believes to hold the lock. Then something happens to this one."""
    now = asyncio.get_running_loop().time
    for _ in range(12):
        near = dice.random() < 0.5
        # Whether the gateway will end it, to make room for others.
        cut = dice.random() < 0.2
        its, asked = Client(dice.choice(doors), NEAR if near else FAR, cut), now()
        lease, *_ = await its("LOCK resp:law TTL 3000 WAIT 600000 SESSION")
        assert max(believes.values(), default=0.0) <= now(), f"two believe to hold the lock at {now()}"
        believes[its] = inf if near else asked + 1
        for _ in range(dice.randrange(8)):
            await asyncio.sleep(dice.uniform(0.1, 0.9))
            asked = now()
            await its("PING")
            believes[its] = inf if near else asked + 1
        fate = dice.choice(["unlocks", "dies", "breaks", "is ended"])
        # Between two processes of one machine nothing breaks. A client that lives may notice the end only when it speaks again.
        lives = fate == "is ended" or (fate == "breaks" and (cut or not near))
        believes[its] = min(believes[its], now() + 1) if lives else 0.0
        if fate == "unlocks":
            await its(f"UNLOCK {lease}")
        elif fate == "is ended":
            its.send(b"*1\r\n+x\r\n")
        its.close()
        await asyncio.sleep(dice.uniform(0, 2))


@pytest.mark.parametrize("seed", range(2))
def test_nobody_holds_what_a_client_believes_to_hold_that_lives_and_spoke_in_time(seed: int) -> None:
    world, dice = Simulation(3, seed), random.Random(seed)

    async def fail() -> None:
        while True:
            await asyncio.sleep(dice.uniform(1, 8))
            world.nodes[0].vanish(dice.uniform(0.1, 5))

    async def whole() -> None:
        async with world.client() as one, world.client() as other:
            doors = [await gateway_for(it) for it in (one, other)]
            failing, believes = asyncio.ensure_future(fail()), dict[object, float]()
            await asyncio.gather(*[use(doors, dice, believes) for _ in range(3)])
            failing.cancel()
            for it in doors:
                await it.close()

    world.run(whole())


@simulated
async def test_the_bytes_of_both_versions(connect: Connect) -> None:
    one = connect()
    assert (await one("PING"), one.raw) == ("PONG", b"+PONG\r\n")
    assert isinstance(await one("HELLO 3"), dict)
    await one("LOCK resp:free")
    assert (await one("LOCK resp:free"), one.raw) == (None, b"_\r\n")


@simulated
async def test_a_client_that_does_not_read_is_not_answered_and_one_that_says_much_is_not_read(connect: Connect) -> None:
    one = connect()
    one._connection.pause_writing()
    for many, paused in ((100, False), (1, True)):
        one.send(b"PING\n" * many)
        assert one.paused is paused
    await asyncio.sleep(1)
    assert one.heard() == ["PONG"]
    one._connection.resume_writing()
    await asyncio.sleep(1)
    assert (one.heard(), one.paused) == (["PONG"] * 100, False)


@simulated
async def test_a_busy_gateway_serves_what_keeps_and_releases(connect: Connect) -> None:
    one = connect()
    one._connection.gateway.lag._last = PATIENT + 1
    assert (await one("LOCK a"))[:11] == "-OVERLOADED"
    said = [(await one(it))[:5] for it in ("PING", "AUTH me", "KEEP a", "CHECK a", "UNLOCK a", "DONE a b")]
    assert said == ["PONG", "OK", *["-LOST"] * 4]


HEAD = b"*2\r\n$4\r\nPING\r\n"
SIZES = {b"PING " + b"x" * 65_530 + b"\n": "x", b"PING " + b"x" * 65_531 + b"\n": "-", b"x" * 65_537: "-", b"PING x\n" * 20_000: "x"}
SIZES |= {HEAD + b"$65512\r\n" + b"x" * 65_512 + b"\r\n": "x", HEAD + b"$65513\r\n" + b"x" * 65_513 + b"\r\n": "-"}


@pytest.mark.parametrize("data, answer", SIZES.items(), ids=range(len(SIZES)))
@simulated
async def test_the_largest_command(connect: Connect, data: bytes, answer: str) -> None:
    one = connect()
    one.send(data)
    assert (await one.hear())[0] == answer


@simulated
async def test_a_fault_is_told_to_the_loop_and_a_problem_is_not(connect: Connect) -> None:
    one, told = connect(), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, it: told.append(it["message"]))
    one._connection.gateway.locks = None  # type: ignore[assignment]  # a fault
    assert (await one("NAP"))[:8] == "-ERR unk"
    assert (await one("LEADER a"))[:23] == "-ERR The gateway failed"
    assert told == ["LEADER failed"]


def test_clients_show_tokens_and_may_do_what_their_scopes_say(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, secret='"lock:mine:*"')

    async def whole() -> None:
        async with world.client() as locks:
            door = await gateway_for(locks, tokens=str(tokens), max_requests=8, max_keepalives=1)
            one, other = Client(door), Client(door)
            assert (await one("LOCK mine:1")).startswith("-NOAUTH")
            assert (await one("AUTH wrong")).startswith("-NOAUTH")
            assert [json.loads(it)["address"] for it in caplog.messages if "unauth" in it] == [NEAR, NEAR]
            assert await one("AUTH secret") == "OK"
            lease, *_ = await one("LOCK mine:1")
            for it in ("LOCK other", "RLOCK mine:1", "LEAD mine:1", "LEADER mine:1", "ONCE mine:1 1", "RATE mine:1 1 1"):
                assert (await one(it)).startswith("-NOPERM")
            assert "proto" in await other("HELLO 2 AUTH default secret SETNAME me")
            assert await other(f"UNLOCK {lease}") == 1
            said = [str(await one("PING")) for _ in range(9)]
            assert said[-1].startswith("-TOOMANY"), said
            write_tokens(tokens)
            door._gateway.reload()
            assert (await one("PING")).startswith("-NOAUTH")
            await door.close()

    world = Simulation(3)
    world.run(whole())


# ------------------------------------------------ real processes


NEARBY = ("--resp", "127.0.0.1:0")


@pytest.fixture
def port(holdfast: Command) -> Iterator[str]:
    with served(holdfast, at=NEARBY) as (url, _):
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
    with served(holdfast, at=("--resp", f"unix:{place}")), Locks(*nodes.urls) as locks:
        words = [sys.executable, "-c", HOLDER, str(place), "fork" if how == "forked" else ""]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(words, text=True, **pipes) as process:
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
    with served(holdfast, at=NEARBY) as (url, process):
        with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)) as its:
            its.sendall(b"LOCK resp:drain TTL 20000\n")
            lease = its.recv(4096).split(b"\r\n")[2]
            process.terminate()
            until(lambda: its.sendall(b"LOCK resp:other\n") or its.recv(4096).startswith(b"-DRAINING"))
            its.sendall(b"UNLOCK %b\n" % lease)
            assert its.recv(4096) == b":1\r\n"
            assert process.wait(30) == 0


ROOT = Path(__file__).parents[2]


def with_lock() -> str:
    """The script of the page."""
    page = (ROOT / "docs/gateway.md").read_text()
    return "#!/bin/bash" + page.partition("```text\n#!/bin/bash")[2].partition("```")[0]


@pytest.fixture
def ioredis(tmp_path: Path) -> None:
    """Install ioredis beside the test's files."""
    words = ["npm", "install", "--prefix", str(tmp_path), "--no-audit", "--no-fund", "--silent", IOREDIS]
    if shutil.which("npm") is None or subprocess.run(words, check=False, timeout=120).returncode:
        pytest.skip("npm is not installed, or cannot fetch ioredis")


def test_the_script_of_the_page_and_the_clients(port: str, tmp_path: Path, nodes: Nodes, ioredis: None) -> None:
    script, python, node = (tmp_path / it for it in ("with-lock", "client.py", "client.mjs"))
    found = with_lock(), *((ROOT / "examples/resp" / name).read_text() for name in ("session.py", "session.mjs"))
    for it, text in zip((script, python, node), found, strict=True):
        it.write_text(text.replace("7421", port))
    clients = [sys.executable, python], ["node", node]
    with subprocess.Popen(["bash", script, "invoice:42", "sleep", "60"]) as process, Locks(*nodes.urls) as locks:
        until(lambda: locks.is_locked("invoice:42"))
        for words in clients:
            busy = subprocess.run(words, capture_output=True, text=True, check=False)
            assert (busy.returncode, busy.stderr) == (1, "another process has it\n")
        process.kill()
        process.wait()
        for words in clients:
            said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            assert said.startswith("working with fence 1")
