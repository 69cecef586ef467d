"""Explores worlds full of faults: `python -m holdfast.testing --seeds 0..1000`.

Each seed is a world of its own, always the same: simulated nodes run the shipped scripts, the shipped engine speaks to them through
a network that breaks, and laws are watched at every event. The first broken law ends it, with exit status 1 and the last that
happened; `--replay SEED` tells everything that happens in one world. Exit status 2: nothing that was aimed at happened.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from .explore import explore
from .stage import Stage
from .timeline import timeline
from .world import Violation

LAST = 60  # lines of a failure's timeline


def main(arguments: list[str] | None = None) -> int:
    summary, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing", description=summary, epilog=more)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=_seeds, metavar="A..B", help="explore the worlds of these seeds, without B")
    what.add_argument("--replay", type=int, metavar="SEED", help="tell what happens in this one")
    parser.add_argument("--quick", action="store_true", help="shorter worlds (other ones: also for --replay)")
    parser.add_argument("--swarm", action="store_true", help="worlds whose size and faults are a matter of chance (also for --replay)")
    parser.add_argument("--shared", action="store_true", help="worlds of a read-write lock (also for --replay)")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        return replay(options.replay, options.quick, options.swarm, options.shared)
    return explore_all(options.seeds, options.quick, options.swarm, options.shared)


def explore_all(seeds: range, quick: bool, wild: bool, shared: bool = False) -> int:
    """Live through these worlds, up to the first violation."""
    began = told = time.monotonic()
    seen: Counter[str] = Counter()
    void: Counter[str] = Counter()
    for number, seed in enumerate(seeds, 1):
        stage = explore(seed, quick=quick, wild=wild, shared=shared)
        if not _lived(stage, seed):
            print(*timeline(stage.world, LAST), sep="\n")
            how = "".join(f" --{it}" for it, on in (("quick", quick), ("swarm", wild), ("shared", shared)) if on)
            print(f"All of it: python -m holdfast.testing --replay {seed}{how}")
            return 1
        if stage.void:
            void[stage.name] += 1
        else:
            seen.update(stage.world.seen)
        if time.monotonic() > told + 5.0:
            told = time.monotonic()
            print(f"{number} of {len(seeds)} worlds, {seen['held']} holds, {told - began:.0f} s", flush=True)
    for what, times in sorted(seen.items()):
        print(f"{times:8}  {what}")
    count = len(seeds) - void.total()
    print(f"{count} worlds in {time.monotonic() - began:.1f} s: no law is broken", end="")
    print(f" ({void.total()} more do not count, as what they were aimed at did not happen)" if void else "")
    return 0 if count else 2


def replay(seed: int, quick: bool, wild: bool, shared: bool = False) -> int:
    """Tell all that happens in one world."""
    stage = explore(seed, quick=quick, wild=wild, shared=shared)
    fine = _lived(stage, seed)
    print(*timeline(stage.world), sep="\n")
    print(f"seed {seed}, {stage.name}: {stage.world.seen}, {stage.world.fingerprint()}")
    return 0 if fine else 1


def _lived(stage: Stage, seed: int) -> bool:
    """Live through it; say what is wrong."""
    try:
        stage.run()
    except Violation as violation:
        print(f"seed {seed} ({stage.name}), at {stage.world.now:.6f} s: {violation}")
        return False
    except Exception:
        print(f"seed {seed} ({stage.name}), at {stage.world.now:.6f} s:")
        traceback.print_exc(file=sys.stdout)
        return False
    return True


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    if not dots or not first.isdigit() or not last.isdigit() or int(first) >= int(last):
        raise argparse.ArgumentTypeError("seeds are a range such as 0..100")
    return range(int(first), int(last))


if __name__ == "__main__":
    sys.exit(main())
