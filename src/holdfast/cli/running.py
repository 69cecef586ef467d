"""`run`, `once`, `elect` and `rate`: from options to a supervised command.

Knows options and the client. Must not know how a command is supervised.
"""

from __future__ import annotations

import getpass
import os
import shlex
import socket
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from ..checks import seconds
from ..errors import ConfigError, readable
from . import command
from .codes import BUSY, NOT_FOUND
from .configuration import Configuration, configuration
from .held import held_already
from .job import Job
from .options import Usage
from .output import NORMAL, QUIET, VERBOSE, Output, quiet
from .supervisor import Supervisor
from .warnings import warnings_to
from .work import described, done_once, elected, locked

if TYPE_CHECKING:
    from .. import Holdfast

TTL = 15.0  # seconds
SHORTEST = 1.0  # seconds: time enough to stop a command
_KILL_AFTER = 5.0  # seconds
_NOTED = 200  # characters of a command that others see


def run(options: Namespace) -> int:
    """Run a command while holding a lock."""
    check_kinds(options)
    return _supervised(options, "run", locked)


def once(options: Namespace) -> int:
    """Run a command if nobody else has."""
    if options.per is None and options.keep is None:
        raise Usage("say --per (once in each period) or --keep (how long it counts as done)")
    if options.zone is not None and not isinstance(options.per, str):
        raise Usage("--zone says whose hours and days count: it goes with --per hour, day, week or month")
    options.keep = _kept(options)
    return _supervised(options, "once", done_once)


def elect(options: Namespace) -> int:
    """Run a command while leading."""
    if options.value is None:
        options.value = f"{socket.gethostname()}:{os.getpid()}"
    return _supervised(options, "elect", elected)


def rate(options: Namespace) -> int:
    """Wait for a turn, and become the command. Nothing is held while it runs."""
    path, argv, code = _command_of(options)
    if code:
        return code
    limit, period = options.limit
    signals, output = command.Signals(), Output()
    quiet(output)
    with configuration(vars(options), os.environ).client(observer=warnings_to(output, options.name)) as locks:
        wait = 0.0 if options.nonblock else options.wait
        locks.rate(options.name, limit, period, key=options.whose, wait=wait).acquire()
    command.execute(path, argv, os.environ, signals)


def check_kinds(options: Namespace) -> None:
    """Refuse options of the lock that do not go together."""
    if options.also and (options.slots is not None or options.shared or options.exclusive):
        raise Usage("--and takes several plain locks; it goes with neither --slots nor -s nor -x")
    if options.count != 1 and options.slots is None:
        raise Usage("--count says how many of the --slots to take")
    if options.at_least is not None and (options.slots is not None or options.shared or options.exclusive):
        raise Usage("--at-least is for plain locks; it goes with neither --slots nor -s nor -x")
    if options.shared and options.note:
        raise Usage("-s has no --note: many readers hold the lock at once")


def keys_of(options: Namespace, locks: Holdfast) -> tuple[str, ...]:
    """Return the names with the prefix. Refuse those that a process around this one holds."""
    names, prefix = (options.name, *options.also), locks.settings.prefix
    keys = tuple(prefix + it for it in names if options.slots is None)
    if again := held_already(keys, os.environ):
        told = ", ".join(repr(it.removeprefix(prefix)) for it in again)
        raise Usage(
            f"{told} is held already by a process around this one, which would wait for itself. Use another name. If "
            "that process has ended, or uses other nodes, run `env -u HOLDFAST_HELD holdfast ...`"
        )
    return keys


def note_of(options: Namespace, line: str) -> str:
    """What others see of the holder: of the option, or who runs what.

    Args:
        options: The command line.
        line: The command, for people.
    """
    if (given := getattr(options, "note", None)) is not None:
        return str(given)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # (An id without a name, as in some containers.)
        user = str(os.getuid())
    return readable(f"{user}@{socket.gethostname()} {os.getpid()}: {line}", _NOTED)


def _kept(options: Namespace) -> float:
    if options.keep is not None:
        return float(options.keep)
    if isinstance(options.per, str):
        raise Usage(f"with --per {options.per}, say --keep too: how long it counts as done, such as --keep 60d")
    return 2 * float(options.per)


def _supervised(options: Namespace, verb: str, work: Callable[..., dict[str, Any]]) -> int:
    path, argv, code = _command_of(options)
    if code:
        return code
    options.note = note_of(options, shlex.join(argv))
    signals, output = command.Signals(), output_of(options)
    config = configuration(vars(options), os.environ)
    # Made before anything is forked, to find what cannot work. Only the holder connects it.
    name = ",".join((options.name, *options.also)) if verb == "run" else options.name
    locks = config.client(observer=warnings_to(output, name))
    ttl = lease_of(config, locks.settings.max_ttl)
    keys: tuple[str, ...] = ()
    if verb == "run":
        described(locks, options, ttl)
        keys = keys_of(options, locks)
    kill_after, max_hold = _spans(options, ttl)
    job = Job(
        verb=verb,
        name=name,
        keys=keys,
        looks_at=_looks_at(options, verb),
        client=locks,
        work=partial(work, options, ttl),
        argv=argv,
        path=path,
        ttl=ttl,
        kill_after=kill_after,
        max_hold=max_hold,
        on_lost=options.on_lost,
        leftovers=options.leftovers,
        scope=options.signal,
        conflict=_status_if_busy(options),
        again=verb == "elect" and options.again,
    )
    return Supervisor(job, output, signals).run()


def _status_if_busy(options: Namespace) -> int:
    given = getattr(options, "conflict_exit_code", None)
    return BUSY if given is None else int(given)


def _spans(options: Namespace, ttl: float) -> tuple[float, float]:
    """The seconds between TERM and KILL, and those until TERM."""
    kill_after = min(_KILL_AFTER, ttl / 3) if options.kill_after is None else float(options.kill_after)
    if kill_after > ttl / 3:
        given = f"--kill-after {kill_after:g}s"
        raise Usage(f"{given} is longer than a third of the ttl, {ttl / 3:g}s: raise --ttl, or take less")
    if options.max_hold is None:
        return kill_after, inf
    return kill_after, seconds(options.max_hold, "--max-hold", least=0.05)


def _looks_at(options: Namespace, verb: str) -> str:
    if verb == "elect":
        return f"{options.name}[election]"
    return options.name if verb == "run" and options.slots is None else ""


def output_of(options: Namespace) -> Output:
    """Make the output that the options ask for. The library's log says no more than it does."""
    if options.status_fd is not None:
        try:
            # The command keeps its own stdout and stderr.
            os.set_inheritable(options.status_fd, options.status_fd < 3)
        except (OSError, OverflowError):
            raise Usage(f"--status-fd {options.status_fd} is not open. Open it first, as with 3>status.json") from None
    level = QUIET if options.quiet else VERBOSE if options.verbose else NORMAL
    output = Output(level, options.json, options.status_fd)
    quiet(output)
    return output


def lease_of(config: Configuration, max_ttl: float) -> float:
    """Return the length of the lease: of the option, of HOLDFAST_TTL, of a file, or the default."""
    given = config.values.get("ttl")
    if given is None and (text := os.environ.get("HOLDFAST_TTL", "").strip()):
        given = float(text)
    if given is None:
        return min(TTL, max_ttl)
    if not SHORTEST <= given <= max_ttl:
        raise ConfigError(f"--ttl is {SHORTEST:g} s to max_ttl, which is {max_ttl:g} s; not {given:g} s")
    return float(given)


def _command_of(options: Namespace) -> tuple[str, list[str], int]:
    """The file of the command, its words, and the exit status if there is no such file."""
    rest = list(options.rest)
    line = options.command
    if rest[:1] in (["-c"], ["--command"]) and line is None and len(rest) == 2:
        # As `flock NAME -c LINE` has it.
        line, rest = rest[1], []
    if rest[:1] == ["--"]:
        rest = rest[1:]
    elif rest and rest[0].startswith("-"):
        raise Usage(
            f"{rest[0]} comes after NAME: options end there. Write them before NAME, and the command behind `--`"
        )
    if (line is None) == (not rest):
        raise Usage("say what to run: a command behind NAME, or -c LINE")
    argv = rest if line is None else ["sh", "-c", line]
    path, code = command.found(argv[0], os.environ.get("PATH", os.defpath))
    if code:
        what = "not found" if code == NOT_FOUND else "cannot be executed"
        Output().say(f"{argv[0]}: {what}. The lock was not asked for")
    return path, argv, code
