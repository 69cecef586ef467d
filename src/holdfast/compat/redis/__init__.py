"""redis-py's Lock on holdfast: `from holdfast.compat.redis import Lock`.

Pass it to your client: `r.lock(..., lock_class=Lock)`. The errors are
redis-py's, with those of holdfast as their causes. `configure` sets options of holdfast. `aio` is
the same for asyncio.
"""

from __future__ import annotations

from ..clients import configure
from ..held import Steps, Threads, waits
from .lock import RedisLock

__all__ = ["Lock", "configure"]


class Lock(Threads, RedisLock):
    """A lock with the arguments and methods of `redis.lock.Lock`, for threads."""

    @waits
    def acquire(
        self, sleep: float | None = None, blocking: bool | None = None, blocking_timeout: float | None = None,
        token: object = None,
    ) -> Steps:  # fmt: skip
        """Acquire the lock. The arguments are those of redis-py.

        Args:
            sleep: Has no effect.
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
