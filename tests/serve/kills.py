"""Nobody overlaps: clients of two gateways behind a balancer contend for one lock, and everything around them is killed, stopped or cut.

    PYTHONPATH=tests .venv/bin/python -m serve.kills --runs 200

The contenders are the clients of examples/http: a shell, Node and Python. Only where a client was stopped past its own deadline may lives
overlap: nothing stops its command then. What the command protects has to refuse the older fence. A busy machine may keep a client from
running, too, for a moment: so a short overlap may be, if the fence catches it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import httpx
from cli.kit import PYC
from nemesis import arena
from nemesis.arena import NAME, Contender, Found
from nemesis.harm import frozen, stopped
from nemesis.processes import QUIET, Running, free_port, kill_all, ours, until
from serve.balancer import Balancer
from serve.test_clients import CLIENTS

from holdfast.cli import tree

TTL = 1.5
PATIENCE = 90.0  # seconds for which a gateway may start, and the next holder may come, on a machine that is busy
# A gateway's entry lasts as long, so a restarted one is used again soon.
MOST = 3.0
# The command, with the fence as a number, and in the process group that its client kills.
SCRIPT = 'export HOLDFAST_FENCE=${FENCING_TOKEN##*fence=\\"}; HOLDFAST_FENCE=${HOLDFAST_FENCE%\\"}; exec "$0" "$1"'


class Gateway(Running):
    """One gateway of the arena, which can be started again."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # One for all questions: to make another one costs more than what is measured.
        self._asking = httpx.Client(base_url=self.url, timeout=5, trust_env=False, verify=False)
        words = [sys.executable, "-m", "holdfast", "serve", "--bind", f"127.0.0.1:{self.port}", "--advertise", self.url]
        super().__init__(*words, "--max-lag", "1m", "--drain", "500ms", "--no-page", env=environment)

    def holds(self) -> bool:
        """Whether a lease of this gateway is held."""
        try:
            return any(it["state"] == "held" for it in self._asking.get("/v1/leases").json()["leases"])
        except httpx.TransportError:
            return False

    def ready(self) -> bool:
        """Whether it grants leases."""
        assert self.process.poll() is None, f"the gateway at {self.url} has ended with {self.process.returncode}"
        try:
            return self._asking.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def again(self, number: signal.Signals) -> None:
        """End it by a signal, and start it again. Returns when it grants leases."""
        self.restart(number)
        until(self.ready, PATIENCE)

    def close(self) -> None:
        """Kill it, if it still runs."""
        self._asking.close()
        self.end()


class Arena(arena.Arena):
    """Gateways, a balancer, and the clients of examples/http."""

    names = tuple(CLIENTS)
    ttl, patience, late = TTL, PATIENCE, 0.25
    # Here a client is stopped past its own deadline.
    fenced = frozenset({"client stopped", "client stopped with its command"})

    def set_up(self) -> None:
        limits = {"HOLDFAST_MAX_TTL": str(MOST), "HOLDFAST_TTL": str(TTL)}
        environment = ours(PYTHONPYCACHEPREFIX=str(PYC), **self.nodes.environment, **limits)
        self.gateways = [Gateway(environment) for _ in range(2)]
        for it in self.gateways:
            until(it.ready, PATIENCE)
        self.balancer = Balancer(self.folder, [it.port for it in self.gateways])

    def tear_down(self) -> None:
        for it in self.gateways:
            it.close()
        self.balancer.end()

    def runs(self, name: str, file: Path) -> AbstractContextManager[subprocess.Popen[Any]]:
        env = {**os.environ, "HOLDFAST_GATEWAY": self.balancer.url, "TTL_MS": str(int(TTL * 1000))}
        words = [*CLIENTS[name], NAME, "sh", "-c", SCRIPT, self.beater, str(file)]
        return subprocess.Popen(words, env=env, start_new_session=True, **QUIET)

    def linger(self, victim: Contender) -> None:
        """End the command alone, of a holder that has kept its lock through the fault. Its client releases the lock."""
        for it in tree.descendants(victim.pid):
            if it.name == "beater":
                tree.send(it.pid, signal.SIGTERM)
        time.sleep(0.01)

    def serving(self) -> Gateway:
        """The gateway that has the lease; either of them if it is over by now."""
        return next((it for it in self.gateways if it.holds()), self.chance.choice(self.gateways))

    def stop(self, *pids: int) -> None:
        """Stop processes for longer than a lease."""
        with stopped(*pids):
            time.sleep(1.5 * TTL)

    def stop_client(self, victim: Contender, command: bool) -> None:
        """Stop a client past its own deadline, with its command or without."""
        # A shell's client is two processes, one of which beats.
        others = [it.pid for it in tree.descendants(victim.pid) if command or it.name != "beater"]
        with stopped(victim.pid, *others):
            time.sleep(2 * TTL)

    def freeze(self) -> None:
        """Two of three nodes say nothing."""
        with frozen(self.nodes, 0, 1):
            time.sleep(1.5 * TTL)

    faults: ClassVar[arena.Faults] = {
        "gateway killed": lambda it, victim: it.serving().again(signal.SIGKILL),
        "gateway drained": lambda it, victim: it.serving().again(signal.SIGTERM),
        "gateway stopped": lambda it, victim: it.stop(it.serving().process.pid),
        "gateways cut from nodes": lambda it, victim: it.freeze(),
        # The balancer swallows everything: connections open, and nothing is answered.
        "clients cut from gateways": lambda it, victim: it.stop(it.balancer.process.pid),
        "balancer restarted": lambda it, victim: it.balancer.restart(),
        "client killed": lambda it, victim: kill_all(victim.pid),
        "client stopped": lambda it, victim: it.stop_client(victim, command=False),
        "client stopped with its command": lambda it, victim: it.stop_client(victim, command=True),
    }


def wrong(found: dict[str, Found]) -> list[str]:
    """The classes of faults in which something happened that must not."""
    return [fault for fault, it in found.items() if it.overlaps]


if __name__ == "__main__":
    sys.exit(arena.main(Arena, wrong, "./task nemesis gateway", __doc__, at_once=2))
