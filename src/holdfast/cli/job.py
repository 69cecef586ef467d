"""What a command is run for: what is held meanwhile, and how the command is to be stopped.

Knows options, already checked. Must not know processes.
"""

import threading
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .. import Holdfast, Lease

# Seconds before the end of a lease at which everything is killed, at least.
MARGIN = 0.1
SHARE = 50  # the margin is this part of a ttl, if that is more


class Ending(NamedTuple):
    """How a command ended.

    Attributes:
        status: Its exit status; None if it died of a signal, or never ran.
        signal: The signal that it died of.
        reason: Why it was stopped: "danger", "max_hold", "signal", "supervisor", or the reason of a
            lost lease. Empty if it ended by itself.
    """

    status: int | None
    signal: int | None = None
    reason: str = ""


class Failed(Exception):
    """The command of a `once` did not exit with 0, so there is no result to keep."""

    def __init__(self, ending: Ending) -> None:
        super().__init__("the command failed")
        self.ending = ending


Body = Callable[["Lease"], Ending]
# Acquires what is wanted, calls the body with the lease, and gives it back. It runs on a thread of
# its own. The event ends its wait. It returns what else there is to say.
Lost = Callable[[Any], None]
Work = Callable[["Holdfast", threading.Event, Lost, Body], dict[str, Any]]


class Job(NamedTuple):
    """A command to run under supervision.

    Attributes:
        verb: "run", "once" or "elect".
        name: What is held, for messages.
        keys: The names, with the client's prefix, that the command must not wait for again.
        looks_at: What to look at to say who holds it. Empty: nothing.
        client: The client. It is used only once the processes are forked.
        work: What is done with it.
        argv: The command.
        path: The file that is executed.
        ttl: The length of the lease, in seconds.
        kill_after: Seconds between TERM and KILL.
        max_hold: Seconds after which the command gets TERM.
        on_lost: "kill" or "term": what happens when the lease is lost without a warning.
        leftovers: "kill", "wait" or "leave": what happens to processes that the command left.
        scope: "group" or "child": who gets signals that are passed on.
        conflict: The exit status if the lock is busy.
        again: Whether to start over when the command has ended.
    """

    verb: str
    name: str
    keys: tuple[str, ...]
    looks_at: str
    client: "Holdfast"
    work: Work
    argv: list[str]
    path: str
    ttl: float
    kill_after: float
    max_hold: float = inf
    on_lost: str = "kill"
    leftovers: str = "kill"
    scope: str = "group"
    conflict: int = 75
    again: bool = False

    @property
    def margin(self) -> float:
        """Seconds before the end of the lease at which the holder kills the tree."""
        return max(MARGIN, self.ttl / SHARE)
