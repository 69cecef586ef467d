"""`manage.py locked migrate`: runs another command under a lock."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError, call_command

from .....errors import LockBusy, LockLost, NoQuorum
from ...locks import locks

# As in sysexits.h: try again later, a service is not there; and one beyond them.
BUSY, AWAY, LOST = 75, 69, 76


class Command(BaseCommand):  # type: ignore[misc]  # (Django has no types)
    """Run a command of `manage.py` under a lock."""

    help = (
        "Run a command under a lock, such as `manage.py locked migrate`. "
        f"Exits with {BUSY} if the lock is busy, {AWAY} without a majority of the nodes, {LOST} if the lock was lost."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012  (the command has its own)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--wait", type=float, help="seconds to wait for the lock (default: for ever)")
        parser.add_argument("--skip", action="store_true", help="exit with 0 at once if the lock is busy")
        parser.add_argument("--name", help="the lock's name (default: manage:COMMAND)")
        parser.add_argument("command", help="the command to run")
        parser.add_argument("arguments", nargs=REMAINDER, help="its arguments")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        command = options["command"]
        name = options["name"] or f"manage:{command}"
        entered = False
        try:
            with locks.lock(name, wait=0 if options["skip"] else options["wait"]):
                entered = True
                call_command(command, *options["arguments"], stdout=self.stdout, stderr=self.stderr)
        except LockBusy as error:
            if entered:
                raise
            if options["skip"]:
                self.stderr.write(f"{name} is busy: {command} is not run")
                return
            raise CommandError(error.message, returncode=BUSY) from error
        except NoQuorum as error:
            if entered:
                raise
            raise CommandError(error.message, returncode=AWAY) from error
        except LockLost as error:
            raise CommandError(error.message, returncode=LOST) from error
        finally:
            sys.stdout.flush()
