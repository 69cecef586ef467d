"""Django: locks around transactions, clients from settings, checks, and commands.

Add it to INSTALLED_APPS, and `holdfast.integrations.django.Middleware` to MIDDLEWARE.
"""

from typing import TYPE_CHECKING, Any

from .locks import Middleware, alocks, guard, limited_view, locked_atomic, locked_view, locks

if TYPE_CHECKING:
    from .commands import LockedMigrate, Singleton

__all__ = [
    "LockedMigrate", "Middleware", "Singleton", "alocks", "guard", "limited_view", "locked_atomic", "locked_view",
    "locks",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # Servers of requests do without the machinery of migrations.
    if name in ("LockedMigrate", "Singleton"):
        from . import commands

        return getattr(commands, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
