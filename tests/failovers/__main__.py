"""Failovers by real Sentinels under load: `./task failovers --runs N`.

Exits with 1 if two workers held a lock at the same time, a fence did not grow, or something else went wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from failovers.campaign import PLANTS, SUITS, Plan, run


def main() -> int:
    """Run a campaign, and print what it has shown."""
    parser = argparse.ArgumentParser(prog="./task failovers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="how many failovers there are at least (40)")
    parser.add_argument("--cells", default="1,1,1,3", help="the number of nodes of each set that fails over beside the others (1,1,1,3)")
    parser.add_argument("--ttl", type=float, help="seconds of a lease, and max_ttl (3)")
    parser.add_argument("--lag", type=int, help="min-replicas-max-lag of the servers (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the dice (0)")
    parser.add_argument("--plant", default="", choices=("", *PLANTS), help="what is wrong on purpose: two must be found to hold a lock")
    options = parser.parse_args()
    cells = tuple(map(int, options.cells.split(",")))
    ttl, lag = SUITS[options.plant]
    plan = Plan(options.runs, cells, options.ttl or ttl, options.lag or lag, options.plant, seed=options.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-failovers-") as folder:
        outcome = run(plan, Path(folder), say=True)
    for told in (*outcome.overlaps, *outcome.backward, *outcome.wrong):
        print(told)
    print(
        f"{outcome.failovers} failovers ({', '.join(f'{it} {n}' for it, n in sorted(outcome.faults.items()))}) in "
        f"{time.monotonic() - began:.0f} s: {len(outcome.windows)} sections, {outcome.across} of them across a promotion, "
        f"{len(outcome.overlaps)} overlaps, {len(outcome.backward)} fences that did not grow"
    )
    return 1 if outcome.overlaps or outcome.backward or outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
