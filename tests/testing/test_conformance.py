"""The examination of servers: real ones pass, and each fault that is planted in a server is found."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.kinds import program

from holdfast.embedded import Nodes
from holdfast.testing import MemoryNodes, memory
from holdfast.testing.commands import COMMANDS
from holdfast.testing.conformance import Examination, __main__, examination, examine
from holdfast.testing.conformance.connection import BadServer
from holdfast.testing.conformance.storm import Storm
from holdfast.testing.server import ServedConnection
from holdfast.testing.values import Reply

pytestmark = pytest.mark.stories

FEW = 1500  # requests of a storm: each of its phases comes


def verdicts(found: Examination) -> dict[str, str]:
    return {it.name: it.verdict for it in found.checks}


def unfit(found: Examination) -> set[str]:
    return {name for name, verdict in verdicts(found).items() if verdict == "unfit"}


@pytest.fixture(scope="module")
def node() -> Iterator[Nodes]:
    with Nodes(1) as nodes:
        yield nodes


@pytest.fixture
def simulated() -> Iterator[MemoryNodes]:
    with memory(1) as nodes:
        yield nodes


def server_of(nodes: MemoryNodes) -> Any:
    return nodes._house.nodes[0].server


@pytest.mark.parametrize("which", ["newest", "oldest"])
def test_a_real_server_can_be_a_node(which: str) -> None:
    with Nodes(1, server=program(which)) as nodes:
        found = examine(nodes.urls[0], requests=FEW)
        assert found.fit, found.table()
        assert found.product == nodes.version
        assert set(verdicts(found).values()) == {"ok", "left out"}, found.table()
        assert found.table().endswith("can be a node")


def test_the_simulated_server_has_none_of_the_faults_below(simulated: MemoryNodes) -> None:
    """Otherwise they would be found in anything. (It does not tell that a tracked key has expired when another client asks.)"""
    found = examine(simulated.urls[0], requests=FEW)
    assert unfit(found) <= {"tracking"}, found.table()


def test_it_leaves_nothing_that_does_not_expire(node: Nodes) -> None:
    examine(node.urls[0], requests=FEW, prefix="mine:")
    from redis import Redis

    with Redis.from_url(node.urls[0]) as client:
        # But for what says that the server is new.
        keys = [it for it in client.scan_iter() if it != b"{holdfast}:adopted"]
        assert keys
        assert all(b"mine:" in it for it in keys), keys
        assert all(client.pttl(it) != -1 for it in keys), keys


Run = Callable[..., Reply]


def _shifted(really: Run, c: ServedConnection, *words: bytes, by: int) -> Reply:
    """A SET whose keys live some milliseconds longer or shorter."""
    at = words.index(b"PX") + 1 if b"PX" in words else 0
    return really(c, *words[:at], b"%d" % (int(words[at]) + by), *words[at + 1 :]) if at else really(c, *words)


def _without(really: Run, c: ServedConnection, *words: bytes, line: bytes) -> Reply:
    said = really(c, *words)
    assert isinstance(said, bytes)
    return b"\r\n".join(it for it in said.split(b"\r\n") if not it.startswith(line))


def _stale(really: Run, c: ServedConnection, key: bytes) -> Reply:
    """Once in ten times a key that is there is not seen, as by a script that read it while another one wrote."""
    return None if c.server.calls[b"GET"] % 10 == 0 else really(c, key)


FAULTS: dict[str, tuple[bytes, Run, str]] = {
    "nobody who waits is found": (b"ZPOPMIN", lambda really, c, key: [], "scripts: exclusive"),
    "messages reach nobody": (b"PUBLISH", lambda really, c, *words: 0, "pushes"),
    "messages lose their last byte": (b"PUBLISH", lambda really, c, whom, it: really(c, whom, it[:-1]), "scripts: exclusive"),
    "no key says how long it lives": (b"PTTL", lambda really, c, key: -1, "scripts: operators"),
    "nothing is deleted": (b"DEL", lambda really, c, *keys: len(keys), "scripts: exclusive"),
    "leases end late": (b"SET", functools.partial(_shifted, by=50), "expiries"),
    "leases end early": (b"SET", functools.partial(_shifted, by=-40), "expiries"),
    "the clock stands still": (b"TIME", lambda really, c: [b"1800000000", b"0"], "expiries"),
    "there is no run id": (b"INFO", functools.partial(_without, line=b"run_id"), "greeting"),
    "there is no role": (b"INFO", functools.partial(_without, line=b"role"), "greeting"),
    "scripts see what was before others": (b"GET", _stale, "atomicity"),
    "RESP2 only": (b"HELLO", lambda really, c, *words: b"OK" if really(c, *words) else b"", "greeting"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_server_is_found(fault: str, simulated: MemoryNodes) -> None:
    name, run, check = FAULTS[fault]
    faulty = dataclasses.replace(COMMANDS[name], run=functools.partial(run, COMMANDS[name].run))
    server_of(simulated).commands = {**COMMANDS, name: faulty}
    found = examine(simulated.urls[0], requests=FEW, seconds=0.5)
    assert check in unfit(found), found.table()
    assert not found.fit
    assert "cannot be a node: " in found.table()


def test_a_replica_is_found(simulated: MemoryNodes) -> None:
    server_of(simulated).role = b"slave"
    found = examine(simulated.urls[0])
    assert [it.verdict for it in found.checks] == ["unfit"]
    assert "b'slave'" in found.table() or "'slave', not 'master'" in found.table()


def test_tracking_that_is_denied_is_no_fault(simulated: MemoryNodes) -> None:
    server_of(simulated).refuse[b"CLIENT"] = b"NOPERM this user has no permissions to run the 'client' command"
    found = examine(simulated.urls[0], requests=FEW)
    assert verdicts(found)["tracking"] == "not permitted"
    assert found.fit, found.table()


def test_two_holders_and_an_earlier_fence_are_blamed(node: Nodes) -> None:
    """The checker by itself: its verdict does not depend on a race."""
    address = examination.addresses.parse(node.urls[0])
    connections = [examination.BareConnection(address, examination.BASIC) for _ in range(2)]
    for it in connections:
        it.greet()
    storm = Storm(connections, b"checked")
    one, two = storm.clients
    one.token, two.token = b"one", b"two"
    one.hold(7)
    assert storm.outcome.wrong == []
    two.hold(8)
    assert storm.outcome.wrong == ["two and one hold the lock at once"]
    one.state = two.state = "idle"
    one.hold(8)
    assert storm.outcome.wrong[1:] == ["fence 8 was granted after 8"]
    one.state = "released"
    one.answered(0)
    assert storm.outcome.wrong[2:] == ["a holder's release answers 0: it no longer held the lock"]
    for it in connections:
        it.close()


def test_a_restart_is_noticed() -> None:
    with Nodes(1) as nodes:
        found = examine(nodes.urls[0], requests=FEW, restart_command=lambda: nodes.restart(0))
        assert found.checks[-1] == examination.Check("restart", "ok", "noticed, data lost")


def test_a_restart_that_cannot_be_noticed_is_found(node: Nodes) -> None:
    """Planted: the command restarts nothing, so run id and uptime are the same."""
    found = examine(node.urls[0], requests=FEW, restart_command="true")
    assert found.checks[-1].verdict == "unfit"
    assert "run id is the same" in found.checks[-1].detail
    found = examine(node.urls[0], requests=FEW, restart_command="echo no >&2; exit 4")
    assert found.checks[-1].detail == "the restart command ended with 4: no"


def test_nobody_listens() -> None:
    found = examine("redis://127.0.0.1:1")
    assert "cannot connect" in found.table()
    assert found.product == ""
    with pytest.raises(BadServer):
        examination.BareConnection(examination.addresses.parse("unix:///nowhere/at/all"))


def test_the_command_line(node: Nodes, simulated: MemoryNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--requests", "500"]
    # Twice the same server: what the first examination has left is still there.
    assert __main__.main([*node.urls, *node.urls, *few]) == 0
    assert __main__.main([*node.urls, *few, "--json", str(tmp_path / "found")]) == 0
    (said,) = json.loads((tmp_path / "found").read_text())
    assert said["fit"] is True
    assert said["product"] == node.version
    server_of(simulated).role = b"slave"
    assert __main__.main([*node.urls, *simulated.urls, *few]) == 2
    assert "can be a node" in (told := capsys.readouterr().out)
    assert "cannot be a node: greeting" in told
    for wrong in ([], ["ftp://x"], ["redis://a", "redis://b", "--restart", "true"]):
        with pytest.raises(SystemExit) as raised:
            __main__.main(wrong)
        assert raised.value.code == 2
