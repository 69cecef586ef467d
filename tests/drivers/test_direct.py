"""Callers that speak to the nodes themselves, and the I/O thread, which goes on where that is not usual."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from contract.cluster import Cluster
from live.kit import io_thread_of
from nemesis.processes import until

from holdfast import Holdfast, Lease
from holdfast.drivers import unyielding
from holdfast.drivers.threads import direct
from holdfast.embedded import Nodes
from holdfast.wire.connection import Connection

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(Nodes(3)) as cluster:
        yield cluster


@pytest.fixture
def client(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    # However busy the machine is: its nodes are near, and a moment is long enough for them.
    monkeypatch.setattr(direct, "NEAR", 10.0)
    monkeypatch.setattr(direct, "MOMENT", 1.0)
    with Holdfast(*three.urls, ttl=2) as client:
        client.ready()
        client.lock("warm").acquire().release()
        until(lambda: io_thread_of(client).direct.near)
        yield client


def results(of: object, name: str) -> list[Any]:
    """What a method returns from now on."""
    found, real = list[Any](), getattr(of, name)
    setattr(of, name, lambda *what: found.append(real(*what)) or found[-1])
    return found


def test_a_caller_settles_it_itself_and_the_io_thread_renews_what_is_kept(client: Holdfast, three: Cluster) -> None:
    settled, released = results(io_thread_of(client).direct, "acquire"), results(io_thread_of(client).direct, "release")
    leases = list[Lease]()
    # (On a busy machine, a caller does not always wait for the answers.)
    while settled.count(True) < 25:
        leases.append(client.lock(f"itself{len(leases)}").acquire())
        assert len(leases) < 1000, "on nodes that are near it need not wait for another thread"
    assert client.stats().held == len(client.leases()) == len(leases), "they are known at once"
    assert io_thread_of(client).direct._own is None, "the last claim was kept until the next one"
    time.sleep(2.2)
    assert all(it.held for it in leases)
    for it in leases:
        it.release()
    stats = client.stats()
    assert True in released and (stats.attempts, stats.released) == (len(leases) + 1,) * 2
    until(lambda: not any(three.holders(it.name) != [None] * 3 for it in leases))
    until(lambda: not io_thread_of(client).engine.live and not io_thread_of(client)._pending_calls)


def test_a_caller_that_does_not_come_back_stops_nobody(client: Holdfast) -> None:
    """It stands in the middle of the engine, as in a signal's handler that waits. Others have what they want, and keep it."""
    lease = client.lock("kept").acquire()
    io_thread_of(client).direct.turn[0] = stranger = object()
    io_thread_of(client).direct.doubtful = (0,)
    began = time.monotonic()
    with client.lock("another", wait=5):
        assert time.monotonic() - began < 2.5
    assert io_thread_of(client).direct.turn.get(0) is not stranger
    until(lambda: [it.state for it in client.nodes()] == ["up"] * 3)
    time.sleep(2.2)
    assert lease.held, "renewals went on, and the connection that it may have left half used is another one"
    lease.release()


@pytest.mark.parametrize("taken", [0, 7, -1])
def test_what_the_kernel_does_not_take_at_once_the_io_thread_sends(client: Holdfast, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    send, short = unyielding.send, [True]

    def takes_less(file: int, data: bytes, size: int, flags: int) -> int:
        if not short or threading.current_thread() is not threading.main_thread():
            return send(file, data, size, flags)
        short.clear()
        return send(file, data, taken, flags) if taken > 0 else taken

    monkeypatch.setattr(unyielding, "send", takes_less)
    with client.lock("in two parts", wait=5) as lease:
        until(lambda: lease.votes == 3)
    assert not short


def test_an_exception_in_the_middle_of_a_send_costs_one_connection(client: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether the bytes have left. So the client connects to that node again, and nothing else happens."""
    lease, send, strikes = client.lock("kept").acquire(), unyielding.send, [True]

    def strikes_once(file: int, data: bytes, size: int, flags: int) -> int:
        if strikes and threading.current_thread() is threading.main_thread():
            strikes.clear()
            raise KeyboardInterrupt
        return send(file, data, size, flags)

    monkeypatch.setattr(unyielding, "send", strikes_once)
    with pytest.raises(KeyboardInterrupt):
        client.lock("struck").acquire()
    with client.lock("struck", wait=5):
        assert lease.held
    lease.release()
    assert client.stats().down == 1 and client.stats().lost == 0


class TimeIsUp(Exception):
    """What the handler of a signal raises, as Celery's does."""


@pytest.mark.parametrize("call", ["expected", "ready"])
def test_a_time_limit_that_strikes_while_a_caller_speaks_reaches_it(client: Holdfast, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, strikes = getattr(Connection, call), [True]

    def struck(*arguments: Any) -> Any:
        if strikes and threading.current_thread() is threading.main_thread():
            strikes.clear()
            raise TimeIsUp
        return real(*arguments)

    monkeypatch.setattr(Connection, call, struck)
    with pytest.raises(TimeIsUp):
        client.lock("limited").acquire()
    with client.lock("limited", wait=5):
        assert client.stats().lost == 0


def test_nobody_waits_in_vain_again_and_again(client: Holdfast, three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that do not answer in a moment are left to the I/O thread, for a while."""
    waits = list[int]()
    poll = unyielding.poll

    def counted(files: Any, count: int, milliseconds: int) -> int:
        waits.append(count)
        return 0

    monkeypatch.setattr(unyielding, "poll", counted)
    began = time.monotonic()
    for _ in range(20):
        client.lock("vain").acquire().release()
    assert 0 < len(waits) <= 1 + (time.monotonic() - began) / direct.PAUSE
    monkeypatch.setattr(unyielding, "poll", poll)


def test_what_a_caller_begins_while_its_io_thread_ends_is_kept(client: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the I/O thread's last look and its end."""
    io_thread, leases = io_thread_of(client), list[Any]()
    finished = io_thread._finished

    def just_then() -> bool:
        if leases or threading.current_thread() is threading.main_thread():
            return bool(finished())
        threading.Thread(target=lambda: leases.append(client.lock("at the end").acquire())).start()
        until(lambda: leases or io_thread.direct.done)
        return True

    io_thread.direct.used = 0.0
    monkeypatch.setattr(io_thread, "_finished", just_then)
    io_thread.ask(lambda now: None)
    until(lambda: bool(leases))
    time.sleep(2.2)
    assert leases[0].held, "it is renewed"
    leases[0].release()


# ------------------------------------------------ the C library


def test_where_there_is_no_ctypes_sockets_do_it_all() -> None:
    program = "import sys; sys.modules['ctypes'] = None; from holdfast.drivers import unyielding as it; "
    program += "print(it.send(1, b'', 0, 0), it.place(bytearray(9)))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
    assert told == "-1 -1\n"


def test_what_the_c_library_is_told_and_tells() -> None:
    here, there = socket.socketpair()
    with here, there:
        for end in (here, there):
            end.setblocking(False)
        buffer = bytearray(100)
        place = unyielding.place(buffer)
        assert unyielding.recv(there.fileno(), place, len(buffer), 0) == -1  # nothing has come: `there.recv_into` says so
        assert unyielding.send(here.fileno(), b"\0 and \xff", 7, 0) == 7
        assert unyielding.recv(there.fileno(), place, len(buffer), 0) == 7 and buffer[:8] == b"\0 and \xff\0"
        much = bytes(10_000_000)
        assert 0 < unyielding.send(here.fileno(), much, len(much), 0) < len(much)
        assert unyielding.send(here.fileno(), much, len(much), 0) == -1
    assert unyielding.send(here.fileno(), b"!", 1, 0) == -1
    bell, clapper = os.pipe()
    os.write(clapper, b"!!!")
    assert unyielding.read(bell, place, len(buffer)) == 3
    os.close(bell)
    os.close(clapper)
