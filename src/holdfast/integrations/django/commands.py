"""Commands of `manage.py` that run under a lock: one's own, and Django's `migrate`.

Knows Django's commands.
"""

from __future__ import annotations

import contextlib
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management import BaseCommand, CommandError
from django.core.management.commands.migrate import Command as Migrate

from ...cli.codes import code_of
from ...cli.options import duration
from ...errors import ConfigError, LockBusy, LockLost, NoQuorum
from .locks import locks

__all__ = ["LockedMigrate", "Singleton"]


class Skipped(Exception):
    """The lock is busy, and the command is not to be run then."""


class Singleton:
    """Mixin for a command that runs in one process at a time.

    Write it before `BaseCommand`: `class Command(Singleton, BaseCommand)`. The command gets the
    options `--lock-wait` and `--lock-skip`. If the lock is busy, it exits with 75, without a
    majority of the nodes with 69, and if it lost its lock with 76.

    Attributes:
        lock_name: The lock's name. Default: "manage:" and the name of the command's module, such as
            "manage:migrate", which is also what `manage.py locked migrate` takes.

    Raises:
        ConfigError: A class has it behind `BaseCommand`.
    """

    lock_name = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a class whose base class would run the command without its lock."""
        super().__init_subclass__(**kwargs)
        if issubclass(cls, BaseCommand) and cls.__mro__.index(BaseCommand) < cls.__mro__.index(Singleton):
            bases = ", ".join(["Singleton", *(it.__name__ for it in cls.__bases__ if it is not Singleton)])
            told = f"Singleton comes first, or the command runs without its lock: class {cls.__name__}({bases})"
            raise ConfigError(told)

    def create_parser(self, *args: Any, **kwargs: Any) -> ArgumentParser:
        """Add the options of the lock.

        Args:
            args: As Django passes them.
            kwargs: As Django passes them.

        Returns:
            The parser.
        """
        parser: ArgumentParser = super().create_parser(*args, **kwargs)  # type: ignore[misc]  # (a mixin)
        declare(parser, "lock-")
        return parser

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command under its lock.

        Args:
            args: As Django passes them.
            options: As Django passes them.

        Returns:
            What the command returns. None if it is skipped.

        Raises:
            CommandError: The lock is busy, most nodes are unreachable, or the lock was lost.
        """
        name = self.lock_name or f"manage:{type(self).__module__.rpartition('.')[2]}"
        wait, skip = options.pop("lock_wait", None), options.pop("lock_skip", False)
        try:
            with held(name, wait, skip):
                return super().execute(*args, **options)  # type: ignore[misc]  # (a mixin)
        except Skipped as skipped:
            # Django hands the one of `call_command` on to the command in `execute`, which is not called.
            (options.get("stderr") or self.stderr).write(f"{skipped}\n")  # type: ignore[attr-defined]  # (a mixin)
            return None


class LockedMigrate(Singleton, Migrate):  # type: ignore[misc]  # (Django has no types)
    """Django's `migrate` under a lock: the processes that start it at the same time take turns.

    To use it for every `manage.py migrate`, import it in a module `management/commands/migrate.py`
    of an application: `from holdfast.integrations.django import LockedMigrate as Command`.
    """

    lock_name = "manage:migrate"


def declare(parser: ArgumentParser, prefix: str = "") -> None:
    """Declare the options of a lock.

    Args:
        parser: The parser of the command.
        prefix: What the options begin with (default: nothing).
    """
    wait = "how long to wait for the lock, such as 90, 10m or 2h (default: for ever)"
    parser.add_argument(f"--{prefix}wait", type=duration, metavar="DURATION", help=wait)
    parser.add_argument(f"--{prefix}skip", action="store_true", help="exit with 0 at once if the lock is busy")


@contextlib.contextmanager
def held(name: str, wait: float | None, skip: bool) -> Iterator[None]:
    """Hold a lock around a command.

    A command that runs another one under the same lock holds it once.

    Args:
        name: The lock's name.
        wait: Seconds to wait for it (default: for ever).
        skip: Whether not to wait, and not to run, if it is busy.

    Raises:
        Skipped: The lock is busy, with `skip`.
        CommandError: The lock is busy, most nodes are unreachable, or the lock was lost.
    """
    entered = False
    try:
        with locks.lock(name, wait=0 if skip else wait, reentrant=True):
            entered = True
            yield
    except (LockBusy, NoQuorum, LockLost) as error:
        # Other locks are the command's own.
        if entered and not isinstance(error, LockLost):
            raise
        if skip and isinstance(error, LockBusy):
            raise Skipped(f"{name} is busy: the command is not run") from error
        raise CommandError(error.message, returncode=code_of(error)) from error
