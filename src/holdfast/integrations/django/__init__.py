"""Django: locks around transactions, clients from settings, checks, and a command.

Add it to INSTALLED_APPS, and `holdfast.integrations.django.Middleware` to MIDDLEWARE.
"""

from .locks import Middleware, alocks, guard, locked_atomic, locked_view, locks

__all__ = ["Middleware", "alocks", "guard", "locked_atomic", "locked_view", "locks"]
