"""What a process notes and tells for its guardian, and what that does with it when the process is dead. The live tests have real ones."""

from __future__ import annotations

import itertools
import marshal
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from holdfast import ConfigError, Holdfast, aio
from holdfast.drivers.access import accesses
from holdfast.drivers.guardian import keeper, program
from holdfast.drivers.guardian.keeper import LOOKS, MARK
from holdfast.drivers.guardian.program import ENOUGH, PAUSES, SOON, NodeAccess
from holdfast.drivers.guardian.records import GRAIN, LATE, MOST, Records
from holdfast.protocol.exclusive import Exclusive
from holdfast.wire.address import Tls, parse
from holdfast.wire.resp import pack

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells when another process has died")

# ------------------------------------------------ what is noted


def recorded(records: Records, engine: int = 7) -> list[bytes]:
    return program._recorded(records.file).get(engine, [])


def test_what_is_dropped_counts_for_some_records_more() -> None:
    records = Records("test")
    places = [records.write(7, b"%d" % it) for it in range(LATE + 3)]
    records.drop(places[0])
    assert recorded(records) == [b"%d" % it for it in range(LATE + 3)], "its release may not have left yet"
    for it in places[1 : LATE + 1]:
        records.drop(it)
    assert recorded(records) == [b"%d" % it for it in range(1, LATE + 3)], "the oldest has left long ago"
    assert records.write(7, b"again") == places[0], "its place is used again"
    records.clear(places[-1])
    assert recorded(records) == [b"again", *[b"%d" % it for it in range(1, LATE + 2)]]


def test_a_record_that_was_being_written_does_not_count() -> None:
    records = Records("test")
    places = [records.write(7, it * 300) for it in (b"a", b"b", b"c")]
    records._map[places[1]] = 0  # (the first byte is written last)
    records._map[places[1] + 4 : places[1] + 8] = b"\xff" * 4
    assert recorded(records) == [b"a" * 300, b"c" * 300]


def test_there_is_room_for_so_much() -> None:
    records, longest = Records("test"), b"x" * (GRAIN * MOST - 8)
    assert records.write(7, longest) and recorded(records) == [longest]
    assert records.write(7, longest + b"x") == 0
    records = Records("test", GRAIN * 4)
    first = records.write(7, b"x")
    assert records.write(7, b"y" * GRAIN)
    assert records.write(7, b"z") == 0
    records._growing.acquire()  # (a handler of a signal interrupts the one that writes)
    records.drop(first)
    assert records.write(7, b"z") == first
    assert recorded(records) == [b"z", b"y" * GRAIN]


# ------------------------------------------------ what it is told

WAYS = accesses([parse("redis://:pw@a/3"), parse("rediss://b"), parse("unix:///c")], None, None)
RECIPE = Exclusive("it", ttl=10.0, horizon=30)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The guardians that were started: none of them runs."""
    found = list[Any]()

    def start(command: list[str], env: dict[str, str], **options: object) -> Any:
        link = socket.socket(fileno=os.dup(int(command[5])))
        link.settimeout(0.0)
        found.append(mock.Mock(command=command, environment=env, link=link, returncode=-9))
        found[-1].poll.return_value = None
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(keeper, "_keepers", {})
    monkeypatch.setattr(keeper, "_marks", {})
    monkeypatch.setenv(MARK, "of-its-parent")
    files = os.listdir("/proc/self/fd")
    yield found
    for it in keeper._keepers.values():
        it.stop()
    keeper._keepers.clear()
    for it in found:
        it.link.close()
    assert os.listdir("/proc/self/fd") == files, "something is open still"


def heard(guardian: Any) -> Iterator[dict[str, Any]]:
    """What it was told."""
    with suppress(BlockingIOError):
        while data := guardian.link.recv(1 << 20):
            yield marshal.loads(data)


def connected(*nodes: int) -> keeper.GuardedEngine:
    """An engine that is connected to these nodes."""
    engine = keeper.GuardedEngine(30.0, WAYS)
    for it in nodes:
        engine.connected(it, WAYS[it].address)
    return engine


def claim(at_least: float = 0.0, stays: bool = False) -> Any:
    return SimpleNamespace(recipe=RECIPE, timing=SimpleNamespace(at_least=at_least), stays=stays)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.message.removesuffix(". Without it, the locks of a killed process are free after their ttl") for it in caplog.records]


def fails(*_: object, **__: object) -> None:
    raise OSError("no memory")


def test_one_guardian_hears_of_the_nodes_of_all_clients_and_ends_with_the_last(started: list[Any]) -> None:
    keeper.prepare([])
    engines = connected(0, 1, 2), connected(0)
    (guardian,) = started
    one = {"engine": 1, "node": 0, "lasts": 30.0, "place": ("a", 6379), "login": (b"default", b"pw"), "database": 3, "tls": None}
    other = {**one, "login": None, "database": 0}
    tls = {it: getattr(Tls(), it) for it in Tls.fields}
    two = {**other, "node": 1, "place": ("b", 6379), "tls": tls}
    assert list(heard(guardian)) == [one, two, {**other, "node": 2, "place": "/c"}, {**one, "engine": 2}]
    mark, born = os.environ[MARK].split()[1], program._read("self", "stat").rpartition(b") ")[2].split()[19]
    assert guardian.command[:4] + guardian.command[7:] == [sys.executable, "-I", "-S", program.__file__, mark, born.decode()]
    assert guardian.environment == {name: value for name, value in os.environ.items() if name != MARK}
    for engine, ends in zip(engines, ([], ["kill", "wait"]), strict=True):
        engine.close()
        assert [it[0] for it in guardian.method_calls] == ends
    # One that has not read for long keeps nobody waiting.
    connected(*[0] * 1000)
    assert len(started) == 2


def test_each_fork_has_one_mark_more_and_a_guardian_of_its_own(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        keeper.prepare([])
        assert len(os.environ[MARK].split()) == 2, "what it starts from now on has it"
    parent = connected(0)
    monkeypatch.setattr(keeper, "FORKS", [None] * 9)
    keeper._forked()
    assert len(os.environ[MARK].split()) == 3
    connected(0)
    parent.close()
    assert ["of-its-parent", *[it.command[7] for it in started]] == os.environ[MARK].split()
    assert [it.kill.called for it in started] == [False, False], "the child of a fork ended its parent's"


def test_a_token_is_recorded_from_its_request_to_its_release(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.drivers.guardian.records.LATE", 0)
    engine, other = keeper.GuardedEngine(30.0, WAYS), connected(0)
    engine.asks(claim(), b"before")
    engine.connected(0, WAYS[0].address)
    for it in (b"one", b"one", b"two", b"three"):
        engine.asks(claim(), it)
    engine.asks(claim(at_least=1.0), b"rests")
    engine.asks(claim(stays=True), b"stays")
    other.asks(claim(), b"other")
    (of,), left = keeper._keepers.values(), {it: RECIPE.release(it, True, 0.0) for it in (b"one", b"two", b"three")}
    ends: dict[bytes, Any] = {b"": lambda _: None, b"one": engine.ends, b"two": engine.stays, b"three": lambda _: engine.close()}
    for token, end in ends.items():
        end(token)
        left.pop(token, None)
        assert [recorded(of.records, it) for it in (1, 2)] == [[RECIPE.release(b"other", True, 0.0)], [*left.values()]]


def test_a_guardian_that_ends_is_missed_and_replaced(started: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """At the next renewal, or when so many locks were acquired meanwhile."""
    engine = connected(0, 1)
    found = []
    for number in range(2 * LOOKS):
        started[0].poll.return_value = -9
        engine.asks(claim(), b"%d" % number)
        found.append(len(started))
    assert found == [1] * (LOOKS - 1) + [2] * (LOOKS + 1)
    for _ in range(5):
        started[-1].poll.return_value = -9
        engine.asks(claim(), b"1")
    engine.connected(0, WAYS[0].address)
    assert warned(caplog) == ["the guardian of this process has ended with status -9"] * 3
    assert [[it["node"] for it in heard(guardian)] for guardian in started] == [[0, 1]] * 3
    engine.close()


def test_what_it_cannot_have_it_goes_without(started: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for target, name, value, complaint in (
        (subprocess, "Popen", fails, ["the guardian of this process cannot be started: no memory"] * 3),
        (keeper, "Records", fails, ["the guardian of this process has no memory: no memory"] * 4),
        (Records, "write", lambda *_: 0, ["this process has more locks than its guardian has room for"]),
    ):
        caplog.clear()
        with monkeypatch.context() as patched:
            patched.setattr(target, name, value)
            engine = connected(0, 1, 2, 0)
            for it in (b"one", b"two"):
                engine.asks(claim(), it)
            engine.close()
        assert warned(caplog) == complaint


def test_what_cannot_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Holdfast, aio.Holdfast):
        with pytest.raises(ConfigError, match="rediss://a:6379: guardian=True cannot hand an SSLContext to another"):
            kind("rediss://a", guardian=True, ssl=ssl.create_default_context())
    monkeypatch.setenv("HOLDFAST_GUARDIAN", "yes")
    with pytest.raises(ConfigError, match="HOLDFAST_GUARDIAN must be 1 or 0, not 'yes'"):
        Holdfast("redis://a")
    monkeypatch.setenv("HOLDFAST_GUARDIAN", "1")
    for target, name, value, complaint in (
        (sys, "executable", "", r"sys\.executable is no Python here"),
        (sys, "frozen", True, r"sys\.executable is no Python here"),
        (os, "pidfd_open", fails, r"guardian=True needs Linux 5\.3 or newer, and /proc: no memory"),
        (os, "pidfd_open", None, r"guardian=True needs Linux 5\.3 or newer, which"),
        (os, "memfd_create", None, r"guardian=True needs Linux 5\.3 or newer, which"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(target, name, value, raising=False)
            if value is None:
                patched.delattr(target, name)
            with pytest.raises(ConfigError, match=complaint):
                Holdfast("redis://a")
            Holdfast("redis://a", guardian=False)


# ------------------------------------------------ what it does

COMMANDS = [pack(b"EVALSHA", b"one"), pack(b"EVALSHA", b"two")]
SAID, GREETING = b"".join(COMMANDS), pack(b"CLIENT", b"SETNAME", b"holdfast-guardian")


def told(**facts: Any) -> dict[str, Any]:
    return {"engine": 7, "node": 0, "lasts": 30.0, "place": "a", "login": None, "database": 0, "tls": None, **facts}


def test_what_it_was_told_of_each_node_it_hears_several_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node hangs up after its first and its third message, and another one is away."""
    heard, slept = defaultdict[Any, list[bytes]](list), list[float]()

    class Wire:
        """A connection, on which the node answers each command with a line."""

        def __init__(self, *kind: int) -> None:
            self.made = [*kind]
            self.settimeout = self.made.append

        def connect(self, where: Any) -> None:
            assert self.made == [socket.AF_UNIX if isinstance(where, str) else socket.AF_INET, socket.SOCK_STREAM, program.PATIENCE]
            self.sendall = (said := heard[where]).append
            self.recv = lambda _: b"" if where == "ill" and len(said) in (1, 3) else b"+OK\r\n" * said[-1].count(b"*")

    monkeypatch.setattr(program, "_socket", SimpleNamespace(**{**vars(socket), "socket": Wire}))
    monkeypatch.setattr(program, "time", SimpleNamespace(sleep=slept.append))
    nodes = [NodeAccess(told(place=it)) for it in ("ill", ("127.0.0.1", 7), ("no such family",))]
    nodes += [NodeAccess(told(place="strict", login=(b"me", b"pw"), database=3)), NodeAccess(told(place="other", engine=8))]
    program._free({(it.engine, number): it for number, it in enumerate(nodes)}, {7: COMMANDS})
    assert heard == {
        "strict": [pack(b"AUTH", b"me", b"pw") + pack(b"SELECT", b"3") + GREETING, *[SAID] * ENOUGH],
        ("127.0.0.1", 7): [GREETING, *[SAID] * ENOUGH],
        "ill": [GREETING, GREETING, SAID, GREETING, *[SAID] * ENOUGH],
    }
    assert sum(PAUSES[:ENOUGH]) < 0.1, "its locks are to be free at once"
    assert len(slept) == 2 * ENOUGH + (2 + ENOUGH) + len(PAUSES)


# ------------------------------------------------ who lives

REAPER, BORN = 2, 40


def status(state: str = "S", parent: int = 1, born: int = BORN) -> bytes:
    return f"7 (a) b) {state} {parent} {' '.join('0' * 17)} {born} 0".encode()


# What `/proc` says of a process, as long as it is there: its status, its environment, and what it has mapped.
LIVE = [(status(), b"A=B\0MARK=older mark"), (status(), b"A=B", b"/memfd:holdfast-mark"), (status(parent=REAPER), b"", b"")]
DEAD = [(status(), b"A=B", b"libc.so"), (status(), b"", b""), (status(parent=REAPER), b"A=B", b""), (status(born=BORN - 1), b"mark")]
DEAD += [(status("Z"), b"mark"), (status("X"), b"mark"), (b"7 (a) S", b"mark")]


@pytest.mark.parametrize("process", [*LIVE, *DEAD])
def test_whom_it_takes_for_alive(process: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs and forks of the dead process, and what has no environment yet; and neither itself nor what ends while it looks."""
    of = {"1": (), "9": process, "100": LIVE[0]}
    monkeypatch.setattr(program, "_read", lambda process, name: of[process][("stat", "environ", "maps").index(name)])
    system = SimpleNamespace(getpid=lambda: 100, getppid=lambda: REAPER, listdir=lambda _: ["net", "100", "1", "9"])
    monkeypatch.setattr(program, "os", system)
    assert program._kin(b"mark", BORN) == (9 if process in LIVE else 0)


def test_what_proc_says_is_read_whole_and_a_death_is_waited_for() -> None:
    name = str(os.getpid())
    assert program._read(name, "maps")[-80:] == Path("/proc/self/maps").read_bytes()[-80:]
    assert program._read(name, "stat").split()[0] == name.encode()
    program._await(os.getpid(), 0.001)
    with subprocess.Popen(["true"]) as child:
        program._await(child.pid, 60.0)
        assert child.poll() == 0
    program._await(child.pid, 60.0)


# ------------------------------------------------ the whole


@pytest.mark.parametrize(
    "messages, kin, linked, looks, places",
    [
        ([told(), b"nonsense", told(node=1, place="b"), told(place="c")], 0, False, 0, {(7, 0): "c", (7, 1): "b"}),
        ([told()], 10, False, 10, {(7, 0): "a"}),
        # The process dies at 0, and a second goes by with each look.
        ([told(lasts=5.0), told(lasts=4.0)], 99, False, 2, None),
        ([told(lasts=5.0), told(lasts=4.0)], 0, True, 0, None),
    ],
)
def test_it_releases_what_was_recorded_when_nobody_lives(
    messages: list[Any], kin: int, linked: bool, looks: int, places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed, waited, ignored, living = list[Any](), list[float](), list[object](), itertools.chain([9] * kin, itertools.repeat(0))
    monkeypatch.setattr(program, "_free", lambda nodes, recorded: freed.append(({it: node.place for it, node in nodes.items()}, recorded)))
    time = itertools.count(0.0)
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=time.__next__))
    fakes: dict[str, Any] = {"_recorded": lambda file: file, "_await": lambda process, pause: waited.append(pause), "LATER": 0.03}
    fakes |= {"_kin": lambda *what: next(living) if what == (b"mark", BORN) else None}
    for name, it in fakes.items():
        monkeypatch.setattr(program, name, it)
    monkeypatch.setattr("_signal.signal", lambda *what: ignored.append(what))
    # A pidfd can be read, too, when the process is dead.
    (dead, end), (ours, theirs) = socket.socketpair(), socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.close()
    with dead, ours, theirs:
        for it in messages:
            ours.send(it if isinstance(it, bytes) else marshal.dumps(it))
        if not linked:
            ours.shutdown(socket.SHUT_RDWR)
        program.main(dead.fileno(), theirs.fileno(), 77, "mark", BORN)
    assert ignored == [(it, signal.SIG_IGN) for it in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert freed == ([(places, 77)] if places else [])
    assert waited == [min(SOON * 2**it, 0.03) for it in range(looks)]
    assert places or next(time) == 6.0
