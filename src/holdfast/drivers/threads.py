"""The driver for threads: one thread a client and process, the keeper, owns the engine and all sockets.

Knows sockets, `poll`, threads, signals and fork. Must not know the protocol: it moves bytes and time between a crew and
the world.

Callers append to one deque, ring the bell if the keeper sleeps, and wait on a lock of their own. Python raises a signal's
exception only in the main thread, so it can only ever hit an append or a wait: nothing is ever half done. What an
interrupted caller did not say, its lease says when it dies: the finalizer is that same append, one C call.

The keeper gives up the interpreter only to sleep: what it sends and receives goes through `unyielding`.
"""

from __future__ import annotations

import atexit
import enum
import os
import select
import socket
import time
import weakref
from _thread import LockType
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from os import getpid
from typing import TYPE_CHECKING, Any, Protocol

from ..clock import SYSTEM, Sources
from ..core.claim import HELD, LOST
from ..core.command import Recipe
from ..core.round import Answers, Round
from ..engine.crew import Crew, NodeStatus, Want, Watch
from ..engine.record import Stats
from ..engine.settings import Settings
from ..errors import CLOSED, Cancelled, Closed, ConfigError, HoldfastError, Misuse
from ..events import Event
from ..living import Living
from ..recipes import readwrite
from ..wire.address import Address
from . import sockets
from .access import Access, Places
from .aside import Aside, Call, Listeners, ThreadCalls
from .forks import FORKS
from .greenlets import allocate_lock, carrier, get_ident, patched, start_new_thread

if TYPE_CHECKING:
    from .tls import Tunnel

IDLE = 10.0  # seconds after which a keeper with nothing to keep ends: a process that forks should have no thread
CHUNK = 65536
GULP = 1 << 18  # bytes that are read from one node before the others have their turn
GLANCE = 0.05  # seconds after which whoever may be cancelled by an event, or by the client's end, looks at it
LOOK = 1.0  # seconds after which a caller that waits for the keeper looks whether the keeper still lives
SLACK = 5.0  # seconds that the keeper may take longer to answer than the nodes may: the machine can be busy
SWEEP = 1.0  # seconds between two sweeps for errands whose callers were interrupted before they could say that they end

_keepers: Living[Keeper] = Living()
_drivers: Living[Driver] = Living()


class Lease(Protocol):
    """What a face gives to its user. The keeper never keeps it, or its death would never be noticed."""

    errand: Errand

    def _fell(self) -> Sequence[Call] | None:
        """Mark it as lost, and return what its users want called. Runs on the keeper's thread, with nothing held."""


class Cancel(Protocol):
    """What ends a wait from another thread: a `threading.Event`."""

    def is_set(self) -> bool:
        """Is the wait to end?"""


class Phase(enum.Enum):
    """How far the caller's side of an errand has come.

    An errand goes through the phases in this order, may leave one out, and never goes back. Only callers write the
    phase: the thread that acquires writes GIVEN before any other thread can have the lease, and LEAVING is the last.
    """

    # The caller waits for the lock.
    WANTED = enum.auto()
    # The caller has the lease: it may be entered again, extended and believed, and it is renewed.
    GIVEN = enum.auto()
    # The caller has given the lease up. From here on no block may join it and nobody may believe in it, whatever the
    # keeper has heard so far.
    LEAVING = enum.auto()


WANTED, GIVEN, LEAVING = Phase


class Errand(weakref.ref[Any]):
    """What a caller wants of the keeper on behalf of a lease: put into its deque once to begin, and once more to end.

    As a weak reference it puts itself there when the lease dies.
    """

    __slots__ = (
        "claim", "deadline", "ended", "error", "gates", "handed", "heed", "keeper", "leavers", "max_hold", "patient", "phase", "recipes",
        "renew", "ttl",
    )  # fmt: skip

    claim: Want | None
    keeper: Keeper
    recipes: Sequence[Recipe]
    ttl: float
    deadline: float
    max_hold: float
    heed: int
    patient: bool
    renew: bool
    gates: list[LockType]  # who waits for news; the keeper's own
    # Who waits for the end: a gate for each call of `release`, and whether that call waits for the nodes' answers.
    # Callers append, the keeper takes. (Several threads may release the same lease at the same moment.)
    leavers: list[tuple[LockType, bool]]
    handed: LockType  # taken by the caller who gets the lease, or by the keeper if it is lost before that: one of them is first
    phase: Phase  # the callers' side
    ended: bool  # the keeper's side: it has ended the claim, or never began one
    error: ConfigError | None  # why it could not even begin


class Link:
    """One socket: connecting, then connected. `address`: with the credentials of the moment; `tunnel`: its TLS, if it has one."""

    __slots__ = ("address", "file", "node", "opening", "places", "rest", "sock", "tunnel")

    def __init__(self, node: int, places: Places, address: Address, tunnel: Tunnel | None) -> None:
        self.node, self.places, self.address, self.tunnel = node, list(places), address, tunnel
        self.rest, self.opening = b"", True
        family, where = self.places.pop(0)
        self.sock = sockets.open_socket(family)
        self.file = self.sock.fileno()
        try:
            self.sock.connect(where)
        except BlockingIOError:
            pass
        except BaseException:
            self.sock.close()
            raise


class Keeper:
    """The thread, and everything it owns. After a fork, or a bug, it is gone for good, and an heir starts anew."""

    def __init__(
        self,
        settings: Settings,
        access: Sequence[Access],
        tell: Listeners,
        telling: bool,
        version: str,
        sources: Sources,
    ) -> None:
        from . import unyielding  # (whoever has no client needs no C library)

        self.clock, self.wall, entropy = sources
        self.crew = Crew(settings, entropy(16).hex().encode(), readwrite.undo, version)
        self.crew.record.telling = telling
        self.asked: deque[Errand | Callable[[float], None]] = deque()
        self.asleep = self.closing = self.ended = False
        self.failure: BaseException | None = None
        self.ident = 0
        self.aside = Aside(tell, self.crew.record, lambda most, complain, _: ThreadCalls(most, complain))
        self._carrier = carrier() if patched() else 0
        self._born, self._process = len(FORKS), getpid()
        self._access, self._patience = access, settings.node_timeout
        self.patience = settings.node_timeout + SLACK  # seconds after which callers no longer wait for an answer
        self._swept = 0.0  # when the keeper last looked for errands that nobody told it to end
        self._running = allocate_lock()
        self._errands: dict[Want, Errand] = {}  # of all claims that are not over
        self._asking: dict[Round, list[LockType]] = {}  # who waits for a round
        self._fallen: list[Errand] = []
        self._links: list[Link | None] = [None] * len(access)
        self._files: dict[int, Link] = {}
        self._finding: set[int] = set()  # nodes whose names, or credentials, are being asked for
        self._watchers: list[LockType] = []
        self._seen = 0
        self._flushed: list[LockType] = []  # who waits until what was asked has left
        self._closers: list[LockType] = []  # who waits for the end
        self._idle_since = inf
        self._closed_by = inf
        self._bell = self._clapper = -1
        self.poll = select.poll()
        self._buffer = bytearray(CHUNK)  # what was received last
        self._view, self._place = memoryview(self._buffer), unyielding.place(self._buffer)
        self._calls = unyielding
        _keepers.add(self)

    @property
    def gone(self) -> bool:
        """Is nobody there any more, in this process?"""
        return self.ended or len(FORKS) != self._born or getpid() != self._process  # (every call of a lock asks this)

    @property
    def unused(self) -> bool:
        """Has nobody asked anything of it, or has it ended since?"""
        return not self._running.locked() and not self.asked

    @property
    def foreign(self) -> bool:
        """Is this a forked child, and the keeper its parent's?"""
        # Programs that embed Python fork without telling it (uWSGI does by default): then only the process id differs.
        return len(FORKS) != self._born or getpid() != self._process

    @property
    def outdated(self) -> bool:
        """Was it made for threads, and they are greenlets by now? Misuse if it is in use, or a greenlet in another thread."""
        if not patched() or self._carrier == carrier():
            return False
        if self._carrier:
            raise Misuse("under gevent a client serves the greenlets of one thread: make and close a client of its own in this one")
        if not self.unused:
            raise Misuse(
                "gevent patched the threads of this process while this client was in use: call `gevent.monkey.patch_all()` first of all, "
                "or at least before anything is locked"
            )
        return True

    # ------------------------------------------------ for callers

    def ask(self, what: Errand | Callable[[float], None]) -> None:
        """Have the keeper do this. In this order: the keeper says that it sleeps, then looks."""
        self.asked.append(what)
        self._ring()

    def discard(self, errand: Errand, event: Event | None) -> None:
        """End the renewal of a lease that its owner let die, and have observers and the log hear of it.

        A finalizer calls this, on any thread and perhaps in the middle of anything. So this takes no lock, wakes no thread and calls
        nothing of the user's. While a lease is held, the keeper wakes by itself about once a second.
        """
        self.asked.append(errand)
        if event is not None:
            self.asked.append(lambda now: self.crew.record.note_at(now, event))

    def _ring(self) -> None:
        # In a child of a fork that Python was not told of, the pipe is the parent's.
        if getpid() != self._process:
            return
        if self.asleep:
            try:
                os.write(self._clapper, b"!")
            except (BlockingIOError, OSError):  # it is full of rings; or just being closed, by a keeper that looks again
                pass
        elif not self._running.locked():
            try:
                start_new_thread(self.run, ())
            except RuntimeError as error:
                advice = "This process, or its user, may have as many threads as the system allows"
                raise HoldfastError(f"holdfast cannot start its background thread: {error}. {advice}") from error

    def wait(self, gate: LockType, until: float = inf, cancel: Cancel | None = None, patience: float = inf) -> bool:
        """Wait until the keeper opens the gate.

        Args:
            gate: A lock that is held, which the keeper releases.
            until: The moment at which the caller stops waiting, by this driver's clock.
            cancel: Stops the wait, at most `GLANCE` seconds after it is set.
            patience: Seconds after which the keeper is taken for blocked. Only time in which this process could run
                counts: while it is stopped, the keeper is stopped, too.

        Returns:
            True if the keeper opened the gate. False if `until` or `patience` is over, `cancel` was set, or the keeper
            is gone.

        Raises:
            Misuse: The caller is a finalizer on the keeper's own thread.
        """
        if get_ident() == self.ident:
            # Callbacks have threads of their own, but the garbage collector runs finalizers on any thread, so also on this one.
            raise Misuse(
                "a finalizer (`__del__`) cannot wait for a client on that client's own thread, where it was run by chance: "
                "hand the work to another thread"
            )
        if getpid() != self._process:
            return False
        look = LOOK if cancel is None else GLANCE
        while not gate.acquire(True, pause := max(0.0, min(look, until - self.clock(), patience))):
            # One look counts as no more than the time that it was meant to take.
            patience -= pause
            if self.gone or patience <= 0.0 or self.clock() >= until or (cancel is not None and cancel.is_set()):
                return False
            self._ring()  # whoever should have rung may have been interrupted
        return not self.gone

    def silence(self, doing: str) -> HoldfastError:
        """Why the keeper has not opened a gate: an error to raise, `from keeper.failure`."""
        if self.gone:
            return HoldfastError(f"this process was forked, or holdfast failed, {doing}")
        return HoldfastError(
            f"holdfast's background thread did not respond for {self.patience:.1f} s {doing}. "
            "A callback (`on_lost`, `observer`) that does not return blocks that thread: hand long work to another thread"
        )

    # ------------------------------------------------ the keeper's thread

    def run(self) -> None:
        """Until there is nothing to do for a while."""
        while not self.gone and self._running.acquire(False):
            try:
                self.ident = get_ident()
                self._work()
            except BaseException as error:
                self._die(error)
            finally:
                self.ident = 0
                self._running.release()
                for calls in self.aside.all:
                    calls.finish()
                closers, self._closers = self._closers, []
                for gate in closers:
                    gate.release()
            if not self.asked:  # (somebody may have asked just before the lock was free)
                return

    def _work(self) -> None:
        self._idle_since = inf
        try:
            while (self.crew.live and not self.closing) or not self._finished():  # (the usual answer first: this is asked at every turn)
                if self._bell < 0:
                    self._hang_bell()
                self.asleep = True
                pause = 0.0 if self.asked else self._pause(self.clock())
                ready = self._ready(pause)
                self.asleep = False
                if self.foreign:  # a greenlet lives on in the child of a fork; all that it had is the parent's
                    return
                self._turn(ready)
        finally:
            self.asleep = False
            if not self.foreign:
                self._shut()

    def _hang_bell(self) -> None:
        """Make what callers ring. Without descriptors there is none for a while: then the keeper looks at short intervals instead."""
        try:
            bell, clapper = os.pipe()
        except OSError:
            return
        os.set_blocking(bell, False)
        os.set_blocking(clapper, False)
        self._bell, self._clapper = bell, clapper
        self.poll.register(bell, select.POLLIN)

    def _ready(self, pause: float) -> list[tuple[int, int]]:
        """Wait for `pause` seconds at most. What can be read or written now?"""
        try:
            return self.poll.poll(pause * 1000)
        except (OSError, MemoryError):  # the kernel has no memory, or a limit was lowered: connections that are made can be used
            time.sleep(min(pause, GLANCE))
            return [(file, select.POLLIN | select.POLLOUT) for file, link in self._files.items() if not link.opening]

    def _pause(self, now: float) -> float:
        wake = min(self.crew.next_wake(), self._idle_since + IDLE, self._closed_by)
        return max(0.0, min(wake - now, 3600.0 if self._bell >= 0 else GLANCE))

    def _finished(self) -> bool:
        """Is there nothing to keep? (What the nodes still owe is waited for: closing with unread bytes would reset releases.)"""
        now = self.clock()
        if self.closing:
            if (not self.crew.owing and not any(it is not None and it.rest for it in self._links)) or now >= self._closed_by:
                self.ended = True
            return self.ended
        if self.asked:
            return False
        self._idle_since = now if self.crew.watches else min(self._idle_since, now)
        return now >= self._idle_since + IDLE

    def _turn(self, ready: list[tuple[int, int]]) -> None:
        crew, now = self.crew, self.clock()
        crew.record.epoch = self.wall() - now
        self._hear(ready, now)
        if self.asked:
            self._idle_since = inf
        while self.asked:
            self._do(self.asked.popleft(), now)
        if now >= crew.next_wake() and now < self._closed_by:  # (at the end nobody is judged: a reset would undo what was said last)
            self._hear(self._ready(0.0), now, True)  # what lies unread is not late: read all that came until `now`
            crew.tick(now)
            if now >= self._swept + SWEEP:
                self._sweep(now)
        self._speak(now)
        for gate in self._flushed:
            gate.release()
        self._flushed.clear()
        if crew.settled or crew.found or crew.record.events or self._fallen or crew.changes != self._seen:
            self._settle()

    def _speak(self, now: float) -> None:
        """Close and dial what the crew wants, and send what lanes have to say, in one write a node; again if that has broken one."""
        crew, links = self.crew, self._links
        while crew.hangups or crew.dials or crew.spoke:
            if crew.hangups or crew.dials:
                self._connect(now)
            crew.spoke = False
            for lane in crew.lanes:
                if lane.out and (link := links[lane.node]) is not None and not link.rest:
                    try:
                        data = lane.take()
                    except Exception as error:
                        crew.faulted(lane.node, now, error)
                    else:
                        self._send(link, data, now)

    def _do(self, what: Errand | Callable[[float], None], now: float) -> None:
        if not isinstance(what, Errand):
            what(now)
        else:
            if what.claim is None and not what.ended:
                self._begin(what, now)
            elif what.claim is not None and not what.ended:
                self._end(what, what.claim, now)
            self._part(what)

    def _sweep(self, now: float) -> None:
        """End what callers gave up and could not say: an exception struck while they handled another one."""
        self._swept = now
        for errand in [it for it in self._errands.values() if it.phase is LEAVING and not it.ended]:
            self._do(errand, now)

    def _begin(self, errand: Errand, now: float) -> None:
        if errand.phase is LEAVING or self.closing or errand() is None:  # interrupted before it began
            errand.ended = True
            self._open(errand)
            return
        limits: dict[str, Any] = {"deadline": errand.deadline, "max_hold": errand.max_hold, "heed": errand.heed}
        try:
            claim = self.crew.want(errand.recipes, errand.ttl, now, patient=errand.patient, renew=errand.renew, **limits)
        except ConfigError as error:  # a clock that cannot be right
            errand.error, errand.ended = error, True
            self._open(errand)
            return
        errand.claim = claim
        self._errands[claim] = errand
        self.crew.begin(claim, now)

    def _end(self, errand: Errand, claim: Want, now: float) -> None:
        if errand.phase is GIVEN:  # its owner let the lease die: garbage collection never releases a lock
            claim.abandon()
            return
        errand.ended = True
        self._open(errand)  # who waits for an extension waits no longer
        self.crew.end(claim, now, any(confirm for _, confirm in errand.leavers))
        if claim.done and claim not in self.crew.settled:
            self._errands.pop(claim, None)

    def _part(self, errand: Errand) -> None:
        """Whoever waits for the end of an errand that has ended waits for the bytes to leave, or for the nodes' answers."""
        while errand.ended and errand.leavers:
            gate, confirm = errand.leavers.pop()
            answers = confirm and errand.claim is not None and not errand.claim.done
            (errand.gates if answers else self._flushed).append(gate)

    def _settle(self) -> None:
        """Wake whose claims have news, and mark what is lost. Then have what users registered called, aside from this thread."""
        crew = self.crew
        for claim in crew.settled:
            errand = self._errands.get(claim)
            if errand is None:
                continue
            self._open(errand)
            if claim.done:
                del self._errands[claim]
                if claim.state is LOST and not errand.handed.acquire(False):
                    self._fallen.append(errand)
        crew.settled.clear()
        for round_ in crew.found:
            for gate in self._asking.pop(round_, []):
                gate.release()
        crew.found.clear()
        if crew.changes != self._seen:
            self._seen = crew.changes
            for gate in self._watchers:
                gate.release()
            self._watchers.clear()
        if self._fallen:
            fallen, self._fallen = self._fallen, []
            self.aside.losses.put(_fell(fallen))
        if crew.record.events:
            told, crew.record.events = crew.record.events, []
            self.aside.tell(told)

    def _open(self, errand: Errand) -> None:
        gates, errand.gates = errand.gates, []
        for gate in gates:
            gate.release()

    # ------------------------------------------------ sockets

    def _hear(self, ready: list[tuple[int, int]], now: float, judging: bool = False) -> None:
        """Read. `judging`: everything that lies unread, of however many bytes; but not for ever, where a node goes on and on."""
        for file, event in ready:
            if file == self._bell:
                if self._calls.read(self._bell, self._place, CHUNK) < 0:
                    os.read(self._bell, CHUNK)
            elif (link := self._files.get(file)) is not None:
                self._happened(link, event, now, judging)
                if self.crew.hangups:  # perhaps this one: it is not lost twice
                    self._hang_up()

    def _happened(self, link: Link, event: int, now: float, judging: bool) -> None:
        if link.opening:
            self._opened(link, now)
            return
        if event & ~select.POLLOUT:
            left = GULP
            while self._links[link.node] is link:
                try:
                    size = self._calls.recv(link.file, self._place, CHUNK, 0)
                    if size < 0:
                        size = link.sock.recv_into(self._buffer)
                except BlockingIOError:
                    break
                except Exception as error:
                    self.crew.lost(link.node, now, error)
                    return
                if not size:
                    self.crew.lost(link.node, now, ConnectionError("it closed the connection"))
                    return
                self._received(link, self._view[:size], self.clock())
                if self.crew.hangups:  # perhaps this one: not a byte more of it
                    self._hang_up()
                if size < CHUNK:
                    break
                if judging:
                    left, judging = max(left, sockets.unread(link.sock) + size), False
                left -= size
                if left <= 0:
                    break
        if event & select.POLLOUT and link.rest and self._links[link.node] is link:
            self._send(link, b"", now)

    def _received(self, link: Link, data: memoryview, now: float) -> None:
        if (tunnel := link.tunnel) is None:
            self.crew.received(link.node, data, now)
            return
        opened, meant = tunnel.open, tunnel.received(data)
        if tunnel.open and not opened:  # (what TLS still has to say leaves together with our first words)
            self.crew.connected(link.node, now, link.address)
        else:
            self._send(link, b"", now)
        if meant and self._links[link.node] is link:
            self.crew.received(link.node, meant, now)
        if tunnel.fault is not None and self._links[link.node] is link:
            self.crew.lost(link.node, now, tunnel.fault)

    def _opened(self, link: Link, now: float) -> None:
        try:
            code = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError as error:
            self.crew.lost(link.node, now, error)
            return
        if not code:
            link.opening = False
            self.poll.modify(link.sock, select.POLLIN)
            if link.tunnel is None:
                self.crew.connected(link.node, now, link.address)
            else:
                link.tunnel.begin()
                self._send(link, b"", now)
        elif link.places:
            self._drop(link)
            self._dial(link.node, link.places, link.address, now)
        else:
            self.crew.lost(link.node, now, OSError(code, os.strerror(code)))

    def _send(self, link: Link, data: bytes, now: float) -> None:
        """Send what has waited, then this; what does not fit waits."""
        try:
            if link.tunnel is not None:
                data = link.tunnel.sealed(data)
            data = link.rest + data if link.rest else data
            count = self._calls.send(link.file, data, min(len(data), self._calls.MOST), 0)
            if count < 0:
                count = link.sock.send(data)
        except BlockingIOError:
            count = 0
        except Exception as error:
            self.crew.lost(link.node, now, error)
            return
        if count < len(data) or link.rest:
            link.rest = data[count:]
            self.crew.spoke = True  # (what is said meanwhile waits for this)
            self.poll.modify(link.sock, select.POLLIN | select.POLLOUT if link.rest else select.POLLIN)

    def _connect(self, now: float) -> None:
        """Close what the crew wants closed, then dial what it wants dialled."""
        self._hang_up()
        dials, self.crew.dials = self.crew.dials, []
        for node in dials:
            access = self._access[node]
            try:
                places = access.ask() if access.at_hand else None
                if places is None and node not in self._finding:  # (else the answer to the last attempt is good for this one, too)
                    self._finding.add(node)
                    start_new_thread(self._find, (node,))
            except Exception as error:  # no threads, no descriptors, no memory: whatever it is, no other node has it
                self._finding.discard(node)
                self.crew.lost(node, now, error)
            else:
                if places is not None:
                    self._found(node, places, now)

    def _find(self, node: int) -> None:
        """A name server, or whoever knows the credentials, may take its time: it is asked by a thread of its own."""
        try:
            answer: tuple[Places, Address] | Exception = self._access[node].ask()
        except Exception as error:
            answer = error
        self.ask(partial(self._found, node, answer))

    def _found(self, node: int, answer: tuple[Places, Address] | Exception, now: float) -> None:
        self._finding.discard(node)
        if self._links[node] is not None or self.closing:
            return
        if isinstance(answer, Exception):
            self.crew.lost(node, now, answer)
        else:
            places, address = answer
            self._dial(node, sockets.in_turn(places, self.crew.lanes[node].fails), address, now)

    def _dial(self, node: int, places: Places, address: Address, now: float) -> None:
        """Connect to the first place that does not refuse at once; if it refuses later, the others have their turn then."""
        refusal: Exception = OSError(f"{address.label} has no address")
        for n in range(len(places)):
            try:
                link = Link(node, places[n:], address, self._access[node].tunnel())
            except Exception as error:
                refusal = error
                continue
            self.poll.register(link.sock, select.POLLOUT)
            self._links[node] = self._files[link.file] = link
            return
        self.crew.lost(node, now, refusal)

    def _hang_up(self) -> None:
        hangups, self.crew.hangups = self.crew.hangups, []
        for node in hangups:
            if (link := self._links[node]) is not None:
                sockets.reset(link.sock)
                self._drop(link)

    def _drop(self, link: Link) -> None:
        self._links[link.node] = None
        del self._files[link.file]
        self.poll.unregister(link.file)
        link.file = -1  # (its number may soon be another's)
        with suppress(OSError):  # (what the kernel complains of has been closed all the same)
            link.sock.close()

    def _shut(self) -> None:
        """Close everything."""
        links = list(self._files.values())
        for link in links:
            self._drop(link)
        bell, clapper, self._bell, self._clapper = self._bell, self._clapper, -1, -1
        if bell >= 0:
            self.poll.unregister(bell)
            os.close(bell)
            os.close(clapper)
        if not self.ended:  # its lanes begin anew with the next run
            now = self.clock()
            for link in links:
                self.crew.lost(link.node, now, ConnectionError("this client was idle"))
            self.crew.hangups.clear()

    # ------------------------------------------------ ends

    def close(self, gate: LockType, now: float) -> None:
        """Release everything, and end when the nodes have answered, or have not in time; then open the gate."""
        self.closing, self._closed_by = True, now + self._patience
        self._closers.append(gate)
        self.crew.close(now)

    def consult(
        self,
        asks: Mapping[int, bytes],
        enough: Callable[[Answers], bool] | None,
        share: Hashable,
        told: list[Round],
        gate: LockType,
        now: float,
    ) -> None:
        """Ask nodes something that is no lock; when it is over, open the gate."""
        told.append(round_ := self.crew.consult(asks, now, enough, share))
        if round_.over:
            gate.release()
        else:
            self._asking.setdefault(round_, []).append(gate)

    def watch(self, gate: LockType, of: Watch | None, now: float) -> None:
        """Open the gate when a node's standing has changed, or when there is news for the watch."""
        self._watchers.append(gate)
        if of is not None and of.news:
            self.unwatch(gate, now)
            gate.release()

    def unwatch(self, gate: LockType, now: float) -> None:
        """Nobody waits at the gate any longer."""
        if gate in self._watchers:
            self._watchers.remove(gate)

    def _die(self, error: BaseException) -> None:
        """Something is wrong in here: nobody may believe in a lease of it any longer, nobody waits for it."""
        self.failure, self.ended = error, True
        errands = [*self._errands.values(), *[it for it in self.asked if isinstance(it, Errand)]]
        self._errands.clear()
        for errand in errands:
            self._open(errand)
            for gate, _ in errand.leavers:
                gate.release()
        held = [it for it in errands if it.phase is GIVEN and it.claim is not None and it.claim.state is HELD]
        self.aside.losses.put(_fell(held))
        self.aside.failed(error)
        for gate in [*self._flushed, *self._watchers, *[it for gates in self._asking.values() for it in gates]]:
            gate.release()
        self._flushed.clear()
        self._asking.clear()

    def forget_inherited(self) -> None:
        """In a forked child: the sockets are the parent's. Closed, not reset, and nothing is said on them.

        Once: in a child of the child these numbers are other files. (Of a fork that Python was not told of, several
        threads may learn at the same moment: each file is taken by one of them.)
        """
        while self._files:
            try:
                _, link = self._files.popitem()
            except KeyError:
                break
            link.sock.close()
        for name in ("_bell", "_clapper"):
            file = vars(self).pop(name, -1)
            setattr(self, name, -1)
            if file >= 0:
                os.close(file)


def _fell(errands: Sequence[Errand]) -> list[Call]:
    """Tell all these leases that they are lost. (A frame of its own: the keeper must not keep a lease.)

    Returns:
        What their users want called, which is called only once all of them are marked.
    """
    calls: list[Call] = []
    for errand in errands:
        lease = errand()
        if lease is not None:
            calls += lease._fell() or ()
    return calls


def _unsaid(errand: Errand) -> None:
    """Log that a release has not left this process, because the keeper is blocked."""
    import logging

    names = ", ".join(dict.fromkeys(it.label for it in errand.recipes))
    logging.getLogger("holdfast.lease").warning(
        "the release of %r has not been sent for %.1f s: holdfast's background thread does not run. The lock is released when it "
        "goes on, and ends with its ttl at the latest",
        names,
        errand.keeper.patience,
    )


class Driver:
    """What the sync face speaks to. Owns the current keeper, and finds its heir after a fork or a failure."""

    def __init__(
        self,
        settings: Settings,
        access: Sequence[Access],
        tell: Listeners,
        telling: bool = False,
        version: str = "0",
        sources: Sources = SYSTEM,
    ) -> None:
        self.settings, self.clock, self.wall = settings, sources.clock, sources.wall
        self.closed = False
        self._new = partial(Keeper, settings, access, tell, telling, version, sources)
        self._keeper = self._new()
        _drivers.add(self)

    @property
    def keeper(self) -> Keeper:
        """The keeper of this process. (Two threads that find it gone agree on one heir: setdefault is one C call.)"""
        while ((keeper := self._keeper).gone or keeper.outdated) and not self.closed:
            if keeper.foreign:
                _inherited()
            self._keeper = vars(keeper).setdefault("heir", self._new())
        return keeper

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(CLOSED)
        if not self.settings.addresses:
            raise self.settings.nodeless

    def acquire(
        self,
        lease: Lease,
        recipes: Sequence[Recipe],
        *,
        ttl: float,
        wait: float | None,
        renew: bool,
        max_hold: float,
        heed: int = 0,
        cancel: Cancel | None = None,
    ) -> None:
        """Wait until the lease is held. `wait`: seconds; None for ever; 0 tries once. Raises what the claim says."""
        began = self.clock()
        deadline = inf if not wait else began + wait
        while True:
            self._check_open()
            keeper = self.keeper
            # The claim itself ends the wait in time; a single try takes a third of its ttl at most.
            patience = inf if wait is None else (wait or ttl) + keeper.patience
            errand = Errand(lease, keeper.asked.append)
            gate = allocate_lock()
            gate.acquire()
            errand.keeper, errand.claim, errand.recipes, errand.gates = keeper, None, recipes, [gate]
            errand.ttl, errand.deadline, errand.max_hold, errand.heed = ttl, deadline, max_hold, heed
            errand.patient, errand.renew = wait != 0, renew
            errand.leavers, errand.handed, errand.error = [], allocate_lock(), None
            errand.phase, errand.ended = WANTED, False
            lease.errand = errand
            try:
                keeper.ask(errand)
                alive = keeper.wait(gate, cancel=cancel, patience=patience)
                claim = self._claim_of(errand)
                self._check_open()
                if errand.error is not None:
                    raise errand.error
                if not alive and cancel is not None and cancel.is_set() and not keeper.gone:
                    raise Cancelled(", ".join(dict.fromkeys(it.label for it in recipes)), self.clock() - began)
                if not alive or claim is None:
                    raise keeper.silence("while a lock was waited for") from keeper.failure
                if claim.refusal is not None:
                    raise claim.refusal
                if claim.state is HELD and self.clock() < claim.until and errand.handed.acquire(False):
                    errand.phase = GIVEN
                    return
                errand.phase = LEAVING  # held, and lost before anybody heard of it: once more
                keeper.ask(errand)
            except BaseException:
                errand.phase = LEAVING
                keeper.ask(errand)
                raise

    @staticmethod
    def _claim_of(errand: Errand) -> Want | None:
        return errand.claim  # (which the keeper sets: a type checker takes it for the None that was stored here before)

    def extend(self, errand: Errand, ttl: float, fence: int = 0, share: bool = False) -> None:
        """Have the lease last at least `ttl` seconds from now, and the nodes' fences raised to this one; returns when that was confirmed,
        or was not in time. `share`: as a reader's."""
        keeper, claim, gate = errand.keeper, errand.claim, allocate_lock()
        assert claim is not None
        gate.acquire()

        def extend(now: float) -> None:
            if keeper.crew.extend(claim, ttl, now, fence, share):
                errand.gates.append(gate)
            else:
                gate.release()

        keeper.ask(extend)
        if not keeper.wait(gate, patience=keeper.patience) and not keeper.gone:
            raise keeper.silence("while a lease was extended")

    def release(self, errand: Errand, confirm: bool) -> int:
        """Give it back. Several threads may do so at the same moment.

        Returns when the bytes have left, so that a holder that computes on does not keep them from leaving. If the
        keeper is blocked, returns after `keeper.patience` seconds and logs a warning.

        Args:
            confirm: Return when a majority has confirmed, or cannot any longer.

        Returns:
            How many nodes have confirmed so far.
        """
        keeper, gate = errand.keeper, allocate_lock()
        gate.acquire()
        try:
            # The phase first: once the keeper may have heard of it, nobody may join this lease any more.
            errand.phase = LEAVING
            errand.leavers.append((gate, confirm))
            keeper.ask(errand)
            if get_ident() != keeper.ident and not keeper.wait(gate, patience=keeper.patience) and not keeper.gone:
                _unsaid(errand)
        except BaseException:  # interrupted: it is given back all the same
            errand.phase = LEAVING
            keeper.ask(errand)
            raise
        return errand.claim.freed if errand.claim is not None else 0

    def ask(
        self, asks: Mapping[int, bytes], enough: Callable[[Answers], bool] | None = None, share: Hashable = None
    ) -> Round:
        """Ask nodes something that is no lock; returns when it is over.

        That is after `node_timeout` at the latest, or after twice as long if it is shared: see `Crew.consult`.
        """
        self._check_open()
        keeper, gate, told = self.keeper, allocate_lock(), list[Round]()
        gate.acquire()
        keeper.ask(partial(keeper.consult, asks, enough, share, told, gate))
        alive = keeper.wait(gate, patience=keeper.patience)
        self._check_open()
        if not alive or not told:
            raise keeper.silence("while nodes were asked") from keeper.failure
        return told[0]

    def listen(self) -> Watch:
        """A new watch, of this process."""
        self._check_open()
        keeper, gate, made = self.keeper, allocate_lock(), list[Watch]()
        gate.acquire()

        def listen(now: float) -> None:
            made.append(keeper.crew.listen(now))
            gate.release()

        keeper.ask(listen)
        if not keeper.wait(gate, patience=keeper.patience) or not made:
            self._check_open()
            raise keeper.silence("just now") from keeper.failure
        return made[0]

    def sleep(self, seconds: float, cancel: Cancel | None = None, watch: Watch | None = None) -> bool:
        """Let time pass, unless the client is closed; less if there is, or was, news for the watch. False: `cancel` was set meanwhile."""
        gate, until = allocate_lock(), self.clock() + seconds
        gate.acquire()
        while (left := until - self.clock()) > 0 and not (watch is not None and watch.news):
            self._check_open()
            if cancel is not None and cancel.is_set():
                return False
            if watch is None:
                gate.acquire(True, min(left, GLANCE))
            else:
                self._attend(watch, until, cancel)
        if watch is not None:
            watch.news = False
        return True

    def _attend(self, watch: Watch, until: float, cancel: Cancel | None) -> None:
        """Wait until there may be news for the watch, or for the client's end."""
        keeper, gate = self.keeper, allocate_lock()
        if watch.token not in keeper.crew.watches:
            raise HoldfastError("this process was forked, or holdfast failed, while something was watched: begin again") from keeper.failure
        gate.acquire()
        keeper.ask(partial(keeper.watch, gate, watch))
        try:
            keeper.wait(gate, until, cancel)
        finally:
            keeper.ask(partial(keeper.unwatch, gate))

    def ready(self, wait: float) -> tuple[NodeStatus, ...]:
        """Connect to every node. Raises what is wrong after `wait` seconds, or at once if time will not mend it."""
        began = self.clock()
        while True:
            self._check_open()
            keeper, gate = self.keeper, allocate_lock()
            gate.acquire()
            keeper.ask(partial(keeper.watch, gate, None))
            try:
                now = self.clock()
                status = self.status()
                wrong = keeper.crew.verdict(now - began, now)
                if not any(it.state == "connecting" for it in status) and wrong is None:
                    return status
                if wrong is not None and (isinstance(wrong, ValueError) or now >= began + wait):
                    raise wrong
                if now >= began + wait:
                    return status
                keeper.wait(gate, min(began + wait, now + 0.05))
            finally:
                keeper.ask(partial(keeper.unwatch, gate))

    def servers(self) -> frozenset[str]:
        """The runs of the servers that this client is connected to, by run_id."""
        return self.keeper.crew.servers()

    def meet(self, within: float, cancel: Cancel | None = None) -> None:
        """Wait until it is known which servers these nodes are. Raises what is wrong after `within` seconds."""
        began = self.clock()
        while not (cancel is not None and cancel.is_set()):
            self._check_open()
            keeper, gate = self.keeper, allocate_lock()
            gate.acquire()
            keeper.ask(partial(keeper.watch, gate, None))
            try:
                now = self.clock()
                if keeper.crew.acquainted(min(within, self.settings.node_timeout) + began - now):
                    return
                if now >= began + within and (wrong := keeper.crew.verdict(now - began, now)) is not None:
                    raise wrong
                keeper.wait(gate, min(max(began + within, now + 0.001), now + 0.05))
            finally:
                keeper.ask(partial(keeper.unwatch, gate))

    def note(self, event: Event) -> None:
        """Something that no node has told, and that happens now: observers hear of it in its turn."""
        record = self.keeper.crew.record
        self.keeper.ask(lambda now: record.note_at(now, event))

    def keeps(self, what: str) -> None:
        """Have it known that something is kept on the nodes that should outlive a restart. Said once."""
        if not self.keeper.crew.keeping:
            self.steer(lambda crew, now: crew.keeps(what, now))

    def steer(self, do: Callable[[Crew, float], object]) -> None:
        """Have the engine do something, and wait for nothing."""
        keeper = self.keeper

        def steer(now: float) -> None:
            do(keeper.crew, now)

        keeper.ask(steer)

    def stats(self) -> Stats:
        """What was done so far, in this process."""
        return self.keeper.crew.stats()

    def status(self) -> tuple[NodeStatus, ...]:
        """How the nodes are, as far as is known."""
        return self.keeper.crew.status(self.clock())

    def reopen(self) -> None:
        """Take up work again after `close`, with connections of its own. Leases of the time before stay over."""
        if self.closed:
            self._keeper = self._new()
            self.closed = False

    def close(self) -> None:
        """Release everything and end. Waits for the nodes' answers, then for callbacks: at most `node_timeout` each."""
        self.closing()()

    def closing(self) -> Callable[[], object]:
        """Release everything and end.

        Returns:
            A function that waits for the nodes' answers, then for `on_lost`, the observer and the log: at most
            `node_timeout` each.
        """
        keeper, self.closed = self._keeper, True
        gate = allocate_lock()
        if not keeper.gone and not keeper.unused:
            gate.acquire()
            keeper.ask(partial(keeper.close, gate))
        return partial(self._await_end, keeper, gate)

    def _await_end(self, keeper: Keeper, gate: LockType) -> None:
        if keeper.foreign or get_ident() == keeper.ident:
            return
        gate.acquire(True, self.settings.node_timeout + 1.0)
        until = self.clock() + self.settings.node_timeout
        for calls in keeper.aside.all:
            calls.wait(until - self.clock())
            calls.end()


def _closed_at_exit() -> None:
    for driver in _drivers:
        driver.close()


def _inherited() -> None:
    for keeper in _keepers:
        if keeper.foreign:
            keeper.forget_inherited()


os.register_at_fork(after_in_child=_inherited)
atexit.register(_closed_at_exit)
