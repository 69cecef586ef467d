"""What the command says on stderr and to `--status-fd`.

Knows descriptors. Must not know what happened. It never blocks for long: a reader that does not
read must not keep a supervisor from its deadline.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import message_of
from ..log import before_the_first_line, logger
from .durations import moment

if TYPE_CHECKING:
    import re

QUIET, NORMAL, VERBOSE = 0, 1, 2
PATIENCE = 100  # milliseconds for which a full pipe is waited for
# What messages say of Python, and what that is for the command.
_IN_SHELLS = {
    "(`wait=`)": "(`-w`)",
    "has half of a surrogate pair in it, which UTF-8 cannot say": "is not valid UTF-8",
    "pass each as an argument of its own, Holdfast('redis://a:6379', 'redis://b:6379'). "
    "(Only HOLDFAST_NODES lists several in one text.)": "separate them by spaces, `--nodes 'redis://a redis://b'`",
    "name them, Holdfast('redis://host:6379', ...), or": "name them, `--nodes 'redis://a redis://b redis://c'`, or",
    "force_release() repairs the fence": "`holdfast release NAME --reason TEXT --any` repairs the fence",
    "without servers: Holdfast.local()": "without servers: `holdfast local -- COMMAND`",
}
# The call that takes a lock away, in messages about a value that never expires.
_TEXT = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_TAKEN = rf"call force_release\({_TEXT}, reason(?:, only=(?:{_TEXT}|locked_by\({_TEXT}\)))?\)"
# Bytes of a line: a pipe that can be written to has room for 4,096.
_LONGEST = 4000


class Output:
    """Writes lines for people to stderr, and lines of JSON to a descriptor."""

    def __init__(self, level: int = NORMAL, json: bool = False, status: int | None = None) -> None:
        self.level, self.json, self.status = level, json, status
        self.terminal = os.isatty(2)
        # Is the last line on the terminal one that is written over?
        self._open = False

    def say(self, text: str, level: int = NORMAL) -> None:
        """Write one line for people, if this level is wanted."""
        if level <= self.level:
            self._line(f"holdfast: {printable(text)}\n")

    def over(self, text: str) -> None:
        """Write a line on the terminal that the next one replaces."""
        if self.level >= NORMAL:
            self._line(f"\r\x1b[Kholdfast: {printable(text)}")
            self._open = True

    def clear(self) -> None:
        """Remove the line that would be replaced, if there is one."""
        if self._open:
            self._open = False
            put(2, b"\r\x1b[K")

    def note(self, event: str, facts: Mapping[str, Any]) -> None:
        """Write an event as a line of JSON, if somebody wants these."""
        if self.status is None and not self.json:
            return
        import json

        told = {"at": moment(datetime.now(UTC)), "event": event, **facts}
        line = json.dumps(told, ensure_ascii=True).encode() + b"\n"
        if self.json:
            self.clear()
            put(2, line)
        if self.status is not None:
            put(self.status, line)

    def _line(self, text: str) -> None:
        start = b"\r\x1b[K" if self._open else b""
        self._open = False
        put(2, start + text.encode("utf-8", "backslashreplace"))


def put(descriptor: int, data: bytes) -> None:
    """Write what fits without waiting for long. What does not fit is left out."""
    if len(data) > _LONGEST:
        data = data[: _LONGEST - 1] + b"\n"
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    try:
        if any(ready & select.POLLOUT for _, ready in poll.poll(PATIENCE)):
            os.write(descriptor, data)
    except OSError:
        # Nobody reads it any more.
        return


def printable(text: str) -> str:
    """Escape control characters, all but line ends."""
    return "".join(it if it.isprintable() or it == "\n" else it.encode("unicode_escape").decode() for it in text)


def explained(error: BaseException) -> str:
    """What is wrong, for a line on stderr."""
    return in_shells(message_of(error) or type(error).__name__)


def in_shells(said: str) -> str:
    """A message of the library, as advice for somebody at a shell."""
    for ours, theirs in _IN_SHELLS.items():
        said = said.replace(ours, theirs)
    if "force_release(" not in said:
        return said
    import re

    return re.sub(_TAKEN, _command, said)


def _command(call: re.Match[str]) -> str:
    """The command for a call that takes a lock away."""
    import ast
    import shlex

    name, only, looked_up = (it and shlex.quote(ast.literal_eval(it)) for it in call.groups())
    line = f"run `holdfast release {name} --reason TEXT"
    if looked_up:
        return f"{line} --only TOKEN` (`holdfast inspect {name}` shows the token)"
    return f"{line} --only {only}`" if only else f"{line} --any`"


def quiet(output: Output) -> None:
    """Have the library's log say nothing, or with -v what the nodes say."""
    before_the_first_line(partial(_configure, output))
    if output.level >= VERBOSE:
        # The client asks now what the log takes.
        logger()


def _configure(output: Output) -> None:
    import logging

    ours = logging.getLogger("holdfast")
    ours.propagate = False
    if output.level < VERBOSE:
        ours.setLevel(logging.CRITICAL + 1)
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("holdfast: %(message)s"))
    ours.addHandler(handler)
