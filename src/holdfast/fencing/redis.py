"""Fences in Redis or Valkey: writes that a server accepts only if no later holder has been there.

Knows `guarded.lua` and redis-py. Must not know the nodes of the locks: the data may lie on any
other server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import Seconds, seconds, shown
from ..errors import Misuse, StaleFence
from .bearer import Fences, fences_of

if TYPE_CHECKING:
    import redis
    import redis.asyncio

__all__ = ["FencedRedis"]

_COMMAND = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))"
_DELETE = "return redis.call('DEL', unpack(KEYS))"


class FencedRedis:
    """Writes to Redis or Valkey (6.2 or newer) that are refused if a later holder has been there.

    Each method checks and writes in one step, a script. All methods are awaited if the client is of
    `redis.asyncio`. A method raises StaleFence if a later holder has been there. Then nothing is
    written.

    The server may forget a record early: it restarts without persistence, evicts the key, promotes
    a replica that lacks it, or its clock is set back. Then a late holder of the last `keep` seconds
    is let in.

    Args:
        client: Your client of redis-py, `redis.Redis` or `redis.asyncio.Redis`, or one for a
            cluster. Not a pipeline: its answers come later, when nobody could refuse them.
        lease: A lease, or `{name: fence}`.
        keep: Seconds for which a record outlives its last use, at least 1. All who write under one
            name use the same. A fence counts microseconds. Without a record, a fence that is older
            than `keep` is refused, so expiry lets nobody in, and a lease has to write at least once
            in `keep` seconds. None remembers for ever, and accepts numbers of other locks.
        record: Makes the key of a name's record. In a cluster it needs the same hash tag as the
            data.
        read: Only read, see `FenceTable.guard`.
        unfenced: Let a lease without a fence pass unchecked.

    Raises:
        Misuse: The client is a pipeline, or the lease has no fence.
        ConfigError: `keep` is no such time, or a fence no such number.
    """

    def __init__(
        self,
        client: redis.Redis | redis.asyncio.Redis,
        lease: Fences,
        *,
        keep: Seconds | None = 7 * 86400.0,
        record: Callable[[str], str] = "holdfast:seen:{}".format,
        read: bool = False,
        unfenced: bool = False,
    ) -> None:
        if any(it.__name__.endswith("Pipeline") for it in type(client).__mro__):
            raise Misuse("a pipeline answers later, so that no late holder could be refused: pass the client itself")
        self._client: Any = client
        self._fences = fences_of(lease, unfenced)
        self._records = [record(name) for name in self._fences]
        length = 0 if keep is None else round(seconds(keep, "keep", least=1.0) * 1000)
        self._last = [*self._fences.values(), len(self._fences), length, "r" if read else "w"]
        self._scripts: dict[str, Any] = {}

    def set(self, key: str, value: Any, *, ttl: Seconds | None = None) -> Any:
        """Set a key, as SET does.

        Args:
            key: The key.
            value: A value that redis-py accepts.
            ttl: Seconds after which the key expires. None, the default, keeps it for ever.

        Returns:
            The server's answer. An awaitable of it, if the client is of `redis.asyncio`.

        Raises:
            StaleFence: A later holder has been there. Nothing is written.
            ConfigError: `ttl` is no positive number of seconds.
        """
        return self.execute("SET", key, value, *(() if ttl is None else ("PX", round(seconds(ttl, "ttl") * 1000))))

    def hset(self, key: str, mapping: Mapping[str, Any]) -> Any:
        """Set fields of a hash, as HSET does.

        Args:
            key: The key.
            mapping: The fields and their values, at least one.

        Returns:
            How many fields are new. An awaitable of it, if the client is of `redis.asyncio`.

        Raises:
            StaleFence: A later holder has been there. Nothing is written.
        """
        return self.execute("HSET", key, *[it for pair in mapping.items() for it in pair])

    def delete(self, *keys: str) -> Any:
        """Delete keys, as DEL does.

        Args:
            keys: The keys.

        Returns:
            How many keys there were. An awaitable of it, if the client is of `redis.asyncio`.

        Raises:
            StaleFence: A later holder has been there. Nothing is deleted.
        """
        return self.eval(_DELETE, keys)

    def execute(self, command: str, key: str, *arguments: Any) -> Any:
        """Execute a command whose first argument is its only key.

        Args:
            command: The command's name, such as `"INCRBY"`.
            key: The key.
            arguments: The other arguments.

        Returns:
            The server's answer. An awaitable of it, if the client is of `redis.asyncio`.

        Raises:
            StaleFence: A later holder has been there. Nothing is written.
        """
        return self.eval(_COMMAND, [key], [command, *arguments])

    def eval(self, script: str, keys: Sequence[str] = (), arguments: Sequence[Any] = ()) -> Any:
        """Run your own script if the holder is not late.

        The server loads it once, and the client calls it by its digest.

        Args:
            script: The script's text. It sees only its own `KEYS` and `ARGV`.
            keys: Its keys.
            arguments: Its other arguments.

        Returns:
            The script's answer. An awaitable of it, if the client is of `redis.asyncio`.

        Raises:
            StaleFence: A later holder has been there. The script does not run.
            Misuse: The client did not run the script now, as a pipeline does not.
        """
        if script not in self._scripts:
            self._scripts[script] = self._client.register_script(_guarded(script))
        answer = self._scripts[script](keys=[*keys, *self._records], args=[*arguments, *self._last])
        return self._judged_later(answer) if isinstance(answer, Awaitable) else self._judged(answer)

    async def _judged_later(self, answer: Awaitable[Any]) -> Any:
        return self._judged(await answer)

    def _judged(self, answer: Any) -> Any:
        if not isinstance(answer, list):
            raise Misuse(
                f"the client has answered {shown(answer)} instead of running the script now: "
                "pass a client that waits for answers"
            )
        if answer[0]:
            # Nil ends a table.
            return answer[1] if len(answer) > 1 else None
        name, fence = list(self._fences.items())[answer[1] - 1]
        raise StaleFence(name, fence, answer[2])


@lru_cache(256)
def _guarded(work: str) -> str:
    return (Path(__file__).parent / "guarded.lua").read_text().replace("--[[work]]", work)
