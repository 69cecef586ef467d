"""The soak: five real servers, clients in threads and in asyncio, workers that are killed, nodes that are killed and frozen; then all rest.

Knows the order of things, and what must be as it was. Must not know what users do.

Two clients live from the beginning to the end, one in threads and one in asyncio; two workers live until they are killed. All of them walk
through very many names and crowd around a few. First comes a warm-up, after which everybody rests and is measured; then the long part;
then everybody rests again. Within the longest lease, half a guard and a little, every node has to be back to no keys, and both clients
to what they had after the warm-up: memory, threads, files and sockets, tasks, timers, every object and every table of holdfast's.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast.embedded import Nodes

from .measure import grown
from .nodes import Node
from .processes import Client, all_of
from .users import HOT

STATUS = """\
exit status: 0 if no name ever had two holders or a fence that is not above the last one, no key was ever without an expiry, nothing was
raised that must not be, and everything is back where it was; else 1, and what is not is told; 130 if interrupted."""

TTL = 1.5  # seconds: of all leases, the longest that there is
GUARD = TTL + 2
HORIZON = TTL + GUARD / 2  # seconds after which nothing can be left on a node: a lease runs out, and a fence after half a guard
PATIENCE = 30.0  # seconds more for all to be as it was, on a busy machine, and with a node in its guard
EVERY = 30.0  # seconds between two faults, in a long soak
WARM_UP = 4.0, 0.15  # seconds at least, and the share of the time
SLOPES = 5.0  # minutes: in less time the growth of memory says nothing
WHOLE = 30.0, 1_000_000  # minutes of a whole soak, and its names

Measures = dict[str, dict[str, float]]  # of each client and node


class Soak:
    """All of it. `faults`: those that happened; `complaints`: whatever must not be; `keys`: the most that a node had."""

    def __init__(self, nodes: Nodes, folder: Path, names: int, seed: int) -> None:
        self._nodes, self._folder, self._names, self._seed = nodes, folder, names, seed
        self._dice, self._began = random.Random(seed), time.monotonic()
        self._asked = [Node(url) for url in nodes.urls]
        self.clients = [self._client("threads", "threads", 0, users=8), self._client("asyncio", "asyncio", 1, users=24)]
        self.workers = [self._client("worker 1", "threads", 2, users=4), self._client("worker 2", "asyncio", 3, users=12)]
        self._dead: list[Client] = []
        self.faults: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.keys = 0

    def _client(self, title: str, face: str, slot: int, users: int, first: int = 0) -> Client:
        self._seed += 1
        options: dict[str, Any] = {"ttl": TTL, "max_ttl": TTL, "node_timeout": TTL / 3}
        told = {"face": face, "urls": self._nodes.urls, "options": options, "ttl": TTL, "ledger": str(self._folder / "ledger")}
        told |= {"seed": self._seed, "users": users, "slot": slot, "slots": 4, "first": first, "names": self._names}
        return Client(title, told, self._folder / f"{title}.log")

    @property
    def everybody(self) -> list[Client]:
        """Those that live."""
        return [*self.clients, *self.workers]

    # ------------------------------------------------ work

    def work(self, seconds: float, every: float) -> None:
        """Everybody works, and faults happen."""
        all_of(self.everybody, "go")
        later: list[tuple[float, Callable[[], None]]] = []  # what ends a fault, and when
        strikes, told = self._strikes(later), 0.0
        ends, due = time.monotonic() + seconds, time.monotonic() + every / 2
        while (now := time.monotonic()) < ends:
            for it in [it for it in later if it[0] <= now]:
                later.remove(it)
                it[1]()
            if now >= due:
                next(strikes)
                due += every
            if now >= told:
                told = now + min(5.0, every)
                self._progress()
            time.sleep(0.02)
        for _, end in later:
            end()
        self._progress()

    def _strikes(self, later: list[tuple[float, Callable[[], None]]]) -> Iterator[None]:
        """At each step something happens to one node, and to one process."""
        node = victim = 0
        while True:
            self._nodes.kill(node)
            later.append((self._in(0.0, 1.0), lambda node=node: self._nodes.restart(node)))  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
            all_of([self._replace(victim % len(self.workers))], "go")
            self.faults.update(["nodes killed", "workers killed"])
            yield
            node = (node + 1) % len(self._nodes)
            self._nodes.freeze(node)
            later.append((self._in(0.2, TTL), lambda node=node: self._nodes.thaw(node)))  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
            stopped = self.everybody[victim % len(self.everybody)]
            stopped.signal(signal.SIGSTOP)
            later.append((self._in(0.2, 2 * TTL), lambda it=stopped: it.signal(signal.SIGCONT)))  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
            self.faults.update(["nodes frozen", "clients stopped"])
            yield
            node, victim = (node + 1) % len(self._nodes), victim + 1

    def _in(self, least: float, most: float) -> float:
        return time.monotonic() + self._dice.uniform(least, most)

    def _replace(self, number: int) -> Client:
        """A worker is killed, and another one takes its place, and goes on with its names."""
        before = self.workers[number]
        before.end()
        self._dead.append(before)
        told, first = before.told, before.last()["fresh"] + 1
        self.workers[number] = self._client(before.title, told["face"], told["slot"], told["users"], first)
        return self.workers[number]

    # ------------------------------------------------ rest

    def rest(self) -> None:
        """Nobody works any more. Returns when nothing is left on the nodes, or should not be any more."""
        all_of(self.everybody, "rest")
        time.sleep(HORIZON)
        until = time.monotonic() + PATIENCE
        while any(it.left() for it in self._asked) and time.monotonic() < until:
            time.sleep(0.25)
        for number, node in enumerate(self._asked):
            if left := node.left():
                self.complaints.append(f"node {number} still has {len(left)} keys: {', '.join(map(repr, left[:3]))}")

    def measures(self) -> Measures:
        """What clients and nodes have in their hands."""
        found = {it.title: told["measure"] for it, told in zip(self.clients, all_of(self.clients, "measure"), strict=True)}
        for number, node in enumerate(self._asked):
            if (sample := node.sample()) is not None:
                found[f"node {number}"] = {"server's memory, MiB": sample.memory, "connections": sample.clients}
        return found

    def compare(self, before: Measures) -> Measures:
        """What they have now; complains of what is more than before, and stays so."""
        until = time.monotonic() + PATIENCE
        while True:
            after = self.measures()
            wrong = [f"{title}: {it}" for title, then in before.items() for it in grown(then, after.get(title, {}))]
            if not wrong or time.monotonic() >= until:
                self.complaints += wrong
                return after
            time.sleep(1.0)

    def close(self) -> None:
        """Every client is closed: nothing of it stays."""
        everybody = self.everybody
        for it, told in zip(everybody, all_of(everybody, "close"), strict=True):
            self.complaints += [f"{it.title}, closed: {wrong}" for wrong in grown(told["bare"], told["closed"])]
        for it in [*everybody, *self._dead]:
            self.complaints += [f"{it.title}: {wrong}" for wrong in it.last()["wrong"]]
        for log in sorted(self._folder.glob("*.log")):
            if said := log.read_text():
                self.complaints.append(f"{log.stem} said:\n{said[-2000:]}")

    def end(self) -> None:
        """Leave no process behind."""
        for it in self.everybody:
            it.end()

    # ------------------------------------------------ what is told

    def total(self, what: str) -> int:
        """Of all processes, the dead ones as far as they told."""
        return sum(int(it.last()[what]) for it in [*self.everybody, *self._dead])

    def names(self) -> int:
        """How many were used."""
        return min(self._names, HOT + sum(int(it.last()["fresh"]) for it in self.everybody))

    def trouble(self) -> Counter[str]:
        """What users had to live with."""
        return sum((Counter(it.last()["trouble"]) for it in [*self.everybody, *self._dead]), Counter[str]())

    def slope(self, client: Client, since: float) -> float:
        """By how many MiB an hour a client's memory grew while it worked: the straight line that fits best."""
        points = [(at, told["memory"]) for at, told in client.reports if at >= since]
        if len(points) < 3:
            return 0.0
        at, size = (sum(it[i] for it in points) / len(points) for i in (0, 1))
        spread = sum((it[0] - at) ** 2 for it in points)
        return 3600.0 * float(sum((it[0] - at) * (it[1] - size) for it in points)) / spread

    def _progress(self) -> None:
        samples = [it.sample() for it in self._asked]
        for number, it in enumerate(samples):
            if it is not None and it.expiry != it.keys:
                self.complaints.append(f"node {number} has {it.keys - it.expiry} keys without an expiry")
        self.keys = max([self.keys, *(it.keys for it in samples if it is not None)])
        passed = int(time.monotonic() - self._began)
        keys = " ".join("–" if it is None else f"{it.keys:,}" for it in samples)
        hands = "; ".join(f"{it.title} {it.last()['memory']:.1f} MiB" for it in self.clients)
        wrong = len(self.complaints) + sum(len(it.last()["wrong"]) for it in [*self.everybody, *self._dead])
        print(
            f"{passed // 60:3}:{passed % 60:02}  {self.total('cycles'):,} cycles, {self.total('holds'):,} holds, {self.names():,} names, "
            f"{wrong} wrong; {hands}; keys {keys}",
            flush=True,
        )


def soak(minutes: float, names: int, seed: int) -> dict[str, Any]:
    """The whole of it; what came of it."""
    every = min(EVERY, max(GUARD + TTL, minutes * 60 / 8))
    with Nodes(5) as nodes, tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
        print(f"{nodes.version}, five nodes; leases of {TTL} s; faults every {every:.0f} s; seed {seed}", flush=True)
        it = Soak(nodes, Path(folder), names, seed)
        try:
            warm_up = max(WARM_UP[0], WARM_UP[1] * minutes * 60)
            it.work(warm_up, every)
            it.rest()
            before = it.measures()
            print(f"at rest, after the warm-up: {_shown(before)}", flush=True)
            half = time.monotonic() + (minutes * 60 - warm_up) / 2
            it.work(minutes * 60 - warm_up, every)
            it.rest()
            after = it.compare(before)
            print(f"at rest: {_shown(after)}", flush=True)
            slopes = {client.title: round(it.slope(client, half), 2) for client in it.clients}
            it.close()
        finally:
            it.end()
        return {
            "cycles": it.total("cycles"), "holds": it.total("holds"),
            "names": it.names(), "most keys on a node": it.keys, "faults": it.faults, "trouble": it.trouble(),
            "slope, MiB an hour": slopes, "complaints": list(dict.fromkeys(it.complaints)),
        }  # fmt: skip


def _shown(measures: Measures) -> str:
    return "; ".join(f"{title}: {told[what]:.4g} {what}" for title, told in measures.items() for what in told if what == "memory, MiB")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items())) or "none"


def main() -> int:
    """The command line."""
    summary, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="./task nemesis soak",
        description=summary,
        epilog=f"{more.strip()}\n\n{STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=WHOLE[0], help="for which users work (default: 30)")
    parser.add_argument("--names", type=int, help="how many there are (default: a million in 30 minutes, and fewer in less time)")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of what users do, and of faults")
    options = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # clean up, as after Ctrl-C
    names = options.names or max(1000, int(WHOLE[1] * options.minutes / WHOLE[0]))
    try:
        found = soak(options.minutes, names, options.seed)
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is gone", file=sys.stderr)
        return 130
    cycles, holds, used, keys = (found[it] for it in ("cycles", "holds", "names", "most keys on a node"))
    print(f"{cycles:,} cycles, {holds:,} holds, {used:,} names, at most {keys:,} keys on a node")
    print(f"faults: {_listed(found['faults'])}; users lived with: {_listed(found['trouble'])}")
    if options.minutes >= SLOPES:
        slopes = (f"{who} {slope:+.2f} MiB an hour" for who, slope in found["slope, MiB an hour"].items())
        print(f"memory in the last half: {', '.join(slopes)}")
    for complaint in found["complaints"][:40]:
        print(complaint)
    print("NOT all is as it has to be." if found["complaints"] else "Everything is back where it was.")
    return int(bool(found["complaints"]))


if __name__ == "__main__":
    sys.exit(main())
