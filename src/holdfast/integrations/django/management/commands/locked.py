"""`manage.py locked migrate`: runs another command under a lock."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any

from django.core.management import BaseCommand, call_command

from .....cli.codes import BUSY, LOST, NO_QUORUM
from .....kit import utf8
from ...commands import Skipped, declare, held


class Command(BaseCommand):  # type: ignore[misc]  # (Django has no types)
    """Run a command of `manage.py` under a lock."""

    help = (
        "Run a command under a lock, such as `manage.py locked migrate`. "
        f"Exits with {BUSY} if the lock is busy, {NO_QUORUM} without a majority of the nodes, {LOST} if it was lost."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012  (the command has its own)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        declare(parser)
        parser.add_argument("--name", type=utf8, help="the lock's name (default: manage:COMMAND)")
        parser.add_argument("command", help="the command to run")
        parser.add_argument("arguments", nargs=REMAINDER, help="its arguments")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        command = options["command"]
        try:
            with held(options["name"] or f"manage:{command}", options["wait"], options["skip"]):
                call_command(command, *options["arguments"], stdout=self.stdout, stderr=self.stderr)
        except Skipped as skipped:
            self.stderr.write(str(skipped))
        finally:
            sys.stdout.flush()
