"""What a program pays before its first lock: imports; and the time until `Holdfast.local()` has given one.

Run by itself, as a script: what this imports, nobody pays for any more. Figures: `p50` (milliseconds), `memory` (MiB).
"""

import os
import sys
from time import perf_counter


def memory() -> float:
    """MiB in use, where the system tells."""
    try:
        with open("/proc/self/statm", "rb") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


def main(what: str) -> None:
    """`what`: a module; or "local": all the way to a first lock."""
    before, began = memory(), perf_counter()
    if what == "local":
        from holdfast import Holdfast

        with Holdfast.local() as locks, locks.lock("bench:start"):
            took = perf_counter() - began
    else:
        __import__(what)
        took = perf_counter() - began
    print(f'{{"p50": {took * 1e3}, "memory": {memory() - before}}}')


if __name__ == "__main__":
    main(sys.argv[1])
