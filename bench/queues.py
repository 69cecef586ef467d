"""`./task bench queues`: a burst of short tasks that run one at a time for each name, beside what
Celery's and RQ's users have for it. How soon is all done, how fairly, and how often is a message
sent?

Knows the programs and the environments of the tests of frameworks. Must not know how any contender
works.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from guests import NEWEST, environment
from integrations.stage import Entry, fairness, staged

from holdfast.embedded import Nodes

PROCESSES = 4
PATIENCE = 120.0
CELERY = ["python", "-m", "celery", "-A", "bursts", "worker", "-c", str(PROCESSES), "--without-gossip", "--without-mingle"]
RQ = ["python", "-m", "rq.cli", "worker", "--url", "{broker}", "--worker-class", "rq.SimpleWorker"]
CONTENDERS = {"holdfast": CELERY, "celery-once": CELERY, "celery-singleton": CELERY, "rq": RQ}


def measured(contender: str, messages: int, names: int, seconds: float, locks: Nodes, broker: str) -> list[Entry]:
    """Have a contender do the tasks. Returns what its programs noted."""
    python = str(environment("celery", NEWEST))
    words = [it.format(broker=broker) for it in CONTENDERS[contender]]
    given = {"HOLDFAST_NODES": ",".join(locks.urls), "BROKER": broker}
    with tempfile.TemporaryDirectory() as folder, staged(Path(folder), given) as stage:
        for _ in range(PROCESSES if words[2] == "rq.cli" else 1):
            stage.start(*words, program=python)
        stage.start("python", "-m", "bursts", contender, str(messages), str(names), str(seconds), program=python)
        stage.until(lambda: len(stage.entries("done")) > messages, f"{contender} has done all", PATIENCE)
        return stage.entries()


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
    given = parser.parse_args()
    ideal = given.messages * given.seconds / min(PROCESSES, given.names)
    print(f"{given.messages} tasks of {given.seconds:g} s on {given.names} names, {PROCESSES} processes; ideal {ideal:.1f} s", flush=True)
    print("| | seconds | of the ideal | Jain's index | sent, times |\n| --- | ---: | ---: | ---: | ---: |")
    for contender in given.only or CONTENDERS:
        with Nodes(3) as locks, Nodes(1, tcp=True) as broker:
            found = measured(contender, given.messages, given.names, given.seconds, locks, broker.urls[0])
        print(row(contender, found, given.messages, ideal), flush=True)


if __name__ == "__main__":
    main()
