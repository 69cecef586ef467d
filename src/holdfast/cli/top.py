"""`top`: nodes, locks and queues, again and again.

Knows surveys and the terminal. Must not know what a lock protects. The nodes report changes only to
those who hold a lock or wait for it, so this looks by itself, and takes little of their time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING

from ..checks import seconds
from ..errors import HoldfastError, message_of
from .codes import DONE, NO_QUORUM
from .durations import moment
from .looking import HEAD, TEXTS, client, columns, nodes_of, row_of, show_nodes, usable
from .options import Usage
from .table import objects, table

if TYPE_CHECKING:
    from .. import Holdfast, NodeStatus
    from ..typing import Row

# The share of the nodes' time that a survey may take, so that locks hardly notice it.
_SHARE = 0.1
# On a terminal: its second screen without a cursor, and back to the first one.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END = "\x1b[H", "\x1b[J"
_AROUND = 5  # lines around both tables
_FEW = 6  # locks that are worth more than the nodes that are up
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def top(options: Namespace) -> int:
    """Look at everything, and again."""
    every = seconds(options.every, "--every", least=0.1)
    screen = sys.stdout.isatty() and not options.json
    count = options.count if options.count is not None else None if screen else 1
    if count is not None and count < 1:
        raise Usage(f"--count is 1 or more, not {count}")
    with client(options) as locks:
        if not screen:
            return _looks(locks, options, every, count, False)
        for it in _ENDS:
            signal.signal(it, _interrupted)
        sys.stdout.write(_ENTER)
        try:
            return _looks(locks, options, every, count, True)
        except KeyboardInterrupt:
            return DONE
        finally:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _looks(locks: Holdfast, options: Namespace, every: float, count: int | None, screen: bool) -> int:
    done = 0
    while True:
        nodes = locks._seen(0.0 if done else 1.0)
        found, why, scanned = _surveyed(locks, options.pattern)
        if options.json:
            objects({
                "at": moment(datetime.now(UTC)),
                **nodes_of(nodes),
                "locks": [row_of(it) for it in found],
                "scanned": scanned,
                "complete": not why,
            })
        else:
            _show(nodes, found, why, every, screen)
        done += 1
        if done == count:
            return DONE if usable(nodes) else NO_QUORUM
        time.sleep(every)


def _surveyed(locks: Holdfast, pattern: str) -> tuple[list[Row], str, int]:
    """The locks, those that most wait for first; why there are no more; and how many keys exist."""
    found: list[Row] = []
    survey = locks.survey(pattern, pause=_SHARE)
    why = ""
    try:
        for row in survey:
            found.append(row)
    except HoldfastError as error:
        why = message_of(error)
    found.sort(key=lambda it: (-it.waiting, it.asked or datetime.now(UTC), it.name))
    return found, why, survey.scanned


def _show(nodes: Sequence[NodeStatus], found: list[Row], why: str, every: float, screen: bool) -> None:
    room, width, whole = len(found), None, True
    if screen:
        sys.stdout.write(_HOME + _END)
        width, lines = os.get_terminal_size(1)
        # Where there are few lines, the nodes that are up are only counted.
        whole = lines - len(nodes) - _AROUND >= _FEW
        listed = sum(whole or it.state != "up" for it in nodes)
        # One line too many would scroll the first ones away.
        room = max(1, lines - listed - _AROUND - 1 + (not listed))
    print((f"# looks every {every:g} s: nodes do not report changes" + ("; Ctrl-C ends" if screen else ""))[:width])
    show_nodes(nodes, width, whole)
    print((why or f"locks: {len(found)}; waiting for them: {sum(it.waiting for it in found)}")[:width])
    table(HEAD, map(columns, found[:room]), width, TEXTS)
    sys.stdout.flush()
