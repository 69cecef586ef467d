"""The I/O thread: the thread of a client that owns the engine, and what it does in one turn.

Knows threads, forks and the engine. Must not know sockets (`links`), or what a lease means.

An I/O thread with nothing to keep ends after `IDLE` seconds, and the next pending call starts it
again.
"""

from __future__ import annotations

from _thread import LockType
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from math import inf
from os import getpid

from ...clock import Sources
from ...engine.engine import Engine, Watch
from ...engine.ready import Ready, Want
from ...engine.settings import Settings
from ...engine.waiting import Waiting, fallen
from ...errors import ConfigError, HoldfastError, Misuse, closed
from ...events import Event
from ...protocol import readwrite
from ...protocol.claim import Claim, State
from ...protocol.query import Answers, Query
from ...weakset import SafeWeakSet
from ..access import Access
from ..base import told_lost
from ..callbacks import Call, Callbacks, Listeners, ThreadCalls
from ..cancel import Cancel
from ..forks import FORKS
from ..greenlets import allocate_lock, carrier, get_ident, patched, shut_gate, start_new_thread
from .call import GIVEN, LEAVING, WANTED, PendingCall
from .direct import LOOKS, Direct
from .sockets import GLANCE, Sockets

# Seconds after which an I/O thread with nothing to keep ends: a process that forks should have no
# thread.
IDLE = 10.0
# Seconds after which a caller that waits for the I/O thread looks whether the I/O thread still
# lives.
LOOK = 1.0
# Seconds after which a caller that may be cancelled by an event, or by the client's end, looks at
# it.
HEED = 0.05
# Seconds that the I/O thread may take longer to answer than the nodes may: the machine can be busy.
SLACK = 5.0
# Seconds for which the I/O thread leaves the sockets to callers after one of them has spoken by
# itself. Their answers would wake it each time.
REST = 0.005
# Seconds between two looks whether a caller has left the engine.
GLIMPSE = 0.001
# Seconds between two sweeps for pending calls whose callers were interrupted before they could say
# that they end.
SWEEP = 1.0

_io_threads: SafeWeakSet[IOThread] = SafeWeakSet()


class IOThread:
    """The thread, and everything it owns.

    After a fork, or a bug, it is gone for good, and a new I/O thread takes its place.
    """

    def __init__(
        self,
        settings: Settings,
        access: Sequence[Access],
        tell: Listeners,
        telling: bool,
        version: str,
        sources: Sources,
    ) -> None:
        self.clock = sources.clock
        self.wall = sources.wall
        self.engine = Engine(settings, sources.entropy(16).hex().encode(), readwrite.undo, version)
        self.engine.record.telling = telling
        if settings.guardian:
            from ..guardian.keeper import GuardedEngine

            self.engine.upkeep.guardian = GuardedEngine(settings.max_ttl, access)
        self.asked: deque[PendingCall | Callable[[float], None]] = deque()
        # Empty, unless the I/O thread sleeps and nobody has rung for this sleep yet.
        self.asleep: list[None] = []
        # When the I/O thread wakes by itself.
        self.planned = inf
        # What it waits at while callers speak for themselves.
        self._bed = shut_gate()
        self._resting = False
        self.closing = False
        self.ended = False
        self.failure: BaseException | None = None
        self.ident = 0
        self.aside = Callbacks(tell, self.engine.record, lambda most, complain, _: ThreadCalls(most, complain))
        self.sockets = Sockets(self.engine, access, sources)
        # Seconds after which callers no longer wait for an answer.
        self.patience = settings.node_timeout + SLACK
        self._carrier = carrier() if patched() else 0
        self._born = len(FORKS)
        self._process = getpid()
        self._node_timeout = settings.node_timeout
        # When the I/O thread last looked for pending calls that nobody told it to end.
        self._swept = 0.0
        self._running = allocate_lock()
        # Of all claims that are not over.
        self._pending_calls: dict[Want, PendingCall] = {}
        # Claims that callers have given up in this turn.
        self._given_up: list[Want] = []
        self.waiting: Waiting[LockType] = Waiting()
        # When the engine wants to be called next.
        self._wake = -inf
        # Callers that wait for the end. They put their gates here, before they ask for it.
        self.closers: list[LockType] = []
        self._idle_since = inf
        self.direct = Direct(self)
        # When the end waits for nobody any more, and for nobody but those that have bytes to take.
        self._closed_by = inf
        self._ends = inf
        _io_threads.add(self)

    @property
    def gone(self) -> bool:
        """Is nobody there any more, in this process?"""
        # Every call of a lock asks this.
        return self.ended or len(FORKS) != self._born or getpid() != self._process

    @property
    def over(self) -> bool:
        """Is it gone, with everything closed?"""
        return self.gone and not self._running.locked()

    @property
    def unused(self) -> bool:
        """Has nobody asked anything of it, or has it ended since?"""
        return not self._running.locked() and not self.asked

    @property
    def foreign(self) -> bool:
        """Is this a forked child, and the I/O thread its parent's?"""
        # Programs that embed Python fork without telling it (uWSGI does by default): then only the
        # process id differs.
        return len(FORKS) != self._born or getpid() != self._process

    @property
    def outdated(self) -> bool:
        """Was it made for threads, and they are greenlets by now?

        Misuse if it is in use, or a greenlet in another thread.
        """
        if not patched() or self._carrier == carrier():
            return False
        if self._carrier:
            raise Misuse(
                "under gevent a client serves the greenlets of one thread: "
                "make and close a client of its own in this one"
            )
        if not self.unused:
            raise Misuse(
                "gevent patched the threads of this process while this client was in use: "
                "call `gevent.monkey.patch_all()` first of all, or at least before anything is locked"
            )
        return True

    # ------------------------------------------------ for callers

    def ask(self, what: PendingCall | Callable[[float], None]) -> None:
        """Have the I/O thread do this. In this order: the I/O thread says that it sleeps, then
        looks.
        """
        self.asked.append(what)
        self._ring()

    def discard(self, pending: PendingCall, event: Event) -> None:
        """End the renewal of a lease that its owner let die, and have observers and the log hear of
        it.

        A finalizer calls this, on any thread and perhaps in the middle of anything. So this takes
        no lock, wakes no thread and calls nothing of the user's. While a lease is held, the I/O
        thread wakes by itself: for the next renewal at the latest.
        """
        self.asked.append(pending)
        self.asked.append(lambda now: self.engine.record.note_at(now, event))

    @property
    def greenlets(self) -> bool:
        """Are its callers greenlets?"""
        return bool(self._carrier)

    def _ring(self) -> None:
        # In a child of a fork that Python was not told of, the pipe is the parent's.
        if getpid() != self._process:
            return
        if self.asleep or self._resting:
            self.nudge()
        elif not self._running.locked():
            try:
                start_new_thread(self.run, ())
            except RuntimeError as error:
                advice = "This process, or its user, may have as many threads as the system allows"
                raise HoldfastError(f"holdfast cannot start its background thread: {error}. {advice}") from error

    def nudge(self) -> None:
        """Wake the I/O thread's thread, if it sleeps."""
        if nap := self.asleep:
            # In this order: a caller that finds that somebody has rung need not ring. (A list for
            # each sleep: a caller that goes on late marks no later one.)
            self.sockets.bell.ring()
            nap.clear()
        elif self._resting:
            try:
                self._bed.release()
            except RuntimeError:
                # Somebody else has just done so.
                pass

    def wait(self, gate: LockType, until: float = inf, cancel: Cancel | None = None, patience: float = inf) -> bool:
        """Wait until the I/O thread opens the gate.

        Args:
            gate: A lock that is held, which the I/O thread releases.
            until: The moment at which the caller stops waiting, by this driver's clock.
            cancel: Stops the wait, at most `HEED` seconds after it is set.
            patience: Seconds after which the I/O thread is taken for blocked. Only time in which
                this process could run counts: while it is stopped, the I/O thread is stopped, too.

        Returns:
            True if the I/O thread opened the gate. False if `until` or `patience` is over, `cancel`
            was set, or the I/O thread is gone.

        Raises:
            Misuse: The caller is a finalizer on the I/O thread's own thread.
        """
        if get_ident() == self.ident:
            # Callbacks have threads of their own, but the garbage collector runs finalizers on any
            # thread, so also on this one.
            raise Misuse(
                "a finalizer (`__del__`) cannot wait for a client on that client's own thread, "
                "where it was run by chance: hand the work to another thread"
            )
        if getpid() != self._process:
            return False
        look = LOOK if cancel is None else HEED
        while not gate.acquire(True, pause := max(0.0, min(look, until - self.clock(), patience))):
            # One look counts as no more than the time that it was meant to take.
            patience -= pause
            if self.gone or patience <= 0.0 or self.clock() >= until or (cancel is not None and cancel.is_set()):
                return False
            # The thread that should have rung may have been interrupted.
            self._ring()
        return not self.gone

    def silence(self, doing: str) -> HoldfastError:
        """Why the I/O thread has not opened a gate: an error to raise, `from io_thread.failure`."""
        # Its client may be open again, with another I/O thread.
        if self.closing and not self.foreign:
            return closed()
        if self.gone:
            return HoldfastError(f"this process was forked, or holdfast failed, {doing}")
        return HoldfastError(
            f"holdfast's background thread did not respond for {self.patience:.1f} s {doing}. "
            "This process has too little CPU time, or code in it keeps all other threads from running: "
            "an extension that holds the GIL, a finalizer (`__del__`) that does not return, or a call under gevent "
            "that does not yield"
        )

    # ------------------------------------------------ the I/O thread's thread

    def run(self) -> None:
        """Work until there has been nothing to do for a while."""
        while not self.gone and self._running.acquire(False):
            try:
                self._work()
            except BaseException as error:
                self._die(error)
            finally:
                self.ident = 0
                self._running.release()
                for calls in self.aside.all:
                    calls.finish()
                if self.ended or self.foreign:
                    closers, self.closers = self.closers, []
                    _open(closers)
            # Somebody may have asked just before the lock was free.
            if not self.asked and not self.engine.live:
                return

    def _work(self) -> None:
        self._idle_since = inf
        self._wake = self.engine.next_wake()
        try:
            # The usual answer first: this is asked at every turn.
            while (self.engine.live and not self.closing) or not self._finished():
                if self.sockets.bell.file < 0:
                    self.sockets.hang_bell()
                used, readable = self.direct.used, self._sleep()
                # A greenlet lives on in the child of a fork; all that it had is the parent's.
                if self.foreign:
                    return
                self._take()
                # A caller may have read meanwhile.
                self._turn(readable if self.direct.used == used else self.sockets.wait(0.0))
                self._leave()
            # A caller may have begun something just before: `run` goes on with it.
            self._take()
            self._catch_up(self.clock())
        finally:
            self.asleep, self._resting = [], False
            if not self.foreign:
                self._take()
                self._shut()
                self._leave()

    def _sleep(self) -> list[tuple[int, int]]:
        """Wait until there may be something to do. Returns what can be read or written then."""
        now = self.clock()
        pause = self._pause(now)
        rest = self.direct.used + REST - now
        if rest > 0 and not len(self.waiting):
            # In this order: it says that it rests, then looks.
            self._resting = True
            if not self.asked and not self.direct.waits and self._bed.acquire(True, max(0.0, min(rest, pause))):
                self.direct.used = -inf
            self._resting = False
            return self.sockets.wait(0.0)
        self.planned = now + pause
        self.asleep = [None]
        readable = self.sockets.wait(0.0 if self.asked or self.direct.done else pause)
        self.asleep = []
        return readable

    # ------------------------------------------------ who touches the engine

    def _take(self) -> None:
        """Wait until no caller touches the engine, and mend what one has left half done."""
        direct, looks = self.direct, LOOKS
        while direct.turn.setdefault(0, self) is not self:
            self._bed.acquire(True, GLIMPSE)
            looks -= 1
            if not looks:
                direct.turn[0] = self
        self.ident = get_ident()
        if direct.doubtful:
            # (Every claim has to hear of it.)
            self._catch_up(self.clock())
            nodes, direct.doubtful = direct.doubtful, ()
            cause = ConnectionError("a caller was interrupted while it spoke to the node")
            for node in nodes:
                self.engine.upkeep.lost(node, self.clock(), cause)

    def _leave(self) -> None:
        """Let callers touch the engine."""
        self.direct.turn.pop(0, None)

    def _catch_up(self, now: float) -> None:
        """Look after what callers have begun by themselves, and not after what they have ended."""
        done, self.direct.waits = self.direct.done, False
        while done:
            pending = done.popleft()
            claim = pending.claim
            assert isinstance(claim, Claim)
            gate, pending.gate = pending.gate, None
            if pending.ended or claim.done:
                self._pending_calls.pop(claim, None)
                _open([] if gate is None else [gate])
            else:
                self._pending_calls[claim] = pending
                if gate is not None:
                    self.waiting.for_claim(claim, gate)
            self.engine.adopt(claim, now)

    def _pause(self, now: float) -> float:
        wake = min(self._wake, self._idle_since + IDLE, self._ends)
        return max(0.0, min(wake - now, 3600.0 if self.sockets.bell.file >= 0 else GLANCE))

    def _finished(self) -> bool:
        """Is there nothing to keep?

        (What the nodes still owe is waited for: closing with unread bytes would reset releases.)
        """
        now = self.clock()
        if self.closing:
            self._ends = self._closed_by if self.sockets.sending else self.engine.farewell(now)
            self.ended = now >= self._ends
            return self.ended
        if self.asked or self.direct.done:
            return False
        used = max(min(self._idle_since, now), self.direct.used)
        self._idle_since = now if self.engine.watches or self.engine.upkeep.stays else used
        return now >= self._idle_since + IDLE

    def _turn(self, readable: list[tuple[int, int]]) -> None:
        """What `Engine.ready` asks of a driver, once."""
        engine, now = self.engine, self.clock()
        engine.record.epoch = self.wall() - now
        if self.direct.done or self.direct.waits:
            self._catch_up(now)
        self.sockets.hear(readable, now)
        if self.asked:
            self._idle_since = inf
        while self.asked:
            self._do(self.asked.popleft(), now)
        # At the end nobody is judged: a reset would undo what was said last.
        if now >= engine.next_wake() and now < self._closed_by:
            # What lies unread is not late: read all that came until `now`.
            self.sockets.hear(self.sockets.wait(0.0), now, True)
            engine.tick(now)
            if now >= self._swept + SWEEP:
                self._sweep(now)
        while True:
            ready = engine.ready()
            if ready.idle and not self.sockets.drained and not self.waiting.leaving and not self._given_up:
                break
            if ready.hangups or ready.dials or ready.places:
                self.sockets.connect(ready, now, self.ask)
            if ready.speaks or self.sockets.drained:
                self.sockets.speak(now)
            if self.waiting.leaving:
                _open(self.waiting.sent())
            if ready.settled or ready.queries or ready.changed or ready.events or self._given_up:
                self._tell(ready)
            if not engine.upkeep.broken:
                break
        self._wake = ready.wake
        self.direct.look()

    def _do(self, what: PendingCall | Callable[[float], None], now: float) -> None:
        if not isinstance(what, PendingCall):
            what(now)
        else:
            if what.claim is None and not what.ended:
                self._begin(what, now)
            elif what.claim is not None and not what.ended:
                self._end(what, what.claim, now)
            self._part(what)

    def _sweep(self, now: float) -> None:
        """End what callers gave up and could not say: an exception struck while they handled
        another one. And what a caller does not come for: it was interrupted, and may wait for the
        same lock.
        """
        self._swept = now
        for claim, pending in list(self._pending_calls.items()):
            held = claim.state is State.HELD and now > claim.since + pending.timing.ttl / 3
            if pending.phase is WANTED and held and pending.handed.acquire(False):
                pending.phase = LEAVING
            if pending.phase is LEAVING and not pending.ended:
                self._do(pending, now)

    def _begin(self, pending: PendingCall, now: float) -> None:
        if pending.phase is LEAVING or self.closing or pending() is None:
            # Its caller was interrupted before it began.
            self._decline(pending)
            return
        try:
            claim = self.engine.want(pending.recipes, pending.timing, now, pending.deadline)
        except ConfigError as error:
            # A clock that cannot be right.
            pending.error = error
            self._decline(pending)
            return
        pending.claim = claim
        self._pending_calls[claim] = pending
        if (gate := pending.gate) is not None:
            pending.gate = None
            self.waiting.for_claim(claim, gate)
        self.engine.begin(claim, now)

    def _decline(self, pending: PendingCall) -> None:
        """Do not even begin. Its caller looks why."""
        pending.ended = True
        if (gate := pending.gate) is not None:
            pending.gate = None
            gate.release()

    def _end(self, pending: PendingCall, claim: Want, now: float) -> None:
        if pending.phase is GIVEN:
            # Its owner let the lease die: garbage collection never releases a lock.
            claim.abandon()
            return
        pending.ended = True
        # A caller that waits for an extension waits no longer.
        _open(self.waiting.drop(claim))
        self.engine.end(claim, now, any(confirm for _, confirm in pending.leavers))
        self._given_up.append(claim)

    def _part(self, pending: PendingCall) -> None:
        """Let the callers that wait for the end of a pending call wait for its bytes or its
        answers.

        They wait until the bytes have left, or until the nodes have answered.
        """
        while pending.ended and pending.leavers:
            gate, confirm = pending.leavers.pop()
            answers = confirm and pending.claim is not None and not pending.claim.done
            if answers and pending.claim is not None:
                self.waiting.for_claim(pending.claim, gate)
            else:
                self.waiting.for_leaving(gate)

    def _tell(self, ready: Ready) -> None:
        """Wake the callers that wait, and mark what is lost.

        What users registered is called aside from this thread.
        """
        if ready.settled or ready.queries or ready.changed:
            for gate in self.waiting.settle(ready):
                gate.release()
        if ready.settled and (lost := fallen(self._pending_calls, ready.settled)):
            # A lease that nobody has taken yet is not lost: its caller finds it lost, and asks once
            # more.
            lost = [it for it in lost if not it.handed.acquire(False)]
            self.aside.losses.put(told_lost(it.lease for it in lost))
        if self._given_up:
            # (Not sooner: it may have been lost in the same turn, and its owner is told of that.)
            for claim in self._given_up:
                if claim.done:
                    self._pending_calls.pop(claim, None)
            self._given_up.clear()
        if ready.events:
            self.aside.tell(ready.events)

    # ------------------------------------------------ ends

    def _shut(self) -> None:
        """Close everything."""
        nodes = self.sockets.shut()
        # Its connections begin again with the next run.
        if not self.ended:
            now = self.clock()
            for node in nodes:
                self.engine.upkeep.lost(node, now, ConnectionError("this client was idle"))
            self.engine.upkeep.cut()

    def given(self) -> list[PendingCall]:
        """The pending calls whose leases callers have. Callers ask this, on their own threads."""
        # (One C call copies the table, which the I/O thread goes on to change.)
        pending_calls = {id(it): it for it in [*list(self._pending_calls.values()), *list(self.direct.done)]}
        return [it for it in pending_calls.values() if it.phase is GIVEN]

    def stay(self, now: float) -> None:
        """Have the keys of the leases that callers have stay on the nodes when they end."""
        for pending in self.given():
            if pending.claim is not None:
                self.engine.stay(pending.claim)

    def close(self, now: float) -> None:
        """Release everything, and end when the nodes have answered, or need not be waited for; then
        let the closers go on.
        """
        self.closing = self.sockets.closing = True
        self._closed_by = now + self._node_timeout
        self._ends = self._closed_by
        self.engine.close(now)

    def consult(
        self,
        asks: Mapping[int, bytes],
        enough: Callable[[Answers], bool] | None,
        share: Hashable,
        told: list[Query],
        gate: LockType,
        now: float,
    ) -> None:
        """Ask nodes something that is no lock; when it is over, open the gate."""
        told.append(query := self.engine.consult(asks, now, enough, share))
        if query.over:
            gate.release()
        else:
            self.waiting.for_query(query, gate)

    def listen(self, made: list[Watch], gate: LockType, now: float) -> None:
        """Make a watch, and open the gate."""
        made.append(self.engine.listen(now))
        gate.release()

    def watch(self, gate: LockType, of: Watch | None, now: float) -> None:
        """Open the gate when a node's standing has changed, or when there is news for the watch."""
        self.waiting.for_news(gate)
        if of is not None and of.news:
            self.unwatch(gate, now)
            gate.release()

    def unwatch(self, gate: LockType, now: float) -> None:
        """Nobody waits at the gate any longer."""
        self.waiting.cancel(gate)

    def _die(self, error: BaseException) -> None:
        """Something is wrong in here: nobody may believe in a lease of it any longer, nobody waits
        for it.
        """
        self.failure, self.ended = error, True
        # (One C call copies the deque, which callers go on to fill.)
        pending_calls = [*self._pending_calls.values(), *[it for it in list(self.asked) if isinstance(it, PendingCall)]]
        pending_calls += list(self.direct.done)
        self._pending_calls.clear()
        held = [
            it for it in pending_calls if it.phase is GIVEN and it.claim is not None and it.claim.state is State.HELD
        ]
        calls: list[Call] = []
        # The last step that is put here runs first, and none that fails keeps another from running.
        with ExitStack() as steps:
            for gate in self.waiting.everyone():
                steps.callback(gate.release)
            steps.callback(self.aside.failed, error)
            for pending in pending_calls:
                steps.callback(self._dismiss, pending)
            # Called only once all of them are marked.
            steps.callback(self.aside.losses.put, calls)
            for pending in held:
                steps.callback(lambda it: calls.extend(told_lost([it.lease])), pending)

    def _dismiss(self, pending: PendingCall) -> None:
        """Let the callers of a pending call go on.

        Idempotent: a pending call that is being given back is listed twice.
        """
        if not pending.ended and pending.claim is None:
            self._decline(pending)
        gate, pending.gate = pending.gate, None
        _open([] if gate is None else [gate])
        while pending.leavers:
            pending.leavers.pop()[0].release()

    def forget_inherited(self) -> None:
        """In a forked child: close the parent's sockets, and say nothing on them."""
        self.sockets.forget_inherited()


def _open(gates: Sequence[LockType]) -> None:
    """Let the callers go on that wait for these locks."""
    for gate in gates:
        gate.release()


def inherited() -> None:
    """In a forked child: forget the sockets of all I/O threads of the parent."""
    for io_thread in _io_threads:
        if io_thread.foreign:
            io_thread.forget_inherited()
