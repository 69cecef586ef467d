"""Django's `migrate`, which takes a lock unless the test wants to see what happens without it."""

from __future__ import annotations

import os

if "UNLOCKED" in os.environ:
    from django.core.management.commands.migrate import Command
else:
    from holdfast.integrations.django import LockedMigrate as Command

__all__ = ["Command"]
