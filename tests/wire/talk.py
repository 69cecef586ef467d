"""Plays a conversation with one node that is written down as text, and tells what its connection makes of it.

    connection guard=32; 100: meets uptime=5 => guarded until 128
    128: opened; say one; hears {loaded}:1| => one: 1; sends scripts, one; up

The first step makes the connection, with these settings, and with the address `url`, or with one that
`moves`: a function of the user's finds the place. Each further step has a moment in seconds, and what
happens then. Behind `=>` stands what was asked and heard, what is sent, and what is new of how the
connection stands. It is `late` at the moment that is told, and not before.

| What happens | |
| --- | --- |
| `dial`, `connects` | somebody dials; bytes can flow |
| `greets run=a uptime=5 role=none` | the server answers the greeting: it is sound but for these facts |
| `greets promoted piecemeal` | it was a replica once; its answers come one by one |
| `greets uptime=5 but time *0\\|` | these bytes are its answer to TIME (`ANSWERS` has the names) |
| `meets`, with the same | all this in turn, without what is sent for it |
| `up`, with the same | then it is opened, and has taken the scripts |
| `opened`, `broke`, `shorten` | the guard is over; the connection is gone; the guard ends early |
| `hurry`, `excuse 0.5` | a caller has come; our own side was late by so much |
| `probe`, `measure`, `renounce` | as the methods of these names |
| `say one`, `say one again`, `say one watch` | asks; releases; asks for something that is watched |
| `ready one`, `learn later` | may it be said at once? loads one more script |
| `hears :1\\|-OOM full\\|` | these bytes arrive (see below) |
| `placed here asked=5`, `placed other:7 asked=5` | at 5 s it was asked where the node is: this is the answer |
| `unplaced asked=5 down` | nobody knows, and why |
| `set patience=0.5`, `asks credentials()` | answers have so much time; this is asked who we are |
| `look trip server.facts` | (a question) these attributes |
| `lapsed`, `silence` | (a question) why the server does not count any more; why the node is late |
| `explains ConnectionError reset` | (a question) what it may mean that the connection ended in this way |

In bytes, `|` ends a line, `{text}` is a string, `<text>` a message to our inbox, `{loaded}` the answer
to all scripts, and `{40a}` the id of a run. `{mine}` is the time that the connection has just noted on
the node. `{clock-10}` is 10 s before the time that the node's clock shows at each greeting. Ids and
times are shortened like this in what is sent, too. `35d` is the longest life of a note.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator, Mapping
from math import inf
from operator import attrgetter
from typing import Any

import hiredis
from conversations import Step
from protocol.script import number, options
from scripts.bench import pack
from wire.servers import CLOCK, LOADED, PLAIN, Asked, Server, a_connection, bulk, log, message, promoted

from holdfast.errors import ConfigError, message_of
from holdfast.wire.connection import Connection, ConnectionState
from holdfast.wire.handshake import Greeting

FACTS = {"run": "run_id", "uptime": "uptime_in_seconds", "replid": "master_replid", "replid2": "master_replid2"}
FACTS |= {"offset": "second_repl_offset", "replicas": "connected_slaves", "mode": "redis_mode"}
IDS = ("run", "replid", "replid2")
TEXTS = ("url", "prefix", "scripts")
# The answers to the greeting, in order.
ANSWERS: tuple[str, ...] = ("hello", "select", "name", "lib", "ver", "tracking", "subscribe")
ANSWERS += ("server", "replication", "memory", "adopted", "script", "probe", "time")
# What is told of a server when it changes.
FLAGS = ("promoted", "replaced", "several", "unbounded")
TIMES = ("soonest", "remembers")


def commands(pieces: list[bytes]) -> Iterator[list[bytes]]:
    """Return the commands that are packed in these pieces. What a conversation says is none."""
    for it in pieces:
        parser = hiredis.Reader()
        parser.feed(it)
        yield from iter(parser.gets, False) if it[:1] == b"*" else [[it]]


def shortened(word: bytes) -> str:
    """Return a word that is sent: an id by its letter, and a time by the node's clock."""
    if re.fullmatch(rb"1[67]\d{11}(\d{3})?", word):
        return f"clock+{number(int(word) / (1e6 if len(word) == 16 else 1e3) - CLOCK)}".replace("+-", "-").removesuffix("+0")
    text = word.decode("ascii", "backslashreplace").replace("\0", "\\0").replace("\r\n", "|")
    return re.sub(r"(\w)\1{39}", r"\1", "35d" if text == "3024000000" else text)


class Talk:
    """One conversation that is being played."""

    connection: Connection[Asked]
    before: Mapping[str, str]

    def __call__(self, line: str) -> list[str]:
        """Let a line happen."""
        word, _, rest = line.partition(" ")
        if word == "connection":
            self._opens(*options(rest))
            return []
        self.now = float(word.removesuffix(":"))
        told = [it for text in rest.split("; ") for it in self._happens(*text.partition(" ")[::2])]
        told += [self._heard(*it) for it in log(self.connection)]
        log(self.connection).clear()
        sent = self._sends()
        before, self.before = self.before, dict(self._stands())
        news = [it for name, it in self.before.items() if it != before[name]]
        return [*told, *[f"sends {sent}"] * bool(sent), *["; ".join(news)] * bool(news)]

    def _opens(self, words: list[str], named: dict[str, str]) -> None:
        given: dict[str, Any] = {it: None if text == "none" else float(text) for it, text in named.items() if it not in TEXTS}
        given |= {it: () if it == "scripts" else text for it, text in named.items() if it in TEXTS}
        self.connection = a_connection(moves="moves" in words, **given)
        self.now, self.noted, self.left = 0.0, b"", list[bytes]()
        settings = self.connection.settings
        greeting = b"".join(pack(*it) for it in PLAIN[1:-2]) + settings.probe + pack(b"TIME")
        scripts = b"".join(pack(b"SCRIPT", b"LOAD", it) for it in settings.scripts)
        named_so = {"greeting": greeting, "scripts": scripts, "probe": settings.probe}
        self.short = {self._text([data]): name for name, data in named_so.items() if data}
        self.before = dict(self._stands())

    # ------------------------------------------------ what happens

    def _happens(self, word: str, rest: str) -> list[str]:
        it, now = self.connection, self.now
        words, named = options(rest)
        match word:
            case "dial" | "opened" | "broke" | "shorten" | "hurry" | "probe" | "measure" | "renounce":
                getattr(it, word)(now)
            case "connects":
                it.connected(now, asked=float(named.get("asked", now)))
            case "greets":
                self._greets(rest)
            case "meets" | "up":
                self._happens("dial", "")
                self._happens("connects", "")
                self._takes()
                self.left = []
                self._greets(rest)
                if word == "up":
                    self._happens("opened", "")
                    self._happens("hears", "{loaded}")
                    self.left = []
            case "excuse":
                it.excuse(now, float(rest))
            case "say" | "ready":
                sent = float(named.get("sent", now))
                question = Asked(words[0].encode(), sent, again="again" in words, watch="watch" in words)
                return ["at once"] if getattr(it, word)(question) else []
            case "learn":
                it.learn(rest.encode(), now)
            case "hears":
                self._takes()
                it.received(self._bytes(rest), now)
            case "placed":
                host, _, port = words[0].partition(":")
                place = it.address if host == "here" else it.address.but(host=host, port=int(port))
                it.placed(place, float(named["asked"]), now)
            case "unplaced":
                it.placed(ConnectionError(" ".join(words)), float(named["asked"]), now)
            case "set":
                it.settings.patience = float(named["patience"])
            case "asks":
                it.asks = rest
            case "look":
                return [f"{name}: {self._shown(attrgetter(name)(it))}" for name in words]
            case "lapsed" | "silence":
                wrong = it.silence() if word == "silence" else it.lapsed(now)
                return [self._wrong(wrong) if wrong else "no"]
            case "explains":
                kinds = {**vars(builtins), "ConfigError": ConfigError}
                cause = it.bad or kinds[words[0]](" ".join(words[1:]))
                return ["as it is" if it.explained(cause) is cause else self._wrong(it.explained(cause))]
            case _:
                raise ValueError(f"what is {word!r}?")
        return []

    def _greets(self, rest: str) -> None:
        """Have the server answer the greeting: with these facts, and one of its answers replaced."""
        text, _, other = rest.partition("but ")
        words, named = options(text)
        facts: dict[str, Any] = {
            FACTS.get(it, it): None if text == "none" else text * (40 if it in IDS else 1) for it, text in named.items()
        }
        answers = (promoted(**facts) if "promoted" in words else Server(facts)).answers(self.connection.address.database)
        if other:
            which, _, answer = other.partition(" ")
            names = [it for it in ANSWERS if it != "select" or self.connection.address.database]
            answers[names.index(which)] = self._bytes(answer)
        for it in answers if "piecemeal" in words else [b"".join(answers)]:
            self.connection.received(it, self.now)

    def _bytes(self, text: str) -> bytes:
        """Return the bytes that a text stands for."""

        def meant(found: re.Match[bytes]) -> bytes:
            said, told = found[1], found[2]
            if told is not None:
                return message(told)
            if said == b"loaded":
                return LOADED
            if said.startswith(b"clock"):
                return bulk(b"%d" % round((CLOCK + float(said[5:] or 0)) * 1e6))
            return bulk(self.noted if said == b"mine" else said[2:] * 40 if said.startswith(b"40") else said)

        data = text.encode().decode("unicode_escape").encode("latin-1").replace(b"|", b"\r\n")
        return re.sub(rb"\{([^}]*)\}|<([^>]*)>", meant, data)

    # ------------------------------------------------ what that leads to

    def _heard(self, node: object, *told: Any) -> str:
        *what, at = told
        assert (node, at) == (7, self.now)
        match what:
            case [("changed", key)]:
                return f"changed: {'all keys' if key is None else self._shown(key)}"
            case [bytes() as text]:
                return f"told: {self._shown(text)}"
            case question, reply:
                return f"{question.decode()}: {self._shown(reply)}"
        raise ValueError(what)

    def _takes(self) -> None:
        """Let what is to be sent leave. A driver that goes by `spoke` leaves nothing behind."""
        pieces = list(self.connection.out)
        assert self.connection.listener.spoke or not pieces
        self.connection.listener.spoke = False
        assert (self.connection.take(), self.connection.out) == (b"".join(pieces), [])
        self.left += pieces
        self.noted = next((it[2] for it in commands(pieces) if it[0] == b"SET"), self.noted)

    def _sends(self) -> str:
        self._takes()
        pieces, self.left = self.left, []
        text = self._text(pieces)
        for long, name in self.short.items():
            text = text.replace(long, name)
        return text

    def _text(self, pieces: list[bytes]) -> str:
        return ", ".join(" ".join(map(shortened, it)) for it in commands(pieces))

    def _stands(self) -> Iterator[tuple[str, str]]:
        """Tell how the connection stands, part by part."""
        it = self.connection
        until = {ConnectionState.DOWN: f", to be dialled at {number(it.wake)}", ConnectionState.GUARDED: f" until {number(it.wake)}"}
        until[ConnectionState.UP] = f", to be probed at {number(it.wake)}" if it.wake < inf else ""
        yield "state", it.state.name.lower() + until.get(it.state, "")
        owed = [question.data.decode() for question in it.ledger if not isinstance(question, Greeting)]
        due = it.due()
        late = it.late(1e9)
        assert late is it.late(min(due, 1e9))
        assert not it.late(min(due, 1e9) - 1e-3)
        assert late or due == (inf if it.state is ConnectionState.UP else it.wake)
        yield "owed", ", ".join([f"owes {' '.join(owed) or 'nothing'}"] * (bool(owed) or not late) + [f"late at {number(due)}"] * late)
        yield "later", f"says later: {' '.join(question.data.decode() for question in it.unsaid) or 'nothing'}"
        yield "fails", f"failures: {it.fails}"
        yield "sure", f"sure until {number(it.sure)}, asks again at {number(it.reask)}"
        yield from ((flag, "not " * (not getattr(it.server, flag)) + flag) for flag in FLAGS)
        yield from ((name, f"{name} {number(getattr(it.server, name))}") for name in TIMES)
        yield "refusal", f"refuses: {it.refusal}" if it.refusal else "takes all"
        yield "bad", f"bad: {self._wrong(it.bad)}" if it.bad else "not bad"

    def _wrong(self, wrong: Exception) -> str:
        return f"{type(wrong).__name__}: {message_of(wrong)}".replace("\n", " ")

    def _shown(self, value: object) -> str:
        return number(value) if isinstance(value, float) else shortened(value) if isinstance(value, bytes) else str(value) or "nothing"


def ways(text: str) -> Mapping[str, Callable[[], Step]]:
    """Return the one way to play a conversation."""
    return {"": Talk}
