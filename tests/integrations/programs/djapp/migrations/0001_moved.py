"""Makes a table, and takes until the file GO is there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from django.db import migrations
from record import note


def make(apps: Any, editor: Any) -> None:
    note("enter", "migration")
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.02)
    editor.execute("CREATE TABLE moved (value integer)")
    note("leave", "migration")


class Migration(migrations.Migration):
    dependencies = ()
    operations = (migrations.RunPython(make),)
