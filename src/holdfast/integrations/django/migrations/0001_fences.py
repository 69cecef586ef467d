"""Makes the table in which `guard` remembers the highest fence of each lock."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from ..locks import fence_table


def make(apps: Any, editor: Any) -> None:
    """Make the table, where the database is one that `guard` knows."""
    if editor.connection.vendor in ("postgresql", "sqlite", "mysql"):
        editor.execute(fence_table(editor.connection).ddl)


class Migration(migrations.Migration):  # type: ignore[misc]  # (Django has no types)
    """The first one."""

    initial = True
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012  (Django's form)
    operations = [migrations.RunPython(make, migrations.RunPython.noop)]  # noqa: RUF012  (Django's form)
