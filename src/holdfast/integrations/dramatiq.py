"""Dramatiq: actors that run one at a time for each name, whose messages come back later if the lock
is busy, and actors whose messages are not sent twice.

Knows Dramatiq's actors, messages and middleware, and the client for threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from contextvars import ContextVar
from functools import wraps
from typing import Any

from dramatiq import Actor, Broker
from dramatiq.middleware import Interrupt, Middleware, MiddlewareError, SkipMessage, raise_thread_exception
from dramatiq.rate_limits import RateLimiter

from .. import Holdfast, Lease
from ..checks import seconds
from ..errors import ConfigError, LockBusy, NoQuorum, message_of
from ..kit import unlocked
from .calls import BUSY, UNIQUE, Body, Busy, Delivery, Single, UniqueCalls, abortable, chosen

__all__ = ["Concurrent", "Locks"]

LOGGER = "holdfast.dramatiq"
_ABORTED = "lock_abort"
_LOCK = {"lock", "lock_busy", "lock_delay", _ABORTED, "lock_options"}
# The option of a message that is not sent twice.
_NAME = "holdfast_unique"

# The message that this thread works on, and its broker.
_message: ContextVar[tuple[Any, Any] | None] = ContextVar("holdfast_message", default=None)


class Locks(Middleware):  # type: ignore[misc]  # (Dramatiq is not installed where types are checked)
    """Middleware that gives actors the options `lock` and `unique`.

    Add it before you declare actors. These are the options of an actor with a lock:

    - `lock`: the lock's name, a template over the actor's parameters, such as "user:{user_id}".
    - `lock_busy`: what to do if the lock is busy. "later" (the default): wait for up to a second,
      then send the message again, which uses up no retries. "skip": drop the message. "raise":
      raise LockBusy, which uses up a retry.
    - `lock_delay`: seconds until a message comes back. None: when its turn is near, by how many
      messages are to come before it, and how long the actor usually takes (the default).
    - `lock_abort`: whether the actor is interrupted if its lock is lost, as by Dramatiq's time
      limit (default: False).
    - `lock_options`: the options of the lock, a mapping. Unless you set `wait`, it is 1 with
      "later", and otherwise 0.

    An actor with `unique` is not sent while a message of its name is under way. Its options are
    those of `holdfast.integrations.celery.Unique`. With `unique_busy="first"`, `send` returns the
    message that is under way.
    """

    def __init__(self, locks: Holdfast) -> None:
        """Take the client, which is closed when the worker stops.

        Args:
            locks: A client for threads.

        Raises:
            ConfigError: The client is not one for threads.
        """
        if not isinstance(locks, Holdfast):
            raise ConfigError("Dramatiq needs a client for threads: from holdfast import Holdfast")
        self._locks = locks
        self._uniques = dict[str, UniqueCalls]()
        # Messages that are worked on, by their ids.
        self._deliveries = dict[str, Delivery]()

    @property
    def actor_options(self) -> set[str]:
        """The options that an actor may have."""
        return _LOCK | set(UNIQUE)

    def before_declare_actor(self, broker: Broker, actor: Actor) -> None:
        """Lock the function of an actor that has a lock.

        Args:
            broker: The broker.
            actor: The actor.

        Raises:
            ConfigError: An option cannot work, or the template has a field that is no parameter.
        """
        try:
            self._send_once(broker, actor)
            actor.fn = self._locked(actor.fn, actor.options, actor.actor_name)
        except Exception as error:
            raise WrongActor(f"the actor {actor.actor_name!r}: {error}") from error

    def before_worker_boot(self, broker: Broker, worker: Any) -> None:
        """Refuse to work with an actor that would run without its lock.

        Args:
            broker: The broker.
            worker: The worker.

        Raises:
            ConfigError: There is such an actor.
        """
        for told in unlocked((f"the actor {name!r}", it.fn) for name, it in broker.actors.items()).values():
            raise WrongActor(told)

    def before_process_message(self, broker: Broker, message: Any) -> None:
        """Remember the message that this thread works on.

        Args:
            broker: The broker.
            message: The message.
        """
        _message.set((broker, message))
        if (delivery := self._delivery(message)) is not None:
            delivery.begin()

    def before_enqueue(self, broker: Broker, message: Any, delay: int | None) -> None:
        """Note that a message which is worked on goes back to its queue.

        Args:
            broker: The broker.
            message: The message.
            delay: As Dramatiq passes it.
        """
        if (delivery := self._deliveries.get(message.message_id)) is not None:
            delivery.again()

    def after_process_message(
        self, broker: Broker, message: Any, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """Forget the message.

        Args:
            broker: The broker.
            message: The message.
            result: As Dramatiq passes it.
            exception: As Dramatiq passes it.
        """
        _message.set(None)
        if exception is not None and (delivery := self._deliveries.get(message.message_id)) is not None:
            delivery.failed = True

    def after_skip_message(self, broker: Broker, message: Any) -> None:
        """Forget the message.

        Args:
            broker: The broker.
            message: The message.
        """
        _message.set(None)
        if message.message_id not in self._deliveries and (delivery := self._delivery(message)) is not None:
            # Other middleware has dropped it, as one that is too old.
            delivery.failed = True

    def after_ack(self, broker: Broker, message: Any) -> None:
        """Free the name of a message that is not sent twice, when Dramatiq is done with it.

        Args:
            broker: The broker.
            message: The message.
        """
        if (delivery := self._deliveries.pop(message.message_id, None)) is not None:
            delivery.end()

    after_nack = after_ack

    def after_worker_shutdown(self, broker: Broker, worker: Any) -> None:
        """Close the client.

        Args:
            broker: The broker.
            worker: The worker.
        """
        self._locks.close()

    def _delivery(self, message: Any) -> Delivery | None:
        """What is noted of a message that is not sent twice, while it is worked on."""
        unique, name = self._uniques.get(message.actor_name), message.options.get(_NAME)
        if unique is None or name is None:
            return None
        return self._deliveries.setdefault(message.message_id, Delivery(unique, self._locks, name, message.message_id))

    def _send_once(self, broker: Broker, actor: Actor) -> None:
        """Have an actor send no duplicates, if its options say so."""
        given = {it: value for it, value in actor.options.items() if it in UNIQUE}
        if not _has("unique", given):
            return
        unique = self._uniques[actor.actor_name] = UniqueCalls(actor.fn, actor.actor_name, given)
        enqueue = actor.send_with_options

        def send_with_options(*, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
            def publish(name: str) -> tuple[Any, str]:
                message = enqueue(args=args, kwargs=kwargs, **options, **{_NAME: name})
                return message, message.message_id

            def known(first: str) -> Any:
                return actor.message(*args, **(kwargs or {})).copy(message_id=first)

            return unique.send(self._locks, args, kwargs or {}, publish, known)

        actor.send_with_options = send_with_options

    def _locked(self, function: Body, given: dict[str, Any], actor: str) -> Body:
        if not _has("lock", _LOCK & set(given)):
            return function
        busy, delay = given.get("lock_busy", "later"), given.get("lock_delay")
        delay = delay if delay is None else seconds(delay, "lock_delay")
        chosen("lock_busy", busy, *BUSY)
        one = Single(function, given["lock"], given.get("lock_options", {}), busy, delay)
        interrupts = _abortable if given.get(_ABORTED) else None

        @wraps(one.known)
        def run(*args: Any, **kwargs: Any) -> Any:
            # The message is for its own actor, and not for those that the actor calls like functions.
            work = _message.get()
            mine = work is not None and work[1].actor_name == actor
            before = _message.set(None)
            try:
                return one.call(self._locks, args, kwargs, mine, interrupts)
            except Busy as error:
                if work is None or not mine or busy == "raise" or isinstance(error.busy, NoQuorum):
                    raise error.busy from None
                if busy == "later":
                    _later(*work, one.back(self._locks, error.busy.name), error.busy)
                raise SkipMessage(message_of(error.busy)) from None
            finally:
                _message.reset(before)

        return run


def _has(what: str, given: Collection[str]) -> bool:
    """Whether an actor has this option. It must not have others that are for that one."""
    if given and what not in given:
        raise ConfigError(f"{min(given)} is for an actor with {what}=, which it has not")
    return bool(given)


class Concurrent(RateLimiter):  # type: ignore[misc]  # (Dramatiq is not installed where types are checked)
    """Allows some holders at a time, in place of Dramatiq's `ConcurrentRateLimiter`.

    The permits of a process that was killed are free after one `ttl`.
    """

    def __init__(self, locks: Holdfast, key: str, *, limit: int = 1, **options: Any) -> None:
        """Describe the limit.

        Args:
            locks: A client for threads.
            key: The semaphore's name.
            limit: How many may hold it at a time (default: 1).
            options: Those of `semaphore`. `wait` is 0 unless you set it.

        Raises:
            ConfigError: An option cannot work.
        """
        super().__init__(None, key)
        self._semaphore = locks.semaphore(key, limit, **{"wait": 0, **options})
        self._held = threading.local()

    def _acquire(self) -> bool:
        try:
            lease = self._semaphore.acquire()
        except LockBusy:
            return False
        self._leases().append(lease)
        return True

    def _release(self) -> None:
        self._leases().pop().release()

    def _leases(self) -> list[Lease]:
        """What this thread holds: a limiter may be shared."""
        held: list[Lease] = self._held.__dict__.setdefault("leases", [])
        return held


class WrongActor(ConfigError, MiddlewareError):  # type: ignore[misc]  # (Dramatiq has no types here)
    """An actor's options cannot work.

    Dramatiq logs other errors of middleware, and would declare the actor without its lock.
    """


class Aborted(Interrupt):  # type: ignore[misc]  # (Dramatiq is not installed where types are checked)
    """Interrupts an actor whose lock is lost."""


def _abortable(function: Body, options: dict[str, Any]) -> tuple[Body, Any]:
    return abortable(function, options, lambda thread: raise_thread_exception(thread, Aborted), Aborted)


def _later(broker: Broker, message: Any, delay: float, error: LockBusy) -> None:
    """Send the message again, with its id and retries."""
    broker.enqueue(message.copy(), delay=int(1000 * delay))
    # The copy has the result. This message, which is skipped, would store None in its place.
    message.options["store_results"] = False
    told = "%s comes back in %g s: %s"
    logging.getLogger(LOGGER).debug(told, message, delay, message_of(error))
