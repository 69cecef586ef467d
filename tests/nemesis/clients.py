"""A client in a process of its own, with several users, which writes down what it believes: `python -m nemesis.clients SETTINGS`.

Knows the public faces, and one private thing of a lease: from when until when its claim says that it is held. Must not know that
anybody means it harm, but for SIGUSR1, which asks it to fork while it holds a lock.

Every line is one `write` to a file that was opened for appending: what was written survives the writer.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proof.books import TOLD, Books

import holdfast
from holdfast import events
from holdfast.clock import clock
from holdfast.errors import HoldfastError, LockLost, Misuse, NoQuorum, NotAcquired

from .faces import FACES
from .history import ASKED, BALANCED, FAILED, FORKED, GRANTED, LOST, RAISED, READY, REFUSED, RELEASED, UNTIL
from .processes import WITH_TESTS, bound

LOOK = 0.01  # seconds between two looks at a lease that is held
RESPITE = 0.1  # seconds after NoQuorum: it is said at once when a majority has been away for long, and nobody should spin
PATIENCE = 5.0  # seconds for observers to hear what is left to tell


@dataclass
class Settings:
    """What a client is told. `users`: how many threads or tasks."""

    urls: list[str]
    names: list[str]
    face: str
    users: int
    seed: int
    folder: str
    owner: str
    ttl: float
    node_timeout: float
    guard: bool = True


@dataclass(frozen=True)
class Turn:
    """One use of a lock. `hold`: seconds; `wait`: None: try once; `extend`: in the midst; `confirm`: the release; `pause`: afterwards."""

    name: str
    wait: float | None
    hold: float
    extend: bool
    confirm: bool
    pause: float


def turns(settings: Settings, dice: random.Random) -> Iterator[Turn]:
    """What one user does, for ever."""
    ttl = settings.ttl
    while True:
        wait = dice.choices([None, 0.03, 2.0], [2, 1, 7])[0]
        hold = dice.uniform(ttl / 3, 1.5 * ttl) if dice.random() < 0.12 else dice.uniform(0.0, 0.015)
        yield Turn(dice.choice(settings.names), wait, hold, dice.random() < 0.05, dice.random() < 0.1, dice.uniform(0.0, 0.02))


class Diary:
    """Where a client writes what it believes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        path = Path(settings.folder) / f"{settings.owner}.history"
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._leases: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def note(self, what: str, who: str, **facts: object) -> None:
        """One line."""
        os.write(self._file, json.dumps({"what": what, "at": clock(), "who": who, **facts}).encode() + b"\n")

    def granted(self, who: str, lease: Any) -> None:
        """Somebody has been given a lock."""
        claim = lease._claim
        self.note(GRANTED, who, name=lease.name, token=lease.token, fence=lease.fence, since=claim.since, until=float(claim.until))
        self._leases[lease.token] = lease

    def until(self, lease: Any) -> None:
        """A lease is held, and until when."""
        if lease.held:
            self.note(UNTIL, self.settings.owner, name=lease.name, token=lease.token, until=float(lease._claim.until))

    def lost(self, lease: Any) -> None:
        """A lease is lost: its holder was told."""
        self.note(LOST, self.settings.owner, name=lease.name, token=lease.token)

    def released(self, who: str, lease: Any) -> None:
        """Its holder is about to release it."""
        self.note(RELEASED, who, name=lease.name, token=lease.token)

    def renewed(self, event: events.Event) -> None:
        """For observers: a renewal succeeded."""
        if isinstance(event, events.Renewed) and (lease := self._leases.get(event.token)) is not None:
            self.until(lease)


class Client:
    """A client and its users. `stopped`: they end after what they are at."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.diary, self.stopped, self.fork = settings, Diary(settings), False, False
        self.books = Books()
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopped", True))
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "fork", True))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever is forked is waited for by nobody

    def run(self) -> None:
        """Until it is stopped."""
        it = self.settings
        options = {"ttl": it.ttl, "max_ttl": it.ttl, "node_timeout": it.node_timeout, "owner": it.owner}
        options |= {"observer": [self.diary.renewed, self.books], **({} if it.guard else {"restart_guard": None})}
        self.face = FACES[it.face](it.urls, options)
        self.diary.note(READY, it.owner)
        names = [f"{it.owner}/{number}" for number in range(it.users)]
        self.face.begin([self._user(who, random.Random(f"{it.seed} {it.owner} {number}")) for number, who in enumerate(names)])
        self.face.finish()
        self.face.close(self._balance)

    async def _user(self, who: str, dice: random.Random) -> None:
        for turn in turns(self.settings, dice):
            if self.stopped:
                return
            pause = 0.0
            try:
                await self._turn(who, turn)
            except HoldfastError as error:  # an acquisition came to nothing, or a lease was lost: that may be
                self.diary.note(REFUSED if isinstance(error, NotAcquired) else RAISED, who, told=f"{type(error).__name__}: {error}"[:300])
                pause = RESPITE if isinstance(error, NoQuorum) else 0.0
            except BaseException as error:
                self.diary.note(FAILED, who, told=repr(error))
                raise
            await self.face.sleep(pause + turn.pause)

    async def _turn(self, who: str, turn: Turn) -> None:
        lock = self.face.locks.lock(turn.name, wait=turn.wait, on_lost=self.diary.lost)
        self.diary.note(ASKED, who, name=turn.name)
        lease = await self.face.call(lock.try_acquire() if turn.wait is None else lock.acquire())
        if lease is None:
            return
        self.diary.granted(who, lease)
        if self.fork:
            self.fork = False
            self._forks(who, lease, turn)
        if turn.extend:
            await self.face.call(lease.extend())
        over = clock() + turn.hold
        while clock() < over and lease.held:
            await self.face.sleep(min(LOOK, max(0.0, over - clock())))
            self.diary.until(lease)
        self.diary.released(who, lease)
        await self.face.call(lease.release(confirm=turn.confirm))

    def _forks(self, who: str, lease: holdfast.Lease, turn: Turn) -> None:
        """The child of a client for threads may not use this lease, and gets one of its own as anybody does."""
        if os.fork() > 0:
            return
        child = f"{who}/child"
        try:
            try:
                lease.check()
            except Misuse:
                self.diary.note(FORKED, child, name=turn.name)
            else:
                self.diary.note(FAILED, child, told="its parent's lease is good in it")
            with contextlib.suppress(NotAcquired, LockLost):
                own = self.face.locks.lock(turn.name, wait=2.0, on_lost=self.diary.lost).acquire()
                self.diary.granted(child, own)
                time.sleep(0.005)
                self.diary.released(child, own)
                own.release(confirm=True)
        except BaseException as error:
            self.diary.note(FAILED, child, told=repr(error))
        finally:
            os._exit(0)

    def _balance(self, stats: holdfast.Stats) -> None:
        """It is closed: do its books balance?"""
        deadline = time.monotonic() + PATIENCE
        # Observers have a thread of their own, which may still be at it.
        while (wrongs := self.books.wrongs(stats)) and time.monotonic() < deadline:
            time.sleep(LOOK)
        told = {it: self.books.kinds[it] for it in TOLD}
        self.diary.note(FAILED if wrongs else BALANCED, self.settings.owner, told=wrongs or told)


class Crowd:
    """All client processes, as their tormentor has them. Whoever was killed gets a successor."""

    def __init__(self, settings: list[Settings]) -> None:
        self.settings = settings
        self._lives = [0] * len(settings)
        self._processes = [self._start(which) for which in range(len(settings))]

    def __len__(self) -> int:
        return len(self.settings)

    def pid(self, which: int) -> int:
        """Of the process that a client is now."""
        return self._processes[which].pid

    def owner(self, which: int) -> str:
        """Its name of now."""
        return f"c{which}.{self._lives[which]}"

    def called(self, owner: str) -> int | None:
        """Which one calls itself this now?"""
        return next((which for which in range(len(self)) if self.owner(which) == owner), None)

    def signal(self, which: int, number: signal.Signals) -> None:
        """Send it a signal."""
        self._processes[which].send_signal(number)

    def replace(self, which: int) -> None:
        """It was killed: start its successor."""
        self._processes[which].wait()
        self._lives[which] += 1
        self._processes[which] = self._start(which)

    def end(self, patience: float = 10.0) -> list[str]:
        """Have them all end; who would not, or ended by himself before."""
        wrong = [f"{self.owner(which)} ended with {it.returncode}" for which, it in enumerate(self._processes) if it.poll() is not None]
        for it in self._processes:
            it.terminate()
        deadline = time.monotonic() + patience
        for which, it in enumerate(self._processes):
            try:
                it.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                wrong.append(f"{self.owner(which)} did not end")
        self.close()
        return wrong

    def close(self) -> None:
        """None is left."""
        for it in self._processes:
            it.kill()
            it.wait()

    def _start(self, which: int) -> subprocess.Popen[bytes]:
        settings = asdict(self.settings[which]) | {"owner": self.owner(which)}
        command = ["env", f"PYTHONPATH={WITH_TESTS}", sys.executable, "-m", "nemesis.clients", json.dumps(settings)]
        with open(Path(settings["folder"]) / f"{settings['owner']}.err", "wb") as errors:
            return bound(command, errors.fileno())


if __name__ == "__main__":
    Client(Settings(**json.loads(sys.argv[1]))).run()
