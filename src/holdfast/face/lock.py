"""The description of a lock: shared by both faces.

Knows a lock's terms. Must not know threads or tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from .lease import Lease
from .terms import Terms


class Lock(ABC):
    """The description of a lock: immutable, shared by as many users as you like."""

    __slots__ = ("__weakref__", "_terms")

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._terms.name

    @property
    def ttl(self) -> float:
        """The length of its leases, in seconds: how soon others take over after a crash."""
        return self._terms.ttl

    @abstractmethod
    def acquire(self) -> Lease | Awaitable[Lease]:
        """Wait until the lock is held, as long as its `wait` says; the lease is the caller's, to be released by the caller.

        Raises LockBusy when `wait` has run out and somebody else has it, NoQuorum when too few nodes answer to know, Closed
        when the client is closed meanwhile. Whatever is raised, nothing is left behind that lasts.
        """

    @abstractmethod
    def try_acquire(self) -> Lease | Awaitable[Lease | None] | None:
        """Try exactly once: a lease, or None if somebody else has the lock or waits for it. Raises NoQuorum like `acquire`."""

    def __repr__(self) -> str:
        return f"<Lock {self.name!r} ttl={self.ttl:g}>"
