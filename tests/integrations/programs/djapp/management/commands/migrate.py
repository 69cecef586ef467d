"""Django's `migrate`, which takes a lock."""

from __future__ import annotations

from holdfast.integrations.django import LockedMigrate as Command

__all__ = ["Command"]
