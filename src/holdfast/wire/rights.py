"""What a node lets this client do: the question, and what a refusal means.

Knows how servers word a refusal. Must not know locks, or what becomes of a node that refuses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache

from ..errors import ConfigError, readable
from ..scripts import LOADED, PROBE
from .resp import Refusal, evalsha

# Commands that only some primitives and `inspect` need, and for what. Without them a node is used.
OPTIONAL = {
    "MGET": "the owners of locks in errors and `inspect`",
    "PEXPIREAT": "read-write locks",
    "ZCARD": "latches and barriers",
    "ZREMRANGEBYSCORE": "read-write locks, latches and barriers",
    "ZSCORE": "read-write locks, latches and barriers",
}
# The server refuses writes, or everything, for a while. Redis 6.2 puts words of its own before the
# code of an error within a script, and later versions put the place after it. (Texts, which `re`
# compiles at their first use.)
_PASSES = (
    r"(?:^|-)((?:OOM|MISCONF|NOREPLICAS|READONLY|BUSY|LOADING|MASTERDOWN|TRYAGAIN|CLUSTERDOWN) .*?"
    r"|ERR max number of clients.*?)\s*(?: script: .*)?$"
)


def question(prefix: str, *more: bytes) -> bytes:
    """Return the bytes that ask a node whether clients with this prefix may do all they need.

    With `more`, whether they may do what only some primitives need, too.
    """
    return evalsha(PROBE, b"{%bholdfast}:probe" % prefix.encode(), *more)


def passing(told: str) -> Refusal | None:
    """Return the refusal in a server's words, if it is one that ends by itself. Else None."""
    found = re.search(_PASSES, told)
    return Refusal(found[1]) if found else None


def refused(reply: object) -> dict[str, str] | None:
    """Return the commands that fail and why, by an answer to `question`. None: it is no answer."""
    if isinstance(reply, Refusal):
        return {"EVALSHA": str(reply)}
    if not isinstance(reply, list) or len(reply) % 2 or not all(isinstance(it, bytes) for it in reply):
        return None
    told = [readable(it.decode("utf-8", "replace")).strip() for it in reply]
    return dict(zip(told[::2], told[1::2], strict=True))


def forbidden(reply: object) -> dict[str, str]:
    """Return the commands of `OPTIONAL` that are forbidden and why, by an answer to `question`.

    Without those that a server refuses for a while, as it refuses all writes.
    """
    found = refused(reply) or {}
    return {it: told for it, told in found.items() if it in OPTIONAL and passing(told) is None}


def judged(reply: object, user: str, prefix: str) -> ConfigError | Refusal | None:
    """Return what keeps this client from using the node, by its answer to `question`.

    Args:
        reply: The answer.
        user: The user of this client, as the server knows it.
        prefix: The prefix of this client's keys.

    Returns:
        ConfigError if something is forbidden, which waiting does not change; else the server's
        refusal, if it refuses writes for a while; else None.
    """
    found = refused(reply)
    if found is None:
        return ConfigError(f"it runs no scripts as Redis and Valkey do: {readable(repr(reply))}")
    passes = [it for it in map(passing, found.values()) if it is not None]
    wrong = {it: told for it, told in found.items() if passing(told) is None and it not in OPTIONAL}
    if not wrong:
        return next(iter(passes), None)
    words = next(iter(wrong.values()))
    if unknown := [it for it, said in wrong.items() if re.search("(?i)unknown (?:redis )?command", said)]:
        return ConfigError(
            f"its server does not know {' and '.join(unknown)}, which holdfast needs: remove rename-command from its "
            f"configuration, and connect to the server itself: {words}"
        )
    told = f"user {user!r} may not use {' and '.join(wrong)}, which holdfast needs: {words}"
    return granted(told, wrong, user, prefix)


@cache
def needs() -> dict[bytes, Collection[str]]:
    """Return the commands of `OPTIONAL` that scripts call, by the digest of the script."""
    found = {it.sha: [word for word in OPTIONAL if b"'%b'" % word.encode() in it.source] for it in LOADED}
    return {sha: words for sha, words in found.items() if words}


def lacking(question: bytes, lacks: Mapping[str, str], user: str, prefix: str) -> ConfigError | None:
    """Return the error for the call of a script that may not do all it can have to, or None.

    Args:
        question: What was asked.
        lacks: The commands that this user may not call, and why, by the answer to `question`.
        user: The user of this client, as the server knows it.
        prefix: The prefix of this client's keys.
    """
    needed = next((needed for sha, needed in needs().items() if sha in question[:100]), ())
    wrong = {it: told for it, told in lacks.items() if it in needed}
    if not wrong:
        return None
    what = " and ".join(f"{it} ({OPTIONAL[it]})" for it in wrong)
    return granted(f"user {user!r} may not use {what}: {next(iter(wrong.values()))}", wrong, user, prefix)


def granted(told: str, wrong: Mapping[str, str], user: str, prefix: str) -> ConfigError:
    """Return the error with this text, which also says how to grant what is missing."""
    fix = rule(wrong, user, prefix)
    error = ConfigError(f"{told}. Grant it: {fix}")
    error.fix = fix
    return error


def rule(wrong: Mapping[str, str], user: str, prefix: str) -> str:
    """Return the command for a server's administrator that grants what is missing.

    It can be pasted into a shell, too.
    """
    words = (user, *_grants(wrong.items(), prefix))
    quoted = [it if re.fullmatch(r"[\w+-]+", it) else f"'{it}'" for it in words]
    return f"ACL SETUSER {' '.join(dict.fromkeys(quoted))}"


def _grants(wrong: Iterable[tuple[str, str]], prefix: str) -> Iterable[str]:
    for command, told in wrong:
        if "channel" in told:
            # Those of clients.
            yield "&" + "?" * 32
        elif re.search("access (?:a|one of the) key", told):
            yield f"~{prefix}*"
            if prefix:
                yield f"~{{{prefix}*"
        else:
            yield f"+{command.lower().replace(' ', '|')}"
