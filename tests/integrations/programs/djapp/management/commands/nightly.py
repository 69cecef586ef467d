"""A command of one's own that runs in one process at a time."""

from __future__ import annotations

from typing import Any

from django.core.management import BaseCommand, CommandError
from record import note

from holdfast.errors import LockBusy
from holdfast.integrations.django import Singleton


class Command(Singleton, BaseCommand):
    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--fail", action="store_true")
        parser.add_argument("--inner", action="store_true")

    def handle(self, *args: Any, **options: Any) -> str:
        note("nightly")
        if options["fail"]:
            raise CommandError("it failed", returncode=3)
        if options["inner"]:
            raise LockBusy("inner", 0.0, None, 7.0)
        return "cleaned up"
