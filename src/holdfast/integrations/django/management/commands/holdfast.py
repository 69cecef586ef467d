"""`manage.py holdfast`: who holds what, and how the nodes are."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any

from django.core.management import BaseCommand

from .....cli import main
from ...locks import clients


class Command(BaseCommand):  # type: ignore[misc]  # (Django has no types)
    """The command `holdfast`, with the settings of the project."""

    help = "Show who holds a lock and how the nodes are: the command `holdfast`, with the settings of the project."
    requires_system_checks: list[str] = []  # noqa: RUF012  (it is for finding out what is wrong)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the words of the command."""
        parser.add_argument("words", nargs=REMAINDER, help="ls, inspect, nodes and so on, with their options")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        status = main(options["words"], lambda: clients.locks)
        if status:
            sys.exit(status)
