"""What the page shows: locks, tenures and totals, and what each viewer has not seen yet.

Pure: times come in as values. Knows what a survey tells of a lock. Must not know sockets, or who
waits for what.

A viewer has a *set* of the names that changed, and no queue of changes. So a slow viewer needs
memory for the names at most, and what it gets is always the newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..recipes.survey import Row
from .problems import mark

MINUTES = 15  # how long tenures, totals and queues are remembered
TENURES = 20  # of one name
ALL_TENURES = 50_000
CHUNK = 1_000  # rows of one message
STEP = 5  # per cent: finer changes of `hot` are not told
AUDIT = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Sight(NamedTuple):
    """One lock, as viewers get it. Times are milliseconds since 1970, by the clocks of the nodes.

    Attributes:
        kind: As in a row of a survey.
        group: The name of the semaphore, if it is a permit.
        state: "held" or "split".
        who: The client that holds it, otherwise what stands for its token; None for readers.
        note: What the holder says of itself.
        fence: The holder's fencing token.
        waiting: How many wait for it.
        waits_since: When the first of them asked.
        nodes: On how many nodes the holder has it.
        asked: When the holder asked for it.
        hot: In how many of 100 samples of the last 15 minutes somebody waited for it.
    """

    kind: str
    group: str | None
    state: str
    who: str | None
    note: str | None
    fence: int | None
    waiting: int
    waits_since: int | None
    nodes: int
    asked: int | None
    hot: int


def milliseconds(at: datetime | None) -> int | None:
    """Return a moment as milliseconds since 1970."""
    return None if at is None else round((at - _EPOCH).total_seconds() * 1000)


class Tenure:
    """One holder of a lock, for as long as samples have shown it.

    Attributes:
        fence: Its fencing token; None for readers.
        who: The client.
        first: The first sample that showed it, in seconds since 1970.
        last: The last one.
    """

    __slots__ = ("fence", "first", "last", "who")

    def __init__(self, fence: int | None, who: str | None, at: float) -> None:
        self.fence = fence
        self.who = who
        self.first = at
        self.last = at


class Tenures:
    """Who held which lock in the last 15 minutes, at most 20 tenures a name and 50,000 in all."""

    __slots__ = ("_ended", "_names", "_size")

    def __init__(self) -> None:
        self._names: dict[str, deque[Tenure]] = {}
        # Tenures that are over, in the order of their ends: those go first.
        self._ended: deque[tuple[str, Tenure]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def of(self, name: str) -> list[Tenure]:
        """Return the tenures of a lock, the oldest first."""
        return list(self._names.get(name, ()))

    def saw(self, name: str, fence: int | None, who: str | None, at: float, same: bool) -> None:
        """Take note that a sample shows a holder.

        Args:
            name: The lock.
            fence: The holder's fence.
            who: The holder's client.
            at: When, in seconds since 1970.
            same: Whether the sample before showed the lock, too. If it did not, the holder is new.
        """
        known = self._names.get(name)
        if known and same and known[-1].fence == fence and known[-1].who == who:
            known[-1].last = at
            return
        if known and same:
            self._ended.append((name, known[-1]))
        self._shrink(ALL_TENURES - 1)
        # If all that is left is held now, there is no room.
        if self._size >= ALL_TENURES:
            return
        known = self._names.setdefault(name, deque())
        known.append(Tenure(fence, who, at))
        self._size += 1
        if len(known) > TENURES:
            known.popleft()
            self._size -= 1

    def gone(self, name: str) -> None:
        """Take note that a lock is free."""
        if known := self._names.get(name):
            self._ended.append((name, known[-1]))

    def forget(self, now: float) -> None:
        """Drop the tenures that ended more than 15 minutes ago."""
        while self._ended and self._ended[0][1].last < now - MINUTES * 60:
            self._drop(*self._ended.popleft())

    def _shrink(self, size: int) -> None:
        while self._size > size and self._ended:
            self._drop(*self._ended.popleft())

    def _drop(self, name: str, tenure: Tenure) -> None:
        known = self._names.get(name, deque())
        # It may be gone already, as one of more than 20.
        if known and known[0] is tenure:
            known.popleft()
            self._size -= 1
        if not known:
            self._names.pop(name, None)


class Queues:
    """In how many samples of the last 15 minutes somebody waited for a lock."""

    __slots__ = ("_counts", "_samples")

    def __init__(self) -> None:
        # Of each minute: how many passes began, and for each name how many of them showed a queue.
        self._samples: dict[int, int] = {}
        self._counts: dict[str, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def begin(self, now: float) -> None:
        """Take note that a pass begins."""
        minute = int(now // 60)
        if minute not in self._samples:
            oldest = minute - MINUTES
            self._samples = {it: count for it, count in self._samples.items() if it > oldest}
            kept = ((name, {it: n for it, n in at.items() if it > oldest}) for name, at in self._counts.items())
            self._counts = {name: at for name, at in kept if at}
        self._samples[minute] = self._samples.get(minute, 0) + 1

    def saw(self, name: str, waiting: int, now: float) -> int:
        """Count a sample of a lock, and return its share of samples with a queue, in per cent."""
        known = self._counts.get(name)
        if waiting:
            minute = int(now // 60)
            if known is None:
                known = self._counts[name] = {}
            known[minute] = known.get(minute, 0) + 1
        if known is None:
            return 0
        share = 100 * sum(known.values()) / max(1, sum(self._samples.values()))
        return min(100, max(STEP, round(share / STEP) * STEP))


class Viewer:
    """What one viewer has not seen yet.

    Attributes:
        dirty: The names that changed since it was told of them.
    """

    __slots__ = ("_pending", "_start", "dirty")

    def __init__(self, names: Iterator[str]) -> None:
        self.dirty: set[str] = set()
        # Names that it has never been told of.
        self._start = set(names)
        # Kinds of messages. The one that waits longest comes first.
        self._pending = dict.fromkeys(("hello", "snapshot", "nodes", "totals", "audit"))

    @property
    def starting(self) -> bool:
        """Whether rows are left that it has never been told of."""
        return "snapshot" in self._pending

    def note(self, kind: str) -> None:
        """Take note of news of this kind."""
        self._pending.setdefault(kind)

    def changed(self, name: str) -> None:
        """Take note that a row has changed, or is gone."""
        # What is still to be told for the first time will be told as it is by then.
        if name not in self._start:
            self.dirty.add(name)
            self.note("rows")

    def take(self, scene: Scene) -> tuple[str, Any] | None:
        """Return the next message, as a kind and its data; None: there is no news."""
        kind = next(iter(self._pending), None)
        if kind is None:
            return None
        del self._pending[kind]
        if kind == "snapshot":
            rows = self._rows(self._start, scene)
            if self._start:
                # Before everything else: a part is no table.
                self._pending = {kind: None, **self._pending}
            return kind, {"rows": rows, "left": len(self._start)}
        if kind == "rows":
            rows = self._rows(self.dirty, scene)
            if self.dirty:
                self.note(kind)
            return kind, rows
        return kind, scene.news(kind)

    def _rows(self, names: set[str], scene: Scene) -> dict[str, Sight | None]:
        taken = [names.pop() for _ in range(min(CHUNK, len(names)))]
        return {name: scene.rows.get(name) for name in taken}


class Scene:
    """All that is known of the locks, and who looks at it.

    Attributes:
        rows: The locks that are held, by name.
        tenures: Who held them.
        viewers: Those who look.
    """

    # fmt: off
    __slots__ = (
        "_audit", "_began", "_complete", "_found", "_generation", "_hello", "_interval", "_met", "_new", "_nodes",
        "_points", "_queued", "_queues", "_why", "rows", "tenures", "viewers",
    )
    # fmt: on

    def __init__(self, generation: str, hello: dict[str, Any]) -> None:
        self.rows: dict[str, Sight] = {}
        self.tenures = Tenures()
        self.viewers: set[Viewer] = set()
        self._generation = generation
        self._hello = hello
        self._queues = Queues()
        # Locks that somebody waits for.
        self._queued: set[str] = set()
        self._nodes: Any = None
        self._audit: deque[Any] = deque(maxlen=AUDIT)
        # Each second: when, how many are held, how many wait, and the longest wait.
        self._points: deque[tuple[int, int, int, int]] = deque(maxlen=MINUTES * 60)
        self._new: tuple[int, int, int, int] | None = None
        # Of the pass: when it began, and which names it has met. Of the one before: when it was
        # complete, how many it found, how long it took, and why it was not complete.
        self._began: float | None = None
        self._met: set[str] = set()
        self._complete: float | None = None
        self._found = 0
        self._interval = 0.0
        self._why = ""

    def joins(self, now: float) -> Viewer:
        """Return a new viewer, which will be told everything."""
        self._hello["at"] = round(now * 1000)
        viewer = Viewer(iter(self.rows))
        self.viewers.add(viewer)
        return viewer

    def begin(self, now: float) -> None:
        """Begin a pass over all locks."""
        self._began = now
        self._met = set()
        self._queues.begin(now)
        self.tenures.forget(now)

    def saw(self, row: Row, now: float) -> None:
        """Take note of a lock that the pass has met."""
        name = row.name
        who = row.owner if row.owner is not None or row.kind == "read" else mark(row.holder)
        old = self.rows.get(name)
        self._met.add(name)
        self.tenures.saw(name, row.fence, who, now, old is not None)
        sight = Sight(
            row.kind, row.group, row.state, who, row.note, row.fence, row.waiting, milliseconds(row.waits_since),
            row.nodes, milliseconds(row.asked), self._queues.saw(name, row.waiting, now),
        )  # fmt: skip
        if sight == old:
            return
        self.rows[name] = sight
        (self._queued.add if row.waiting else self._queued.discard)(name)
        self._changed(name)

    def end(self, now: float, why: str = "") -> None:
        """End a pass.

        Args:
            now: Seconds since 1970.
            why: Why it did not find everything. Locks that it did not meet then stay in view.
        """
        self._began = None
        self._why = why
        if why:
            return
        for name in [it for it in self.rows if it not in self._met]:
            del self.rows[name]
            self._queued.discard(name)
            self.tenures.gone(name)
            self._changed(name)
        self._complete = now
        self._found = len(self._met)

    def paced(self, interval: float) -> None:
        """Take note how far apart the beginnings of passes are, in seconds."""
        self._interval = interval

    def second(self, now: float, nodes: Any) -> None:
        """Take a sample of totals and nodes, once a second."""
        self._nodes = nodes
        waits = [since for it in self._queued if (since := self.rows[it].waits_since) is not None]
        longest = max(0, round(now * 1000) - min(waits)) if waits else 0
        waiting = sum(self.rows[it].waiting for it in self._queued)
        self._new = round(now), len(self.rows), waiting, longest
        self._points.append(self._new)
        for viewer in self.viewers:
            viewer.note("nodes")
            viewer.note("totals")

    def audited(self, line: Any) -> None:
        """Take note that a lock was taken away."""
        self._audit.append(line)
        for viewer in self.viewers:
            viewer.note("audit")

    def news(self, kind: str) -> Any:
        """Return the data of a message of this kind."""
        match kind:
            case "hello":
                return {"generation": self._generation, "points": [*self._points], **self._hello}
            case "nodes":
                return self._nodes
            case "totals":
                return {"point": self._new, "pass": self.progress()}
            case _:
                return [*self._audit]

    def progress(self) -> dict[str, Any]:
        """Return how far the survey is, so that no part is shown as if it were all."""
        return {
            "complete_at": None if self._complete is None else round(self._complete * 1000),
            "interval_ms": round(self._interval * 1000),
            "met": None if self._began is None else len(self._met),
            "found": self._found,
            "why": self._why,
        }

    def _changed(self, name: str) -> None:
        for viewer in self.viewers:
            viewer.changed(name)
