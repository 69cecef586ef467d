"""Fences between services, in the header Fencing-Token.

The holder of a lock sends it to the service that owns the data.

Knows text. Must not know frameworks, or where a receiver remembers fences.

A structured field (RFC 8941), a list of strings, each a lock's name with its fence:

    Fencing-Token: "invoice:42";fence="1795290426499700"

The fence is a string, because a structured integer has 15 digits at most, and a fence has 16. The
name is percent-encoded UTF-8, because a structured string has only ASCII. Members of several names
are separated by commas; parameters other than `fence` are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from ..checks import shown
from ..errors import BadFence, ConfigError, HoldfastError, StaleFence
from .bearer import MOST, Fences, fences_of

__all__ = ["FENCING_TOKEN", "fences_in", "header_of", "received", "status_of"]

FENCING_TOKEN = "Fencing-Token"

# RFC 8941, section 3.3: what a parameter can be, for those that are not ours.
_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_DECIMAL = r"-?[0-9]{1,15}(?:\.[0-9]{1,3})?"
_TOKEN = r"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*"
_ITEM = rf"(?:{_STRING}|{_DECIMAL}|{_TOKEN}|:[A-Za-z0-9+/=]*:|\?[01])"
# Texts, which `re` compiles at their first use: a program that only writes the header needs none.
_PARAMETER = rf"; *([a-z*][a-z0-9_\-.*]*)(?:=({_ITEM}))?"
_MEMBER = rf"({_STRING})((?:{_PARAMETER})*)"
_BETWEEN = r"[ \t]*,[ \t]*"
_NUMBER = r'[1-9][0-9]{0,14}|"([1-9][0-9]{0,15})"'
# What a structured string may hold without an escape; all but the percent sign itself.
_LITERAL = "!#$&'()*+,-./:;<=>?@[]^_`{|}~ "
_LONGEST = 16_384  # characters that are read at all


def header_of(lease: Fences) -> str:
    """Write the header's value for a lease, or `{name: fence}`.

    Args:
        lease: A lease, or `{name: fence}`.

    Returns:
        The value of Fencing-Token, with one member for each name.

    Raises:
        Misuse: The lease has no fence.
        ConfigError: `lease` is neither, or a fence is no whole number from 1 to 2^53 - 1.
    """
    return ", ".join(f'"{quote(name, safe=_LITERAL)}";fence="{fence}"' for name, fence in fences_of(lease).items())


def fences_in(value: str) -> dict[str, int]:
    """Read the header's value, as `{name: fence}`.

    Args:
        value: The header's value, up to 16,384 characters. Several lines are joined with commas.

    Returns:
        `{name: fence}`, empty for an empty value.

    Raises:
        BadFence: The value cannot be read, or has two fences for one name.
    """
    fences: dict[str, int] = {}
    text, at = value.strip(" "), 0
    if len(text) > _LONGEST:
        raise BadFence(f"{FENCING_TOKEN} has {len(text)} characters, and {_LONGEST} are read", value[:100])
    members, commas = re.compile(_MEMBER), re.compile(_BETWEEN)
    while at < len(text):
        member = members.match(text, at)
        if not member:
            raise BadFence(f"{FENCING_TOKEN} cannot be read from character {at}: {shown(text[at:])}", value)
        name, fence = _name(member[1], value), _fence(member[2], value)
        if fences.setdefault(name, fence) != fence:
            raise BadFence(f"{FENCING_TOKEN} says two fences for {shown(name)}", value)
        at = member.end()
        comma = commas.match(text, at)
        if (comma is None) is (at < len(text)) or (comma is not None and comma.end() == len(text)):
            raise BadFence(f"{FENCING_TOKEN} cannot be read from character {at}: {shown(text[at:])}", value)
        at = comma.end() if comma else at
    return fences


def received(headers: object, *names: str) -> dict[str, int]:
    """Read the fences of the locks that protect what a request wants to change.

    Pass the result to a guard (`FenceTable`, `FencedRedis`, `Seen`), and write inside of it. A
    fence protects only if one step compares it, remembers it and writes.

    Pass the request's headers, and not `headers.get(FENCING_TOKEN)`: most frameworks return the
    first line there and hide a second line that contradicts it.

    Args:
        headers: The headers as the framework has them (Starlette, FastAPI, Flask, Django, aiohttp,
            Tornado, `http.server`), any other mapping, the header's value, a list of the values of
            its lines, or None.
        names: The names of the locks.

    Returns:
        `{name: fence}`, with all names.

    Raises:
        BadFence: The header is missing, cannot be read, contradicts itself, or says no fence for
            one of the names.
        ConfigError: `headers` is none of these.
    """
    value = _value(headers)
    fences = {} if value is None else fences_in(value)
    missing = [name for name in names if name not in fences]
    if missing:
        raise BadFence(f"{FENCING_TOKEN} has to say the fence of the lock {', '.join(map(shown, missing))}")
    return {name: fences[name] for name in names}


def status_of(error: HoldfastError) -> int:
    """Choose the status of the response to a request that was refused.

    412 Precondition Failed rather than 409 Conflict: a client may solve a conflict and try again,
    which a late holder must not.

    Args:
        error: What `received` or a guard has raised.

    Returns:
        412 for StaleFence, 428 for a fence that is missing, 400 for a header that cannot be read.

    Raises:
        HoldfastError: `error` itself, if it is another one.
    """
    if isinstance(error, StaleFence):
        return 412
    if isinstance(error, BadFence):
        return 428 if error.said is None else 400
    raise error


def _value(headers: object) -> str | None:
    """The header's value: of all of its lines, as HTTP combines them; None if there is none."""
    if headers is None or isinstance(headers, str):
        return headers
    lines: Any = headers
    if not isinstance(headers, list | tuple):
        # Starlette's and Werkzeug's; httpx's and Tornado's; the standard library's; aiohttp's.
        every = next(
            (it for name in ("getlist", "get_list", "get_all", "getall") if (it := getattr(headers, name, None))), None
        )
        if every is not None:
            try:
                lines = every(FENCING_TOKEN) or []
            except KeyError:
                lines = []
        elif isinstance(headers, Mapping):
            lines = [it for name, it in headers.items() if str(name).lower() == FENCING_TOKEN.lower()]
    if not isinstance(lines, list | tuple) or not all(isinstance(it, str) for it in lines):
        raise ConfigError(
            f"headers are a mapping, or the text of {FENCING_TOKEN}, or a list of such texts, not {shown(headers)}"
        )
    return ", ".join(it for it in lines if it.strip()) if lines else None


def _name(string: str, value: str) -> str:
    try:
        return unquote(re.sub(r"\\(.)", r"\1", string[1:-1]), errors="strict")
    except UnicodeDecodeError:
        raise BadFence(f"{FENCING_TOKEN} says a name that is no UTF-8: {shown(string)}", value) from None


def _fence(parameters: str, value: str) -> int:
    said = dict(re.findall(_PARAMETER, parameters)).get("fence", "")
    found = re.fullmatch(_NUMBER, said)
    if not found or int(found[1] or said) > MOST:
        raise BadFence(f"{FENCING_TOKEN} says a fence that is no whole number from 1 to 2^53 - 1: {shown(said)}", value)
    return int(found[1] or said)
