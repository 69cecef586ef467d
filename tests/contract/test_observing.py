"""What observers hear of acquisitions and of other calls, and what `around=` is called with: over every driver."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Script, Threads
from proof.books import word, wrongs

from holdfast import events
from holdfast.errors import Cancelled, LockBusy, NoQuorum, RateLimited
from holdfast.events import Event, LockEvent

SOON = 8.0  # seconds: within which observers hear of something
LONG = 30.0  # seconds: of leases that are not renewed while a test runs


class Ear:
    """What a client's observer heard."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._heard: list[Event] = []
        self.client: Any = None

    async def connected(self, nodes: Cluster, **options: Any) -> Any:
        """A client with this ear."""
        self.client = await self._face.connected(nodes, observer=[self._heard.append], **options)
        return self.client

    @property
    def heard(self) -> list[Event]:
        """Everything so far, in order."""
        return self._heard

    def of(self, *kinds: type[Event]) -> list[Any]:
        """The events of these classes."""
        return [it for it in self.heard if isinstance(it, kinds)]

    def ends(self, how: str) -> list[Any]:
        """The leases that ended like this."""
        return [it for it in self.of(events.Ended) if it.how == how]

    def acquisitions(self) -> list[str]:
        """All events of acquisitions, a word for each."""
        return [word(it) for it in self.of(LockEvent)]

    async def until(self, *kinds: str) -> None:
        """Wait until exactly these events of acquisitions were heard."""
        await self._face.until(lambda: len(self.of(LockEvent)) >= len(kinds))
        assert self.acquisitions() == list(kinds)

    async def balanced(self) -> None:
        """The books balance, once everything was handed on."""
        stats = self.client.stats()
        ends = stats.acquired + stats.refused + stats.released + stats.lost
        await self._face.until(lambda: len(self.of(events.Acquired, events.Refused, events.Ended)) >= ends)
        assert wrongs(self.heard, self.client.stats()) == []


@pytest.fixture
def ear(face: Face) -> Ear:
    return Ear(face)


# ------------------------------------------------ one acquisition, one of each


async def test_several_names_are_one_acquisition(face: Face, five: Cluster, name: str, ear: Ear) -> None:
    client = await ear.connected(five, ttl=LONG, max_ttl=LONG)
    names = (f"{name}.b", f"{name}.a")
    lease = await face.acquire(client.lock(*names))
    assert (client.stats().attempts, client.stats().acquired, client.stats().held) == (1, 1, 1)
    await face.sleep(0.05)
    await face.release(lease)
    await ear.until("Attempt", "Acquired", "released")
    attempt, acquired, released = ear.of(LockEvent)
    for event in (attempt, acquired, released):
        assert (event.name, event.names, event.kind) == (",".join(names), names, "exclusive")
        assert event.want == attempt.want > 0
    assert acquired.fences == lease.fences == released.fences and acquired.fences.keys() == set(names)
    assert acquired.fence == max(lease.fences.values())
    assert 0.04 < released.held < 10
    await ear.balanced()


async def test_permits_are_taken_without_waiting_as_long_as_there_are_some(face: Face, five: Cluster, name: str, ear: Ear) -> None:
    client = await ear.connected(five, ttl=LONG, max_ttl=LONG)
    permits = client.semaphore(name, 4)
    leases = [await face.acquire(permits) for _ in range(4)]
    await ear.until(*["Attempt", "Acquired"] * 4)
    ninth = asyncio.ensure_future(face.acquire(permits))
    await ear.until(*["Attempt", "Acquired"] * 4, "Attempt", "Queued")
    assert (client.stats().waiting, client.stats().held) == (1, 4)
    assert ear.of(events.Queued)[0].place == 1
    await face.sleep(0.05)
    assert 0.04 < client.stats().longest_wait < 10
    await face.release(leases[0])
    leases[0] = await ninth
    assert client.stats().longest_wait == 0.0
    for lease in leases:
        await face.release(lease)
    wants = {it.want for it in ear.of(LockEvent)}
    assert (len(wants), {it.kind for it in ear.of(LockEvent)}) == (5, {"permit"})
    await ear.balanced()


async def test_how_requests_end_is_told_and_counted(face: Face, three: Cluster, name: str, ear: Ear) -> None:
    client = await ear.connected(three, ttl=0.5, max_ttl=1, outage=0.2)
    holder = await face.acquire(client.lock(name))
    with pytest.raises(LockBusy):
        await face.acquire(client.lock(name, wait=0))
    with pytest.raises(LockBusy):
        await face.acquire(client.lock(name, f"{name}.other", wait=0.05))
    await face.release(holder)
    await three.kill(0, 1)
    with pytest.raises(NoQuorum):
        await face.acquire(client.lock(name, wait=0))
    await face.acquire(client.lock(name, fail_open=True, wait=5))
    await face.until(lambda: ear.of(events.Opened))
    assert [it.outcome for it in ear.of(events.Refused)] == ["busy", "busy", "no_quorum", "no_quorum"]
    stats = client.stats()
    assert (stats.refused, stats.busy, stats.no_quorum, stats.gave_up, stats.opened) == (4, 2, 2, 0, 1)
    [opened] = ear.of(events.Opened)
    assert (opened.kind, opened.names, opened.want) == ("exclusive", (name,), ear.of(events.Refused)[-1].want)
    await ear.balanced()


async def gives_up(face: Face, client: Any, lock: Any) -> None:
    """Wait for a lock that another has, until that is ended: by an event, or by the task's cancellation."""
    cancel = threading.Event()
    waiter = asyncio.ensure_future(face.call(lock.acquire, cancel) if isinstance(face, Threads) else face.acquire(lock))
    await face.until(lambda: client.stats().waiting == 1)
    cancel.set()
    if not isinstance(face, Threads):
        waiter.cancel()
    with pytest.raises((Cancelled, asyncio.CancelledError)):
        await waiter


async def test_who_gives_up_is_told_and_counted(face: Face, five: Cluster, name: str, ear: Ear) -> None:
    client = await ear.connected(five, ttl=LONG, max_ttl=LONG)
    lock = client.lock(f"{name}.a", f"{name}.b")
    lease = await face.acquire(lock)
    await gives_up(face, client, lock)
    await face.until(lambda: client.stats().refused == 1)
    assert client.stats().gave_up == 1
    await face.release(lease)
    await ear.until("Attempt", "Acquired", "Attempt", "Queued", "Refused", "released")
    assert [(it.error, it.outcome) for it in ear.of(events.Refused)] == [(None, "gave_up")]
    await ear.balanced()


async def test_a_renewal_says_what_was_left(face: Face, five: Cluster, name: str, ear: Ear) -> None:
    client = await ear.connected(five, ttl=0.6)
    lease = await face.acquire(client.lock(f"{name}.a", f"{name}.b"))
    await face.until(lambda: len(ear.of(events.Renewed)) >= 2)
    await face.release(lease)
    for renewed in ear.of(events.Renewed):
        assert renewed.names == (f"{name}.a", f"{name}.b")
        assert 0.0 < renewed.left < renewed.remaining <= 0.6
    await ear.balanced()


async def test_a_lease_that_was_dropped_is_lost_when_its_time_is_over(face: Face, five: Cluster, name: str, ear: Ear) -> None:
    # Long enough for a busy machine to notice within it that the lease was dropped.
    client = await ear.connected(five, ttl=2, max_ttl=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        lease = await face.acquire(client.lock(f"{name}.a", f"{name}.b"))
        dropped = face.now()
        del lease
        gc.collect()
        await face.until(lambda: ear.ends("lost"))
        gc.collect()
    assert face.now() - dropped > 0.3, "not before that"
    await face.sleep(0.1)
    [lost] = ear.ends("lost")
    assert (lost.reason, lost.names) == ("dropped", (f"{name}.a", f"{name}.b"))
    assert 0.3 < lost.held < 10
    assert client.stats().lost == 1
    await ear.balanced()


# ------------------------------------------------ other calls


async def test_a_once_and_a_fill_say_where_a_value_comes_from(face: Face, five: Cluster, name: str, ear: Ear) -> None:
    client = await ear.connected(five)
    job, value = client.once(name, keep=60), client.fill(name, 60, lambda: 1)
    for _ in range(2):
        await face.call(job.run, face.function(lambda: 1))
        await face.call(value.get)
    await face.until(lambda: len(ear.of(events.Called)) == 4)
    told = [(it.name, it.kind, it.how) for it in ear.of(events.Called)]
    assert told == [(name, "once", "ran"), (name, "fill", "ran"), (name, "once", "kept"), (name, "fill", "kept")]
    assert all(0 < it.took < 10 for it in ear.of(events.Called))


async def test_nothing_is_made_for_nobody(face: Face, five: Cluster, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Event] = []
    init = Event.__init__

    def remember(event: Event, **facts: object) -> None:
        init(event, **facts)
        made.append(event)

    monkeypatch.setattr(Event, "__init__", remember)
    client = await face.connected(five)
    await face.release(await face.acquire(client.lock(name)))
    await face.call(client.rate(name, 1, 60).take)
    await face.call(client.fill(name, 60, lambda: 1).get)
    latch = client.latch(name, 1)
    await face.call(latch.arrive)
    await face.call(latch.wait)
    assert [it for it in made if not isinstance(it, events.NodeEvent)] == []


# ------------------------------------------------ several observers


async def test_every_observer_hears_everything_whatever_another_does(
    face: Face, own_five: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    first: list[Event] = []
    last: list[Event] = []
    go_on = threading.Event()
    free = asyncio.Event()

    def raises(event: Event) -> None:
        raise ZeroDivisionError("an observer's")

    def waits(event: Event) -> Script[None]:
        yield lambda: go_on.wait(20) if isinstance(face, Threads) else free.wait()

    # (Of nodes that other tests use, a warning may be heard, too.)
    client = await face.connected(own_five, observer=[first.append, raises, face.function(waits), last.append])
    await face.release(await face.acquire(client.lock(name)))
    await face.until(lambda: [it for it in last if word(it) == "released"], SOON)
    go_on.set()
    free.set()
    await face.until(lambda: len(first) == len(last) == 8)
    assert first == last
    await face.until(lambda: [it for it in caplog.records if it.exc_info and "an observer's" in str(it.exc_info[1])])


# ------------------------------------------------ around a call


class Scope:
    """One call, and how it ended."""

    def __init__(self, tracer: Tracer, kind: str, names: tuple[str, ...]) -> None:
        self._tracer, self._kind, self._names = tracer, kind, names
        self._where = where()

    def end(self, outcome: str, facts: Mapping[str, Any]) -> None:
        self._tracer.calls.append((self._kind, self._names, outcome, dict(facts)))
        if self._where != where():
            self._tracer.elsewhere.append(outcome)


def where() -> object:
    """The thread or task that runs this."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()


class Tracer:
    """What `around=` takes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...], str, dict[str, Any]]] = []
        self.began: list[str] = []
        # The ends of calls in another thread or task than their beginning.
        self.elsewhere: list[str] = []

    def begin(self, kind: str, names: tuple[str, ...]) -> Scope:
        self.began.append(kind)
        return Scope(self, kind, names)

    @property
    def ended(self) -> list[tuple[str, str]]:
        """The kinds of calls, and how they ended."""
        return [(kind, outcome) for kind, _, outcome, _ in self.calls]


async def test_what_surrounds_calls_hears_of_their_beginning_and_end(face: Face, five: Cluster, name: str) -> None:
    tracer = Tracer()
    client = await face.connected(five, around=tracer)
    lease = await face.acquire(client.lock(name, f"{name}.b"))
    fences = lease.fences
    assert await face.try_acquire(client.lock(name)) is None
    await face.release(lease)
    await face.release(await face.acquire(client.election(name, "here")))
    await face.release(await face.acquire(client.semaphore(name, 2)))
    await face.call(client.once(name, keep=60).run, face.function(lambda: 1))
    await face.call(client.fill(name, 60, lambda: 1).get)
    rate = client.rate(name, 1, 60, wait=0)
    await face.call(rate.take)
    await face.call(rate.take)
    with pytest.raises(RateLimited):
        await face.call(rate.acquire)
    latch = client.latch(name, 1)
    await face.call(latch.arrive)
    await face.call(latch.wait)
    await face.call(client.barrier(name, 1).wait, "me")
    assert tracer.ended == [
        ("exclusive", "held"), ("exclusive", "busy"), ("election", "held"), ("permit", "held"), ("once", "ran"), ("fill", "ran"),
        ("rate", "allowed"), ("rate", "refused"), ("rate", "busy"), ("latch", "done"), ("barrier", "done"),
    ]  # fmt: skip
    assert tracer.began == [kind for kind, _ in tracer.ended], "the locks within a once and a fill are parts of their calls"
    _, names, _, facts = tracer.calls[0]
    assert (names, facts["fences"], facts["fence"]) == ((name, f"{name}.b"), fences, max(fences.values()))
    assert (facts["contended"], facts["votes"] >= 3, facts["waited"] >= 0) == (False, True, True)
    assert isinstance(tracer.calls[1][3]["error"], LockBusy)
    assert tracer.elsewhere == []


async def test_a_call_that_is_given_up_ends_for_what_surrounds_it(face: Face, five: Cluster, name: str) -> None:
    tracer = Tracer()
    client = await face.connected(five, around=tracer)
    lease = await face.acquire(client.lock(name))
    await gives_up(face, client, client.lock(name))
    await face.until(lambda: len(tracer.calls) == 2)
    assert tracer.ended == [("exclusive", "held"), ("exclusive", "gave_up")]
    assert tracer.elsewhere == []
    await face.release(lease)


@pytest.mark.parametrize("which", ["begin", "end"])
async def test_what_surrounds_a_call_may_raise(face: Face, five: Cluster, name: str, which: str, caplog: pytest.LogCaptureFixture) -> None:
    class Rude(Tracer):
        def begin(self, kind: str, names: tuple[str, ...]) -> Any:
            if which == "begin":
                raise ZeroDivisionError("a tracer's")
            return self

        def end(self, outcome: str, facts: Mapping[str, Any]) -> None:
            raise ZeroDivisionError("a tracer's")

    client = await face.connected(five, around=Rude())
    lease = await face.acquire(client.lock(name))
    assert lease.held
    await face.release(lease)
    assert await face.call(client.rate(name, 1, 60).take)
    raised = [it for it in caplog.records if it.exc_info and "a tracer's" in str(it.exc_info[1])]
    assert [(it.name, it.levelno) for it in raised] == [("holdfast", logging.ERROR)] * 2
