"""`holdfast doctor`: what is wrong with nodes, who else uses them, and a command for each finding that is not ok."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis
from cli.kit import Command
from live.groups import SECRET, Group, Watch
from nemesis.processes import Running, free_port, until
from serve.balancer import program

from holdfast import Holdfast, NodeStatus, __version__
from holdfast.cli import doctor
from holdfast.cli.processes import _parts, connected
from holdfast.embedded import Nodes
from holdfast.testing import memory

# What a remedy has in it: something to type, or a variable to set.
COMMAND = re.compile(r"redis-cli |holdfast \w|export HOLDFAST_\w+=|chronyc |timedatectl |python -m holdfast\.")


def examined(tmp_path: Path, environment: dict[str, str], *words: str) -> dict[str, Any]:
    """What the doctor says."""
    done = Command(tmp_path, environment).run("doctor", "--json", *words)
    told: dict[str, Any] = json.loads(done.stdout)
    for it in told["checks"]:
        assert (it["level"] == "ok") or (COMMAND.match(it["fix"]) and shlex.split(it["fix"], comments=True)), it
        assert (it["level"] == "ok") or (it["doc"] and (Path(__file__).parents[2] / it["doc"].partition("#")[0]).exists()), it
    return told


def told(examination: dict[str, Any], check: str) -> list[str]:
    """What one check has found."""
    return [it["found"] for it in examination["checks"] if it["check"] == check]


def levels(told: dict[str, Any], check: str) -> list[str]:
    return [it["level"] for it in told["checks"] if it["check"] == check]


def test_doctor_names_the_command_that_examines_another_product(tmp_path: Path) -> None:
    with memory(1) as nodes:
        server, url = nodes._house.nodes[0].server, nodes.urls[0]
        real = server.commands[b"INFO"]

        def info(*asked: Any) -> bytes:
            return bytes(real.run(*asked)) + b"garnet_version:1.0.84\r\n"

        nodes._told(lambda: setattr(server, "commands", {**server.commands, b"INFO": replace(real, run=info)}))
        told = examined(tmp_path, {"HOLDFAST_NODES": f"{url}?unproven=true"})
    (found,) = [it for it in told["checks"] if it["check"] == "product"]
    assert (found["level"], found["fix"]) == ("warning", f"python -m holdfast.testing.conformance {url}")


def test_doctor_is_content_with_good_nodes(holdfast: Command) -> None:
    told = json.loads(holdfast.run("doctor", "--json").stdout)
    assert {it["check"] for it in told["checks"]} >= {"state", "role", "eviction", "persistence", "rights", "round trip", "drift"}
    assert [it for it in told["checks"] if it["level"] == "unsafe"] == []


def test_every_finding_of_the_doctor_has_a_remedy(tmp_path: Path) -> None:
    with Nodes(3) as nodes:
        nodes.kill(0)
        nodes.restart(1)
        told = examined(tmp_path, nodes.environment)
    assert told["verdict"] == "no quorum"
    assert set(levels(told, "state")) == {"ok", "warning"}
    assert set(levels(told, "persistence")) == {"ok"}, "nothing is kept"


# ------------------------------------------------ who else is there


def test_clients_are_told_apart() -> None:
    listed = (
        "id=3 addr=a name=holdfast:web-3:0123abcd lib-name=holdfast lib-ver=0.1.0\n"
        "id=4 addr=b name=holdfast:me:0123abcd lib-name=holdfast lib-ver=0.1.0\n"
        "id=5 addr=c name= lib-name=redis-py user=default\n"
        "id=6 addr=d name=cron=daily=2 user=default\n"
        "id=7 addr=e name=sentinel-0123abcd-cmd flags=N user=default\n"
        "id=8 addr=f name=sentinel-0123abcd-pubsub flags=P user=default\n"
        "id=9 addr=g name= flags=S user=default\n"
    )
    ours, others = connected(listed, "me")
    assert (ours, dict(others)) == (["web-3"], {"redis-py": 1, "cron=daily=2": 1})
    assert connected("", "me")[0] == []


# What somebody has written, and with which prefix the doctor looks.
KEYS: dict[str, tuple[str, list[str], str]] = {
    "a list": ("app:", ["RPUSH", "app:celery", "x"], "warning"),
    "a text for ever": ("app:", ["SET", "app:config", "x"], "warning"),
    "a lock of another client": ("app:", ["SET", "app:lock", "x", "PX", "60000"], "ok"),
    "another prefix": ("app:", ["SET", "other:config", "x"], "ok"),
    "a prefix that is no pattern": ("a*", ["SET", "axb", "x"], "ok"),
    "a prefix that could be a pattern": ("a*b[c", ["SET", "a*b[c]", "x"], "warning"),
    "what belongs to a lock": ("app:", ["SET", "{app:lock}:fence", "1"], "ok"),
}


@pytest.mark.parametrize("case", KEYS)
def test_keys_of_other_programs_are_found(case: str, tmp_path: Path) -> None:
    prefix, command, level = KEYS[case]
    with Nodes(1) as nodes, redis.Redis.from_url(nodes.urls[0]) as node:
        node.execute_command(*command)
        with Holdfast(*nodes.urls, prefix="app:") as locks, locks.lock("held"):
            told = examined(tmp_path, nodes.environment, "--prefix", prefix)
            (found,) = (it for it in told["checks"] if it["check"] == "keys")
    assert found["level"] == level, found
    if level == "warning":
        assert command[1] in found["found"]
    if case == "a text for ever":
        assert "If clients of another library share locks with holdfast, change nothing until they are gone" in found["fix"]


def test_how_much_was_looked_at() -> None:
    assert _parts(b"0", 20, 5001) == ""
    assert _parts(b"7", 20, 5001) == " (looked at 1,000 of 5,001 keys)"
    assert _parts(b"7", 21, 0) == " (looked at 1,000 keys; there are more, closely at 20 of 21 names)"


@contextmanager
def balancer(folder: Path, urls: Sequence[str]) -> Iterator[str]:
    """A load balancer: each connection goes to the next server."""
    port, config = free_port(), folder / f"haproxy-{len(urls)}.cfg"
    servers = [f"server node-{number} unix@{it.removeprefix('unix://')}" for number, it in enumerate(urls)]
    timeouts = [f"timeout {it} 20s" for it in ("connect", "client", "server")]
    config.write_text("\n".join(["defaults", "mode tcp", *timeouts, "listen all", f"bind 127.0.0.1:{port}", *servers, ""]))
    with Running(program(), "-db", "-f", config):
        until(lambda: socket.create_connection(("127.0.0.1", port)).close() is None)
        yield f"redis://127.0.0.1:{port}"


def test_a_load_balancer_is_found(tmp_path: Path) -> None:
    with Nodes(2) as nodes, balancer(tmp_path, nodes.urls) as url:
        told = examined(tmp_path, {**nodes.environment, "HOLDFAST_NODES": url})
        assert levels(told, "proxy") == ["unsafe"]
    with Nodes(1) as nodes, balancer(tmp_path, nodes.urls) as url:
        assert levels(examined(tmp_path, {**nodes.environment, "HOLDFAST_NODES": url}), "proxy") == ["ok"]


# ------------------------------------------------ a Sentinel group


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Group, dict[str, str]]]:
    """A primary with two replicas, of which it wants one, and the environment that names its Sentinels."""
    folder = tmp_path_factory.mktemp("doctor-sentinels")
    group = Group("it", folder, 10)
    watch = Watch(folder, [group])
    url = f"redis+sentinel://:{SECRET}@{watch.places}/it?failover=12"
    yield group, {"HOLDFAST_NODES": url, "HOLDFAST_RESTART_GUARD": "off"}
    watch.close()
    group.close()


def sets(group: Group, writes: int, lag: int) -> None:
    """Change what a primary wants of its replicas. (Redis 6.2 sets one thing at a time.)"""
    for setting, value in (("min-replicas-to-write", writes), ("min-replicas-max-lag", lag)):
        assert group.primary.ask("CONFIG", "SET", setting, value) == "OK"


# What the primary wants of its replicas, what its address says, and what is found.
BOUNDS: dict[str, tuple[int, int, str, str, str]] = {
    "true": (2, 10, "?failover=12", "ok", "primary with 2 replicas, and failover= in its address"),
    "asked for": (0, 10, "", "ok", "primary with 2 replicas, and clients ask again and again where the node is"),
    "too few": (1, 10, "?failover=12", "unsafe", "min-replicas-to-write is 1, and it has 2 replicas"),
    "too late": (
        2,
        11,
        "?failover=12",
        "unsafe",
        "min-replicas-max-lag is 11: an old primary goes on for up to 13 s, and its address says",
    ),
    "none": (2, 10, "", "warning", "2 replicas, efficient, not safe"),
    "given up": (0, 10, "?failover=0", "ok", "primary with 2 replicas, and failover= in its address"),
}


def by_itself(group: Group, environment: dict[str, str], bound: str = "?failover=12", user: str = "") -> dict[str, str]:
    """The same, but nobody is asked where the primary is."""
    return {**environment, "HOLDFAST_NODES": f"redis://{user}:{SECRET}@127.0.0.1:{group.primary.port}{bound}"}


@pytest.mark.parametrize("case", BOUNDS)
def test_a_bound_that_is_not_true_is_found(case: str, watched: tuple[Group, dict[str, str]], tmp_path: Path) -> None:
    writes, lag, bound, level, words = BOUNDS[case]
    group, environment = watched
    sets(group, writes, lag)
    told = examined(tmp_path, environment if case == "asked for" else by_itself(group, environment, bound))
    (found,) = [it for it in told["checks"] if it["check"] == "role"]
    assert found["level"] == level and found["found"].startswith(words)
    if level == "warning":
        assert "?failover=15" in found["fix"]
    if level == "unsafe":
        cli = f"redis-cli -u redis://127.0.0.1:{group.primary.port} CONFIG SET"
        fix = f"{cli} min-replicas-to-write 2 && {cli} min-replicas-max-lag 10  # on all servers of the group, then CONFIG REWRITE"
        assert found["fix"].startswith(fix)
    assert not any("+sentinel" in it["fix"] for it in told["checks"])


def test_of_a_replica_it_is_said_where_to_find_its_primary(watched: tuple[Group, dict[str, str]], tmp_path: Path) -> None:
    group, environment = watched
    replica = next(it for it in group.servers if it is not group.primary)
    url = f"redis://:{SECRET}@127.0.0.1:{replica.port}"
    (found,) = examined(tmp_path, {**environment, "HOLDFAST_NODES": url})["checks"]
    assert found["level"] == "unsafe" and "INFO replication  # it tells the primary" in found["fix"]


def test_a_bound_that_this_user_may_not_see_is_not_called_checked(watched: tuple[Group, dict[str, str]], tmp_path: Path) -> None:
    group, environment = watched
    sets(group, 2, 10)
    group.primary.ask("ACL", "SETUSER", "app", "on", f">{SECRET}", "~*", "&*", "+@all", "-config")
    told = examined(tmp_path, by_itself(group, environment, user="app"))
    (found,) = [it for it in told["checks"] if it["check"] == "role"]
    assert found["level"] == "ok"
    assert found["found"].endswith("; not checked: that min-replicas-to-write is 2 and min-replicas-max-lag at most 10")


def test_a_promotion_guard_points_to_the_page_about_failovers(watched: tuple[Group, dict[str, str]], tmp_path: Path) -> None:
    _, environment = watched
    told = examined(tmp_path, {"HOLDFAST_NODES": environment["HOLDFAST_NODES"]})
    (found,) = [it for it in told["checks"] if it["check"] == "state"]
    assert "its server is new to clients of this node" in found["found"]
    assert found["doc"] == "docs/nodes.md#sentinel"
    assert "### Sentinel" in (Path(__file__).parents[2] / "docs/nodes.md").read_text()


# ------------------------------------------------ commands that can be pasted


def finding(told: dict[str, Any], check: str) -> dict[str, Any]:
    (found,) = [it for it in told["checks"] if it["check"] == check and it["level"] != "ok"]
    return dict(found)


def pasted(fix: str) -> str:
    """Type what the doctor says into a shell."""
    return subprocess.run(["sh", "-c", fix], capture_output=True, text=True, timeout=10, check=True).stdout


@pytest.mark.parametrize(
    "lacks, level, told",
    [
        ("-pexpire -zadd", "unsafe", "user 'default' may not use PEXPIRE and ZADD"),
        ("-evalsha", "unsafe", "may not use EVALSHA"),
        ("resetchannels", "unsafe", "it refuses SUBSCRIBE or INFO"),
        ("-mget -zscore", "warning", "user default may not use MGET (the owners of locks in errors and `inspect`); ZSCORE"),
        ("-scan", "warning", "user default may not use SCAN (ls and repair)"),
    ],
)
def test_a_right_that_is_missing_is_granted_by_what_the_doctor_says(lacks: str, level: str, told: str, tmp_path: Path) -> None:
    with Nodes(3) as nodes:
        with redis.Redis.from_url(nodes.urls[1]) as node:
            node.execute_command("ACL", "SETUSER", "default", *lacks.split())
        found = finding(examined(tmp_path, nodes.environment), "rights")
        assert found["level"] == level
        assert told in found["found"]
        pasted(found["fix"])
        assert set(levels(examined(tmp_path, nodes.environment), "rights")) == {"ok"}


@pytest.mark.parametrize("setting, says", [("maxmemory 100kb", "102400"), ("min-replicas-to-write 1", "role:master")])
def test_what_the_doctor_says_of_a_node_that_refuses_writes_shows_why(setting: str, says: str, tmp_path: Path) -> None:
    with Nodes(3) as nodes:
        with redis.Redis.from_url(nodes.urls[2]) as node:
            node.config_set(*setting.split())
        found = finding(examined(tmp_path, nodes.environment), "state")
        assert found["level"] == "unsafe" and "it refuses every write of every program: " in found["found"]
        assert says in pasted(found["fix"])


def test_every_client_that_differs_is_named_from_whichever_side_one_looks(tmp_path: Path) -> None:
    """By its node list, its prefix and its version."""
    note = "v2 30000 5   0 0.0.9"
    with Nodes(5) as nodes:
        few = Holdfast(*nodes.urls[:3], owner="few")
        elsewhere = Holdfast(*nodes.urls, owner="elsewhere", prefix="other:")
        with few, elsewhere, Holdfast(*nodes.urls, owner="many") as many, redis.Redis.from_url(nodes.urls[0]) as node:
            for it in (many, few, elsewhere):
                it.ready()
            for key, member in (("{holdfast}:clients::", note), ("{holdfast}:clients::" + note, "old:1 0123abcd")):
                seconds, micros = node.time()
                node.zadd(key, {member: seconds * 1000 + micros // 1000})
            by_many = examined(tmp_path, nodes.environment)
            by_few = examined(tmp_path, {**nodes.environment, "HOLDFAST_NODES": " ".join(nodes.urls[:3])})
    assert any(found.startswith("3 nodes at few, and 5 at this client: ") for found in told(by_many, "settings"))
    assert any(re.match(r"5 nodes at many(, .*)?, and 3 at this client: ", found) for found in told(by_few, "settings"))
    for it in (by_many, by_few):
        assert it["verdict"] == "unsafe"
        assert told(it, "version") == [f"0.0.9 at old:1, and {__version__} here"]
        [found] = told(it, "prefix")
        assert found.startswith("connected, and not in the registry of prefix '': elsewhere. ")


# ------------------------------------------------ what is pasted ends what was found


def evicted(node: redis.Redis) -> None:
    node.config_set("maxmemory-policy", "allkeys-lru")
    node.config_set("maxmemory", node.info("memory")["used_memory"] + 200_000)
    for number in range(500):
        node.set(f"{number}", "x" * 2000, px=60_000)
    node.config_set("maxmemory", 0)
    assert node.info("stats")["evicted_keys"] > 0
    # What said that the server is new may have gone, too.
    node.set("{holdfast}:adopted", node.info("server")["run_id"], px=3_600_000)


def busy(node: redis.Redis) -> None:
    node.config_set("lua-time-limit", 50)
    asks = redis.Redis(unix_socket_path=node.connection_pool.connection_kwargs["path"], socket_timeout=0.2, retry=None)
    with pytest.raises(redis.exceptions.TimeoutError):
        asks.eval("while true do end", 0)


def elsewhere(nodes: Nodes, urls: Sequence[str], **options: Any) -> Callable[[], None]:
    """Another client notes its settings. What is returned ends it, and its notes are as old as after a minute and a half."""
    other = Holdfast(*urls, owner="other", **options)
    other.ready()

    def ends() -> None:
        other.close()
        for url in urls:
            with redis.Redis.from_url(url.partition("?")[0]) as node:
                for key in node.scan_iter("{holdfast}:clients::v2*"):
                    for member, at in node.zrange(key, 0, -1, withscores=True):
                        node.zadd(key, {member: at - 90_000})

    return ends


# What is wrong: with which nodes, what is done to the first, what another client has, what the doctor calls it, and how bad that is.
WRONG: dict[str, tuple[int, Callable[[redis.Redis], Any] | None, Callable[[Nodes], Any] | None, str, str]] = {
    "eviction": (1, lambda node: node.config_set("maxmemory-policy", "allkeys-lru"), None, "eviction", "unsafe"),
    "evictions": (1, evicted, None, "evictions", "unsafe"),
    "memory": (3, lambda node: node.config_set("maxmemory", node.info("memory")["used_memory"] + 20_000), None, "memory", "warning"),
    "full": (3, lambda node: node.config_set("maxmemory", "100kb"), None, "memory", "warning"),
    "busy": (3, busy, None, "state", "warning"),
    "persistence": (1, lambda node: node.set("{x}:result", "1", px=60_000), None, "persistence", "warning"),
    "a key": (1, lambda node: node.rpush("celery", "x"), None, "keys", "warning"),
    "number": (2, None, None, "number", "warning"),
    "max_ttl": (1, None, lambda nodes: elsewhere(nodes, nodes.urls, max_ttl=60), "settings", "unsafe"),
    "more nodes": (3, None, lambda nodes: elsewhere(nodes, nodes.urls), "settings", "unsafe"),
    "failover": (1, None, lambda nodes: elsewhere(nodes, [f"{nodes.urls[0]}?failover=12"]), "settings", "unsafe"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_the_doctor_says_is_pasted_and_ends_what_it_has_found(case: str, tmp_path: Path) -> None:
    size, harm, others, check, level = WRONG[case]
    with Nodes(size) as nodes, redis.Redis.from_url(nodes.urls[0]) as node:
        if harm is not None:
            harm(node)
        ends = None if others is None else others(nodes)
        environment = {**nodes.environment, **({"HOLDFAST_NODES": nodes.urls[0]} if case == "more nodes" else {})}
        before = examined(tmp_path, environment)
        found = [it for it in before["checks"] if it["check"] == check and it["level"] != "ok"]
        assert {it["level"] for it in found} == {level}, before
        if case in ("max_ttl", "failover"):
            # This shell has the settings of the other client then.
            ends = None
        if ends is not None:
            ends()
        script = "\n".join([*[it["fix"] for it in found], f"exec {sys.executable} -m holdfast doctor --json"])
        words = {**os.environ, **environment}
        done = subprocess.run(["sh", "-c", script], env=words, capture_output=True, text=True, timeout=60, check=False)
        after = json.loads(done.stdout[done.stdout.index("{") :])
    assert [it for it in after["checks"] if it["check"] == check and it["level"] != "ok"] == [], done.stderr


@pytest.mark.parametrize("gains, trip, level", [(0.0, 0.0, "ok"), (0.02, 0.0, "unsafe"), (-0.02, 0.0, "unsafe"), (0.02, 0.1, "ok")])
def test_a_clock_that_runs_too_fast_by_more_than_the_ways_to_it_may_have_added(
    monkeypatch: pytest.MonkeyPatch, gains: float, trip: float, level: str
) -> None:
    def told(ours: float, theirs: float) -> Any:
        return SimpleNamespace(began=ours, ended=ours + trip, answers={0: [b"%d" % theirs, b"%d" % (theirs % 1 * 1_000_000)]})

    answers = [told(0.0, 100.0), told(1.0, 101.0 + gains)]
    monkeypatch.setattr(doctor, "ask", lambda *_: answers.pop(0))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert [it.level for it in doctor._drift(cast(Holdfast, None), 0, [cast(NodeStatus, SimpleNamespace(node="a"))])] == [level]
