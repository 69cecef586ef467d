"""The measure of prose (`tests/prose.py`, which `./task lint --all` runs) looks at everything that ships."""

from __future__ import annotations

import prose
import pytest

pytestmark = pytest.mark.guards


def test_what_ships_is_measured() -> None:
    names = {name for name, _ in prose._public()}
    assert {"holdfast.Holdfast.lock", "holdfast.aio.Lock.acquire", "holdfast.Lease.extend"} <= names
    assert {"README.md", "docs/lock.md", "task", "src/holdfast/errors.py", "src/holdfast/scripts/request.lua"} <= set(prose.files())
