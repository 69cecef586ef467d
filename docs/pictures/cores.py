"""The picture of how many cores a node needs, up to a million clients: drawn from the function of docs/performance.md.

Knows that page, and how lines are drawn. Must not know any figure.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/performance.md"
PICTURE = ROOT / "docs/performance/cores.svg"
CLIENTS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
TTLS = (10, 30, 60, 300)
SHARE = 0.5  # of a core, that a shard may need

sys.path.insert(0, str(ROOT))  # for bench

from bench import plot  # noqa: E402  (found only now)
from bench.catalogue import FLOOR, OURS  # noqa: E402  (found only now)


def function() -> Callable[..., tuple[float, float, float]]:
    """Return the page's function, after what the page asserts of it."""
    block = re.search(r"```python\n(def node\(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None, f"{PAGE} has no function node()"
    names: dict[str, Callable[..., tuple[float, float, float]]] = {}
    exec(compile(block[1], str(PAGE), "exec"), names)
    return names["node"]


def cores(clients: int, ttl: float) -> float:
    """Return how many cores a node needs, if each client holds a lock, and acquires another one every minute."""
    return function()(clients=clients, held=clients, pairs=clients / 60, ttl=ttl)[1]


def shards(clients: int, ttl: float) -> int:
    """Return how many shards that makes."""
    return math.ceil(cores(clients, ttl) / SHARE)


def picture() -> str:
    """Return the picture as SVG."""
    found = [(f"ttl {ttl} s", OURS, [(it, cores(it, ttl), 0.0) for it in CLIENTS]) for ttl in TTLS]
    found.append(("one shard", FLOOR, [(it, SHARE, 0.0) for it in CLIENTS]))
    return plot.lines("How many cores a node needs", "cores", "clients, of which each holds a lock", found)


if __name__ == "__main__":
    PICTURE.write_text(picture())
    print(f"{PICTURE.relative_to(ROOT)} is drawn")
