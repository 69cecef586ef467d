"""Histories of the lock protocol, lived through in the simulator, for the interactive page and the pictures.

Knows the simulator, holdfast's clients, and a plain Redlock client. Must not know how a history is drawn or played.
The clients and node scripts are the ones that ship. Messages take 40 ms each way so that they can be seen beside
leases of 2 s. `python docs/site/scenes.py` writes docs/site/histories; the same seed gives the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import LockLost, StaleFence
from holdfast.aio import Holdfast, Lease
from holdfast.fencing import Seen
from holdfast.testing.network import Node, SimulatedConnection
from holdfast.testing.process import Process
from holdfast.testing.simulation import Simulation
from holdfast.testing.timeline import kind_of
from holdfast.testing.world import BytesInFlight
from holdfast.wire.resp import pack

FOLDER = Path(__file__).with_name("histories")
NAME = "invoice:42"
TTL, LAG = 2.0, 0.04  # seconds
PLAIN_WORDS = {b"+OK": "yes", b"_": "no", b"$-1": "no", b":1": "other", b":0": "other"}
SAID = {
    "ask": "{0} asks {1} for the lock",
    "renew": "{0} asks {1} to renew its lease",
    "yes": "{0} answers {1}: granted",
    "no": "{0} answers {1}: not now, another client has it",
    "give": "{0} tells {1} that it releases the lock",
    "push": "{0} tells {1} that the lock has changed hands",
    "make": "{0} asks {1} to let the client that came first go ahead",
}


@dataclass
class Scene:
    """A history in the making. `began`: the moment that it shows as 0; `beliefs`: what each lane knows, and since when."""

    name: str
    title: str
    about: str
    shows: str
    simulation: Simulation
    began: float = 0.0
    ends: dict[object, str] = field(default_factory=dict)  # what is at the end of a connection, by its name
    beliefs: dict[str, list[list[Any]]] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    writes: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[bytes, str] = field(default_factory=dict)
    fences: dict[int, int] = field(default_factory=dict)
    guard: float = 0.0  # seconds for which clients leave a node alone that has restarted

    @property
    def now(self) -> float:
        """Seconds since the history began."""
        return round(self.simulation.now - self.began, 4)

    def tell(self, lane: str, state: str, text: str, step: str = "") -> None:
        """A lane knows something else from now on. `step`: the sentence about it."""
        known = self.beliefs.setdefault(lane, [])
        if not known or known[-1][1:] != [state, text]:
            known.append([self.now, state, text])
            if step:
                self.steps.append({"at": self.now, "kind": "state", "lane": lane, "text": step})

    def fault(self, lane: str, seconds: float, text: str) -> None:
        """Something goes wrong on a lane, for so long."""
        self.faults.append({"lane": lane, "begins": self.now, "ends": round(self.now + seconds, 4), "text": text})
        self.steps.append({"at": self.now, "kind": "fault", "lane": lane, "text": f"{lane} {text}"})

    def write(self, lane: str, kind: str, text: str) -> None:
        """A client writes to the storage, which takes it ("taken"), refuses it, or should not have taken it ("bad")."""
        self.writes.append({"from": lane, "to": "storage", "leaves": self.now, "lands": self.now, "kind": kind})
        self.steps.append({"at": self.now, "kind": kind, "lane": "storage", "text": text})

    def fence(self, number: int) -> str:
        """A fence as a reader sees it: its place among the fences of the history."""
        self.fences.setdefault(number, len(self.fences) + 1)
        return f"fence {self.fences[number]}"

    def look(self) -> None:
        """Note what each node has at this moment."""
        for index, node in enumerate(self.simulation.nodes):
            lane = f"node {index + 1}"
            holder = node.holder(NAME.encode()) if node.running else b""
            who = self.tokens.get(holder) or self.tokens.get(_whose(holder)) or ""
            guarded = self.guard and self.simulation.now < node.born + self.guard
            if not node.running:
                self.tell(lane, "down", "is not running")
            elif guarded and not holder:
                self.tell(lane, "guarded", "restarted empty: clients leave it alone")
            elif holder:
                self.tell(lane, "held", f"has {who}'s lease")
            else:
                self.tell(lane, "free", "has no lease")


def _whose(token: bytes) -> bytes:
    """The part of a token that names its client."""
    return token.partition(b":")[2][:4]


# ------------------------------------------------ clients


async def hold(scene: Scene, name: str, locks: Holdfast, seconds: float, wait: float | None = None) -> Lease | None:
    """A client that acquires the lock, holds it for some seconds, and releases it."""
    scene.tell(name, "asks", "waits for the lock", f"{name} calls acquire()")
    lease = await locks.lock(NAME, wait=wait).acquire()
    fence = scene.fence(lease.fence)
    scene.tell(name, "held", f"holds the lock, {fence}", f"{name} has a majority: it holds the lock with {fence}")
    try:
        until = scene.simulation.now + seconds
        while scene.simulation.now < until:
            lease.check()
            await asyncio.sleep(0.02)
    except LockLost:
        scene.tell(name, "lost", "knows that the lease is lost", f"{name} learns that its lease is lost, and stops its work")
        return None
    await lease.release()
    scene.tell(name, "done", "has released the lock", f"{name} releases the lock")
    return lease


class Plain:
    """A plain Redlock client: SET NX PX on each node, a majority, no renewal, no fence, no restart guard."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene, self.name, self.token = scene, name, f"plain-{name}".encode()
        scene.tokens[self.token] = name
        self.links = [SimulatedConnection(scene.simulation.world, self, node) for node in scene.simulation.nodes]
        self.open: dict[SimulatedConnection, None] = {}  # in the order in which they were opened
        self.answers: dict[SimulatedConnection, list[bytes]] = {}

    def __repr__(self) -> str:
        return self.name

    def connected(self, link: SimulatedConnection) -> None:
        """Bytes can flow."""
        self.open[link] = None

    def heard(self, link: SimulatedConnection, data: bytes) -> None:
        """A node has answered."""
        self.answers.setdefault(link, []).append(data)

    def lost(self, link: SimulatedConnection, cause: Exception) -> None:
        """A connection is gone."""
        self.open.pop(link, None)

    async def acquire(self, wait: float) -> bool:
        """Try to get a majority, again and again, for at most `wait` seconds."""
        scene, until = self.scene, self.scene.simulation.now + wait
        scene.tell(self.name, "asks", "tries to get the lock", f"{self.name} begins to try")
        while scene.simulation.now < until:
            self.answers.clear()
            for link in self.open:
                link.send(pack(b"SET", NAME.encode(), self.token, b"NX", b"PX", b"%d" % (TTL * 1000)))
            await asyncio.sleep(4 * LAG)
            yes = sum(any(it.startswith(b"+OK") for it in said) for said in self.answers.values())
            if yes > len(self.links) // 2:
                scene.tell(self.name, "held", "believes that it holds the lock", f"{self.name} has {yes} of {len(self.links)}")
                return True
            await asyncio.sleep(0.25)
        return False


# ------------------------------------------------ histories


def begin(name: str, title: str, about: str, shows: str, nodes: int = 3, watched: bool = True) -> Scene:
    """A world in which nothing has happened. `watched`: the laws of the lock are checked while it lasts."""
    simulation = Simulation(nodes, seed=7, max_ttl=TTL)
    for node in simulation.nodes:
        node.lag = LAG
    if not watched:
        simulation.look_away()
        for node in simulation.nodes:
            node.executed = lambda _: None
    return Scene(name, title, about, shows, simulation)


async def start(scene: Scene, users: Mapping[str, Callable[[Holdfast], Awaitable[object]]], **options: Any) -> dict[str, Process[Any]]:
    """Start a process for each client, connect them all, and let the history begin."""
    go, ready = asyncio.Event(), []
    processes = {}

    async def live(name: str, user: Callable[[Holdfast], Awaitable[object]]) -> object:
        async with scene.simulation.client(ttl=TTL, max_ttl=TTL, **options) as locks:
            # A client's first use also makes itself known to the nodes, which is not shown.
            first = await locks.lock("first use", wait=20).acquire()
            await first.release(confirm=True)
            ready.append(name)
            await go.wait()
            return await user(locks)

    for name, user in users.items():
        processes[name] = scene.simulation.process(live(name, user), name)
        while name not in ready:
            await asyncio.sleep(0.05)
        inbox = {str(it.process): client.engine.tickets.inbox[:4] for client, it in scene.simulation.world.clients.items()}
        scene.tokens[inbox[str(processes[name])]] = name
        scene.ends[f"client {inbox[str(processes[name])].decode()}"] = name
    scene.began = scene.simulation.now
    for name in users:
        scene.tell(name, "idle", "does not need the lock")
    scene.look()
    scene.simulation.world.looks.append(scene.look)
    go.set()
    return processes


async def idle(scene: Scene, seconds: float) -> None:
    """Let the history go on for so long."""
    await asyncio.sleep(max(0.0, scene.began + seconds - scene.simulation.now))


async def later(scene: Scene, at: float, name: str, locks: Holdfast, seconds: float) -> None:
    """A client that wants the lock from this moment on."""
    await idle(scene, at)
    await hold(scene, name, locks, seconds)


def healthy() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """One client and three nodes, and nothing goes wrong."""
    scene = begin(
        "healthy",
        "A healthy acquire",
        "A asks all three nodes at once, holds the lock with the second answer, renews its lease, and releases it.",
        "The lock is held one round trip after acquire() was called.",
    )

    async def main() -> None:
        await start(scene, {"A": lambda locks: later(scene, 0.1, "A", locks, 1.1)})
        await idle(scene, 1.8)

    return scene, main()


def hung() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """One node takes bytes and answers nothing."""
    scene = begin(
        "hung",
        "A hung node",
        "Node 2 hangs: it takes requests and answers none. A asks all nodes at once and needs two answers of three.",
        "The hung node costs no time.",
    )

    async def main() -> None:
        await start(scene, {"A": lambda locks: later(scene, 0.15, "A", locks, 0.6)})
        await idle(scene, 0.05)
        scene.fault("node 2", 1.2, "hangs")
        scene.simulation.nodes[1].freeze(1.2)
        await idle(scene, 1.3)

    return scene, main()


def queue() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """Two clients wait for a third."""
    scene = begin(
        "queue",
        "The queue and its hand-over",
        "A holds the lock. B and C wait in the queues of the nodes, in the order in which they asked.",
        "B gets the lock one trip after A's release, then C. Nobody polls.",
    )

    async def main() -> None:
        users = {it: lambda locks, it=it, at=at: later(scene, at, it, locks, 0.4) for it, at in (("A", 0.05), ("B", 0.2), ("C", 0.35))}
        await start(scene, users)
        await idle(scene, 2.0)

    return scene, main()


def lost() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """The holder cannot reach a majority any more."""
    scene = begin(
        "lost",
        "A lost lease",
        "A holds the lock and is cut off from nodes 2 and 3. Its renewals are not confirmed, so its lease ends. B waits for the lock.",
        "A learns that its lease is lost before B holds the lock.",
    )

    async def main() -> None:
        users = {"A": lambda locks: later(scene, 0.05, "A", locks, 9.0), "B": lambda locks: later(scene, 0.3, "B", locks, 0.6)}
        processes = await start(scene, users)
        await idle(scene, 0.5)
        scene.fault("A", 3.5, "is cut off from nodes 2 and 3")
        processes["A"].cut_off(3.5, scene.simulation.nodes[1:])
        await idle(scene, 4.0)

    return scene, main()


def fenced() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """A stopped holder writes late, to a storage that knows fences."""
    scene = begin(
        "fenced",
        "A stopped holder and its fence",
        "A is stopped while it holds the lock. Its lease ends, B gets the lock and writes. Then A goes on, and its next step is its write.",
        "The storage has seen fence 2, so it refuses the late write with fence 1.",
    )
    storage = Seen(clock=scene.simulation.wall)

    async def user(name: str, at: float, work: float, locks: Holdfast) -> None:
        await idle(scene, at)
        scene.tell(name, "asks", "waits for the lock", f"{name} calls acquire()")
        lease = await locks.lock(NAME).acquire()
        fence = scene.fence(lease.fence)
        scene.tell(name, "held", f"holds the lock, {fence}", f"{name} has a majority: it holds the lock with {fence}")
        await asyncio.sleep(work)
        try:
            async with storage.aguard(lease):
                scene.tell("storage", "held", f"has {name}'s write, {fence}")
                scene.write(name, "taken", f"the storage takes {name}'s write with {fence}")
        except StaleFence:
            scene.write(name, "refused", f"the storage refuses {name}'s write with {fence}")
            scene.tell(name, "lost", "was refused: its fence is too old")
            return
        try:
            await lease.release()
        except LockLost:
            return
        scene.tell(name, "done", "has released the lock", f"{name} releases the lock")

    async def main() -> None:
        users = {"A": lambda locks: user("A", 0.05, 0.9, locks), "B": lambda locks: user("B", 0.3, 0.5, locks)}
        processes = await start(scene, users)
        scene.tell("storage", "idle", "has seen no fence")
        await idle(scene, 0.6)
        scene.fault("A", 3.2, "is stopped")
        processes["A"].pause(3.2)
        await idle(scene, 4.4)

    return scene, main()


def plain() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """The same with a plain Redlock client."""
    scene = begin(
        "plain",
        "Plain Redlock, a stopped holder",
        "The same fault with a plain Redlock client: SET NX PX on each node, no fence. A is stopped, B gets the lock and writes.",
        "A goes on and writes as well. The storage cannot tell that A is late: B's write is overwritten.",
        watched=False,
    )

    async def user(name: str, at: float, work: float, client: Plain) -> None:
        await idle(scene, at)
        if await client.acquire(9.0):
            await asyncio.sleep(work)
            late = scene.beliefs["storage"][-1][1] != "idle"
            kind = "bad" if late else "held"
            what = f"has {name}'s late write: B's is lost" if late else f"has {name}'s write"
            scene.tell("storage", kind, what)
            text = f"the storage takes {name}'s late write, and B's is lost" if late else f"the storage takes {name}'s write"
            scene.write(name, "bad" if late else "taken", text)
            scene.tell(name, "done", "has written")

    async def main() -> None:
        clients = {it: Plain(scene, it) for it in ("A", "B")}
        scene.ends.update({it: it for it in clients})
        await asyncio.sleep(1.0)
        scene.began = scene.simulation.now
        for name in clients:
            scene.tell(name, "idle", "does not need the lock")
        scene.tell("storage", "idle", "has no write")
        scene.look()
        scene.simulation.world.looks.append(scene.look)
        first = scene.simulation.process(user("A", 0.05, 0.9, clients["A"]), "A")
        scene.simulation.process(user("B", 0.3, 0.5, clients["B"]), "B")
        await idle(scene, 0.6)
        scene.fault("A", 3.2, "is stopped")
        first.pause(3.2)
        await idle(scene, 4.4)

    return scene, main()


def restart(name: str, title: str, about: str, shows: str, guard: bool) -> tuple[Scene, Coroutine[Any, Any, None]]:
    """A node that voted for the holder restarts empty while the holder cannot reach the others."""
    scene = begin(name, title, about, shows, watched=guard)
    scene.guard = TTL + 2.0 if guard else 0.0

    async def main() -> None:
        users = {"A": lambda locks: later(scene, 0.05, "A", locks, 9.0), "B": lambda locks: later(scene, 0.9, "B", locks, 1.2)}
        processes = await start(scene, users, **({} if guard else {"restart_guard": None}))
        await idle(scene, 0.5)
        scene.fault("A", 3.5, "is cut off from nodes 2 and 3")
        processes["A"].cut_off(3.5, scene.simulation.nodes[1:])
        await idle(scene, 0.6)
        scene.fault("node 2", 0.1, "restarts without its data")
        scene.simulation.nodes[1].stop()
        await idle(scene, 0.7)
        scene.simulation.nodes[1].start()
        scene.fault("node 3", 0.1, "restarts without its data")
        scene.simulation.nodes[2].stop()
        await idle(scene, 0.8)
        scene.simulation.nodes[2].start()
        await idle(scene, 6.8 if guard else 3.4)

    return scene, main()


def unguarded() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """Without the restart guard."""
    about = "A holds the lock and is cut off from nodes 2 and 3, which then restart without their data. The restart guard is switched off."
    shows = "B gets the votes of the two nodes that have forgotten A. A and B both hold the lock."
    return restart("unguarded", "A restart without the guard", about, shows, False)


def guarded() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """With it, which is the default."""
    about = "The same faults with the restart guard, which is on by default. Clients leave a node alone for 4 s after it has restarted."
    shows = "B waits until every lease that nodes 2 and 3 may have forgotten has ended. A and B never hold the lock together."
    return restart("guarded", "A restart with the guard", about, shows, True)


def rolling() -> tuple[Scene, Coroutine[Any, Any, None]]:
    """All nodes restart, one after the other."""
    scene = begin(
        "rolling",
        "A rolling restart",
        "An operator restarts the nodes one after the other, and each time waits until clients use the node again.",
        "A holds the lock all the time: two nodes of three always know its lease.",
    )
    scene.guard = TTL + 2.0

    async def main() -> None:
        await start(scene, {"A": lambda locks: later(scene, 0.05, "A", locks, 16.4)})
        for index, node in enumerate(scene.simulation.nodes):
            await idle(scene, 0.8 + 5.4 * index)
            scene.fault(f"node {index + 1}", 0.2, "restarts without its data")
            node.stop()
            await asyncio.sleep(0.2)
            node.start()
        await idle(scene, 17.0)

    return scene, main()


UNSAFE = ("unguarded", "plain")  # what these show is a failure
SCENES = (healthy, hung, queue, lost, unguarded, guarded, fenced, plain, rolling)


# ------------------------------------------------ writing them down


def kind(flight: BytesInFlight) -> str:
    """What kind of message this is: see SAID."""
    found = kind_of(flight)
    if found != "other":
        return found
    if b"SET" in flight.data and b"NX" in flight.data:
        return "ask"
    return next((it for words, it in PLAIN_WORDS.items() if flight.data.startswith(words)), "other")


def messages(scene: Scene) -> list[dict[str, Any]]:
    """What was sent for the lock, in the order in which it left."""
    found = []
    names = {node: f"node {index + 1}" for index, node in enumerate(scene.simulation.nodes)}
    for flight in scene.simulation.world.flights:
        what = kind(flight)
        if flight.leaves < scene.began or what == "other":
            continue
        ends = [names[it] if isinstance(it, Node) else scene.ends.get(str(it), "") for it in (flight.sender, flight.receiver)]
        if not all(ends):
            continue
        leaves = round(flight.leaves - scene.began, 4)
        if what == "ask" and known(scene, ends[0], leaves) == "held":
            what = "renew"
        lands = None if flight.lands is None else round(flight.lands - scene.began, 4)
        found.append({"from": ends[0], "to": ends[1], "leaves": leaves, "lands": lands, "kind": what})
    return found


def known(scene: Scene, lane: str, at: float) -> str:
    """What a lane believed at a moment."""
    return next((state for since, state, _ in reversed(scene.beliefs[lane]) if since <= at), "")


def live(make: Callable[[], tuple[Scene, Coroutine[Any, Any, None]]]) -> dict[str, Any]:
    """Live through a history, and return it as plain facts."""
    scene, main = make()
    safe = scene.name not in UNSAFE
    ended: list[float] = []

    async def whole() -> None:
        await main
        ended.append(scene.now)
        scene.simulation.world.looks.clear()

    scene.simulation.run(whole())
    end = ended[0]
    sent = [it for it in messages(scene) if it["leaves"] <= end]
    steps = [it for it in scene.steps if it["at"] <= end]
    for it in sent:
        text = SAID[it["kind"]].format(it["from"], it["to"])
        if it["lands"] is None or it["lands"] > end:
            text, it["lands"] = f"{text}. It never arrives", None
        steps.append({"at": it["leaves"], "kind": it["kind"], "lane": it["from"], "text": text})
    steps.sort(key=lambda it: it["at"])
    sent += scene.writes
    lanes = [it for it in scene.beliefs if not it.startswith(("node", "storage"))]
    lanes += [f"node {index + 1}" for index in range(len(scene.simulation.nodes))] + ["storage"] * ("storage" in scene.beliefs)
    return {
        "name": scene.name,
        "title": scene.title,
        "about": scene.about,
        "shows": scene.shows,
        "seconds": end,
        "safe": safe,
        "lanes": lanes,
        "beliefs": {it: [known for known in scene.beliefs[it] if known[0] <= end] for it in lanes},
        "faults": scene.faults,
        "messages": sent,
        "steps": steps,
    }


def together(history: dict[str, Any]) -> float:
    """Seconds for which two clients both believed that they held the lock."""
    spans: list[tuple[float, float]] = []
    for lane, known in history["beliefs"].items():
        if not lane.startswith(("node", "storage")):
            ends = [it[0] for it in known[1:]] + [history["seconds"]]
            spans += [(since, end) for (since, state, _), end in zip(known, ends, strict=True) if state == "held"]
    spans.sort()
    return sum((max(0.0, min(a[1], b[1]) - b[0]) for at, a in enumerate(spans) for b in spans[at + 1 :]), 0.0)


def complaints(history: dict[str, Any]) -> Iterator[str]:
    """What a history claims in words and does not show."""
    name, both = history["name"], together(history)
    beliefs, steps = history["beliefs"], history["steps"]
    held = {lane: [it[0] for it in known if it[1] == "held"] for lane, known in beliefs.items() if not lane.startswith("node")}
    # A stopped holder believes that it holds the lock, because it cannot look: the two histories about fences show that.
    if name not in (*UNSAFE, "fenced") and both > 0:
        yield f"{name}: two clients believe for {both:.2f} s that they hold the lock"
    if name in (*UNSAFE, "fenced") and both < 0.4:
        yield f"{name}: two clients believe for only {both:.2f} s that they hold the lock"
    if name in ("healthy", "hung"):
        asked = next(it["at"] for it in steps if it["text"] == "A calls acquire()")
        if held["A"][0] - asked > 2 * LAG + 0.01:
            yield f"{name}: A does not hold the lock after one round trip"
    if name == "hung" and any(it["from"] == "node 2" and it["lands"] is not None and it["lands"] < 1.2 for it in history["messages"]):
        yield "hung: node 2 answers"
    if name == "queue" and not held["A"][0] < held["B"][0] < held["C"][0]:
        yield "queue: the clients are not served in the order in which they asked"
    if name in ("lost", "guarded"):
        lost_at = [it[0] for it in beliefs["A"] if it[1] == "lost"]
        if not lost_at or not held["B"] or lost_at[0] >= held["B"][0]:
            yield f"{name}: A does not learn of its loss before B holds the lock"
    if name == "fenced" and [it["kind"] for it in steps if it["lane"] == "storage"] != ["taken", "refused"]:
        yield "fenced: the storage does not take one write and refuse the late one"
    if name == "plain" and [it["kind"] for it in steps if it["lane"] == "storage"] != ["taken", "bad"]:
        yield "plain: the late write is not taken"
    if name == "rolling":
        if [state for _, state, _ in beliefs["A"]] != ["idle", "asks", "held", "done"]:
            yield "rolling: A does not hold the lock all the time"
        if any("down" not in [state for _, state, _ in beliefs[it]] for it in ("node 1", "node 2", "node 3")):
            yield "rolling: a node does not restart"


def text(history: dict[str, Any]) -> str:
    """A history as the file that is committed."""
    return json.dumps(history, indent=1) + "\n"


def main() -> None:
    """Live through all histories, and write them. The exit status is 1 if one does not show what it claims."""
    FOLDER.mkdir(exist_ok=True)
    for make in SCENES:
        history = live(make)
        if wrong := list(complaints(history)):
            sys.exit("\n".join(wrong))
        (FOLDER / f"{history['name']}.json").write_text(text(history))
        print(f"{history['name']}: {history['seconds']:g} s, {len(history['steps'])} steps, together {together(history):.2f} s")


if __name__ == "__main__":
    main()
