"""One process of the soak: a client with many users, which works, rests, tells what it has in its hands, and ends. `python -m soak.client`.

Knows users and measures. Must not know other processes, or nodes but by their addresses. Each line on its standard input is a wish ("go",
"rest", "measure", "close"), answered by a line of JSON; and every second while users are at work a line tells how far they are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import select
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from nemesis.faces import FACES, Asyncio, Face

from .ledger import Ledger
from .measure import measured, memory
from .users import User, Walk

TELLING = 1.0  # seconds between two reports


class Process:
    """What the wishes are made to."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self.ledger = Ledger(Path(told["ledger"]))
        self.bare = measured()  # before there is a client
        self.face: Face = FACES[told["face"]](told["urls"], {**told["options"], "observer": _listen})
        self.walk = Walk(told["names"], told["slot"], told["slots"], told["first"])
        self.users = [
            User(self.face, self.walk, self.ledger, told["ttl"], random.Random(f"{told['seed']} {told['slot']} {number}"))
            for number in range(told["users"])
        ]
        self.over = threading.Event()

    def go(self) -> dict[str, Any]:
        """Users begin to work."""
        self.over.clear()
        self.face.begin([it.work(self.over) for it in self.users])
        return {}

    def rest(self) -> dict[str, Any]:
        """Users stop working, and have gone."""
        self.over.set()
        self.face.finish()
        return self.report()

    def measure(self) -> dict[str, Any]:
        """What is there, while nobody works."""
        if not isinstance(self.face, Asyncio):
            return {"measure": measured()}

        async def within() -> dict[str, float]:
            return measured(asyncio.get_running_loop())

        # What the client keeps of loops that are closed goes with the next one. There is one then, to which no node was down or guarded.
        asyncio.run(self.face.locks.ready())

        return {"measure": asyncio.run_coroutine_threadsafe(within(), self.face.loop).result()}

    def close(self) -> dict[str, Any]:
        """The client is closed: what there was before it, and what is there now."""
        self.rest()
        self.face.close()
        shown = "threads", "files"
        now = measured()
        return {**self.report(), "bare": {it: self.bare[it] for it in shown}, "closed": {it: now[it] for it in shown}}

    def report(self) -> dict[str, Any]:
        """How far users are."""
        return {
            "cycles": sum(it.cycles for it in self.users),
            "holds": sum(it.holds for it in self.users),
            "fresh": self.walk.fresh,
            "trouble": sum((it.trouble for it in self.users), Counter[str]()),
            "wrong": [*self.ledger.complaints, *(wrong for it in self.users for wrong in it.wrong)][:20],
            "memory": memory(),
        }


def main() -> None:
    """Until the standard input ends."""
    warnings.simplefilter("ignore", ResourceWarning)  # some users forget their leases, which they are told
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # (which says that the engine has failed)
    process, working, due = Process(json.loads(sys.argv[1])), False, 0.0
    _tell({"ready": {}})
    while True:
        ready, _, _ = select.select([0], [], [], max(0.0, due - time.monotonic()) if working else None)
        if ready:
            wish = sys.stdin.readline().strip()  # (one at a time: the next comes when this one was answered)
            if not wish:
                os._exit(0)
            working = wish == "go"
            _tell({wish: getattr(process, wish)()})
            if wish == "close":
                return
        elif working:
            due = time.monotonic() + TELLING
            _tell({"report": process.report()})


def _listen(event: object) -> None:
    """An observer: with one, every event is made."""


def _tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
