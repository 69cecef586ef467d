"""Real servers that can be treated as badly as real ones are: killed, frozen, restarted with what they had or without, their clocks set.

Knows processes, files, network namespaces and the server's own commands. Must not know locks, clients or why anybody does this.

Where root may do so, each server lives in a network namespace of its own, behind a cable that can be unplugged; else on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.cluster import asks

from holdfast import embedded

from .processes import bound, compiled, until

EMPTY, KEPT, CUT = "empty", "kept", "cut"  # what a server finds of its past when it starts
FORGETFUL, EVERY_SECOND, ALWAYS = "no", "everysec", "always"  # how it writes to disk
CLONE_NEWNET = 0x40000000
NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


class Cable:
    """A network namespace for one server, and the one cable that leads there."""

    def __init__(self, node: int) -> None:
        self.near, self.here, self.there = f"n{node}", f"10.77.{node}.1", f"10.77.{node}.2"
        self._holder = bound(["unshare", "--net", "sleep", "infinity"])
        inside = f"/proc/{self._holder.pid}/ns/net"
        until(lambda: os.readlink(inside) != os.readlink("/proc/self/ns/net"), 5, "a network namespace was made")
        self.enter = ["nsenter", f"--net={inside}"]
        _run("ip", "link", "add", self.near, "type", "veth", "peer", "name", "e0", "netns", str(self._holder.pid))
        _run("ip", "addr", "add", f"{self.here}/30", "dev", self.near)
        _run("ip", "link", "set", self.near, "up")
        for words in (["addr", "add", f"{self.there}/30", "dev", "e0"], ["link", "set", "e0", "up"], ["link", "set", "lo", "up"]):
            _run(*self.enter, "ip", *words)

    def plug(self, in_: bool) -> None:
        """Plug the cable in, or pull it out."""
        _run("ip", "link", "set", self.near, "up" if in_ else "down")

    def hear(self, again: bool) -> None:
        """Let requests through, or lose them (answers still come)."""
        _run("ip", "route", "del" if again else "add", "blackhole", f"{self.there}/32")

    def answer(self, again: bool) -> None:
        """Let answers through, or lose them (requests still arrive)."""
        _run(*self.enter, "ip", "route", "del" if again else "add", "blackhole", f"{self.here}/32")

    def close(self) -> None:
        """Both are gone."""
        self._holder.kill()
        self._holder.wait()


def own_network() -> str:
    """Move this process into a network of its own, where cables can be laid; "" if that was possible, else why not. Once, at the start."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs Linux, and root"
    if missing := [it for it in ("ip", "unshare", "nsenter") if shutil.which(it) is None]:
        return f"{' and '.join(missing)} not installed"
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        return f"no network namespace: {os.strerror(ctypes.get_errno())}"
    try:
        _run("ip", "link", "set", "lo", "up")
        Cable(99).close()
    except (AssertionError, OSError, subprocess.CalledProcessError) as error:
        return f"no cable can be laid: {error}"
    return ""


class Server:
    """One server. `node`: which; `disk`: FORGETFUL, EVERY_SECOND or ALWAYS; `cable`: to it, or None: on loopback."""

    def __init__(self, node: int, folder: Path, disk: str, cable: Cable | None, shim: Path | None, executable: str | None = None) -> None:
        self.node, self.disk, self.cable = node, disk, cable
        self.folder, self.run_id, self.pid = folder / f"node-{node}", "", 0
        self.host = cable.there if cable else "127.0.0.1"
        self.port = 6379 if cable else embedded._free_port()
        self.url = f"redis://{self.host}:{self.port}"
        self.offset = 0.0  # seconds by which its clock is ahead
        self.frozen = False
        self._sizes: deque[tuple[float, int]] = deque(maxlen=20)  # how long its log was, and when
        self._executable, self._shim = embedded.find_server(executable), shim
        self._process: subprocess.Popen[bytes] | None = None
        self._second_ago = 0
        self.folder.mkdir()
        self._skew = self.folder / "skew"
        self._skew.write_bytes(bytes(mmap.PAGESIZE))

    # ------------------------------------------------ processes

    @property
    def alive(self) -> bool:
        """Does its process run (or at least stand)?"""
        return self._process is not None and self._process.poll() is None

    async def start(self, past: str = EMPTY) -> None:
        """Start it, with what it finds of its past, its clock set right; return when it answers."""
        if past is EMPTY:
            shutil.rmtree(self.folder / "data", ignore_errors=True)
        elif past is CUT:
            self._cut()
        (self.folder / "data").mkdir(exist_ok=True)
        self._sizes.clear()
        self._set(0.0)
        before = self.run_id
        self._spawn()
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError):
                told = await self.told("server", patience=0.5)
                if told.get("run_id", before) != before and told["process_id"] == str(self.pid) and await self.ask("PING") == "PONG":
                    self.run_id = told["run_id"]  # (and it has read its file)
                    if not before:
                        # It has never granted anything.
                        await self.ask("SET", "{holdfast}:adopted", self.run_id, "PX", 86_400_000)
                    return
            if not self.alive or time.monotonic() > deadline:
                raise AssertionError(f"node {self.node} does not start: {(self.folder / 'log').read_text()[-2000:]}")
            await asyncio.sleep(0.003)

    def _spawn(self) -> None:
        aof = ["--appendonly", "no"] if self.disk is FORGETFUL else ["--appendonly", "yes", "--appendfsync", self.disk]
        clock = [f"LD_PRELOAD={self._shim}", f"SKEW_FILE={self._skew}"] if self._shim else []
        command = [self._executable, "--port", str(self.port), "--bind", self.host, "--protected-mode", "no", "--save", "", *aof]
        command += ["--dir", str(self.folder / "data"), "--auto-aof-rewrite-percentage", "0", "--aof-load-truncated", "yes"]
        command += ["--loglevel", "warning"]
        # A disk that is full is an error for the server, and not a signal.
        prelude = ["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh", *(self.cable.enter if self.cable else []), "env", *clock]
        with open(self.folder / "log", "ab") as log:
            self._process = bound([*prelude, *command], log.fileno())
        self.pid, self.frozen = self._process.pid, False

    def _cut(self) -> None:
        """A power cut: what was written in the last second is gone, and the last word is cut in two."""
        for path in self._logs():
            path.write_bytes(path.read_bytes()[: max(0, self._second_ago - 3)])

    def _logs(self) -> list[Path]:
        """The file that grows (Redis 7 on: one of several in a folder of their own)."""
        data = self.folder / "data"
        return sorted(data.glob("appendonlydir/*.incr.aof"))[-1:] or [it for it in [data / "appendonly.aof"] if it.exists()]

    @property
    def written(self) -> int:
        """Bytes in that file."""
        return sum(path.stat().st_size for path in self._logs())

    def measure(self) -> None:
        """Note how long its log is now, for a power cut."""
        self._sizes.append((time.monotonic(), self.written))

    def a_second_ago(self) -> int:
        """How long its log was up to a second ago, as far as it was measured."""
        return next((size for at, size in self._sizes if at > time.monotonic() - 1), self.written)

    def kill(self, second_ago: int = 0) -> None:
        """With SIGKILL. `second_ago`: how long its log was then, for a start with CUT."""
        self._second_ago = second_ago
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def shutdown(self) -> None:
        """As an operator does it."""
        with contextlib.suppress(OSError):
            await self.ask("SHUTDOWN", "NOSAVE", patience=0.3)
        deadline = time.monotonic() + 1
        while self.alive and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        self.kill()

    def freeze(self) -> None:
        """With SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """With SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.frozen = False

    def fill_disk(self, left: int | None) -> None:
        """Its log cannot grow by more than `left` bytes; None: it can again."""
        limit = NO_LIMIT if left is None else (self.written + left, resource.RLIM_INFINITY)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, limit)

    # ------------------------------------------------ the clock

    @property
    def can_skew(self) -> bool:
        """May its clock be set?"""
        return self._shim is not None

    def step(self, seconds: float) -> None:
        """Set its wall clock forward, or back."""
        self._set(self.offset + seconds)

    def _set(self, offset: float) -> None:
        self.offset = offset
        with open(self._skew, "r+b") as file:
            file.write(struct.pack("q", int(offset * 1e9)))

    async def ahead(self) -> tuple[float, float]:
        """Between which two bounds its clock is ahead of ours, as far as can be measured."""
        before = time.time()
        seconds, microseconds = await self.ask("TIME")
        told = int(seconds) + int(microseconds) / 1e6
        return told - time.time(), told - before

    # ------------------------------------------------ questions

    async def ask(self, *words: object, patience: float = 2.0) -> Any:
        """One command on a connection of its own, past every proxy. OSError if there is no answer."""
        return (await self.asks([words], patience=patience))[0]

    async def asks(self, commands: Sequence[Sequence[object]], patience: float = 2.0) -> list[Any]:
        """The same for several commands, on one connection."""
        return await asyncio.to_thread(asks, self.url, commands, patience=patience)

    async def told(self, section: str, patience: float = 2.0) -> dict[str, str]:
        """What INFO says."""
        lines = str(await self.ask("INFO", section, patience=patience)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    async def errors(self, kind: str) -> int:
        """How often it has answered with this error."""
        return int((await self.told("errorstats")).get(f"errorstat_{kind}", "count=0").partition("=")[2])

    def reachable(self, patience: float = 0.06) -> bool:
        """Does it take a connection?"""
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), patience):
            return True
        return False


class Servers(list[Server]):
    """Several, in a temporary directory. `cables`: each behind one of its own. `disks`: how each writes to disk."""

    def __init__(self, disks: Sequence[str], cables: bool = False, executable: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nemesis-"))
        self.shim = compiled_shim(self.folder)
        self._cables: list[Cable | None] = [Cable(node) for node in range(len(disks))] if cables else []
        ways = self._cables or [None] * len(disks)
        super().__init__(Server(node, self.folder, disk, ways[node], self.shim, executable) for node, disk in enumerate(disks))

    async def start(self) -> None:
        """All of them, empty."""
        await asyncio.gather(*[it.start() for it in self])

    def close(self) -> None:
        """Nothing is left of them."""
        for it in self:
            it.kill()
        for cable in self._cables:
            if cable is not None:
                cable.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def compiled_shim(folder: Path) -> Path | None:
    """The clock's shim; None where there is no compiler."""
    if shutil.which("cc") is None:
        return None
    return Path(compiled(Path(__file__).with_name("skew.c"), folder / "skew.so", "-shared"))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
