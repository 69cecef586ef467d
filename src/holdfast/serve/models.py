"""The bodies of requests and answers.

Knows names, types and ranges. Must not know what happens with them. A field that does not exist is
refused, because a typing error in `ttl_ms` must not mean the default.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

LONGEST_NAME = 512  # bytes

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
# Fences and tokens are whole numbers below 2**53, which every JSON parser reads exactly.
Fence = Annotated[int, Field(ge=0, lt=2**53)]
Milliseconds = Annotated[int, Field(ge=0, lt=2**53)]


class Asked(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Said(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(extra="forbid")


class ProblemDocument(BaseModel):
    """What went wrong (RFC 9457). The members that follow `instance` depend on the type."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str


class Node(Said):
    """The state of a node, as this gateway knows it."""

    node: str
    state: str
    cause: str | None
    version: str
    shard: str
    guard_left_ms: Milliseconds | None
    since_ms: Milliseconds
    uptime_ms: Milliseconds | None
    rtt_us: int | None
    ahead_ms: int | None
    owing: int
    warnings: list[str]


class Nodes(Said):
    """All nodes."""

    gateway: str
    majority: int
    up: int
    nodes: list[Node]


class Row(Said):
    """One lock of a survey."""

    name: str
    kind: str
    group: str | None
    slot: int | None
    state: str
    holder: str | None
    owner: str | None
    note: str | None
    left_ms: Milliseconds | None
    fence: int | None
    waiting: int
    waits_since: str | None
    nodes: int
    asked: str | None


class Locks(Said):
    """The locks that are held, by name."""

    locks: list[Row]
    scanned: int
    complete: bool
    next: str | None


class Waiting(Said):
    """One that waits for a lock, or reads."""

    token: str
    owner: str | None
    asked: str | None
    left_ms: Milliseconds
    nodes: int


class OnNode(Said):
    """One lock as one node has it."""

    node: str
    error: str | None
    holder: str | None
    left_ms: Milliseconds | None
    fence: int | None
    waiting: int


class Lock(Said):
    """The state of a lock."""

    name: str
    state: str
    holder: str | None
    owner: str | None
    note: str | None
    asked: str | None
    left_ms: Milliseconds | None
    fence: int | None
    queue: list[Waiting]
    readers: list[Waiting]
    nodes: list[OnNode]


class Force(Asked):
    """Why a lock is taken away."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    # For proxies that change paths: this name counts, and not the one in the path.
    name: Name | None = None


class Forced(Said):
    """A lock that was taken away."""

    name: str
    nodes: int


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemDocument, "content": {"application/problem+json": {}}},
    "5XX": {"model": ProblemDocument, "content": {"application/problem+json": {}}},
}
