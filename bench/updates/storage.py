"""What the lock protects: a register in an SQLite file, which is read, changed and written back. It can refuse those who come too late.

Knows SQLite. Must not know locks: all that it knows of them is the highest fence that it was shown.

The fence is shown when the register is *read*, too. A storage that looks at it only when something is written accepts the write of a holder
that woke up late, if the next one has read and not yet written; and then the next one overwrites it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable


class Refused(Exception):
    """Somebody has been here with a higher fence."""


class Register:
    """A list of numbers. Each call is a transaction of its own. `fence`: None is no fence, and nothing is compared."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")  # no power fails here
        self._database.execute("CREATE TABLE IF NOT EXISTS register (elements TEXT, fence INTEGER)")
        self._database.execute("INSERT INTO register SELECT '', 0 WHERE NOT EXISTS (SELECT * FROM register)")

    def read(self, fence: int | None = None) -> list[int]:
        """What is in it. Raises Refused."""
        if fence is None:
            rows = self._database.execute("SELECT elements FROM register").fetchall()
        else:
            shown = "UPDATE register SET fence = ? WHERE fence <= ? RETURNING elements"
            rows = self._database.execute(shown, (fence, fence)).fetchall()
        if not rows:
            raise Refused
        return [int(it) for it in rows[0][0].split()]

    def write(self, elements: Iterable[int], fence: int | None = None) -> None:
        """Put this into it, instead of what was there. When it returns, the write is acknowledged. Raises Refused."""
        text = " ".join(map(str, elements))
        if fence is None:
            done = self._database.execute("UPDATE register SET elements = ?", (text,))
        else:
            done = self._database.execute("UPDATE register SET elements = ?, fence = ? WHERE fence <= ?", (text, fence, fence))
        if not done.rowcount:
            raise Refused

    def close(self) -> None:
        """Leave it."""
        self._database.close()
