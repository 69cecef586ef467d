"""The exit statuses of the command, and what each means.

Knows numbers and errors. Must not know what was being done.
"""

from __future__ import annotations

from ..errors import (
    Cancelled,
    ConfigError,
    HoldfastError,
    LockBusy,
    LockLost,
    NoQuorum,
    NotAllArrived,
    RateLimited,
    message_of,
)

DONE = 0
NOBODY = 1
SPLIT = 3
USAGE = 64
NO_QUORUM = 69
BUG = 70
BUSY = 75
LOST = 76
DENIED = 77
CONFIG = 78
TOO_LONG = 124
NOT_EXECUTABLE = 126
NOT_FOUND = 127
SIGNALLED = 128

MEANINGS = {
    USAGE: "The command line is wrong, or this lock is held already by a process around this one.\n"
    "What to do: read the message; `holdfast VERB --help` has examples.",
    NO_QUORUM: "Fewer than a majority of the nodes answered, so nobody can know whether the lock is free.\n"
    "What to do: `holdfast doctor` says what is wrong at each node.",
    BUG: "holdfast itself failed, or the system refused what it needs, such as to write to a full disk. "
    "The lock, if there was one, ends with its ttl.\n"
    "What to do: read the message. Please report it if it asks for that.",
    BUSY: "Somebody else holds the lock, or the time to wait for it (`-w`) ran out.\n"
    "What to do: `holdfast inspect NAME` shows who holds it. `-E N` chooses another status.",
    LOST: "The lease was lost, or was in so much danger that the command was stopped.\n"
    "The whole process tree of the command was dead before anybody else could hold the lock.\n"
    "What to do: `--status-fd` says why. `holdfast doctor` looks for the cause at the nodes.",
    DENIED: "The nodes refused this user: a wrong password, or rights that are missing.\n"
    "What to do: `holdfast doctor` shows which rights are missing, and how to grant them.",
    CONFIG: "The configuration cannot work, or a value is out of range: an address, a file, a ttl, a name.\n"
    "What to do: read the message; `holdfast --help` lists what can be set, and where.",
    TOO_LONG: "The command ran for as long as `--max-hold` allows, and was stopped.",
    NOT_EXECUTABLE: "The command was found and cannot be executed.\nWhat to do: check its mode (`chmod +x`).",
    NOT_FOUND: "The command was not found on PATH.\nWhat to do: check the spelling; use `-c` for a line of shell.",
}

# What servers say when they refuse a user.
_REFUSED = ("refuses us", "refuses our user", "may not use", "NOPERM", "NOAUTH", "WRONGPASS")


def code_of(error: BaseException) -> int:
    """Return the exit status that stands for an error."""
    match error:
        case LockBusy() | RateLimited() | NotAllArrived() | Cancelled():
            return BUSY
        case LockLost():
            return LOST
        case NoQuorum():
            # Otherwise this user's rights alone would not bring a majority back.
            return DENIED if sum(map(_is_refusal, error.causes.values())) >= error.needed else NO_QUORUM
        case ConfigError():
            return DENIED if _is_refusal(error) else CONFIG
        case HoldfastError():
            return NO_QUORUM if _is_refusal(error) else BUG
        case _:
            return BUG


def _is_refusal(error: BaseException) -> bool:
    said = message_of(error)
    return any(it in said for it in _REFUSED)
