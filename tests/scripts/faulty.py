"""Scripts with a planted fault, and whether tests notice it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scripts.bench import Bench, simulated

from holdfast.scripts import Script, bare
from holdfast.testing.values import REDIS_7_2, VALKEY_9


def with_source(script: Script, source: bytes) -> Script:
    """Return the script with another text, and so with the digest of that text."""
    return Script(script.name, source, script.keys, script.arguments)


def planted(script: Script, text: str, other: str) -> Script:
    """Return the script with `other` in place of `text`, which it must contain exactly once.

    Both may be written as in the script's file, with indentation.
    """
    there = bare(text.encode())
    count = script.source.count(there)
    assert count == 1, f"{script.name} has {text!r} {count} times: change the planted fault with the script"
    return with_source(script, script.source.replace(there, bare(other.encode())))


def noticed(tests: Iterable[Callable[[Bench], object]]) -> bool:
    """Run tests on simulated servers of two kinds, until one fails. Return whether one did.

    Any exception counts. The bench itself raises some, such as for a key without an expiry.
    """
    ran = list(tests)
    for dialect in (VALKEY_9, REDIS_7_2):
        for test in ran:
            bench = simulated(dialect)
            try:
                test(bench)
            except Exception:
                return True
            finally:
                bench.close()
    return False
