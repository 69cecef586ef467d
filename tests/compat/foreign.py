"""Clients of other libraries and of holdfast want one lock at the same time: do they keep each other out?

    PYTHONPATH=tests .venv/bin/python -m compat.foreign            # 20 seconds for each library
    PYTHONPATH=tests .venv/bin/python -m compat.foreign --quick    # 1 second

A live harness of real libraries, processes and servers. Each process writes when it was inside the lock, and no two of these
sections may overlap. Then come the cases in which one kind waits for the other. In the last one holdfast has the wrong prefix: the
sections overlap, which shows that this harness can see it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import guests

from holdfast.embedded import Nodes

ROOT = Path(__file__).parents[2]
HERE, PLACE = Path(__file__).parent / "programs", ROOT / "build/peers"
PACKAGES = ["redis==8.1.0", "pottery==3.0.1", "redlock-py==1.0.8", "python-redis-lock==4.0.1"]
MODULES = ["redlock@5.0.0-beta.2", "ioredis@5.9.2"]
KEY, OTHER_KEY = "redlock:storm", "lock:storm"
OURS = 4  # processes
SHARE, QUICK_SHARE = 0.1, 0.02  # of the sections, at least, for either side; a short run shows little
PATIENCE = 60.0  # seconds beyond the time of a storm
IN_NODE = ("node-redlock", "ioredis")


@dataclass(frozen=True)
class Storm:
    """Who wants the lock beside holdfast, and on how many nodes.

    `rest`: how much longer the processes of holdfast rest between their turns than the others. They wait in a queue, and would
    leave little to those who poll.
    """

    others: tuple[str, ...]
    nodes: int
    key: str = KEY
    rest: int = 6


STORMS = {
    "redis-py": Storm(("redis-py",) * 2, 1),
    "redis-py, asyncio": Storm(("redis-asyncio",) * 2, 1),
    "pottery": Storm(("pottery",) * 2, 3),
    "redlock-py": Storm(("redlock-py",) * 2, 3, rest=10),
    "python-redis-lock": Storm(("python-redis-lock",) * 2, 1, OTHER_KEY),
    "node-redlock": Storm(("node-redlock",) * 2, 3, rest=10),
    "ioredis": Storm(("ioredis",) * 2, 1),
    "holdfast.compat": Storm(("compat", "redis-py"), 1),
    # python-redis-lock has no key that the others have.
    "all": Storm(("redis-py", "redis-asyncio", "pottery", "redlock-py", "node-redlock", "ioredis"), 1),
}


@dataclass(frozen=True)
class Outcome:
    """What the processes of a storm wrote: all sections, how many of them are of which library, and how many overlap."""

    sections: int
    by: dict[str, int]
    overlaps: int

    @property
    def share(self) -> float:
        """Holdfast's."""
        return self.by["ours"] / self.sections if self.sections else 0.0


def overlapping(sections: Sequence[tuple[int, int]]) -> int:
    """How many sections begin before an earlier one has ended."""
    found, over = 0, 0
    for begin, end in sorted(sections):
        found += begin < over
        over = max(over, end)
    return found


def run(storm: Storm, seconds: float, python: Path, ours: str = "", **more: str) -> Outcome:
    """Let them have their storm. `ours`: the key that holdfast uses, if it is another one; `more`: variables for the processes."""
    with Nodes(storm.nodes, tcp=True) as nodes, tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "PEER_MODULES": str(PLACE / "node")}
        variables |= {"PEER_REST": str(storm.rest), **more}
        started, files = [], []
        for number, library in enumerate((*["ours"] * OURS, *storm.others)):
            file = Path(folder, str(number))
            key = ours if ours and library == "ours" else storm.key
            head = ["node", str(HERE / "worker.mjs")] if library in IN_NODE else [str(python), str(HERE / "worker.py")]
            words = [*head, library, ",".join(nodes.urls), key, str(file), str(seconds)]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            started.append(subprocess.Popen(words, env=variables, text=True, **pipes))
            files.append((library, file))
        try:
            for process in started:
                process.stdout.readline()
            for process in started:
                process.stdin.write("\n")
                process.stdin.flush()
            for process, (library, _) in zip(started, files, strict=True):
                _, said = process.communicate(timeout=seconds + PATIENCE)
                if process.returncode:
                    sys.exit(f"a process of {library} ended with {process.returncode}:\n{said}")
        finally:
            for process in started:
                process.kill()
        found = [(library, _sections(file)) for library, file in files]
    by: dict[str, int] = {}
    for library, sections in found:
        by[library] = by.get(library, 0) + len(sections)
    return Outcome(sum(by.values()), by, overlapping([it for _, sections in found for it in sections]))


def _sections(file: Path) -> list[tuple[int, int]]:
    pairs = (line.split() for line in file.read_text().splitlines())
    return [(int(begin), int(end)) for begin, end in pairs]


def complaints(name: str, outcome: Outcome, share: float = SHARE) -> list[str]:
    """What is wrong with a storm."""
    wrong = [f"{name}: {outcome.overlaps} sections overlap"] if outcome.overlaps else []
    if not share <= outcome.share <= 1 - share:
        wrong.append(f"{name}: holdfast has {outcome.share:.0%} of {outcome.sections} sections")
    return wrong


def prepare() -> Path:
    """Make the environments, for Python and Node. Returns the Python."""
    modules = PLACE / "node"
    if not all((modules / "node_modules" / it.rpartition("@")[0] / "package.json").exists() for it in MODULES):
        modules.mkdir(parents=True, exist_ok=True)
        guests.run(["npm", "install", "--prefix", str(modules), "--no-audit", "--no-fund", "--loglevel=error", *MODULES])
    return guests.made(PLACE / "environment-foreign", [*guests.COMMON, *PACKAGES])


def main() -> None:
    """Run all storms, and then the cases."""
    parser = argparse.ArgumentParser(description="Clients of other libraries and of holdfast want one lock.")
    parser.add_argument("--quick", action="store_true", help="1 second for each library, and the number of sections does not matter")
    parser.add_argument("--seconds", type=float, help="how long each storm lasts (default: 20, with --quick 1)")
    parser.add_argument("--rest", type=int, help="how much longer holdfast rests than the others (default: as each storm has it)")
    parser.add_argument("--poll", default="0.001", help="seconds between two tries of others (default: 0.001; redis-py has 0.1)")
    parser.add_argument("names", nargs="*", help=f"which storms: {', '.join(STORMS)} (default: all)")
    options = parser.parse_args()
    seconds = options.seconds or (1.0 if options.quick else 20.0)
    python = prepare()
    wrong, total = [], 0
    names = options.names or list(STORMS)
    for name in names:
        storm = STORMS[name] if options.rest is None else replace(STORMS[name], rest=options.rest)
        outcome = run(storm, seconds, python, PEER_POLL=options.poll)
        others = ", ".join(f"{it} {count}" for it, count in outcome.by.items() if it != "ours")
        print(f"{name}: {outcome.sections} sections, holdfast {outcome.by['ours']}, {others}; {outcome.overlaps} overlap", flush=True)
        # With another rest, the shares are what is to be seen.
        least = 0.0 if options.rest is not None else QUICK_SHARE if options.quick else SHARE
        wrong += complaints(name, outcome, least)
        total += outcome.sections
    if not options.names:
        mistaken = run(STORMS["pottery"], min(seconds, 3.0), python, ours=KEY.removeprefix("redlock:"), PEER_INSIDE="0.01")
        print(f"prefix left out: {mistaken.overlaps} of {mistaken.sections} overlap", flush=True)
        if not mistaken.overlaps:
            wrong.append("the prefix is left out, and nothing overlaps: this harness sees nothing")
        cases = subprocess.run([str(python), "-m", "compat.cases"], env={**os.environ, "PYTHONPATH": str(ROOT / "tests")}, check=False)
        if cases.returncode:
            wrong.append("a case failed")
        if total < 5000 and not options.quick:
            wrong.append(f"{total} sections are fewer than 5,000")
    print(f"{total} sections")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
