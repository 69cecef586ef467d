"""`./task bench queues`: a burst of short tasks that run one at a time for each name, beside what
Celery's and RQ's users have for it. How soon is all done, how fairly, and how often is a message
sent?

Knows the programs and the environments of the tests of frameworks. Must not know how any contender
works.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from guests import NEWEST, environment
from integrations.stage import Entry, Stage, fairness, staged

from holdfast.embedded import Nodes

PROCESSES = 4
PATIENCE = 120.0
CELERY = ["python", "-m", "celery", "-A", "bursts", "worker", "-c", str(PROCESSES), "--without-gossip", "--without-mingle"]
RQ = ["python", "-m", "rq.cli", "worker", "--url", "{broker}", "--worker-class", "rq.SimpleWorker"]
CONTENDERS = {"holdfast": CELERY, "celery-once": CELERY, "celery-singleton": CELERY, "rq": RQ}


class Contender:
    """Workers of a contender, and a sender.

    Args:
        name: Which one.
        stage: Where its programs run.
    """

    def __init__(self, name: str, stage: Stage) -> None:
        self.name, self.stage, self._python = name, stage, str(environment("celery", NEWEST))
        self.work()

    def work(self) -> None:
        """Start the workers."""
        words = [it.format(broker=self.stage.environment["BROKER"]) for it in CONTENDERS[self.name]]
        for _ in range(PROCESSES if self.name == "rq" else 1):
            self.stage.start(*words, program=self._python)

    def send(self, messages: int, names: int, seconds: float) -> None:
        """Send messages."""
        words = ["python", "-m", "bursts", self.name, str(messages), str(names), str(seconds)]
        self.stage.start(*words, program=self._python)

    def burst(self, messages: int, names: int, seconds: float) -> str:
        """Return the row for a burst."""
        self.send(messages, names, seconds)
        self.stage.until(lambda: len(self.stage.entries("done")) > messages, f"{self.name} has done all", PATIENCE)
        return row(self.name, self.stage.entries(), messages, messages * seconds / min(PROCESSES, names))

    def killed(self, patience: float) -> str:
        """Kill the workers during a task, and return the row that says when its name is free."""
        self.send(1, 1, 3600)
        self.stage.until(lambda: self.stage.entries("begin", "0"), f"{self.name} works")
        for it in self.stage.processes:
            self.stage.kill(it.pid)
        began = time.monotonic()
        self.work()
        self.send(1, 1, 0)
        try:
            self.stage.until(lambda: self.stage.entries("done", "0"), "the name is free", patience)
        except AssertionError:
            return f"| {self.name} | not within {patience:.0f} |"
        return f"| {self.name} | {self.stage.entries('done', '0')[0].at - began:.0f} |"


def row(contender: str, entries: list[Entry], messages: int, ideal: float) -> str:
    """One row of the table."""
    began = next(it.at for it in entries if it.words[0] == "began")
    done = [it for it in entries if it.words[0] == "done" and it.words[1] != "warm"]
    tries = int(next(it.words[1] for it in entries if it.words[0] == "sent"))
    took = max(it.at for it in done) - began
    return f"| {contender} | {took:.1f} | {took / ideal:.1f} | {fairness(done, began):.3f} | {tries / messages:.0f} |"


def main() -> None:
    """Measure all contenders in turn, and print a table."""
    parser = argparse.ArgumentParser(prog="./task bench queues", description=__doc__, allow_abbrev=False)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--names", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.1, help="that a task takes")
    parser.add_argument("--only", choices=CONTENDERS, action="append")
    parser.add_argument("--kill", type=float, metavar="SECONDS", help="kill the workers, and wait this long for the name to be free")
    given = parser.parse_args()
    if given.kill:
        print("| | seconds until the name is free |\n| --- | ---: |", flush=True)
    else:
        print(f"{given.messages} tasks of {given.seconds:g} s on {given.names} names, {PROCESSES} processes", flush=True)
        print("| | seconds | of the ideal | Jain's index | sent, times |\n| --- | ---: | ---: | ---: | ---: |", flush=True)
    for name in given.only or CONTENDERS:
        with Nodes(3) as locks, Nodes(1, tcp=True) as broker, tempfile.TemporaryDirectory() as folder:
            addresses = {"HOLDFAST_NODES": ",".join(locks.urls), "BROKER": broker.urls[0]}
            with staged(Path(folder), addresses) as stage:
                contender = Contender(name, stage)
                burst = (given.messages, given.names, given.seconds)
                print(contender.killed(given.kill) if given.kill else contender.burst(*burst), flush=True)


if __name__ == "__main__":
    main()
