"""Explores the model's worlds to the end, two at a time: `./task model`. Exits with 1 if a law is broken, and tells by which history.

With names, only those worlds; `--list` tells which there are. `--quick` leaves out the largest one, which has a third of all states. (Those
of permits take many minutes, so they are explored only if they are named; every test run goes some way into each.)
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from .worlds import LARGEST, PERMITS, WORLDS, explore


def main(arguments: list[str] | None = None) -> int:
    summary, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="./task model", description=summary, epilog=more)
    parser.add_argument("names", nargs="*", metavar="WORLD", help="which (all but those of permits)")
    parser.add_argument("--list", action="store_true", help="tell the names, and explore nothing")
    parser.add_argument("--quick", action="store_true", help="not the largest world")
    options = parser.parse_args(arguments)
    if options.list:
        print(*WORLDS, sep="\n")
        return 0
    if unknown := set(options.names) - WORLDS.keys():
        parser.error(f"there is no world {min(unknown)!r}: --list tells which there are")
    failed = False
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        left_out = {*PERMITS, LARGEST} if options.quick else PERMITS
        for fine, told in pool.map(explore, options.names or [it for it in WORLDS if it not in left_out]):
            print(told, flush=True)
            failed |= not fine
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
