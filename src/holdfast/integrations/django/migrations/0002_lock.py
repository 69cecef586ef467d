"""Tells Django of the permissions for locks. Makes no table."""

from __future__ import annotations

from django.db import migrations, models

PERMISSIONS = (("release_lock", "Can take a lock away from its holder"),)


class Migration(migrations.Migration):  # type: ignore[misc]  # (Django has no types)
    """The second one."""

    dependencies = [("holdfast", "0001_fences")]  # noqa: RUF012  (Django's form)
    operations = [  # noqa: RUF012  (Django's form)
        migrations.CreateModel(
            "Lock",
            [("name", models.CharField(max_length=512, primary_key=True, serialize=False))],
            {"managed": False, "default_permissions": ("view",), "permissions": PERMISSIONS},
        )
    ]
