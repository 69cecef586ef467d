"""Work that is done once: a client elsewhere does it, and the gateway keeps the result.

Knows leases, and `once` of the library. Must not know requests. The function that `once` runs here
only waits: for the result that its client sends, for the loss of the lease, or for its client to
give up.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from ..aio import Holdfast, Lease, current
from ..errors import Misuse, message_of
from .leases import Hold
from .problems import Problem


class Gone(Exception):
    """The client has given up, so that another one does the work."""


class Known(Problem):
    """The work is done already. Not a problem: it ends the lease that was asked for.

    Attributes:
        value: The result.
    """

    def __init__(self, value: Any) -> None:
        super().__init__("released", "The work is done, so this lease is not needed any more.")
        self.value = value


class Work(NamedTuple):
    """Work that a client has begun, or waits for.

    Attributes:
        outcome: What the client says came of it.
        running: Runs `once`, and returns the result as it is kept.
    """

    outcome: asyncio.Future[Any]
    running: asyncio.Task[Any]


async def begun(locks: Holdfast, hold: Hold, keep: float) -> Lease:
    """Run `once` until it is this client that does the work.

    Args:
        locks: The client of the nodes.
        hold: The lease of the work.
        keep: Seconds for which the result is kept.

    Returns:
        The lease.

    Raises:
        Known: The work is done.
        HoldfastError: It cannot be known whether it is done.
    """
    loop = asyncio.get_running_loop()
    leased: asyncio.Future[Lease] = loop.create_future()
    outcome: asyncio.Future[Any] = loop.create_future()

    async def function() -> Any:
        leased.set_result(current())
        while not outcome.done() and hold.state != "over":
            await asyncio.wait((outcome, hold.change), return_when=asyncio.FIRST_COMPLETED)
        if not outcome.done():
            raise Gone
        return outcome.result()

    once = locks.once(
        hold.wanted.names[0],
        keep=keep,
        ttl=hold.ttl,
        wait=None if hold.wanted.wait_ms else 0,
        renew=False,
        on_lost=hold.check,
        note=hold.note,
    )
    running = loop.create_task(once.run(function))
    # Its error was heard. Those that wait for it get it, too.
    running.add_done_callback(lambda it: it.cancelled() or it.exception())
    try:
        await asyncio.wait((running, leased), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        running.cancel()
        raise
    if not leased.done():
        try:
            raise Known(running.result())
        except Misuse as error:
            raise without_result(message_of(error)) from None
    hold.work = Work(outcome, running)
    return leased.result()


async def keep(hold: Hold, key: str, value: Any) -> Any:
    """Keep the result of work, and end its lease.

    Args:
        hold: The lease of the work.
        key: What the work is called.
        value: The result.

    Returns:
        The result as it is kept.

    Raises:
        Problem: It is no lease of this work, or is over.
    """
    work = hold.work
    if not isinstance(work, Work):
        hold.refuse_if_over()
        raise Problem("kind-mismatch", f"The lease {hold.id} is not for work that is done once.")
    if hold.wanted.names != (key,):
        raise Problem("kind-mismatch", f"The lease {hold.id} is for another key than {key!r}.")
    if not work.outcome.done():
        hold.refuse_if_over()
        work.outcome.set_result(value)
        work.running.add_done_callback(lambda _: hold.give_up(True))
    # The client may go while the nodes keep the result. They keep it all the same.
    return await asyncio.shield(work.running)


def without_result(why: str) -> Problem:
    """Return the problem of work that is done, and whose result cannot be said."""
    return Problem("no-result", f"{why}. `DELETE /v1/once/KEY` forgets it, and the next client does the work again.")
