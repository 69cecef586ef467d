"""redis-py's Lock for asyncio on holdfast: `from holdfast.compat.redis.aio import Lock`.

It is the same as `holdfast.compat.redis`, with `await`.
"""

from __future__ import annotations

from ..clients import configure
from ..held import Steps, Tasks, waits
from .lock import RedisLock

__all__ = ["Lock", "configure"]


class Lock(Tasks, RedisLock):
    """A lock with the arguments and methods of `redis.asyncio.lock.Lock`, for asyncio."""

    @waits
    def acquire(
        self, blocking: bool | None = None, blocking_timeout: float | None = None, token: object = None
    ) -> Steps:
        """Acquire the lock. The arguments are those of redis-py.

        Args:
            blocking: Whether to wait (default: the lock's).
            blocking_timeout: How many seconds to wait (default: the lock's).
            token: Must be None: holdfast makes the token.

        Returns:
            Whether the lock is held now.

        Raises:
            ConnectionError: The servers do not answer.
            ConfigError: An argument cannot work.
        """
        return self._acquire(blocking, blocking_timeout, token)
