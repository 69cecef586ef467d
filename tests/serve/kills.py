"""Nobody overlaps: clients of two gateways behind a balancer contend for one lock, and everything around them is killed, stopped or cut.

A live harness of real processes and real servers, so it sleeps: a process that is stopped must stay stopped for a while.

    PYTHONPATH=tests .venv/bin/python -m serve.kills --runs 200

Each class of faults is made so many times, in several arenas at the same time. The contenders are the clients of examples/http: a
shell, Node and Python. Their commands write when they lived, every 50 us, with their fence, and two lives must not overlap. Only where
a client was stopped past its own deadline do they: nothing stops its command then. What the command protects has to refuse the older
fence, so such an overlap counts as caught if the later life has the greater fence. A busy machine may keep a client from running, too,
for a moment: so does a short overlap.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from cli.kit import PYC, SOURCE, Life, beater, life, overlaps, shared_out, until
from serve.balancer import Balancer, free
from serve.test_clients import CLIENTS

from holdfast.cli import tree
from holdfast.embedded import Nodes

TTL = 1.5
PATIENCE = 90.0  # seconds for which a gateway may start, and the next holder may come, on a machine that is busy
# A gateway's entry lasts as long, so a restarted one is used again soon.
MOST = 3.0
# The command, with the fence as a number, and in the process group that its client kills.
SCRIPT = 'export HOLDFAST_FENCE=${FENCING_TOKEN##*fence=\\"}; HOLDFAST_FENCE=${HOLDFAST_FENCE%\\"}; exec "$0" "$1"'


class NobodyGetsIt(Exception):
    """Long after a fault, no other contender has the lock."""


class Contender:
    """Runs one command after another under the lock, by a client in one language, until it is told to end."""

    def __init__(self, arena: Arena, language: str) -> None:
        self.arena, self.language = arena, language
        self.process: subprocess.Popen[bytes] | None = None
        self.file = arena.folder / "nothing-yet"
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        run = 0
        env = {**os.environ, "HOLDFAST_GATEWAY": self.arena.balancer.url, "TTL_MS": str(int(TTL * 1000))}
        while not self.arena.over.is_set():
            run += 1
            self.file = self.arena.folder / f"life-{self.language}-{run}"
            words = [*CLIENTS[self.language], "contended", "sh", "-c", SCRIPT, self.arena.beater, str(self.file)]
            quiet = subprocess.DEVNULL
            with subprocess.Popen(words, env=env, stderr=quiet, stdout=quiet, start_new_session=True) as self.process:
                self.process.wait()

    def kill(self) -> None:
        """Kill the client and its command, as the end of their machine does."""
        if self.process is not None:
            for it in [*tree.descendants(self.process.pid)]:
                tree.send(it.pid, signal.SIGKILL)
            tree.send(self.process.pid, signal.SIGKILL)

    def finish(self) -> None:
        """End the command alone. Its client releases the lock."""
        if self.process is not None:
            for it in [*tree.descendants(self.process.pid)]:
                if it.name == "beater":
                    tree.send(it.pid, signal.SIGTERM)

    def end(self) -> None:
        """Kill what still runs."""
        self.kill()
        self._thread.join(20)


class Gateway:
    """One gateway of the arena, which can be started again."""

    def __init__(self, arena: Arena, port: int) -> None:
        self.arena, self.port = arena, port
        self.url = f"http://127.0.0.1:{port}"
        # One for all questions: to make another one costs more than what is measured.
        self._asking = httpx.Client(base_url=self.url, timeout=5, trust_env=False, verify=False)
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "holdfast", "serve", "--bind", f"127.0.0.1:{self.port}", "--advertise", self.url]
        words += ["--max-lag", "1m", "--drain", "500ms", "--no-page"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(words, env=self.arena.environment, stderr=quiet, stdout=quiet)
        return process

    def holds(self) -> bool:
        """Whether a lease of this gateway is held."""
        with contextlib.suppress(httpx.TransportError):
            return any(it["state"] == "held" for it in self._asking.get("/v1/leases").json()["leases"])
        return False

    def ready(self) -> bool:
        """Whether it grants leases."""
        assert self.process.poll() is None, f"the gateway at {self.url} has ended with {self.process.returncode}"
        with contextlib.suppress(httpx.TransportError):
            return self._asking.get("/readyz").status_code == 200
        return False

    def end(self, number: signal.Signals) -> None:
        """End it by a signal."""
        self.process.send_signal(number)
        self.process.wait(20)

    def close(self) -> None:
        """Kill it, if it still runs."""
        self._asking.close()
        self.process.kill()
        self.process.wait()

    def restart(self, number: signal.Signals) -> None:
        """End it by a signal, and start it again."""
        self.end(number)
        self.process = self._started()
        until(self.ready, PATIENCE)


class Arena:
    """The nodes, the gateways, the balancer, the contenders, and the faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = Nodes(3).start()
        ours = {name: it for name, it in os.environ.items() if not name.startswith("HOLDFAST_")}
        limits = {"HOLDFAST_MAX_TTL": str(MOST), "HOLDFAST_TTL": str(TTL)}
        self.environment = {**ours, "PYTHONPATH": str(SOURCE), "PYTHONPYCACHEPREFIX": str(PYC), **self.nodes.environment, **limits}
        self.beater = beater(folder)
        self.over = threading.Event()
        self.gateways = [Gateway(self, free()) for _ in range(2)]
        for it in self.gateways:
            until(it.ready, PATIENCE)
        self.balancer = Balancer(folder, [it.port for it in self.gateways])
        self.contenders = [Contender(self, it) for it in CLIENTS]

    def close(self) -> None:
        """End all of it."""
        self.over.set()
        for contender in self.contenders:
            contender.end()
        for gateway in self.gateways:
            gateway.close()
        self.balancer.close()
        self._sweep()
        self.nodes.close()

    def _sweep(self) -> None:
        """Kill the commands that a fault has left alive: they name a file of this folder."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in path.read_bytes():
                    tree.send(int(path.parent.name), signal.SIGKILL)

    def running(self) -> Contender | None:
        """The contender whose command lives now."""
        for it in self.contenders:
            found = life(it.file)
            if found is not None and found.last > time.clock_gettime(time.CLOCK_BOOTTIME) - 0.05:
                return it
        return None

    def serving(self, chance: random.Random) -> Gateway:
        """The gateway that has the lease; either of them if it is over by now."""
        return next((it for it in self.gateways if it.holds()), chance.choice(self.gateways))

    def lives(self) -> list[Life]:
        """All lives so far."""
        found = [life(it) for it in self.folder.glob("life-*") if it.suffix != ".new"]
        return [it for it in found if it is not None]

    def whose(self, one: Life) -> str:
        """Which contender's life it was."""
        return next((it.name.removeprefix("life-") for it in self.folder.glob("life-*") if life(it) == one), "?")

    def harm(self, fault: str, chance: random.Random) -> None:
        """Wait for a holder, make the fault, and wait for the next holder."""
        victim = until(self.running)
        file = victim.file
        time.sleep(chance.random() * TTL / 2)
        FAULTS[fault](self, victim, chance)
        began = life(file)
        assert began is not None
        deadline = time.monotonic() + PATIENCE
        while not any((found := life(it.file)) is not None and found.first > began.first for it in self.contenders):
            # A holder that has kept its lock through the fault gives it back.
            victim.finish()
            if time.monotonic() > deadline:
                raise NobodyGetsIt(fault)
            time.sleep(0.02)


def _stopped(pid: int, seconds: float) -> None:
    tree.send(pid, signal.SIGSTOP)
    time.sleep(seconds)
    tree.send(pid, signal.SIGCONT)


def _client_stopped(arena: Arena, victim: Contender, chance: random.Random) -> None:
    assert victim.process is not None
    # A shell's client is two processes, one of which beats. The command goes on.
    pids = [victim.process.pid, *(it.pid for it in tree.descendants(victim.process.pid) if it.name != "beater")]
    for it in pids:
        tree.send(it, signal.SIGSTOP)
    time.sleep(2 * TTL)
    for it in pids:
        tree.send(it, signal.SIGCONT)


def _machine_stopped(arena: Arena, victim: Contender, chance: random.Random) -> None:
    assert victim.process is not None
    pids = [victim.process.pid, *(it.pid for it in tree.descendants(victim.process.pid))]
    for it in pids:
        tree.send(it, signal.SIGSTOP)
    time.sleep(2 * TTL)
    for it in pids:
        tree.send(it, signal.SIGCONT)


def _majority_frozen(arena: Arena, victim: Contender, chance: random.Random) -> None:
    for it in (0, 1):
        arena.nodes.freeze(it)
    time.sleep(1.5 * TTL)
    for it in (0, 1):
        arena.nodes.thaw(it)


Fault = Callable[[Arena, Contender, random.Random], None]
FAULTS: dict[str, Fault] = {
    "gateway killed": lambda arena, victim, chance: arena.serving(chance).restart(signal.SIGKILL),
    "gateway drained": lambda arena, victim, chance: arena.serving(chance).restart(signal.SIGTERM),
    "gateway stopped": lambda arena, victim, chance: _stopped(arena.serving(chance).process.pid, 1.5 * TTL),
    "gateways cut from nodes": _majority_frozen,
    "clients cut from gateways": lambda arena, victim, chance: arena.balancer.stop(1.5 * TTL),
    "balancer restarted": lambda arena, victim, chance: arena.balancer.restart(),
    "client killed": lambda arena, victim, chance: victim.kill(),
    "client stopped": _client_stopped,
    "client stopped with its command": _machine_stopped,
}
# Here a client is stopped past its own deadline, so that only the fence helps.
STOPPED = {"client stopped", "client stopped with its command"}


# Seconds for which a busy machine may not run a client that nobody has stopped. What is planted overlaps for longer.
LATE = 0.25


class Found(tuple[int, int, int]):
    """Lives, overlaps that nothing catches, and overlaps that the fence catches."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self[0]} lives, {self[1]} overlaps" + (f", {self[2]} caught by the fence" if self[2] else "")


def judged(lives: list[Life], stopped: bool) -> Found:
    """Count overlaps. A pair is caught by the fence if the one that began later has the greater fence."""
    pairs = overlaps(lives)
    caught = [(a, b) for a, b in pairs if a.fence < b.fence and (stopped or a.last - b.first < LATE)]
    return Found((len(lives), len(pairs) - len(caught), len(caught)))


def campaign(folder: Path, faults: list[str], runs: int, seed: int, at_once: int) -> dict[str, Found]:
    """Make each fault so many times, in so many arenas at the same time. Returns what was found while each was made."""

    def share(fault: str, number: int, some: int) -> Found:
        chance = random.Random(f"{seed} {fault} {number}")
        place = folder / f"{fault.replace(' ', '-')}-{number}"
        place.mkdir(parents=True)
        arena = Arena(place)
        try:
            for _ in range(some):
                arena.harm(fault, chance)
        finally:
            arena.close()
        lives = arena.lives()
        for a, b in overlaps(lives):
            print(f"    {arena.whose(a)} lived for {1000 * (a.last - b.first):.1f} ms beside {arena.whose(b)}", flush=True)
        return judged(lives, fault in STOPPED)

    found = {}
    for fault, parts in shared_out(faults, runs, at_once, share):
        found[fault] = Found(map(sum, zip(*parts, strict=True)))
        print(f"{fault:32} {runs} faults, {found[fault]}", flush=True)
    return found


def main() -> int:
    """Run the campaign."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="./task nemesis gateway", description=__doc__, formatter_class=form)
    parser.add_argument("--runs", type=int, default=20, help="faults of each class (default 20)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this class; may be repeated")
    parser.add_argument("--at-once", type=int, default=2, help="arenas at the same time (default 2)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        found = campaign(Path(folder), options.fault or list(FAULTS), options.runs, options.seed, options.at_once)
    return int(any(it[1] for it in found.values()))


if __name__ == "__main__":
    sys.exit(main())
