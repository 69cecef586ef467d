"""Callers that acquire and release by themselves, in the usual case, without waking the I/O thread.

Knows the engine, the sockets, and what is usual. Must not know how callers wait for what is not.

To hand a call to the I/O thread costs two changes of threads, and as many waits for the
interpreter: 5 ms each in a process in which another thread computes. So a caller with one request
does the engine's work itself, if no other thread does it at that moment, and sends. If the nodes
are near, it also waits for their answers, for a moment, without giving up the interpreter. What is
not usual it leaves to the I/O thread.

One thread at a time may touch the engine: the one whose name stands in `turn`. To take the turn is
one C call, which an exception cannot divide.

The exception of a signal, or of a time limit, may strike a caller anywhere. So a caller notes in
`doubtful` the node that it speaks to, before it does. The I/O thread, when it finds such a note,
ends that connection: what was under way may or may not have happened, as after every broken
connection (rules T1 and C11). Everything else that a caller changes is its own claim, which the I/O
thread ends if the caller cannot.

A caller that does not come back, because the handler of its signal waits for something, loses its
turn after `LOOKS`. When it goes on, it looks at `turn` before each step that others could see, and
does nothing more. No other thread runs between that look and the step: CPython changes threads, and
runs handlers, only after calls, and not in the middle of an expression without calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from math import inf
from select import POLLIN
from typing import TYPE_CHECKING

from ... import events
from ...protocol.claim import Claim, State
from ...protocol.command import Command
from ...protocol.timing import Timing
from .. import unyielding
from .call import LEAVING, PendingCall
from .sockets import NodeSocket

if TYPE_CHECKING:
    from .io_thread import IOThread

# Seconds for which a caller waits for answers itself.
MOMENT = 0.001
# Seconds for which nobody does so after somebody has waited in vain.
PAUSE = 0.02
# Nodes whose answers took no longer than this many seconds are near.
NEAR = 0.0005
# If more threads than this want something of several nodes, the I/O thread asks for all of them in
# one write a node, which costs less than that no thread waits.
CROWD = 1
# Bytes: usual answers are shorter.
SHORT = 4096
# How often the I/O thread looks before a caller that does not come back loses its turn.
LOOKS = 100
# A request that waits for less than this many seconds is the I/O thread's business from its
# beginning.
BRIEF = 0.05

WAITING, HELD = State.WAITING, State.HELD


def _nothing(now: float) -> None:
    """Only have the I/O thread take a turn."""


class Overdue(Exception):
    """This caller has lost its turn: it touches nothing more."""


class Direct:
    """What callers do themselves.

    Attributes:
        turn: Who may touch the engine: the I/O thread, or a caller. Empty: nobody does.
        doubtful: The nodes that a caller is speaking to just now.
        done: What callers have begun or ended by themselves, and the I/O thread has not noted yet.
        used: When a caller did something by itself last.
        near: Are a majority of the nodes so near that callers wait for answers?
        waits: Does a caller wait for the I/O thread to go on with what it has begun?
    """

    def __init__(self, io_thread: IOThread) -> None:
        self.io_thread, self.engine, self.sockets = io_thread, io_thread.engine, io_thread.sockets
        self.turn: dict[int, object] = {}
        self.doubtful: Sequence[int] = ()
        self.done: deque[PendingCall] = deque()
        self.used = -inf
        self.near = False
        self.waits = False
        # When a caller may wait for answers again.
        self._patient = -inf
        # The claim of the caller that has the turn.
        self._own: Claim | None = None

    # ------------------------------------------------ for callers

    def acquire(self, pending: PendingCall, callers: int) -> bool | None:
        """Begin, send, and wait for a moment if the nodes are near.

        Args:
            pending: What the caller wants.
            callers: How many threads want something of this kind now, with this one.

        Returns:
            True if it is settled. False if the I/O thread goes on with it. None if nothing was
            begun.
        """
        try:
            if self.turn.setdefault(0, pending) is not pending:
                return None
            return self._acquire(pending, callers)
        except (Overdue, LookupError):
            if self.turn.get(0) is pending:
                raise
            # Begin once more.
            pending.phase = LEAVING
            return True
        finally:
            self._leave(pending)

    def release(self, pending: PendingCall, me: object) -> bool:
        """Send the release of a lease. False: nothing was done.

        Args:
            pending: The lease's.
            me: Stands for this call.
        """
        try:
            return self.turn.setdefault(0, me) is me and self._release(pending, me)
        except (Overdue, LookupError):
            if self.turn.get(0) is me:
                raise
            return False
        finally:
            self._leave(me)

    def crowded(self, callers: int) -> bool:
        """Whether it is better that the I/O thread speaks to all nodes for all these callers."""
        return callers > CROWD and len(self.engine.connections) > 1

    def give_way(self, pending: PendingCall) -> None:
        """Hand the turn of a call to the I/O thread, whose thread does something else meanwhile."""
        if self.turn.get(0) is pending:
            self.turn[0] = self.io_thread

    def _leave(self, me: object) -> None:
        try:
            # (No call in between: nobody can take the turn from this caller there.)
            if self.turn[0] is me:
                del self.turn[0]
        except KeyError:
            pass

    def _acquire(self, pending: PendingCall, callers: int) -> bool | None:
        io_thread, engine, timing = self.io_thread, self.engine, pending.timing
        if io_thread.greenlets:
            return None
        if pending.phase is LEAVING:
            # A signal's handler wanted a lock, too: begin once more.
            return True
        if self.crowded(callers):
            return None
        now = io_thread.clock()
        recipe = pending.recipes[0]
        if not recipe.basic or recipe.statement is not None or len(pending.recipes) > 1:
            return None
        if not self._usual(pending, timing, now):
            return None
        engine.record.epoch = io_thread.wall() - now
        claim = engine.claim(recipe, timing, now, pending.deadline)
        claim.begin(now)
        pending.claim = claim
        self._own = claim
        self._say(claim, pending, now)
        engine.record.happened(events.Attempt, claim, now)
        settled = self.near and now >= self._patient and self._hear(claim, pending, now)
        if settled:
            pending.gate = None
        if self.turn[0] is not pending:
            raise Overdue
        self._own = None
        self.done.append(pending)
        self._used(claim.wake, settled)
        return settled

    def _release(self, pending: PendingCall, me: object) -> bool:
        io_thread, engine, claim = self.io_thread, self.engine, pending.claim
        if pending.ended:
            return True
        if io_thread.greenlets or io_thread.gone:
            return False
        now = io_thread.clock()
        if (
            not isinstance(claim, Claim)
            or claim.company is not None
            or not claim.recipe.basic
            or claim.recipe.statement is not None
            or claim.state is not HELD
            or now >= claim.until
            or claim.stays
            or claim.awaited
            or not self._usual(me, claim.timing, now)
        ):
            return False
        claim.release(now)
        engine.record.ended(claim, HELD, now)
        self._say(claim, me, now)
        done = self.done
        if done and done[-1] is pending:
            # Nobody but this caller has heard of it.
            done.pop()
        else:
            done.append(pending)
        pending.ended = True
        self._used(inf, True)
        return True

    def _usual(self, me: object, timing: Timing, now: float) -> bool:
        """Is there nothing else to be done, and nothing that came before?"""
        asked = self.io_thread.asked
        while asked:
            # The lease of a pending call that is over has died.
            pending = asked[0]
            if not isinstance(pending, PendingCall) or not pending.ended or pending.leavers:
                return False
            if self.turn[0] is not me:
                raise Overdue
            asked.popleft()
        wait = timing.wait
        return (
            (not wait or wait >= BRIEF)
            and not self.doubtful
            and not self.sockets.unheard
            and not self.io_thread.closing
            and self.engine.calm(timing, now)
        )

    def _used(self, wake: float, settled: bool) -> None:
        """Note what was done, and wake the I/O thread if it would sleep too long."""
        io_thread = self.io_thread
        self.used = io_thread.clock()
        if not settled:
            self.waits = True
            io_thread.nudge()
        elif io_thread.asleep and wake < io_thread.planned:
            io_thread.nudge()

    def look(self) -> None:
        """Note whether the nodes are near. (The I/O thread calls this.)"""
        # (What comes through TLS is for the I/O thread to decrypt.)
        open_links = [it.node for it in self.sockets.by_file.values() if it.tunnel is None]
        near = [it for it in open_links if 0.0 < self.engine.connections[it].trip <= NEAR]
        self.near = self.engine.node_set.quorum.met(near)

    # ------------------------------------------------ speaking and listening

    def _say(self, claim: Claim, me: object, now: float) -> None:
        """Send what a claim has to say, at once where nothing waits to be sent before it."""
        turn, connections, links, recipe = self.turn, self.engine.connections, self.sockets.by_node, claim.recipe
        guardian = self.engine.upkeep.guardian
        if guardian is not None and claim.state is WAITING:
            guardian.asks(claim, claim.token)
        for nodes, command in claim.sends:
            data = command.data = (
                recipe.request(command.token, command.ttl, command.mode, command.fence, command.clock)
                if command.owner is claim
                else recipe.release(command.token, claim.fence > 0, command.ttl)
            )
            for node in nodes:
                # (Of the connection there is now: if it ends meanwhile, it is nobody's.)
                connection, link, ledger = connections[node], links[node], connections[node].ledger
                if turn[0] is not me:
                    raise Overdue
                self.doubtful = (node,)
                # (What is raised may be the caller's own, such as a time limit: nothing is caught
                # here.)
                at_once = connection.ready(command)
                if at_once and link is not None and not (link.rest or link.tunnel or connection.out):
                    ledger.append(command)
                    self._send(link, data)
                elif at_once:
                    connection.say(command)
        if turn[0] is not me:
            raise Overdue
        self.doubtful = ()
        claim.sends = []
        if guardian is not None and claim.state is not WAITING:
            guardian.ends(claim.token)
        if self.engine.spoke:
            # A node that was asked in vain, or whose bytes wait: the I/O thread sees to it.
            self.io_thread.ask(_nothing)

    def _send(self, link: NodeSocket, data: bytes) -> None:
        count = unyielding.send(link.file, data, min(len(data), unyielding.MOST), 0)
        if count != len(data):
            link.rest = data[max(count, 0) :]
            self.io_thread.ask(partial(self.sockets.resume, link))

    def _hear(self, claim: Claim, me: object, now: float) -> bool:
        """Wait for a moment for the answers. True: the claim is settled."""
        sockets, until, clock = self.sockets, now + MOMENT, self.io_thread.clock
        while now < until:
            files = sockets.files
            if unyielding.poll(files, len(files), 1) <= 0:
                break
            for it in files:
                if it.revents and (it.revents != POLLIN or not self._read(it.fd, me)):
                    return False
                if claim.state is not WAITING:
                    claim.news = False
                    self.engine.record.news(claim, claim.since)
                    return True
            now = clock()
        # The nodes, or this machine, are busy: nobody waits for nothing too often.
        self._patient = now + PAUSE
        return False

    def _read(self, file: int, me: object) -> bool:
        """Read what is usual from one node. False: there is something else."""
        sockets, turn = self.sockets, self.turn
        link = sockets.by_file.get(file)
        if turn[0] is not me:
            raise Overdue
        if link is None:
            return False
        self.doubtful = (link.node,)
        size = unyielding.recv(link.file, sockets.place, SHORT, 0)
        if turn[0] is not me:
            raise Overdue
        rest = b""
        if size > 0:
            data = bytes(sockets.view[:size])
            # (Not by `Upkeep.expected`, which would take a time limit of the caller's for a
            # connection's failure.)
            rest = self.engine.connections[link.node].expected(data, self.io_thread.clock(), self._takes)
            if turn[0] is not me:
                raise Overdue
            if rest:
                sockets.unheard.append((link, rest))
        self.doubtful = ()
        return size > 0 and not rest

    def _takes(self, node: int, command: Command, now: float) -> bool:
        """Take in a usual answer, unless it is for the I/O thread to tell somebody."""
        claim = command.owner
        if not isinstance(claim, Claim) or claim.as_usual is None:
            return False
        if claim is self._own or (claim.state is HELD and now < claim.until):
            claim.answered(node, command, claim.usual, now)
            return True
        return claim.state is State.OVER
