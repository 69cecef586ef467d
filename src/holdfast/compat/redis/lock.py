"""redis-py's Lock on holdfast, for threads and asyncio.

Knows redis-py's errors. Must not know threads or tasks.
"""

from __future__ import annotations

import logging
import threading
from functools import cached_property
from typing import Any

from redis import exceptions

from ...errors import ConfigError, LockBusy, LockLost, NoQuorum
from ..clients import client_of
from ..held import Held, Steps, confirmed, holder, holding, longer, waits


class Local:
    """What a lock holds: its lease, in the words of redis-py."""

    held: Held | None = None

    @property
    def token(self) -> bytes | None:
        """What the lock's key contains. None if the lock is not held."""
        return None if self.held is None else self.held.lease.token.encode()


class LocalOfThread(threading.local, Local):
    """The same, for each thread its own."""


class RedisLock:
    """A lock with the arguments and methods of redis-py's. Its errors are redis-py's, too."""

    _kind: Any

    def __init__(
        self, redis: Any, name: str | bytes, timeout: float | None = None, sleep: float = 0.1, blocking: bool = True,
        blocking_timeout: float | None = None, thread_local: bool = True, raise_on_release_error: bool = True,
        *, holdfast_renew: bool = True,
    ) -> None:  # fmt: skip
        """Describe a lock. Sends nothing.

        Args:
            redis: A client of redis-py or valkey-py. Its settings are used, not its connections.
            name: The key.
            timeout: Seconds after which the lock ends, whether its work is over or not. holdfast
                renews the lock until then (default: no limit; a lock of a crashed process ends).
            sleep: Has no effect. Waiters do not poll.
            blocking: Whether `acquire` waits.
            blocking_timeout: How many seconds it waits (default: for ever).
            thread_local: Whether only the thread that acquired the lock may release it.
            raise_on_release_error: Whether the end of a block raises an error of the release.
            holdfast_renew: False: do not renew the lock, which ends after `timeout`. Then `timeout`
                is at most the `max_ttl` of the client, 30 by default.

        Raises:
            ConfigError: At the first use, if the client or an argument cannot work.
        """
        self.redis, self.name, self.timeout, self.sleep = redis, name, timeout or None, sleep
        self.blocking, self.blocking_timeout = blocking, blocking_timeout
        self.thread_local, self.raise_on_release_error = bool(thread_local), raise_on_release_error
        self.local: Local = LocalOfThread() if self.thread_local else Local()
        self._renew, self._key = holdfast_renew, name if isinstance(name, str) else bytes(name).decode()

    @cached_property
    def _locks(self) -> Any:
        return client_of(self._kind, [self.redis])

    def _acquire(self, blocking: bool | None, blocking_timeout: float | None, token: object) -> Steps:
        if token is not None:
            raise ConfigError(
                "holdfast makes the token. To release elsewhere: force_release(name, reason, only=local.token.decode())"
            )
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        if not (self.blocking if blocking is None else blocking):
            wait = 0.0
        try:
            self.local.held = yield from self._told(holding(self._locks, self._key, self.timeout, wait, self._renew))
        except LockBusy:
            return False
        return True

    @waits
    def locked(self) -> Steps:
        """Ask whether anybody holds the lock.

        Returns:
            Whether any client of any library does.

        Raises:
            ConnectionError: The servers do not answer.
        """
        return (yield from self._holder()) is not None

    @waits
    def owned(self) -> Steps:
        """Ask whether this lock object holds the lock.

        Returns:
            Whether it does, by its lease and by the servers.

        Raises:
            ConnectionError: The servers do not answer.
        """
        held = self.local.held
        return held is not None and held.lease.held and (yield from self._holder()) == held.lease.token

    @waits
    def release(self) -> Steps:
        """Release the lock, and wait for the servers to confirm it.

        Returns:
            None.

        Raises:
            LockError: This lock object does not hold the lock.
            LockNotOwnedError: The lock was lost before.
            ConnectionError: The servers do not answer. Call it again.
        """
        lease = self._mine("release").lease
        mine, going = (yield from self._holder()) == lease.token, lease.held
        cause, certain = None, 0
        try:
            certain = yield lease.release(confirm=mine)
        except LockLost as lost:
            mine, going, cause = False, True, lost
        if mine and not confirmed(self._locks, certain):
            raise exceptions.ConnectionError(f"the servers did not confirm the release of {self._key!r}: repeat it")
        self.local.held = None
        if going and not mine:
            raise self._error("Cannot release a lock that's no longer owned", exceptions.LockNotOwnedError) from cause

    @waits
    def extend(self, additional_time: float, replace_ttl: bool = False) -> Steps:
        """Let the lock last longer.

        Args:
            additional_time: Seconds.
            replace_ttl: Count them from now, and not from the end of the lock.

        Returns:
            True.

        Raises:
            LockError: This lock object does not hold the lock, or the lock has no timeout.
            LockNotOwnedError: The lock was lost before.
            ConnectionError: The servers do not answer.
            ConfigError: The lock is not renewed, and would last for longer than `max_ttl`.
        """
        left = self._mine("extend", limited=True).left
        return (yield from self._lasts(additional_time + (0.0 if replace_ttl else left), "extend"))

    @waits
    def reacquire(self) -> Steps:
        """Let the lock last for its timeout again, from now.

        Returns:
            True.

        Raises:
            LockError: This lock object does not hold the lock, or the lock has no timeout.
            LockNotOwnedError: The lock was lost before.
            ConnectionError: The servers do not answer.
        """
        self._mine("reacquire", limited=True)
        return (yield from self._lasts(self.timeout or 0.0, "reacquire"))

    def _lasts(self, seconds: float, verb: str) -> Steps:
        try:
            self.local.held = yield from self._told(longer(self._locks, self._mine(verb), seconds))
        except LockLost as lost:
            raise self._error(f"Cannot {verb} a lock that's no longer owned", exceptions.LockNotOwnedError) from lost
        return True

    def _holder(self) -> Steps:
        return (yield from self._told(holder(self._locks, self._key)))

    def _told(self, steps: Steps) -> Steps:
        try:
            return (yield from steps)
        except NoQuorum as error:
            raise exceptions.ConnectionError(str(error)) from error

    def _mine(self, verb: str, limited: bool = False) -> Held:
        if self.local.held is None:
            raise self._error(f"Cannot {verb} a lock that this lock object does not hold")
        if limited and self.timeout is None:
            raise self._error(f"Cannot {verb} a lock with no timeout")
        return self.local.held

    def _enter(self) -> Steps:
        if not (yield from self._acquire(None, None, None)):
            raise self._error("Unable to acquire lock within the time specified")
        return self

    def _leave(self, error: BaseException | None) -> Steps:
        try:
            yield self.release()
        except Exception as trouble:
            if error is None and (self.raise_on_release_error or not isinstance(trouble, exceptions.LockError)):
                raise
            tell = logging.getLogger("holdfast.compat").warning if error is None else error.add_note
            tell(f"and {trouble}")

    def _error(self, message: str, kind: type[exceptions.LockError] = exceptions.LockError) -> Exception:
        return kind(f"{message}: {self._key!r}", lock_name=self._key)
