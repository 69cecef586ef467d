"""What stands for the locks in Django's admin, which asks for a model and for its permissions."""

from __future__ import annotations

from django.db import models


class Lock(models.Model):  # type: ignore[misc]  # (Django has no types)
    """A lock. The nodes have the locks, and the database has no table of them."""

    name = models.CharField(max_length=512, primary_key=True)

    class Meta:
        """The permissions to look at locks and to release them."""

        managed = False
        default_permissions = ("view",)
        permissions = (("release_lock", "Can take a lock away from its holder"),)
