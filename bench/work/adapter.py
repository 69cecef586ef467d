"""What every contender looks like to the work.

An adapter's class is made with the parameters (`urls`, `ttl` and what the work adds) and says how its library is used as its own
documentation shows it. With asyncio, all but `__init__` and `lock` are coroutines. Those that take part in `bench.updates` also say
whether they still hold what they have: `holds(held)`, as far as their library can tell.
"""

from __future__ import annotations

from typing import Any, Protocol

TTL = 10.0  # seconds: everybody's, where nothing else is asked for


class Adapter(Protocol):
    """A lock library in threads."""

    asks: tuple[str, ...]  # the commands that it sends to a node for locks, as INFO commandstats names them; not those within scripts

    def __init__(self, parameters: dict[str, Any]) -> None: ...

    def open(self) -> None:
        """Connect, as far as the library does that by itself."""

    def lock(self, name: str) -> Any:
        """What the library's user keeps for a name."""

    def acquire(self, lock: Any) -> Any:
        """Wait until it is held; gives what `release` takes."""

    def release(self, held: Any) -> None:
        """Give it back."""

    def close(self) -> None:
        """Hang up."""


class Coroutines(Protocol):
    """A lock library in asyncio."""

    asks: tuple[str, ...]

    def __init__(self, parameters: dict[str, Any]) -> None: ...

    async def open(self) -> None:
        """Connect, as far as the library does that by itself."""

    def lock(self, name: str) -> Any:
        """What the library's user keeps for a name."""

    async def acquire(self, lock: Any) -> Any:
        """Wait until it is held; gives what `release` takes."""

    async def release(self, held: Any) -> None:
        """Give it back."""

    async def close(self) -> None:
        """Hang up."""


def quantiles(times: Any, scale: float = 1e6) -> dict[str, float]:
    """The p50 and p99 of times in seconds, in microseconds."""
    ordered = sorted(times)
    if not ordered:
        raise SystemExit("it has done nothing in all that time")
    return {"p50": ordered[len(ordered) // 2] * scale, "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * scale}
