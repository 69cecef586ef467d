"""`manage.py holdfast`: who holds what, and how the nodes are."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand

from ....operating import declare, operate
from ...locks import clients


class Command(BaseCommand):  # type: ignore[misc]  # (Django has no types)
    """Look at locks and nodes with the settings of the project."""

    help = "Show who holds a lock, which locks are held and how the nodes are, or take a lock away from its holder."
    requires_system_checks: list[str] = []  # noqa: RUF012  (it is for finding out what is wrong)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the subcommands."""
        declare(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Carry one out."""
        status = operate(lambda: clients.locks, options, self.stdout.write)
        if status:
            sys.exit(status)
