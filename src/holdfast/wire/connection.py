"""One ordered connection to one node. It takes bytes and returns answers to their askers, in the
order of the stream.

Knows the handshake and the ledger (who is owed the next answer). Must not know
locks, sockets or clocks. A connection whose ledger may be wrong is never repaired. It says why it
is `bad`, and the driver hangs up.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Generic, Protocol, TypeVar

from ..errors import ConfigError, readable
from . import handshake, rights
from .address import Address
from .handshake import ConnectionSettings, Greeting
from .resp import MORE, Malformed, Push, Refusal, pack, reader, usual
from .server import KnownServer

# After this many seconds of silence, a firewall or proxy on the way may have cut the connection.
# That is no fault of the node.
QUIET = 30.0
# Seconds until a node that failed is dialled again.
LONGEST_DELAY = 1.28
# Seconds until then after a caller has come, if too few nodes are up.
SOON = 0.1
# A connection that was of use for less than this many seconds counts as a failure.
SHORT = 1.0
# Answers that take as many seconds or more do not count for the mean round trip.
PROMPT = 1.0
# A node that refused something is probed after half as many seconds to as many, and again.
PROBED = 1.0
# The mean round trip is that of about this many answers.
AVERAGED = 32
# Seconds from one of those answers to the next, at least.
SPACED = 0.01
# Hiredis's, for bytes that no server sends or no object can hold.
UNREADABLE = (Malformed, TypeError, ValueError, MemoryError)
# Optional: connection names for operators, and tracking, which wakes a waiter when a foreign client
# releases its lock. An ACL may deny both. Then a timer wakes the waiter.
OPTIONAL = ("CLIENT SETNAME", "CLIENT SETINFO", "CLIENT TRACKING", "CLIENT CACHING")
# Milliseconds that a node keeps the note of a reign after a client last connected to it: longer
# than the pause between two runs of a monthly job.
REMEMBERED = 35 * 86_400_000
# Greetings whose answer means nothing to us: the question after them shows what came of it.
UNREAD = ("NOTE",)
# Questions of the greeting that not every server is asked, and that a user may be denied.
ASIDE = ("CLUSTER INFO", "REIGN")


class ConnectionState(enum.Enum):
    """How far a connection has come."""

    DOWN = enum.auto()
    DIALLING = enum.auto()
    GREETING = enum.auto()
    # Introduced; the node may have forgotten leases, or its guard has just ended.
    GUARDED = enum.auto()
    # It failed before: it is of use when it has taken the scripts.
    LOADING = enum.auto()
    UP = enum.auto()


DOWN, DIALLING, GREETING, GUARDED, LOADING, UP = ConnectionState
# How far a connection has come that has to be of use in time.
UNDERWAY = (DIALLING, GREETING, LOADING)
# How far a connection has come on which it is known which server it leads to.
MET = (GUARDED, LOADING, UP)


class Question(Protocol):
    """What a connection keeps in its ledger until it is answered."""

    @property
    def sent(self) -> float:
        """A moment before its first byte left."""

    @property
    def data(self) -> bytes:
        """Its bytes."""

    @property
    def owner(self) -> object:
        """Who wants to know what is answered. None: nobody does."""

    @property
    def expected(self) -> bytes:
        """The bytes of the usual answer. Those of a question without one begin no answer."""

    @property
    def again(self) -> bool:
        """Is it to be said again after a reconnect, if it was not answered?"""

    @property
    def watch(self) -> bool:
        """Is the node to tell when what this reads has changed?"""


Q = TypeVar("Q", bound=Question)
Q_in = TypeVar("Q_in", bound=Question, contravariant=True)


class Listener(Protocol[Q_in]):
    """Whom connections tell what they heard. `spoke`: set whenever one of them has something to
    send.
    """

    spoke: bool

    def heard(self, node: int, question: Q_in, reply: object, now: float) -> None:
        """A question was answered."""

    def told(self, node: int, message: bytes, now: float) -> None:
        """The node said something of its own accord."""

    def changed(self, node: int, key: bytes | None, now: float) -> None:
        """Something happened to a key that a question was to watch; without a key: to every key of
        the node (FLUSHALL, FLUSHDB).
        """


class Connection(Generic[Q]):
    """The connection to one node, over all its reconnects. Its state is for reading only."""

    # (A client has five of these, and dictionaries would be most of their memory.)
    # fmt: off
    __slots__ = (
        "_excused", "_opened", "_pardoned", "_parted", "_place", "_probed", "_probes", "_reader", "_subscribed",
        "_timed", "_timed_again", "_unplaced", "_user", "address", "answered", "asked", "asks", "bad", "fails", "heard",
        "lacks", "ledger", "listener", "node", "out", "reask", "refusal", "rtt", "server", "settings", "state", "sure",
        "trip", "unsaid", "wake",
    )
    # fmt: on

    def __init__(self, listener: Listener[Q], node: int, address: Address, settings: ConnectionSettings) -> None:
        self.listener = listener
        self.node = node
        self.address = address
        self.settings = settings
        self.state = DOWN
        # When it wants to be looked after: dial, give up, or leave the guard.
        self.wake = 0.0
        # Why it has to be hung up.
        self.bad: Exception | None = None
        # Attempts in a row that came to nothing.
        self.fails = 0
        self.ledger: deque[Q | Greeting] = deque()
        self.out: list[bytes] = []
        # To be said (again) after a reconnect.
        self.unsaid: list[Q] = []
        # What is known of the server at the other end.
        self.server = KnownServer(address, settings)
        # The shortest time that an answer on the latest connection took, seconds; 0: not measured
        # yet.
        self.trip = 0.0
        # How many answers came, on all connections.
        self.answered = 0
        # The mean time that some of the latest answers took, seconds: the older, the less they
        # count. How many count, and when one counts again.
        self.rtt = 0.0
        self._timed = 0
        self._timed_again = -inf
        # What is asked, or has failed to say, where the node is or who we are there; empty: nobody.
        self.asks = ""
        # Where this connection leads to, when that was asked for last, and until when it is good:
        # nothing is asked of the node after that.
        self._place = ("", 0)
        self.asked = -inf
        self.sure = inf
        # When to ask again, and why that has failed.
        self.reask = inf
        self._unplaced: Exception | None = None
        # Was the place not known for a while before this connection?
        self._parted = False
        # When the server, in any run, last spoke on a connection in use.
        self.heard = -inf
        # Its user, what the greeting's probe has told, and when the next one may leave.
        self._user = ""
        self._probed: object = None
        # The commands that only some primitives need and this user may not call, and why.
        self.lacks: dict[str, str] = {}
        self._probes = -inf
        # What the node refuses writes with now, until it accepts one.
        self.refusal: Refusal | None = None
        self._opened = inf
        # Until when its silence may have been ours.
        self._excused = -inf
        # How many answers had come when a question was last excused; -1: none ever was.
        self._pardoned = -1
        self._subscribed = False

    # ------------------------------------------------ what the engine wants

    def dial(self, now: float) -> None:
        """Somebody is connecting."""
        self.state = DIALLING
        self.wake = now + self.settings.timeout

    def connected(self, now: float, address: Address | None = None, asked: float = -inf) -> None:
        """Bytes can flow: introduce ourselves, all in one write.

        `address`: with the place and the credentials of the moment, if there are such; `asked`:
        when the place was asked for.
        """
        address = address or self.address
        settings = self.settings
        if self.address.moves:
            self._parted = asked >= self.sure
            self._place = (address.host, address.port)
            self._vouched(asked)
        self._reader = reader()
        self._subscribed = False
        self.server.greeted()
        self.refusal = None
        self._user = address.user or "default"
        self.state = GREETING
        self.wake = now + settings.timeout
        for word, arguments in handshake.greeting(address, settings):
            if word == "SUBSCRIBE":
                # Confirmed by a push, not by an answer.
                self.out.append(pack(*arguments))
            else:
                self._greet(now, word, *arguments)
        self.probe(now)
        self._greet(now, "TIME", b"TIME")

    def say(self, question: Q) -> None:
        """Ask it, if the node can be spoken to; what must be said in any case is said after the
        reconnect.
        """
        if self.state is UP and question.sent < self.sure:
            if question.watch:
                self._greet(question.sent, "CLIENT CACHING", b"CLIENT", b"CACHING", b"YES")
            self.ledger.append(question)
            self.out.append(question.data)
            self.listener.spoke = True
        elif question.again:
            self.unsaid.append(question)

    def ready(self, question: Q) -> bool:
        """May it be asked at once? Then it is sent now, and is the caller's to put into the ledger.

        What must be said in any case is said after the reconnect.
        """
        if self.state is UP and question.sent < self.sure and not question.watch:
            return True
        self.say(question)
        return False

    def take(self) -> bytes:
        """What is to be sent now."""
        out = self.out
        self.out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def _vouched(self, asked: float) -> None:
        """The server was still the node when that was asked."""
        outlives = self.server.outlives
        assert outlives is not None
        self.asked = asked
        self.sure = asked + outlives
        self.reask = asked + outlives / 3
        self._unplaced = None

    # ------------------------------------------------ what happens

    def placed(self, address: Address | Exception, asked: float, now: float) -> None:
        """Take in where the node is, or why nobody knows, as was asked at `asked` (rule G13)."""
        if asked <= self.asked or self.state not in MET:
            # It was asked for an earlier connection.
            return
        if isinstance(address, Exception):
            self._unplaced = address
        elif (address.host, address.port) != self._place:
            self.bad = ConnectionError(f"the node has moved to {address.host}:{address.port}")
        else:
            self._vouched(asked)
            self._keep_note(now)

    def lapsed(self, now: float) -> ConnectionError | None:
        """Why the server cannot be taken for the node any longer, if that is so."""
        if now < self.sure or self.state not in MET:
            return None
        why, lasts = f": {self._unplaced}" if self._unplaced else "", self.server.outlives
        return ConnectionError(f"for {lasts:g} s nobody has confirmed that it is still the node's server{why}")

    def received(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """Read bytes, and hand out answers and pushes in the order of the stream."""
        # During the greeting it is not known yet which run of the server sends them.
        if self.state is not GREETING:
            self.heard = now
        node = self.node
        listener = self.listener
        ledger = self.ledger
        reader = self._reader
        if (reader.unfinished or usual(data) is None) and self._oversized(data):
            return
        gets = reader.gets
        reader.feed(data)  # type: ignore[arg-type]  # (it takes any buffer, whatever its types say)
        question = None
        answers = 0
        try:
            while self.bad is None:
                try:
                    reply = gets()
                except UNREADABLE as error:
                    self.bad = handshake.foreign(data, error)
                    return
                if reply is MORE:
                    return
                if type(reply) is Push:
                    self._pushed(reply, now)
                    continue
                if not ledger:
                    self.bad = ConnectionError("it says what nobody asked for")
                    return
                question = ledger.popleft()
                answers += 1
                if type(question) is Greeting:
                    # What the greeting decides depends on it.
                    self.trip = min(self.trip, now - question.sent)
                    self._greeted(question.word, question.sent, reply, now)
                else:
                    if type(reply) is Refusal:
                        reply = Refusal(readable(str(reply)))
                        self._note_refusal(reply, now)
                        self.bad = handshake.ends(reply, self.address.moves)
                        if self.bad is not None:
                            # It answers nothing: who asked hears that the connection broke (rule
                            # T5).
                            ledger.appendleft(question)
                            return
                    # A type checker does not see that it is no Greeting here.
                    listener.heard(node, question, reply, now)  # type: ignore[arg-type]
        finally:
            if question is not None:
                self._time(question.sent, answers, now)

    def expected(self, data: bytes, now: float, takes: Callable[[int, Q, float], bool]) -> bytes:
        """Hand out answers that are as usual, up to the first that is not.

        Args:
            data: What the node has sent.
            now: The time.
            takes: Is told of each that somebody wants to know: the node, the question and the time.
                False: it is not as usual.

        Returns:
            The bytes that are left, for `received`.
        """
        ledger = self.ledger
        if self.state is not UP or self._reader.unfinished or self.lacks or self.refusal is not None:
            return data
        node, begins, answered = self.node, data.startswith, ledger.popleft
        at, answers, size, sent = 0, 0, len(data), 0.0
        try:
            while at < size and ledger:
                question = ledger[0]
                expected = question.expected
                if not begins(expected, at):
                    break
                # (No greeting is answered as usual.)
                if question.owner is not None and not takes(node, question, now):  # type: ignore[arg-type]
                    break
                answered()
                at += len(expected)
                answers += 1
                sent = question.sent
        except IndexError:
            # The caller was interrupted for so long that the connection has ended.
            return b""
        if answers:
            self.heard = now
            self._time(sent, answers, now)
        return data[at:]

    def _time(self, sent: float, answers: int, now: float) -> None:
        """Note how long the last of these answers took: it was asked last, so none took less."""
        self.answered += answers
        took = now - sent
        if took < self.trip:
            self.trip = took
        # An answer that took long is about a node that hung, or a process that was stopped, and not
        # about the network.
        if took < PROMPT and now >= self._timed_again:
            self._timed_again = now + SPACED
            if self._timed < AVERAGED:
                self._timed += 1
            self.rtt += (took - self.rtt) / self._timed

    def _oversized(self, data: bytes | bytearray | memoryview) -> bool:
        try:
            self._reader.check(bytes(data))
        except Malformed as error:
            self.bad = ConnectionError(f"it sends more than any answer to this client can be: {error}")
            return True
        return False

    def opened(self, now: float) -> None:
        """The guard is over: load the scripts, and say what was left unsaid.

        They go before whatever else is said.
        """
        # Where even the greeting took longer than the claims that live can wait, the scripts are
        # loaded at leisure. That measures the round trip a second time before a claim is refused
        # for it, and asks nothing for which the connection would be closed at once.
        self.state, self.wake = (
            (UP, self._probe_due)
            if not self.fails and self.trip <= self.settings.patience
            else (LOADING, now + self.settings.timeout)
        )
        self._excused = now
        self._leave_note(now)
        for script in self.settings.scripts:
            self._greet(now, "SCRIPT LOAD", b"SCRIPT", b"LOAD", script)
        if self.state is UP:
            self._repeat(now)

    def _leave_note(self, now: float) -> None:
        """Note the server's reign if it was not taken: a server that has just been promoted refuses
        to write until it has replicas.

        Without the note, each client that comes later would wait for a whole guard.
        """
        server = self.server
        if server.reign and self.settings.guard is not None and handshake.number(server.noted) is None:
            self._note(server.reign, now)

    def learn(self, script: bytes, now: float) -> None:
        """Load one more script, if the others are loaded or under way: else it goes with them.

        It goes before whatever is said next.
        """
        if self.state is UP or self.state is LOADING:
            self._greet(now, "SCRIPT LOAD", b"SCRIPT", b"LOAD", script)

    def broke(self, now: float) -> None:
        """The connection is gone; nothing that was on its way is known to have arrived."""
        quiet = self.ledger and self.ledger[0].sent - self.heard >= QUIET
        self.fails = 0 if now - self._opened >= SHORT and (quiet or not self.late(now)) else self.fails + 1
        self.unsaid += [it for it in self.ledger if not isinstance(it, Greeting) and it.again]
        # A caller that was interrupted while it read may still look into the old one.
        self.ledger.clear()
        self.ledger = deque()
        self.out.clear()
        self.state = DOWN
        self.bad = None
        self._opened = inf
        delay = min(0.01 * 2 ** min(self.fails, 7), LONGEST_DELAY) if self.fails else 0.0
        self.wake = now + delay * (0.5 + self.settings.jitter / 2)

    def hurry(self, now: float) -> None:
        """A caller has come: dial soon, if the node rests after a failure."""
        if self.state is DOWN:
            self.wake = min(self.wake, now + SOON)

    def renounce(self, now: float) -> None:
        """The last resort, after `broke` has failed: the same, by nothing that can fail.

        What was owed is not said again.
        """
        self.ledger = deque()
        self.out = []
        self.unsaid = []
        self.state = DOWN
        self.bad = None
        self._opened = inf
        self.fails += 1
        self.wake = now + LONGEST_DELAY

    def late(self, now: float) -> bool:
        """Has the node been silent for too long? To be asked only when everything that came has
        been read.
        """
        return self.state is not DOWN and (self.state is not GUARDED or bool(self.ledger)) and now >= self.due()

    def silence(self) -> TimeoutError:
        """What is wrong when it is late."""
        within = f"{self.settings.patience if self.state is UP else self.settings.timeout:.2g} s"
        if self.state is not DIALLING:
            return TimeoutError(f"silent for {within}")
        if self.asks:
            return TimeoutError(f"no connection within {within}: no answer yet from {self.asks}")
        tls = "" if self.address.tls is None else " (TLS included: does it speak that on this port?)"
        return TimeoutError(f"no connection within {within}{tls}")

    def explained(self, cause: Exception) -> Exception:
        """Why the connection ended: what that may mean if it was all that came of it.

        There was no connection yet if it was still being asked where the node is.
        """
        tls = self.address.tls is not None
        mute = (
            tls
            if self.state is DIALLING
            else self.state is GREETING and getattr(next(iter(self.ledger), None), "word", "") == "HELLO"
        )
        if (
            not mute
            or self.asks
            or cause is self.bad
            or not isinstance(cause, ConnectionError)
            or isinstance(cause, ConnectionRefusedError)
        ):
            return cause
        advice = (
            "it may want a certificate of ours (ssl_certfile)"
            if tls
            else "if it speaks TLS on this port, write rediss://; if it is a proxy (twemproxy), name the server itself"
        )
        return ConnectionError(f"{cause}, before it said a word: {advice}")

    def due(self) -> float:
        """When to look after it next."""
        # In its guard a node is asked to keep the note about its place.
        if self.state is not UP and not (self.state is GUARDED and self.ledger):
            return self.wake
        # (what is said again after a reconnect cannot be answered sooner than it could be said)
        return max(self.ledger[0].sent, self._excused) + self.settings.patience if self.ledger else inf

    def probe(self, now: float) -> None:
        """Ask whether the node lets this client do all that it needs."""
        self._probes = now + PROBED * (0.5 + self.settings.jitter / 2)
        if self.state is UP:
            self.wake = inf
        self.ledger.append(Greeting("PROBE", now, self.settings.probe))
        self.out.append(self.settings.probe)
        self.listener.spoke = True

    def judge(self, reply: object, asked: bytes) -> None:
        """Take in the answer to a probe, which asked this."""
        if isinstance(reply, Refusal) and rights.passing(str(reply)) is None:
            # In a cluster, or after SCRIPT FLUSH, the refusal tells nothing about rights.
            self.bad = handshake.ends(reply, self.address.moves)
        if self.bad is not None:
            return
        if asked != self.settings.basic:
            self.lacks = rights.forbidden(reply)
        wrong = rights.judged(reply, self._user, self.settings.prefix)
        if isinstance(wrong, ConfigError):
            self.bad = wrong
        else:
            self.refusal = wrong
        if self.state is UP:
            self.wake = self._probe_due

    def forbids(self, question: bytes, now: float) -> ConfigError | None:
        """Return the error for what only some primitives need and this user may not do, or None.

        A probe tells whether it was granted meanwhile.
        """
        wrong = rights.lacking(question, self.lacks, self._user, self.settings.prefix)
        if wrong is not None:
            self.wake = min(self.wake, max(now, self._probes))
        return wrong

    @property
    def _probe_due(self) -> float:
        """When a node that refuses writes is to be probed again."""
        return inf if self.refusal is None else self._probes

    def _note_refusal(self, refusal: Refusal, now: float) -> None:
        """A question was refused: a probe tells whether others would be, and for how long."""
        self.refusal = rights.passing(str(refusal)) or self.refusal
        self.wake = min(self.wake, max(now, self._probes))

    def measure(self, now: float) -> None:
        """Ask for the round trip once more, unless an answer that tells it is under way."""
        if self.state is UP and not self.ledger:
            self._greet(now, "NOTE", b"TIME")

    def excuse(self, now: float, lag: float) -> None:
        """Note that our own side was late by `lag` seconds.

        The time for the oldest question starts over, because it may not have been sent until now.
        This happens only once for each question. A connection that is being made has as much time
        from now as we were late, because each of its steps waits for our own side.
        """
        if self.ledger and self.answered != self._pardoned:
            self._pardoned = self.answered
            self._excused = now
        if self.state in UNDERWAY:
            self.wake = max(self.wake, now + min(lag, self.settings.timeout))

    # ------------------------------------------------ within

    def _greet(self, now: float, word: str, *arguments: bytes) -> None:
        self.ledger.append(Greeting(word, now, pack(*arguments)))
        self.out.append(self.ledger[-1].data)
        self.listener.spoke = True

    def _pushed(self, push: Sequence[object], now: float) -> None:
        match list(push):
            case [b"message", _, bytes() as message]:
                self.listener.told(self.node, message, now)
            case [b"invalidate", list(keys)]:
                for key in keys:
                    self.listener.changed(self.node, key, now)
            case [b"invalidate", None]:
                self.listener.changed(self.node, None, now)
            case [b"subscribe", *_]:
                self._subscribed = True

    def _greeted(self, word: str, sent: float, reply: object, now: float) -> None:
        """The answer to a greeting of ours."""
        if word in OPTIONAL or word in UNREAD:
            return
        if word == "PROBE":
            if self.state is GREETING:
                # What the server is comes first.
                self._probed = reply
            else:
                self.judge(reply, self.settings.probe)
                if self.state is UP and self.refusal is None:
                    self._leave_note(now)
            return
        if word == "ADOPTED":
            # A user who may not read it waits for the whole guard.
            self.server.adopted = reply
            return
        if type(reply) is Refusal and not (word in ASIDE and rights.passing(str(reply)) is None):
            self.bad = handshake.refused(word, readable(str(reply)), self._user, self.settings.prefix)
        elif word == "HELLO" and isinstance(reply, dict):
            product = reply.get(b"server", b"")
            self.server.product = readable(product.decode("ascii", "replace")) if isinstance(product, bytes) else ""
        elif word == "INFO" and isinstance(reply, bytes | str):
            text = reply if isinstance(reply, str) else reply.decode("utf-8", "replace")
            self.server.facts.update(handshake.told_of(text))
            # It would refuse the next questions, in words that do not say why.
            self.bad = handshake.sentinel(self.server.facts)
        elif word == "TIME":
            self._told_first_time(sent, reply, now)
        elif word in ASIDE:
            if word == "REIGN":
                self.server.noted = reply
            elif (size := handshake.cluster_size(reply)) > 1:
                self.bad = ConfigError(handshake.SHARDED.format(f"of {size} shards"))
                return
            if not self.ledger:
                self._met(now)
        elif word == "SCRIPT LOAD" and not any(isinstance(it, Greeting) for it in self.ledger):
            # (Scripts that are loaded later say nothing about how long the connection is of use.)
            self._opened = min(self._opened, now)
            if self.state is LOADING:
                self.state = UP
                self.wake = self._probe_due
                self._excused = now
                self._repeat(now)

    def _told_first_time(self, sent: float, reply: object, now: float) -> None:
        """The greeting's last answer: what the node's clock says (rule F4)."""
        time = handshake.time_of(reply)
        if time is None:
            self.bad = ConnectionError(f"it tells no time: {readable(repr(reply))}")
            return
        if now - sent > self.settings.prompt:
            # Our own side was late. The node's clock may be off by half of that.
            self._greet(now, "TIME", b"TIME")
            self.wake = now + self.settings.timeout
            return
        self.server.clock(time, sent, now)
        self.trip = now - sent
        self._introduced(now)

    def _introduced(self, now: float) -> None:
        """Everything is known of the server: may it be used at all?

        A few kinds of servers have to be asked more.
        """
        server = self.server
        self.bad = handshake.unfit(server.facts, server.product, self.address, self._subscribed)
        if self.bad is None:
            self.judge(self._probed, self.settings.probe)
        if self.bad is not None:
            return
        if handshake.clustered(server.facts):
            self._greet(now, "CLUSTER INFO", b"CLUSTER", b"INFO")
        if self.settings.guard is not None and (tenure := server.tenure):
            # INFO says that the server was promoted, but not when. So the first client that sees
            # the promotion leaves a note of the time on the node. The replication id in its key is
            # new with each promotion, and no other server that is a primary has it.
            self._greet(now, "REIGN", b"GET", self._note(tenure, now))
        if not self.ledger:
            self._met(now)

    def _note(self, tenure: str, now: float) -> bytes:
        """Note on the node, by its own clock, since when this client knows the server's reign.

        Returns the note's key.
        """
        server = self.server
        note = self.settings.reigns + tenure.encode()
        at = server.stamp(server.since(tenure, now))
        if server.brief:
            self._greet(now, "NOTE", b"SET", note, at, b"NX", b"PXAT", server.ends(self.sure))
        else:
            self._greet(now, "NOTE", b"SET", note, at, b"NX", b"PX", b"%d" % REMEMBERED)
            self._greet(now, "NOTE", b"PEXPIRE", note, b"%d" % REMEMBERED)
        return note

    def _keep_note(self, now: float) -> None:
        """Have the node keep such a note for as long as its place is known."""
        server = self.server
        if self.state is not LOADING and server.brief and self.settings.guard is not None:
            if not isinstance(server.noted, bytes):
                # The node did not take it, and may do so later.
                server.noted = server.stamp(now)
            note = self.settings.reigns + server.reign.encode()
            self._greet(now, "NOTE", b"SET", note, server.noted, b"PXAT", server.ends(self.sure))

    def _met(self, now: float) -> None:
        """The server may be used. From when on?"""
        try:
            self.wake = self.server.met(now, self.heard, self._parted)
        except ConfigError as error:
            self.bad = error
            return
        self.heard = now
        self.state = GUARDED
        self._keep_note(now)

    def shorten(self, now: float) -> None:
        """End the guard: no lease counts any more that the server can have forgotten."""
        self.server.shorten(now)
        self.wake = now

    def _repeat(self, now: float) -> None:
        """Say what was left unsaid, unless the lease that it would end has run out by itself."""
        unsaid = self.unsaid
        self.unsaid = []
        for question in unsaid:
            if now < question.sent + self.settings.keep:
                self.say(question)
