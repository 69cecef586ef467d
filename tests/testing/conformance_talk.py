"""Examines a simulated server in virtual time, and tells what is found.

    INFO role:slave; pace 0.02: greeting => unfit: INFO, for the role, answers 'slave', not 'master'

Each line has a new server. What is wrong with it stands before the colon, and the check behind it.

| What is wrong | |
| --- | --- |
| `INFO role:slave`, `INFO role` | this line of INFO is another one, or is missing; `{n}` counts |
| `SET refused OOM no`, `PTTL says -1` | the command is refused; has this answer |
| `GET says None 10` | each tenth has |
| `leases 50 -4 0 0 0` | a lease of 100 ms ends so many ms late, round by round |
| `clock -0.3` | the clock is set in the third round |
| `password secret`, `pace 0.02` | has a password; a command takes so many seconds |
| `messages lost`, `messages late` | the first message is missing; comes after the next answer |
| `invalidations 1 0.9` | only one comes, so many seconds late |
| `again uptime=3`, `again kept`, `down 61` | it restarts so; after so many seconds |

| A check | |
| --- | --- |
| `greeting`, `expiries`, `pushes`, `tracking`, `restart` | the detail, or the verdict and the detail |
| `contract latch` | for each answer and message: what is said of another one, but for these parts |
| `dial redis://a/3` | in which database it works |
| `hears !?` | what is said if these bytes come, `nothing`, or the `end` |
| `client asks w then answered 1 then heard g its 9 L` | what becomes of a client of a storm |
| `client other 7 then is held then after 0.9` | the same: another one holds; it is held; it waits so long |
| `storm 1600 10` | so many requests, for so many seconds: how it ends |
"""

from __future__ import annotations

import ast
import dataclasses
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from math import inf
from typing import Any

from conversations import Step

from holdfast.scripts import LOADED
from holdfast.testing.commands import COMMANDS
from holdfast.testing.conformance import Examination, behaviour, examination
from holdfast.testing.conformance.connection import BadServer, BareConnection
from holdfast.testing.conformance.contract import Contract
from holdfast.testing.conformance.storm import Storm
from holdfast.testing.server import Server
from holdfast.wire import address
from holdfast.wire.resp import Push

VARIES = (
    r"\d+(?= ms off)|\d{16}:\w{32}:\w{8}|\w{40}, on .*|\d{2,3}(?= requests)|[1-9]\d*(?= grants, )"
    r"|[1-9]\d*(?= by push)|(?<=push, \d)\.\d|(?<=push, \d\d)\.\d"
)
CHANGED = Push([b"invalidate", [b"its"]])


class Line(BareConnection):
    """A connection to a simulated server: what is sent is executed at once, and answered."""

    def __init__(self, bench: Bench, url: str) -> None:
        self.bench = bench
        self.clock, self.sleep = lambda: bench.now, bench.passes
        super().__init__(address.parse(url), LOADED)

    def _dial(self, address: Any) -> Any:
        sock, self.far = socket.socketpair()
        for it in (sock, self.far):
            it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # nobody reads meanwhile
        sock.settimeout(0.01)
        self._served = self.bench.server.connect(self.far.sendall)
        return sock

    def close(self) -> None:
        super().close()
        self._served.disconnect()
        self.far.close()

    def send(self, *commands: Sequence[Any]) -> None:
        self.bench.passes(self.bench.pace)
        super().send(*commands)
        self._served.feed(self.far.recv(1 << 20))

    def batch(self, *commands: Sequence[Any]) -> list[Any]:
        return [self.bench.answer(words, it) for words, it in zip(commands, super().batch(*commands), strict=True)]

    def messages(self) -> list[bytes]:
        found: list[bytes] = self.bench.damaged(super().messages()[self.bench.lost :])
        return found

    def arrived(self) -> list[Any]:
        found, bench = super().arrived(), self.bench
        if bench.late and len(found) > 1000:
            found[3:6] = [found[5], *found[3:5]]
        if CHANGED in found:
            found.remove(CHANGED)
            bench.tells = bench.now + bench.invalidations.pop(0)
        if bench.now >= bench.tells:
            bench.tells = inf
            found.insert(0, CHANGED)
        return found


class Bench:
    """One server, the time, and what is wrong. `turn`, `other`: which answer of a script is damaged, and how."""

    def __init__(self, wrong: str = "", turn: int = -1, other: int = 0) -> None:
        self.now, self.up, self.tells, self.pace, self.ahead, self.down = 0.0, 0.0, inf, 0.0004, 1_800_000_000.0, 0.0
        self.late, self.lost, self.clock = False, False, 0.0
        self.info, self.again, self.invalidations = list[str](), dict[str, Any](), [0.0, 0.0]
        self.turn, self.other, self.answers = turn, other, list[Any]()
        self.begin(uptime=1000.0)
        for it in wrong.split("; "):
            self.harm(*it.split())

    def begin(self, run_id: str = "a" * 40, **options: Any) -> None:
        self.server = Server(lambda: self.ahead + self.now, run_id, **options)

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def harm(self, what: str = "", *words: str) -> None:
        match [what, *words]:
            case ["INFO", line]:
                self.info.append(line)
            case ["messages", how]:
                self.lost, self.late = how == "lost", how == "late"
            case ["invalidations", count, late]:
                self.invalidations = [*[float(late)] * int(count), inf, inf]
            case ["leases", *ms]:
                self.command("SET", partial(self.shifted, [*map(int, ms)]))
            case ["again", it]:
                self.again |= {"kept": True} if it == "kept" else {it.split("=")[0]: ast.literal_eval(it.split("=")[1])}
            case ["password", it]:
                self.server.password = it.encode()
            case [_, "refused", *text]:
                self.server.refuse[what.encode()] = " ".join(text).encode()
            case [_, "says", it, *often]:
                self.command(what, partial(self.says, what.encode(), ast.literal_eval(it), int([*often, "1"][0])))
            case [_, seconds]:
                setattr(self, what, float(seconds))

    def command(self, name: str, run: Callable[..., Any]) -> None:
        """The server executes a command in another way."""
        other = dataclasses.replace(COMMANDS[name.encode()], run=run)
        self.server.commands = {**self.server.commands, name.encode(): other}

    def says(self, name: bytes, said: Any, often: int, c: Any, *words: bytes) -> Any:
        return COMMANDS[name].run(c, *words) if self.server.calls[name] % often else said

    def shifted(self, left: list[int], c: Any, *words: bytes) -> Any:
        if b"100" in words:
            self.ahead += self.clock if len(left) == 3 else 0.0
            words = tuple(b"%d" % (100 + left.pop(0)) if it == b"100" else it for it in words)
        return COMMANDS[b"SET"].run(c, *words)

    def answer(self, words: Sequence[Any], answer: Any) -> Any:
        """What a client hears."""
        if words[0] in ("EVAL", "EVALSHA"):
            return self.damaged(answer)
        for line in self.info if words[0] == "INFO" else ():
            key, _, other = line.replace("{n}", str(self.server.calls[b"INFO"])).partition(":")
            answer = re.sub(rf"^{key}:.*", line and f"{key}:{other}", answer.decode(), flags=re.M).encode()
        return answer

    def damaged(self, answer: Any) -> Any:
        self.answers.append(answer)
        return [*damages(answer)][self.other][1] if len(self.answers) - 1 == self.turn else answer

    def dial(self, url: str = "redis://a") -> Line:
        if self.now < self.up:
            raise BadServer("it is down")
        made = Line(self, url)
        try:
            made.greet()
        except BadServer:
            made.close()
            raise
        return made

    def restart(self) -> None:
        kept = self.server.saved() if self.again.pop("kept", False) else None
        self.begin(**{"run_id": "b" * 40, "data": kept, **self.again})
        self.up = self.now + self.down

    # ------------------------------------------------ checks

    def check(self, check: Callable[[], Any]) -> str:
        """Return what becomes of a check."""
        found, first = Examination(""), self.server
        examination._checked(found, "it", check)
        assert not first.connections
        assert not self.server.connections
        (row,) = found.checks
        # But for how far apart two clocks are, tokens, and what depends on the order in which a selector finds answers.
        detail = re.sub(VARIES, "N", row.detail)
        return detail if row.verdict == "ok" else f"{row.verdict}: {detail}"

    def both(self, check: Callable[[Line, Line], Any]) -> Any:
        with closing(self.dial()) as one, closing(self.dial()) as two:
            return check(one, two)

    def dials(self, url: str) -> str:
        line = self.dial(url)
        line.ask("SET", "key", "kept")
        line.close()
        return ", ".join(f"database {number}" for number, space in self.server.data.items() if space.values)

    def hears(self, what: str, one: Line, two: Line) -> str:
        if what == "end":
            one.far.close()
        elif what != "nothing":
            one.far.sendall(what.encode())
        return str(one.arrived())

    def client(self, text: str, one: Line, two: Line) -> str:
        storm = Storm([one, two], b"its")
        it = storm.clients[0]
        it.token = storm.token(one)
        for verb, word in (step.split(" ", 1) for step in text.split(" then ")):
            match verb:
                case "asks":
                    it.ask(word)
                case "answered":
                    it.answered(ast.literal_eval(word))
                case "heard":
                    it.heard(word.replace("its", it.token.decode()).encode())
                case "after":
                    self.passes(float(word))
                    it.step()
                case "is":
                    it.state = word
                case "other":
                    storm.clients[1].hold(int(word))
        return ", ".join([it.state, f"granted {storm.outcome.grants}", f"pushed {storm.outcome.pushed}", *storm.outcome.wrong])


def damages(value: Any) -> Iterator[tuple[str, Any]]:
    """Whatever is almost this answer: (where it differs, the other answer)."""
    match value:
        case [] | None:
            yield "", [b"x"]
        case list():
            yield "+", [*value, value[-1]]
            yield "-", value[:-1]
            for at, part in enumerate(value):
                for where, other in damages(part):
                    yield f"[{at}]{where}", [*value[:at], other, *value[at + 1 :]]
        case int():
            yield "+", value + 10**9
            yield "-", -1 - value
        case _:
            yield "", b"%0*d" % (len(value), int(value) + 1) if value.isdigit() else value + b"x"


def contract(name: str) -> Iterator[str]:
    """Make a check of scripts once for each answer that may be another one: what is said first, and which ones nobody notices."""

    def made(turn: int = -1, other: int = 0) -> tuple[str, list[Any]]:
        bench = Bench("", turn, other)
        said = bench.check(lambda: bench.both(lambda one, two: Contract(one, two, "its own:").checks()[name]()))
        return said, bench.answers

    said, answers = made()
    assert said == ""
    for at, answer in enumerate(answers):
        found = [(where, made(at, other)[0]) for other, (where, _) in enumerate(damages(answer))]
        whats = sorted((it.partition(" answers ")[0].removeprefix("unfit: ") for _, it in found if it), key=lambda it: "ValueError" in it)
        missed = [where for where, it in found if not it]
        yield " ".join([*whats[:1], "but for" * bool(missed), *missed]).strip()


class Talk:
    """Plays lines, each with a server of its own."""

    def __call__(self, line: str) -> Sequence[str]:
        wrong, _, check = line.rpartition(": ")
        what, _, text = check.partition(" ")
        if what == "contract":
            return [*contract(text)]
        bench = Bench(wrong)
        checks: dict[str, Callable[[], Any]] = {
            "greeting": lambda: behaviour.greeting(bench.dial),
            "expiries": lambda: bench.both(lambda one, two: behaviour.expiries(one, two, b"its")),
            "pushes": lambda: bench.both(behaviour.pushes),
            "tracking": lambda: bench.both(lambda one, two: behaviour.tracking(one, two, b"its")),
            "restart": lambda: behaviour.restart(bench.dial, b"its", bench.restart),
            "dial": lambda: bench.dials(text),
            "hears": lambda: bench.both(partial(bench.hears, text)),
            "client": lambda: bench.both(partial(bench.client, text)),
            "storm": lambda: examination._atomicity(bench.dial, b"its", *map(int, text.split())),
        }
        return [bench.check(checks[what])]


def ways(text: str) -> Mapping[str, Callable[[], Step]]:
    """Return the one way to play these lines."""
    return {"": Talk}
