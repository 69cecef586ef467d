"""The bodies of requests and answers.

Knows names, types and ranges. Must not know what happens with them. A field that does not exist is
refused, because a typing error in `ttl_ms` must not mean the default.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import inf
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from ..errors import message_of
from ..kit import JSON, packed
from .leases import LONGEST_NAME, Wanted
from .problems import mark

DEEPEST = 100  # lists and objects in one another
# Names of one question about several locks: as many rows as a page shows.
IN_VIEW = 60

# In JSON, 200.0 is a whole number. (Behind a field's bounds, so that the document has these.)
WHOLE = BeforeValidator(lambda it: int(it) if isinstance(it, float) and it.is_integer() else it)
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
# Fences and tokens are whole numbers below 2**53, which every JSON parser reads exactly.
Fence = Annotated[int, Field(ge=0, lt=2**53)]
Milliseconds = Annotated[int, Field(ge=0, lt=2**53)]


def _moment(at: object) -> object:
    """A time as RFC 3339 has it, in UTC."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(at, datetime) else at


def _said(error: object) -> object:
    return message_of(error) if isinstance(error, Exception) else error


def _in(parts: float, least: float = 0) -> BeforeValidator:
    """Takes seconds, which are floats in the library, as whole parts of a second."""
    return BeforeValidator(lambda it: int(max(least, it * parts)) if isinstance(it, float) else it)


# A holder, as answers show it: its token is for itself.
Holding = Annotated[str | None, BeforeValidator(mark)]
# What the library says as a datetime, as an exception and as a float of seconds.
Moment = Annotated[str | None, BeforeValidator(_moment)]
Reason = Annotated[str | None, BeforeValidator(_said)]
Left = Annotated[Milliseconds | None, _in(1e3)]


def _is(name: str, *there: str) -> Any:
    """A field that has another name in the library."""
    return Field(validation_alias=AliasChoices(name, *there))


class RequestBody(BaseModel):
    """What a request says."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Parameters(RequestBody):
    """The parameters of a request."""


class Listing(Parameters):
    """Which locks are listed."""

    names: Annotated[list[str], Field(json_schema_extra={"maxItems": IN_VIEW})] = []
    pattern: Annotated[str, Field(min_length=1, max_length=512)] = "*"
    limit: Annotated[int, Field(ge=1, le=1000), WHOLE] = 100
    after: Annotated[str, Field(max_length=LONGEST_NAME)] = ""
    # The answer has no end then, so the document says it in words.
    prefix: SkipJsonSchema[Annotated[str, Field(max_length=LONGEST_NAME)] | None] = None


class Show(Parameters):
    """How long to wait for a change of a lease first."""

    wait_ms: Annotated[int, Field(ge=0, le=60_000), WHOLE] = 0


class Release(Parameters):
    """Whether to wait until the nodes have confirmed the release."""

    confirm: bool = False


class Said(BaseModel):
    """The body of an answer. It is made of its parts, or of what the library says."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457). The members that follow `instance` depend on the type."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str


class NodeBody(Said):
    """The state of a node, as this gateway knows it."""

    node: str
    state: str
    cause: Reason
    version: str
    shard: str
    guard_left_ms: Left = _is("guard_left_ms", "guard_left")
    since_ms: Left = _is("since_ms", "since")
    uptime_ms: Left = _is("uptime_ms", "uptime")
    rtt_us: Annotated[int | None, _in(1e6)] = _is("rtt_us", "rtt")
    ahead_ms: Annotated[int | None, _in(1e3, -inf)] = _is("ahead_ms", "ahead")
    owing: int
    warnings: list[str]


class AllNodes(Said):
    """All nodes."""

    gateway: str
    majority: int
    up: int
    nodes: list[NodeBody]


class OneLock(Said):
    """One lock, as each answer shows it that shows locks."""

    name: str
    state: str
    holder: Holding
    owner: str | None
    note: str | None
    asked: Moment
    left_ms: Left = _is("left_ms", "left", "ttl_left")
    fence: int | None


class RowBody(OneLock):
    """One lock of a survey."""

    kind: str
    group: str | None
    slot: int | None
    waiting: int
    waits_since: Moment
    nodes: int


class AllLocks(Said):
    """The locks that are held, by name."""

    locks: list[RowBody]
    scanned: int
    complete: bool
    next: str | None


class WaitingBody(Said):
    """One that waits for a lock, or reads."""

    id: Annotated[str, BeforeValidator(mark)] = _is("id", "token")
    owner: str | None
    asked: Moment
    left_ms: Left = _is("left_ms", "left")
    nodes: int


class OnNode(Said):
    """One lock as one node has it."""

    node: str
    error: Reason
    holder: Holding
    left_ms: Left = _is("left_ms", "left", "ttl_left")
    fence: int | None
    waiting: int


class LockBody(OneLock):
    """The state of a lock."""

    queue: list[WaitingBody]
    readers: list[WaitingBody]
    nodes: list[OnNode]


class TheseLocks(Said):
    """The states of the locks that were asked for, in that order."""

    locks: list[LockBody]


Label = Annotated[str, Field(max_length=256)]
Ttl = Annotated[int, Field(ge=50, le=86_400_000), WHOLE]
Wait = Annotated[int, Field(ge=0, le=30_000), WHOLE]
Linger = Annotated[int, Field(ge=500, le=10_000), WHOLE]
Value = Annotated[str, Field(max_length=65_536)]
LEASE_ID = r"^(g[a-z0-9]{7}\.)?[A-Za-z0-9_-]{16,64}$"
LeaseId = Annotated[str, Field(pattern=LEASE_ID)]


class Acquire(RequestBody):
    """What a client wants to hold. Times are in milliseconds."""

    names: Annotated[list[Name], Field(min_length=1, max_length=16)]
    kind: Literal["exclusive", "read", "write", "permit", "election"] = "exclusive"
    # Default: the ttl of the gateway's client.
    ttl_ms: Ttl | None = None
    wait_ms: Wait = 0
    linger_ms: Linger = 2000
    max_hold_ms: Annotated[int, Field(ge=50, le=10**12), WHOLE] | None = None
    # Of a semaphore: how many permits there are, and how many of them are wanted.
    permits: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = None
    count: Annotated[int, Field(ge=1, le=10_000), WHOLE] = 1
    # What a leader says.
    value: Value | None = None
    label: Label = ""

    def wanted(self) -> Wanted:
        """Return what the leases are told."""
        return Wanted(**{**self.__dict__, "names": tuple(self.names)})

    @model_validator(mode="after")
    def _together(self) -> Self:
        """Check what fits together."""
        if len(self.names) > 1 and self.kind != "exclusive":
            raise ValueError(f"a lease of kind {self.kind} has one name")
        if (self.permits is None) == (self.kind == "permit"):
            raise ValueError("permits belongs to the kind permit, which needs it")
        if self.count > 1 and self.kind != "permit":
            raise ValueError("count belongs to the kind permit")
        if self.value is not None and self.kind != "election":
            raise ValueError("value belongs to the kind election")
        return self


class HolderBody(Said):
    """The client that holds a lock."""

    owner: str | None
    note: str | None
    left_ms: Milliseconds | None


class HeldBody(Said):
    """A lease that is held. Count `valid_ms` from before you sent the request."""

    id: str
    state: Literal["held"]
    names: list[str]
    kind: str
    fence: Fence | None
    fences: dict[str, Fence]
    slots: list[int]
    valid_ms: Milliseconds
    ttl_ms: Milliseconds
    keepalive_ms: Milliseconds
    waited_ms: Milliseconds
    contended: bool
    doubt: bool
    votes: int


class Waits(Said):
    """A lease that is waited for. Send the same request again before `linger_ms` are over."""

    id: str
    state: Literal["waiting"]
    names: list[str]
    kind: str
    place: int | None
    linger_ms: Milliseconds
    holder: HolderBody | None


class Released(Said):
    """A lease that was released."""

    id: str
    state: Literal["released"]
    confirmed: int


class KeptBody(Said):
    """A lease of another client, or one of many."""

    id: str | None
    client: str
    state: Literal["held", "waiting"]
    names: list[str]
    kind: str
    label: str
    age_ms: Milliseconds
    valid_ms: Milliseconds


class AllKept(Said):
    """The leases of this gateway."""

    gateway: str
    leases: list[KeptBody]


class Keepalive(RequestBody):
    """How long the lease is to last from now. Default: as long as at first."""

    ttl_ms: Ttl | None = None


class KeepaliveOfMany(Keepalive):
    """Which leases are to be extended."""

    leases: Annotated[list[LeaseId], Field(max_length=500)]


class Beat(Said):
    """What the extension of one lease brought."""

    id: str
    state: Literal["held", "waiting", "in-doubt", "lost", "released", "gateway-gone", "unknown", "invalid"]
    # Count it from before you sent the request.
    valid_ms: Milliseconds
    detail: str = ""


class Beats(Said):
    """What the extensions of many leases brought."""

    leases: list[Beat]


class Publish(RequestBody):
    """What the leader says from now on."""

    value: Value


class LeaderSaid(Said):
    """Who leads. Nobody does if there is no value."""

    name: str
    term: Fence
    version: int
    value: str | None
    certain: bool


class Take(RequestBody):
    """One call of a rate."""

    limit: Annotated[int, Field(ge=1, le=10**6), WHOLE]
    period_ms: Annotated[int, Field(ge=1, le=10**12), WHOLE]
    # Each key has a limit of its own.
    key: Name | None = None
    cost: Annotated[int, Field(ge=1, le=10**6), WHOLE] = 1
    name: Name | None = None


class Taken(Said):
    """A call that is allowed."""

    allowed: Literal[True]
    remaining: int
    reset_after_ms: Milliseconds


class Begin(RequestBody):
    """Work that is done once."""

    # For how long its result is kept.
    keep_ms: Annotated[int, Field(ge=50, le=10**11), WHOLE]
    ttl_ms: Ttl | None = None
    wait_ms: Wait = 0
    linger_ms: Linger = 2000
    label: Label = ""
    # An id for the lease, so that the same request can be sent again. Default: a new one.
    lease: LeaseId | None = None
    key: Name | None = None


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _strict(value: Any) -> Any:
    """Refuse what JSON cannot say, and what is nested too deeply for some readers."""
    packed(value, JSON)
    level = [value]
    for _ in range(DEEPEST):
        level = [it for one in level for it in _parts(one)]
    if level:
        raise ValueError(f"it is nested more than {DEEPEST} times")
    return value


Json = Annotated[Any, AfterValidator(_strict)]


class ResultBody(RequestBody):
    """What came of the work."""

    lease: LeaseId
    value: Json
    key: Name | None = None


class Done(Said):
    """Work that is done, and its result."""

    done: Literal[True]
    value: Json


class Forget(Parameters):
    """How long to wait for the end of work that is under way."""

    wait_ms: Wait = 0


class Forgotten(Said):
    """Whether there was a result."""

    key: str
    forgotten: bool


class HealthBody(Said):
    """Whether the gateway can be used."""

    ok: bool
    detail: str


class Force(RequestBody):
    """Why a lock is taken away."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    # For proxies that change paths: this name counts, and not the one in the path.
    name: Name | None = None


class ForcedBody(Said):
    """A lock that was taken away."""

    name: str
    nodes: int
