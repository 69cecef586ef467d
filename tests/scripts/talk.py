"""Plays a written conversation with one node, and tells what the node answers and keeps.

    listen a; b1; a5 20s
        denied by b1 30s, place 0, fence +1 | b1 30s, fence +1 1020s, queue a5 20s
    b1 release => freed; a hears: granted a5 +5 | a5 20s, fence +5 1020s

A line has one or more commands. Behind `=>`, or on the line below, stands the answer to the last command, then every
push that the inboxes heard. After `|` it has what the node keeps, if that has changed.

A token such as `b5` or `b5s` is its inbox, `a` to `d`, and its ticket. A token of a read-write lock
ends in `r` or `w`. Tickets count in microseconds or seconds, from a moment 1,000 s ahead of the
node's clock. `+5` is a fence of the size of ticket 5, and `floor` is the clock floor.

| A command | |
| --- | --- |
| `a5`, `a5 20s`, `a5 brief` | requests a lease of 30 s, of 20 s, of a time that `lapse` ends |
| `a5 try`, `a5 cede`, `a5 keep`, `a5 wait` | requests in this mode (wait) |
| `a5 P=+9`, `a5 clock=-8s` | proposes this fence; requests by a clock 8 s behind the node's |
| `a5 release`, `a5 retire 60s` | releases; releases 60 s from now |
| `a5 to b6 20s`, `b6 back to a5` | b6 adopts the lease of a5 for 20 s; gives it back |
| `a5 muted`, `a5 release muted` | the node refuses to publish what the script sends |
| `listen a c`, `deaf a` | subscribes to these inboxes; closes the connection of this inbox |
| `tickets 1900000000000000`, `tickets now-40s` | tickets and fences count from this moment |
| `horizon 40s` | sets K, the fence horizon (20 s) |
| `called x` | sets the name of the lock (n) |
| `lapse`, `lapse 0.06s` | lets brief leases and places run out; lets this time pass |
| `DEL name`, `SET fence +5 PX 30000` | sends this for an operator, keys named as in the protocol |

In an operator's command, `now+30s` is a moment in ms, `^` is a space in a word, and `~` is an empty
word.

Times are rounded up to steps of 5 s, because a busy machine may need that long. The state begins
with the holder and the readers. It has the expiry of a key only if the other times do not tell it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext

from conversations import Step
from scripts.bench import INBOXES, LONG, NAME, SHORT, Bench, Client, Denied, Granted, answered, keys, real, simulated
from scripts.kinds import DIALECTS, REAL, url
from scripts.rw_bench import RWBench, rw_keys
from scripts.rw_bench import real as rw_real
from scripts.rw_bench import simulated as rw_simulated

from holdfast.protocol.adoption import Adopted, Handover
from holdfast.protocol.command import TRY
from holdfast.protocol.exclusive import Exclusive
from holdfast.scripts import ADOPT, RETIRE
from holdfast.testing.values import Dialect

STEP = 5_000  # ms
LONGEST = 10**9  # ms that are counted
HORIZON = 20_000  # ms
INBOX = dict(zip("abcd", INBOXES, strict=True))
_TOKEN = re.compile(r"([a-d])(-?\d+s?)([rw]?)")
_SENT = re.compile(rb"(\d{16}):(\w{32}):00000001(?::([rw]))?")


def micros(text: str) -> int:
    """Return the microseconds that a text such as 5, +5 or -8s means."""
    return round(float(text[:-1]) * 10**6) if text.endswith("s") else int(text)


def lasting(ms: int) -> str:
    """Return how long something lasts."""
    if ms <= 0:
        return "for ever" if ms == -1 else "lapsed"
    return "for long" if ms > LONGEST else f"{-(-ms // STEP) * STEP // 1000}s"


class Talk:
    """One conversation that is being played."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.base, self.horizon, self.name = bench, bench.base, HORIZON, NAME
        self.ears: dict[str, Client] = {}
        self.floors: set[int] = set()
        self.kept = "nothing"
        bench.load(ADOPT, RETIRE)

    def close(self) -> None:
        self.bench.close()

    def __call__(self, line: str) -> list[str]:
        """Let a line happen."""
        self.began = self.bench.now()
        *_, answer = [self._happens(it.split()) for it in line.split("; ")]
        said = "; ".join([it for it in (answer, *self._heard()) if it])
        before, self.kept = self.kept, ", ".join(self._keeps()) or "nothing"
        told = " | ".join([it for it in (said, self.kept if self.kept != before else "") if it])
        return [told] if told else []

    def _happens(self, words: list[str]) -> str:
        word, *rest = words
        match word:
            case "listen":
                self.ears |= {it: self.bench.connect(INBOX[it]) for it in rest}
            case "deaf":
                self.ears.pop(rest[0]).close()
                self.bench.settle(lambda: self.bench.operator.say("PUBLISH", INBOX[rest[0]], "anybody?") == 0)
            case "tickets":
                self.base = self.began * 1000 + micros(rest[0][3:]) if rest[0].startswith("now") else int(rest[0])
            case "horizon":
                self.horizon = micros(rest[0]) // 1000
            case "called":
                self.name, self.kept = self._word(rest[0]), ""
            case "lapse":
                self.bench.place.pass_time(micros(rest[0]) / 10**6) if rest else self.bench.lapse()
            case _ if _TOKEN.fullmatch(word) or "release" in rest:
                return self._asks(self._word(word), rest)
            case _:
                said = [self._word(it) for it in words]
                self.bench.eternal |= {said[1]} if word == "SET" and b"PX" not in said else set()
                self.bench.operator.say(*said)
        return ""

    def _asks(self, token: bytes, rest: list[str]) -> str:
        given = dict(it.split("=") for it in rest if "=" in it)
        plain = [it for it in rest if "=" not in it]
        lasts = next((it for it in plain if it[0].isdigit() or it == "brief"), f"{LONG // 1000}s")
        ttl = SHORT if lasts == "brief" else micros(lasts) // 1000
        with self.bench.mute() if "muted" in plain else nullcontext():
            if "release" in plain:
                return ("absent", "freed")[self.bench.release(token, K=self.horizon, name=self.name)]
            if "retire" in plain:
                lock = Exclusive(self.name.decode(), ttl=LONG / 1000, horizon=self.horizon).lasting()
                return ("absent", "held")[self.bench.told(lock.release(token, rest=max(ttl / 1000, 1e-9)))]
            if "to" in plain:
                return self._answer(self._adopts(token, self._word(plain[plain.index("to") + 1]), ttl, "back" in plain))
            mode = next((it for it in plain if it in ("try", "cede", "keep")), "wait")[0]
            P = int(self._word(given["P"])) if "P" in given else 0
            clock = self.began * 1000 + micros(given["clock"]) if "clock" in given else 0
            return self._answer(self.bench.request(token, ttl, mode, P=P, K=self.horizon, name=self.name, clock=clock))

    def _adopts(self, token: bytes, other: bytes, ttl: int, back: bool) -> Granted | Denied:
        giver = other if back else token
        fence = int(giver[:16])
        lease = Adopted(Handover(self.name.decode(), giver, fence), ttl=ttl / 1000, horizon=self.horizon)
        said = lease.release(token, held=False) if back else lease.request(other, ttl / 1000, TRY, fence)
        return answered(self.bench.told(said))

    def _answer(self, answer: Granted | Denied) -> str:
        if isinstance(answer, Granted):
            return f"{'granted' if answer.fresh else 'kept'} {self._fence(answer.fence)}{', a lower ticket waits' * answer.lower}"
        place = "no place" if answer.place < 0 else f"place {answer.place}"
        fence = f"fence {self._fence(answer.fence)}" if answer.fence else "no fence"
        return f"denied by {self._text(answer.holder)} {lasting(answer.pttl)}, {place}, {fence}"

    def _heard(self) -> Iterator[str]:
        for ear, client in self.ears.items():
            for channel, message in client.heard():
                kind, token, fence, name = message.split(b" ", 3)
                assert (channel, name) == (INBOX[ear], self.name)
                what = f"granted {self._text(token)} {self._fence(int(fence))}" if kind == b"g" else f"asked for {self._text(token)}"
                assert kind == b"g" or (kind, fence) == (b"i", b"0")
                yield f"{ear} hears: {what}"

    def _keeps(self) -> Iterator[str]:
        """Tell what the node has of the name."""
        seen = self.bench.see(self.name)
        reading, shared = getattr(seen, "readers", {}), getattr(seen, "readers_left", -2)
        if seen.holder is not None:
            yield f"{self._text(seen.holder)} {lasting(seen.holder_left)}"
        elif reading or seen.queue:
            yield "free"
        if reading:
            yield "readers " + " ".join(sorted(f"{self._text(it)} {lasting(left)}" for it, left in reading.items()))
            if lasting(shared) != lasting(seen.holder_left):
                yield f"their key {lasting(shared)}"
        for word, of in (("fence", "fence"), ("readers' fence", "rfence")):
            if (F := getattr(seen, of, None)) is not None:
                yield f"{word} {self._fence(int(F))} {lasting(getattr(seen, of + '_left'))}"
        if seen.queue:
            yield "queue " + " ".join(f"{self._text(it)} {lasting(place.left)}" for it, place in seen.queue.items())
            assert all(place.score == int(it[:16]) for it, place in seen.queue.items())
            longest = lasting(max(it.left for it in seen.queue.values()))
            ends = [lasting(it) for it in (seen.queue_left, seen.waiters_left)]
            if ends != [longest] * 2:
                yield f"queue's keys {' and '.join(ends)}"

    def _word(self, text: str) -> bytes:
        """Return the bytes that a word stands for."""
        here = dict(zip(("name", "fence", "queue", "waiters", "readers", "rfence"), self._keys(), strict=False))
        if found := _TOKEN.fullmatch(text):
            return b"%016d:%b:%08x" % (self.base + micros(found[2]), INBOX[found[1]], 1) + f":{found[3]}".rstrip(":").encode()
        if re.fullmatch(r"[+-]\d+s?", text):
            return b"%d" % (self.base + micros(text))
        if text.startswith("now"):
            return b"%d" % (self.began + micros(text[3:]) // 1000)
        return here.get(text) or text.strip("~").replace("^", " ").encode().decode("unicode_escape").encode("latin-1")

    def _keys(self) -> tuple[bytes, ...]:
        return (rw_keys if isinstance(self.bench, RWBench) else keys)(self.name)

    def _text(self, value: bytes | None) -> str:
        """Return a token, or another value, as a conversation has it."""
        if value is None:
            return "nobody"
        if found := _SENT.fullmatch(value):
            inbox = next(letter for letter, it in INBOX.items() if it == found[2])
            return f"{inbox}{self._count(int(found[1]))}{(found[3] or b'').decode()}"
        return value.decode("latin-1").encode("unicode_escape").decode() or "~"

    def _count(self, at: int) -> str:
        count = at - self.base
        return f"{count // 10**6}s" if count and count % 10**6 == 0 else str(count)

    def _fence(self, F: int) -> str:
        """Return a fence: from where the tickets count, or from the clock floor."""
        low, high = (now * 1000 - self.horizon * 500 for now in (self.began, self.bench.now()))
        if F in self.floors or low - 1 <= F <= high + 1000:
            self.floors.add(F)
            return "floor"
        return f"+{self._count(F)}".replace("+-", "-")


def ways(text: str) -> Mapping[str, Callable[[], Step]]:
    """Return the ways to play a conversation: on each kind of server."""
    shares = re.search(r"\b[a-d]-?\d+s?[rw]\b", text)
    a_simulated, a_real = (rw_simulated, rw_real) if shares else (simulated, real)

    def on(dialect: Dialect) -> Callable[[], Step]:
        return lambda: Talk(a_simulated(dialect))

    def at(which: str) -> Callable[[], Step]:
        return lambda: Talk(a_real(url(which)))

    return {it: on(dialect) for it, dialect in DIALECTS.items()} | {it: at(it) for it in REAL}
