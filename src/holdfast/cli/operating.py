"""`release`, `repair` and `local`: what operators do, and nodes to try it on.

Knows the client, and real servers. Must not know how commands are supervised.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from functools import partial

from ..embedded import Nodes
from ..errors import readable
from . import command
from .codes import BUSY, DONE, NOBODY, SIGNALLED
from .held import HELD
from .looking import client
from .options import Usage
from .output import Output
from .table import objects

# What `local` passes on to its command.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


def release(options: Namespace) -> int:
    """Take a lock away from its holder."""
    with client(options) as locks:
        status = locks.inspect(options.name)
        print(status)
        if status.state == "free":
            print("nobody holds it")
            return NOBODY
        if (
            options.only is not None
            and status.holder != options.only
            and options.only not in {it.token for it in status.readers}
        ):
            print(f"somebody else holds it by now: --only {status.holder}")
            return BUSY
        if not options.yes and not _agreed(options.name):
            print("nothing was taken away")
            return NOBODY
        taken = locks.force_release(options.name, options.reason, options.only)
    print(f"taken on {taken} nodes" if taken else "nobody had it any more")
    return DONE if taken else NOBODY


def _agreed(name: str) -> bool:
    if not sys.stdin.isatty():
        raise Usage("without a terminal, say --yes: what the lock protects may still be going on")
    print(
        f"What it protects may still be going on. To take it all the same, type its name ({readable(name)}): ",
        end="",
        flush=True,
    )
    return sys.stdin.readline().rstrip("\n") == name


def repair(options: Namespace) -> int:
    """Write back what nodes have forgotten."""
    with client(options) as locks:
        locks.ready()
        found = locks.repair(options.pause)
    if options.json:
        objects({**found._asdict(), "nodes": list(found.nodes), "left_out": list(found.left_out)})
    else:
        print(f"{found.found} found, {found.mended} copies written back, {found.lacking} still lacking")
        if found.left_out:
            print(f"left out: {', '.join(found.left_out)}. Repair again when they are up")
    return DONE if not found.lacking and not found.left_out else NOBODY


def local(options: Namespace) -> int:
    """Start nodes, run a command with them, and stop them."""
    words = options.rest[1:] if options.rest[:1] == ["--"] else options.rest
    if not words:
        words = [os.environ.get("SHELL") or "/bin/sh"]
    path, code = command.found(words[0], os.environ.get("PATH", os.defpath))
    if code:
        Output().say(f"{words[0]}: not found, or cannot be executed")
        return code
    signals = command.Signals()
    # Ctrl-C is for the command; the nodes are in sessions of their own.
    for it in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(it, signal.SIG_IGN)
    with Nodes(options.count) as nodes:
        environment = {**os.environ, **nodes.environment, "PATH": _path()}
        # What is held around this process is held on other nodes.
        environment.pop(HELD, None)
        # One that comes before there is somebody to pass it on to waits.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        become = partial(command.execute, path, words, environment, signals)
        process = subprocess.Popen(words, close_fds=False, preexec_fn=become)
        for it in _PASSED_ON:
            signal.signal(it, lambda number, frame: process.send_signal(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        status = process.wait()
    return status if status >= 0 else SIGNALLED - status


def _path() -> str:
    """PATH, with the folder of this command in it."""
    path = os.environ.get("PATH", os.defpath)
    own = os.path.dirname(os.path.abspath(sys.argv[0]))
    if shutil.which("holdfast", path=path) is None and os.access(os.path.join(own, "holdfast"), os.X_OK):
        return f"{own}{os.pathsep}{path}"
    return path
