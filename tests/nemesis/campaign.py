"""A campaign: clients use locks, harm is done to everything, everything heals, and all the while it is judged what the clients believed.

Knows everybody: servers, proxies, clients, faults, moments, laws. It goes by bouts: wait for a moment, do one to three kinds of
harm at once, heal them one after the other, and see whether every lock can be had again.

The seed decides what is drawn. What real processes make of it is different each time: a failure is kept as a history, not as a seed.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.clock import clock
from holdfast.protocol.quorum import majority

from .aims import AIMED, Caught, Moment, Scout
from .clients import Crowd, Settings
from .faces import FACES
from .faults import BACK, CABLES, CLIENTS, CLOCKS, KINDS, LINKS, PROCESSES, REFUSALS, Field, Kind, Missed
from .history import ASKED, EXCLUSION, FAILED, FENCING, GRANTED, LOST, NO_FENCE, READY, REFUSED, Broken, History, Tail
from .proxy import Proxy
from .servers import ALWAYS, EVERY_SECOND, FORGETFUL, Servers

TTL = 0.9  # of all leases, and the longest that there is
GUARD = TTL + 2
HORIZON = GUARD / 2  # for how long a node remembers a fence
NODE_TIMEOUT = TTL / 3
DISKS = (FORGETFUL, FORGETFUL, EVERY_SECOND, EVERY_SECOND, ALWAYS)
NAMES = [f"nemesis:{it}" for it in "abcdefgh"]
SLACK = 3.0  # seconds by which a busy machine may be late
RECOVERY_LIMIT = TTL + GUARD + 1 + TTL / 3 + SLACK  # (the guard's second is that of the uptime, which is rounded)
NEAR = 0.02  # seconds from the end of a lease, to have met it
CAREFUL = 0.8  # seconds to wait for a moment
RECOVERY, EXPIRY, LEFT_OVER, BAD_END = "recovery", "no expiry", "left over", "bad end"
ALL_LAWS = frozenset({EXCLUSION, FENCING, NO_FENCE, FAILED, RECOVERY, EXPIRY, LEFT_OVER, BAD_END})
LOOK_EVERY = 0.4
GLANCE = 0.02
TOLD_EVERY = 5.0


@dataclass(frozen=True)
class Phase:
    """What may happen, and what must hold meanwhile. `laws`: those that are judged; what else is broken is counted."""

    name: str
    kinds: tuple[str, ...]
    laws: frozenset[str] = ALL_LAWS
    guard: bool = True
    ttl: float = TTL


def _groups(*groups: str) -> tuple[str, ...]:
    return tuple(name for name, kind in KINDS.items() if kind.group in groups)


WITHIN = Phase("within the assumptions", _groups(LINKS, CABLES, PROCESSES, REFUSALS, CLOCKS, CLIENTS))
LEAPS = Phase(
    "clocks beyond the drift",
    ("clock set forward, beyond the drift", "kill -9, back empty", "connections reset", "client stopped"),
    ALL_LAWS - {EXCLUSION},
)
MEMORY = Phase("eviction", ("lock evicted", "connections reset", "client stopped"), ALL_LAWS - {EXCLUSION, FENCING})


@dataclass
class Strike:
    """One fault, as it was."""

    kind: str
    target: int
    aim: str = Moment.ANY.value
    began: float = 0.0
    ended: float = 0.0
    missed: str = ""


UnderWay = tuple[Strike, Kind, AbstractAsyncContextManager[None]]


@dataclass
class Result:
    """What became of a campaign."""

    phase: Phase
    seed: int
    strikes: list[Strike] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)  # seconds
    broken: list[Broken] = field(default_factory=list)
    beyond: Counter[str] = field(default_factory=Counter)  # laws that were broken where they are not promised
    looks: int = 0
    seconds: float = 0.0
    history: History = field(default_factory=History)

    @property
    def happened(self) -> list[Strike]:
        """The faults that count."""
        return [it for it in self.strikes if not it.missed]

    @property
    def aimed(self) -> int:
        """How many of them met the moment for which they were meant."""
        return sum(it.aim != Moment.ANY.value for it in self.happened)

    @property
    def holds(self) -> int:
        """How often somebody was granted a lock."""
        return self.history.counts[GRANTED]

    def save(self, folder: Path) -> Path:
        """Write down everything that is known of it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"nemesis-{self.seed}-{self.phase.name.replace(' ', '-')}.jsonl"
        with open(path, "w") as file:
            head = {"seed": self.seed, "phase": self.phase.name, "broken": [str(it) for it in self.broken]}
            lines = [head, *[vars(it) for it in self.strikes], *sorted(self.history.lines, key=lambda it: float(it["at"]))]
            file.writelines(json.dumps(it) + "\n" for it in lines)
        return path


class Campaign:
    """One phase, with servers, proxies and clients of its own. `clients`: processes; `users`: threads or tasks in each.

    For the checker's own tests: `moments` and `plan`: what is done, and when.
    """

    def __init__(
        self,
        phase: Phase,
        seed: int,
        *,
        clients: int = 5,
        users: int = 4,
        cables: bool = False,
        executable: str | None = None,
        tell: Callable[[str], None] = print,
        moments: Sequence[Moment] = (*AIMED, *AIMED, *[Moment.ANY] * 7),
        plan: Callable[[Caught | None], list[tuple[Kind, int]]] | None = None,
    ) -> None:
        self.phase, self.tell, self.plan = phase, tell, plan
        self.clients, self.users, self.cables, self.executable = clients, users, cables, executable
        self.dice = random.Random(f"{seed} {phase.name}")
        self.result = Result(phase, seed)
        self.history = self.result.history
        self._kinds, self._moments = self._deck(self._cards()), self._deck(moments)
        self._restarted: list[int] = []
        self._busy: set[tuple[bool, int]] = set()  # (is it a client?, which): what something is done to
        self._told: set[str] = set()

    async def run(self, seconds: float, most: float = 0.0, enough: Callable[[Result], bool] = lambda result: True) -> Result:
        """Go on for so long; until it is `enough`, for at most `most` seconds."""
        self._began = time.monotonic()
        servers = Servers(DISKS, self.cables, self.executable)
        try:
            await servers.start()
            proxies = [Proxy(it.host, it.port, it.node) for it in servers]
            for it in proxies:
                await it.start()
            crowd = self._crowd(servers, proxies)
            try:
                await self._fight(servers, proxies, crowd, seconds, most, enough)
            finally:
                crowd.close()
                for it in proxies:
                    await it.close()
        finally:
            servers.close()
        self.result.seconds = time.monotonic() - self._began
        return self.result

    # ------------------------------------------------ setting up

    def _crowd(self, servers: Servers, proxies: Sequence[Proxy]) -> Crowd:
        return Crowd(
            [
                Settings(
                    urls=[it.url for it in proxies],
                    names=NAMES,
                    face=[*FACES][which % 2],
                    users=self.users,
                    seed=self.result.seed,
                    folder=str(servers.folder),
                    owner=f"c{which}",
                    ttl=self.phase.ttl,
                    node_timeout=NODE_TIMEOUT,
                    guard=self.phase.guard,
                )
                for which in range(self.clients)
            ]
        )

    async def _fight(
        self, servers: Servers, proxies: Sequence[Proxy], crowd: Crowd, seconds: float, most: float, enough: Callable[[Result], bool]
    ) -> None:
        self.tail = Tail(servers.folder)
        self.scout = Scout(proxies, self.dice)
        self.field = Field(servers, proxies, crowd, self.history, self._read, self.dice, self.phase.ttl)
        await self._until(lambda: self.history.counts[READY] >= len(crowd) and self.history.counts[GRANTED] > 0, 30.0)
        looking = asyncio.create_task(self._looks())
        told = 0.0
        while not self.result.broken:
            now = time.monotonic() - self._began
            if now >= seconds and (now >= most or enough(self.result)):
                break
            if now >= told:
                told = now + TOLD_EVERY
                self.tell(self._progress(now))
            await self._bout()
            self._judge(since=clock() - 20.0)
        if not self.result.broken:
            for wrong in await asyncio.to_thread(crowd.end):
                self._breaks(BAD_END, wrong)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        if not self.result.broken:
            await self._drained()
        self._read()
        if not self.result.broken:
            last = {crowd.owner(which) for which in range(len(crowd))}
            for owner in sorted((last & self.history.ready) - self.history.balanced):
                self._breaks(BAD_END, f"{owner} did not show that its books balance")
        self._judge(since=0.0)

    def _progress(self, now: float) -> str:
        result = self.result
        return f"{self.phase.name}: {now:4.0f} s, {len(result.happened)} faults ({result.aimed} aimed), {result.holds} holds"

    # ------------------------------------------------ bouts

    async def _bout(self) -> None:
        moment = next(self._moments)
        caught = None if moment is Moment.ANY else await self.scout.catch(moment, CAREFUL)
        strikes = self._strikes(caught) if self.plan is None else self.plan(caught)
        under_way: list[UnderWay] = []
        try:
            for kind, target in strikes:
                await self._strike(kind, target, caught, under_way)
        finally:
            if caught is not None:
                caught.free()
            self.dice.shuffle(under_way)
            for number, (strike, kind, context) in enumerate(under_way):
                await asyncio.sleep(self._lasts(kind) if number == 0 else self.dice.uniform(0.0, 0.1))
                await self._heal(strike, context)
        self._busy.clear()
        await self._recovered()

    async def _strike(self, kind: Kind, target: int, caught: Caught | None, under_way: list[UnderWay]) -> None:
        strike = Strike(kind.name, target, began=clock())
        self.result.strikes.append(strike)
        if caught is not None and (caught.end is None or abs(clock() - caught.end) < NEAR):
            strike.aim = caught.moment.value
        context = kind.act(self.field, target)
        try:
            await context.__aenter__()
        except Missed as missed:
            strike.missed, strike.ended = str(missed), clock()
        else:
            under_way.append((strike, kind, context))

    async def _heal(self, strike: Strike, context: AbstractAsyncContextManager[None]) -> None:
        try:
            await context.__aexit__(None, None, None)
        except Missed as missed:
            strike.missed = str(missed)
        strike.ended = clock()

    async def _recovered(self) -> None:
        """P-L2: every lock can be had again, or is held and kept."""
        healed = clock()
        if not await self._until(lambda: all(self.history.alive.get(it, 0.0) > healed for it in NAMES), RECOVERY_LIMIT):
            silent = [it for it in NAMES if self.history.alive.get(it, 0.0) <= healed]
            self._breaks(RECOVERY, f"nobody has had {', '.join(silent)} for {RECOVERY_LIMIT:.1f} s after everything was healed")
        self.result.recoveries.append(clock() - healed)

    # ------------------------------------------------ what is drawn

    def _cards(self) -> list[Kind]:
        kinds = [KINDS[it] for it in self.phase.kinds]
        return kinds + [it for it in kinds if it.often]

    def _deck(self, cards: Sequence[Any]) -> Iterator[Any]:
        """All of them in some order, again and again: so none is forgotten."""
        while True:
            yield from self.dice.sample(cards, len(cards))

    def _strikes(self, caught: Caught | None) -> list[tuple[Kind, int]]:
        """What to do now, and to whom."""
        drawn = ((kind, self._target(kind, caught)) for kind in self._drawn())
        return [(kind, target) for kind, target in drawn if target is not None]

    def _drawn(self) -> list[Kind]:
        if self.phase is WITHIN and self.dice.random() < 0.02:
            return [KINDS["kill -9, back empty at once"]] * majority(len(DISKS))
        return [next(self._kinds) for _ in range(self.dice.choices([1, 2, 3], [3, 5, 4])[0])]

    def _lasts(self, kind: Kind) -> float:
        """For how long: mostly short, so that much is tried; sometimes longer than any lease."""
        return self.dice.uniform(0.02, kind.longest * self.phase.ttl * (1.3 if self.dice.random() < 0.2 else 0.4))

    def _target(self, kind: Kind, caught: Caught | None) -> int | None:
        """Whom it is done to; None: nobody can suffer it now."""
        if kind.client:
            whose = self.field.crowd.called(caught.owner) if caught is not None else None
            found = [it for it in range(self.clients) if kind.fits(self.field, it) and (True, it) not in self._busy]
            target = whose if whose in found and self.dice.random() < 0.7 else self.dice.choice(found) if found else None
            if target is not None:
                self._busy.add((True, target))
            return target
        found = [it for it in range(len(DISKS)) if (False, it) not in self._busy and kind.fits(self.field, it)]
        if not found:
            return None
        if kind.group == PROCESSES and (lately := [it for it in self._restarted[-2:] if it in found]) and self.dice.random() < 0.7:
            target = self.dice.choice(lately)  # a majority that is in its guard most of the time would show nothing else
        elif caught is not None and caught.node in found and self.dice.random() < 0.5:
            target = caught.node
        else:
            target = self.dice.choice(found)
        if kind.group == PROCESSES and target not in self._restarted[-2:]:
            self._restarted.append(target)
        self._busy.add((False, target))
        return target

    # ------------------------------------------------ looking

    def _read(self) -> None:
        for line in self.tail.take():
            self.history.add(line)

    async def _until(self, condition: Callable[[], bool], within: float) -> bool:
        """Wait for this. Time in which the machine did not let us run does not count: it did not let the clients run, either."""
        left = within
        while left > 0:
            self._read()
            if condition():
                return True
            await asyncio.sleep(GLANCE)
            left -= GLANCE
        return False

    async def _looks(self) -> None:
        """P-M1, all the time: what stands on a node has an expiry, and no lock lasts longer than a lease may."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for server in self.field.servers:
                server.measure()
            for server in self.field.servers:
                if server.alive and not server.frozen:
                    try:
                        await self._look(server)
                    except (OSError, ValueError):  # it is being treated badly
                        continue

    async def _look(self, server: Any) -> list[str]:
        scanned = await server.ask("SCAN", 0, "COUNT", 10_000, patience=0.2)
        if not isinstance(scanned, list):
            return []
        keys = [it for it in scanned[1] if it != "junk"]
        left = await server.asks([("PTTL", it) for it in keys], patience=0.2) if keys else []
        self.result.looks += 1
        for key, milliseconds in zip(keys, left, strict=True):
            if milliseconds == -1:
                self._breaks(EXPIRY, f"{key!r} on node {server.node} has none")
            if key in NAMES and isinstance(milliseconds, int) and milliseconds > (self.phase.ttl + BACK) * 1000 + 1:
                self._breaks(EXPIRY, f"the lock {key!r} on node {server.node} lasts for {milliseconds} ms more")
        # What clients say of themselves and of promotions has an expiry, which was looked at above, and stays until then.
        return [key for key in keys if not key.startswith("{holdfast}:") and ":reign:" not in key]

    async def _drained(self) -> None:
        """When nobody uses locks any more, nothing is left but what clients say of themselves, for an hour."""
        deadline = time.monotonic() + HORIZON + self.phase.ttl + BACK + SLACK
        left: dict[int, list[str]] = {}
        while time.monotonic() < deadline:
            left = {}
            for server in self.field.servers:
                try:
                    if found := await self._look(server):
                        left[server.node] = found
                except (OSError, ValueError) as error:
                    left[server.node] = [repr(error)]
            if not left:
                return
            await asyncio.sleep(0.1)
        self._breaks(LEFT_OVER, f"after everybody had gone: {left}")

    # ------------------------------------------------ judging

    def _judge(self, since: float) -> None:
        for found in self.history.judge(since):
            self._breaks(found.law, found.told, found.at)

    def _breaks(self, law: str, told: str, at: float = 0.0) -> None:
        broken = Broken(law, told, at or clock())
        if law not in self.phase.laws:
            self.result.beyond[law] += str(broken) not in self._told
            self._told.add(str(broken))
        elif str(broken) not in [str(it) for it in self.result.broken]:
            self.result.broken.append(broken)


# ------------------------------------------------ telling


def table(results: Sequence[Result]) -> str:
    """How often each kind of fault met each moment."""
    strikes = [it for result in results for it in result.strikes]
    counts = Counter((it.kind, it.aim) for it in strikes if not it.missed)
    moments = [it.value for it in Moment]
    heads = ["any time", "1st..q-th", "renewal", "lease's end", "release", "push", "all"]
    lines = [f"| fault | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for kind in KINDS:
        numbers = [counts[kind, it] for it in moments]
        if any(numbers):
            lines.append(f"| {kind} | {' | '.join(map(str, [*numbers, sum(numbers)]))} |")
    lines += ["", f"not counted, because nothing showed that anybody met with them: {sum(bool(it.missed) for it in strikes)}"]
    return "\n".join(lines)


def summary(result: Result) -> str:
    """One phase in some lines."""
    history = result.history
    fences = sorted(it.fence for it in history.windows.values()) or [0]
    took = result.recoveries or [0.0]
    counts = history.counts
    lines = [
        f"{result.phase.name}: {result.seconds:.0f} s, {len(result.happened)} faults, {result.aimed} at the moment they were aimed at",
        f"    {result.holds} holds of {counts[ASKED]} asked for, {counts[LOST]} told that they were lost, {counts[REFUSED]} refused",
        f"    fences {fences[0]} to {fences[-1]}; {result.looks} looks at all keys of a node",
        f"    the books of {len(history.balanced)} clients balance",
        f"    recovery p50 {statistics.median(took):.2f} s, max {max(took):.2f} s",
    ]
    if result.beyond:
        lines.append(f"    broken, where an assumption was: {', '.join(f'{law} {times}' for law, times in result.beyond.items())}")
    lines.append(f"    violations: {len(result.broken)}")
    return "\n".join(lines)
