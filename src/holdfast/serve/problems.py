"""What the gateway answers when something is wrong: problem documents (RFC 9457).

Knows the kinds of problems, and which of them stands for an error of the library. Must not know
requests.
"""

from __future__ import annotations

import hashlib
from math import ceil
from typing import Any, Self

from .. import LockStatus
from ..errors import ConfigError, HoldfastError, LockBusy, LockLost, Misuse, NoQuorum, message_of, readable

MEDIA = "application/problem+json"
# Seconds that a client is asked to stay away for, at most.
LONGEST_WAIT = 60.0
# What holds a lock while readers do.
SHARED = "shared"

# Every kind of problem: its status, and its title.
KINDS: dict[str, tuple[int, str]] = {
    "malformed": (400, "The request cannot be read."),
    "unauthenticated": (401, "The request does not say who it is from."),
    "forbidden": (403, "This client may not do this."),
    "not-found": (404, "There is no such address."),
    "unknown-lease": (404, "There is no such lease."),
    "free": (404, "Nobody holds this."),
    "not-allowed": (405, "This address does not take this method."),
    "busy": (409, "Another client holds the lock."),
    "lease-mismatch": (409, "This id belongs to another request."),
    "no-result": (409, "The work is done, and its result cannot be said."),
    "kind-mismatch": (409, "This lease is of another kind."),
    "lost": (410, "The lease is lost: stop what it protected."),
    "released": (410, "The lease was released."),
    "gateway-gone": (410, "The gateway that had the lease has ended."),
    "not-the-holder": (412, "Another client holds the lock by now."),
    "too-large": (413, "The body is too large."),
    "name-too-long": (414, "The name is too long."),
    "not-json": (415, "The body is not JSON."),
    "misdirected": (421, "This gateway does not have this name."),
    "invalid": (422, "The request has values that cannot work."),
    "needs-if-match": (428, "The request has to say whose lock it takes away."),
    "too-many": (429, "There are too many of these."),
    "rate-limited": (429, "The limit is used up."),
    "fault": (500, "The gateway failed."),
    "no-quorum": (503, "Too few nodes answer."),
    "in-doubt": (503, "It was not confirmed."),
    "gateway-unreachable": (503, "The gateway that has the lease does not answer."),
    "draining": (503, "The gateway is about to end."),
    "overloaded": (503, "The gateway is busy."),
}


class Problem(Exception):
    """A request that cannot be answered as it was meant.

    Attributes:
        kind: One of KINDS. The problem's type is `/problems/<kind>`.
        detail: What happened, and what to do.
        status: The HTTP status.
        facts: More members of the document.
        after: Seconds after which the client may come back, for `Retry-After`. None: not said.
    """

    def __init__(self, kind: str, detail: str, *, after: float | None = None, **facts: Any) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.after, self.facts = kind, detail, after, facts
        self.status, self.title = KINDS[kind]

    def again(self) -> Self:
        """Return the same problem, for a lease to raise it once more.

        A lease keeps its own, which is never raised. Otherwise the traceback would grow with each
        request, and its frames refer to the lease.
        """
        same = type(self).__new__(type(self), *self.args)
        same.__dict__.update(self.__dict__)
        return same

    def document(self, instance: str) -> dict[str, Any]:
        """Return the problem document for the request with this id."""
        said = {"type": f"/problems/{self.kind}", "title": self.title, "status": self.status, "detail": self.detail}
        return {**said, "instance": instance, **self.facts}

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        found = {"content-type": MEDIA}
        if self.after is not None:
            found["retry-after"] = str(max(1, ceil(min(LONGEST_WAIT, self.after))))
        if self.status == 401:
            found["www-authenticate"] = "Bearer"
        return found


class LeaseElsewhere(Exception):
    """A request for a lease that another gateway has. Its only argument is that gateway's name."""


def problem_of(error: Exception) -> Problem:
    """Choose the problem that stands for an error."""
    text = message_of(error)
    match error:
        case Problem():
            return error
        case LockBusy():
            holder = holder_of(error)
            named = error.note or error.owner
            # To the library, all clients of the gateway are one client, so its own message may say that the caller
            # holds the lock itself.
            who = "another client" if named is None else f"another client ({readable(named, 128)})"
            advice = "Send `wait_ms` to wait for it, or come back later."
            its = LockBusy(error.name, error.waited, error.holder, error.ttl_left, who=who, advice=advice)
            facts = {"name": error.name, "holder": holder, "left_ms": holder["left_ms"]}
            return Problem("busy", message_of(its), after=error.ttl_left or 1.0, **facts)
        case NoQuorum():
            causes = {node: message_of(cause) for node, cause in error.causes.items()}
            return Problem("no-quorum", text, after=1.0, nodes=causes)
        case LockLost():
            return Problem("lost", text, name=error.name, reason=error.reason, fence=error.fence)
        case Misuse(reason="not_held"):
            return Problem("released", text)
        case Misuse(reason="closed"):
            return Problem("draining", text, after=5.0)
        case ConfigError():
            return Problem("invalid", text, errors=[{"pointer": "", "detail": text}])
        case _:
            # Of errors that are none of the library, the client gets nothing but the number of the request.
            unknown = "The gateway failed. Its log has the reason; please report it."
            return Problem("fault", text if isinstance(error, HoldfastError) else unknown)


def holder_of(seen: LockBusy | LockStatus) -> dict[str, Any]:
    """Return what answers say of the client that holds a lock."""
    left = None if seen.ttl_left is None else milliseconds(seen.ttl_left)
    return {"owner": seen.owner, "note": seen.note, "left_ms": left}


def mark(token: str | None) -> str | None:
    """Return what stands for a holder's token in answers and logs, where nobody may read it."""
    return token if token in (None, SHARED) else hashlib.sha256(str(token).encode()).hexdigest()[:16]


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, rounded down, and at least 0."""
    return max(0, int(seconds * 1000))
