"""The subcommands of `manage.py holdfast` and `flask holdfast`: who holds what, how the nodes are.

Knows the client for threads, and argparse. Must not know frameworks.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any

from .. import Holdfast, NodeStatus, Row
from ..errors import ConfigError, NoQuorum, message_of, readable

__all__ = ["declare", "operate"]

Outcome = tuple[list[str], int]

# Done, nothing was changed, no majority answered, the settings cannot work. The last two are as in sysexits.h.
DONE, UNCHANGED, UNAVAILABLE, WRONG = 0, 1, 69, 78


def declare(parser: ArgumentParser) -> None:
    """Declare the subcommands.

    Args:
        parser: The parser of the command.
    """
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="inspect|names|nodes|force_release")
    named = verbs.add_parser("inspect", help="show a lock, its queue, and what each node says of it")
    named.add_argument("name", help="the lock's name, without the prefix of the settings")
    listed = verbs.add_parser("names", help="list the locks that are held")
    listed.add_argument("pattern", nargs="?", default="*", help="such as 'order:*' (default: all)")
    verbs.add_parser("nodes", help=f"show how the nodes are; ends with {UNAVAILABLE} without a majority")
    taken = verbs.add_parser("force_release", help="take a lock away from its holder")
    taken.add_argument("name", help="the lock's name, without the prefix of the settings")
    taken.add_argument("reason", help="why: the log shows it")
    taken.add_argument("--only", help="the token of the holder, as `inspect` shows it: leave any other holder alone")


def operate(locks: Callable[[], Holdfast], options: Mapping[str, Any], say: Callable[[str], object]) -> int:
    """Carry out a subcommand.

    Args:
        locks: Returns the client for threads.
        options: What the parser has found.
        say: Called with each line.

    Returns:
        The exit status.
    """
    try:
        lines, status = _VERBS[options["verb"]](locks(), options)
    except (ConfigError, NoQuorum) as error:
        lines, status = [error.message], WRONG if isinstance(error, ConfigError) else UNAVAILABLE
    for line in lines:
        say(line)
    return status


def _inspect(locks: Holdfast, options: Mapping[str, Any]) -> Outcome:
    return [str(locks.inspect(options["name"]))], DONE


def _names(locks: Holdfast, options: Mapping[str, Any]) -> Outcome:
    return [_row(it) for it in sorted(locks.survey(options["pattern"]), key=lambda it: it.name)], DONE


def _row(lock: Row) -> str:
    left = "no expiry" if lock.left is None else f"{lock.left:.1f} s left"
    holder = readable(lock.owner or lock.holder or "nobody")
    return f"{readable(lock.name)}  {lock.kind}  {lock.state} by {holder}  {left}  {lock.waiting} waiting"


def _nodes(locks: Holdfast, options: Mapping[str, Any]) -> Outcome:
    missing = []
    try:
        locks.ready(1.0)
    except NoQuorum as error:
        missing = [error.message]
    return [*map(_node, locks.nodes()), *missing], UNAVAILABLE if missing else DONE


def _node(node: NodeStatus) -> str:
    cause = "" if node.cause is None else message_of(node.cause)
    return f"{node.node}  {node.state}  {node.version or '-'}  {cause}".rstrip()


def _force_release(locks: Holdfast, options: Mapping[str, Any]) -> Outcome:
    taken = locks.force_release(options["name"], options["reason"], options["only"])
    if taken:
        return [f"taken on {taken} nodes"], DONE
    return ["not taken: it is free, or another client holds it"], UNCHANGED


_VERBS: dict[str, Callable[[Holdfast, Mapping[str, Any]], Outcome]] = {
    "inspect": _inspect,
    "names": _names,
    "nodes": _nodes,
    "force_release": _force_release,
}
