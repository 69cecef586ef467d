"""What a command is told of the lock that is held for it: its environment.

Knows leases and variables. Must not know processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from .. import LeaseState
from ..fencing.http import header_of

if TYPE_CHECKING:
    from .. import Lease
    from .job import Job

HELD = "HOLDFAST_HELD"
_OURS = (
    "HOLDFAST_NAME", "HOLDFAST_NAMES", "HOLDFAST_FENCE", "HOLDFAST_FENCES", "HOLDFAST_TOKEN", "HOLDFAST_SLOT",
    "HOLDFAST_TERM", "HOLDFAST_FENCING_TOKEN",
)  # fmt: skip


def held_already(keys: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """Return those of the keys that a process around this one holds."""
    outer = {unquote(it) for it in environment.get(HELD, "").split()}
    return [it for it in keys if it in outer]


def variables(lease: Lease, job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the command's environment gets.

    Args:
        lease: What is held. If it is OPEN, nothing is.
        job: What the command is run for.
        environment: That of this process.
    """
    # An outer lock's values must not be taken for this one's.
    found = {it: "" for it in _OURS if it in environment}
    # In UTF-8, as `check` and other commands take them, whatever the locale is.
    found["HOLDFAST_NAME"] = os.fsdecode(job.name.encode())
    if len(lease.names) > 1:
        found["HOLDFAST_NAMES"] = os.fsdecode("\n".join(lease.names).encode())
    found[HELD] = environment.get(HELD, "")
    if lease.state is LeaseState.OPEN:
        return found
    fences, tokens = list(lease.fences.values()), list(lease.tokens.values())
    if len(fences) == 1:
        found["HOLDFAST_FENCE"] = str(fences[0])
        found["HOLDFAST_TOKEN"] = tokens[0]
    else:
        found["HOLDFAST_FENCES"] = "\n".join(map(str, fences))
        found["HOLDFAST_TOKEN"] = "\n".join(tokens)
    if lease.slots:
        found["HOLDFAST_SLOT"] = " ".join(map(str, lease.slots))
    if job.verb == "elect":
        found["HOLDFAST_TERM"] = str(fences[0])
    found["HOLDFAST_FENCING_TOKEN"] = header_of(lease.fences)
    found[HELD] = " ".join([*environment.get(HELD, "").split(), *(quote(it, safe="") for it in job.keys)])
    return found
