"""The command line of the examination.

Knows options and exit statuses. Must not know what is checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ...errors import ConfigError
from .examination import examine

FIT, UNFIT = 0, 2


def main(words: Sequence[str] | None = None) -> int:
    """Examine the servers that the command line names, and print a table for each.

    Args:
        words: The command line without the program. By default, that of this process.

    Returns:
        0 if each of the servers can be a node, otherwise 2.
    """
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.conformance",
        description="Show whether a server can be a node of holdfast.",
        epilog="Exit status: 0 if each server can be a node, 2 if one cannot, or if the command line is wrong.",
    )
    parser.add_argument("url", nargs="+", help="the address of a server, such as redis://user:password@host:6379")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of the storm on one lock (20000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the storm lasts at most (60)")
    parser.add_argument("--prefix", default="holdfast-conformance:", help="how every key begins")
    parser.add_argument("--restart", metavar="COMMAND", default="", help="a shell command that restarts the server")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write what was found there, too")
    options = parser.parse_args(words)
    if options.restart and len(options.url) > 1:
        parser.error("--restart restarts one server, and several are named")
    found = []
    try:
        for url in options.url:
            it = examine(
                url,
                requests=options.requests,
                seconds=options.seconds,
                prefix=options.prefix,
                restart_command=options.restart,
            )
            found.append(it)
            print(it.table(), flush=True)
    except ConfigError as error:
        parser.error(str(error))
    if options.json:
        options.json.write_text(json.dumps([{**asdict(it), "fit": it.fit} for it in found], indent=1) + "\n")
    return FIT if all(it.fit for it in found) else UNFIT


if __name__ == "__main__":
    sys.exit(main())
