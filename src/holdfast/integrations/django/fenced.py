"""Models whose rows refuse a late holder by its fence.

Knows Django's models. A module of its own, because models can only be imported when Django has
loaded its applications.
"""

from __future__ import annotations

from typing import Any, Self

from django.db import models, transaction

from ...errors import StaleFence
from ...fencing.bearer import Fences, fence_of

__all__ = ["FencedModel", "FencedQuerySet"]


class FencedQuerySet(models.QuerySet):  # type: ignore[misc]  # (Django has no types)
    """Updates of rows that no later holder has written."""

    # The lock's name, and the fence of its lease.
    _borne: tuple[str, int] | None = None

    def fenced(self, lease: Fences) -> Self:
        """Refuse updates of rows that a later holder has written.

        Args:
            lease: The lease of the lock that protects the rows.

        Returns:
            A query set whose `update` raises StaleFence if it would change such a row.

        Raises:
            Misuse: The lease has no fence, or one for each of several names.
        """
        found: Self = self._chain()
        found._borne = fence_of(lease)
        return found

    def update(self, **values: Any) -> int:
        """Change the rows, and write the fence into them.

        Args:
            values: As for Django's `update`.

        Returns:
            How many rows were changed.

        Raises:
            StaleFence: A later holder has written one of the rows. No row was changed.
        """
        if self._borne is None:
            return int(super().update(**values))
        name, fence = self._borne
        with transaction.atomic(using=self.db):
            changed = int(super(FencedQuerySet, self.filter(fence__lte=fence)).update(fence=fence, **values))
            # After the update, which has waited for other transactions that had changed the rows.
            seen = self.filter(fence__gt=fence).values_list("fence", flat=True).first()
            if seen is not None:
                raise StaleFence(name, fence, seen)
        return changed

    def _clone(self) -> Self:
        found: Self = super()._clone()
        found._borne = self._borne
        return found


class FencedModel(models.Model):  # type: ignore[misc]  # (Django has no types)
    """A model with a column for the fence.

    `Stock.objects.fenced(lease).filter(...).update(...)` changes no row that a later holder has
    written.
    """

    fence = models.BigIntegerField(default=0, editable=False)

    objects = FencedQuerySet.as_manager()

    class Meta:
        """No table of its own."""

        abstract = True
