"""The program: from the words of the command line to an exit status.

Knows verbs and errors. Must not know what a verb does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import HoldfastError
from ..version import VERSION
from .codes import BUG, DONE, USAGE, code_of
from .options import VERBS, Usage, parser_of
from .output import Output, explained

if TYPE_CHECKING:
    from .. import Holdfast

# Verbs that work with the client of an application. The others start processes, which make their own.
LENT = ("ls", "inspect", "top", "nodes", "doctor", "release", "repair")


def main(arguments: Sequence[str] | None = None, client: Callable[[], Holdfast] | None = None) -> int:
    """Run the command `holdfast`.

    Args:
        arguments: The words after the command (default: those of this process).
        client: Makes the client of an application, whose settings say which nodes to use. Only
            verbs that look, and that take a lock away, use it (default: options, the environment
            and files say which nodes to use).

    Returns:
        The exit status.

    Raises:
        SystemExit: Help was printed.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        _open_standard_files()
        if reconfigure := getattr(sys.stdout, "reconfigure", None):
            # As on stderr: a name that is printed has the bytes that other commands take.
            reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        try:
            return _ran(words, client)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except Usage as wrong:
        Output().say(str(wrong))
        return USAGE
    except HoldfastError as error:
        Output().say(explained(error))
        return code_of(error)
    except OSError as error:
        dropped = _drop_output()
        if isinstance(error, BrokenPipeError):
            # The reader of stdout has gone, as `head` does.
            return DONE
        what = "stdout cannot be written to" if dropped else "the operating system refused what was needed"
        Output().say(f"{what}: {error}")
        return BUG
    except KeyboardInterrupt:
        if arguments is None:
            # As if nobody had caught it, so that Ctrl-C ends a shell's loop around this command.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 130
    except Exception as error:
        Output().say(f"this is a fault of holdfast: {type(error).__name__}: {error}. Please report it")
        return BUG


def _open_standard_files() -> None:
    """Open what the caller has closed of stdin, stdout and stderr, for this process alone.

    Otherwise the next file or socket gets that number: messages would be sent to a node, and its
    answers be read as stdin.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free.
            os.open(os.devnull, os.O_RDWR)


def _drop_output() -> bool:
    """Forget what cannot be written to stdout. Otherwise it would fail once more at the end.

    Returns:
        Whether there is something.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return True
    return False


def _ran(words: list[str], client: Callable[[], Holdfast] | None) -> int:
    if client is None:
        if not words or words[0] in ("-h", "--help", "--version"):
            from .helping import overview

            print(f"holdfast {VERSION}" if words[:1] == ["--version"] else overview(whole=bool(words)))
            return DONE
        if words[0] == "lock":
            # For people who come from `consul lock` and `etcdctl lock`.
            words = ["run" if _has_command(words[1:]) else "hold", *words[1:]]
    elif not words or words[0] not in LENT:
        raise Usage(f"say what to do: {', '.join(LENT)}. The command `holdfast` by itself can do more")
    verb, *rest = words
    if verb == "help" and client is None:
        from .helping import page

        print(page(*rest))
        return DONE
    options = parser_of(verb, client).parse_args(rest)
    module, _, function = VERBS[verb].runs.partition(":")
    does = getattr(import_module(f"{__package__}.{module}"), function)
    return int(does(options))


def _has_command(words: list[str]) -> bool:
    options = parser_of("run").parse_args(words)
    return bool(options.rest or options.command)
