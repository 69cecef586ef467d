"""The receiving half of fencing tokens: storage that refuses a holder whose lease has ended.

Storage in SQL, with any DB-API driver of PostgreSQL, MySQL, MariaDB or SQLite:

    from holdfast.fencing import FenceTable, FenceColumn

Sessions and mapped classes of SQLAlchemy (needs holdfast[sqlalchemy]):

    from holdfast.fencing.sqlalchemy import fenced, Fenced

Data in Redis or Valkey (needs holdfast[redis]):

    from holdfast.fencing.redis import FencedRedis

Services that get the header Fencing-Token:

    from holdfast.fencing.http import received

What lives in this process:

    from holdfast.fencing import Seen

Each of them takes a lease, or `{name: fence}`, and remembers the highest fence of each name. For a
lower one it raises StaleFence, and nothing is written.

Knows errors and checks. Must not know clients: a service that receives fences needs none.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .bearer import Bearer, Fences
    from .memory import Seen
    from .sql import Cursor, FenceColumn, FenceTable
else:
    # Who only writes or reads the header needs neither asyncio nor databases.
    __getattr__, __dir__ = lazy(
        __name__,
        {".bearer": ("Bearer", "Fences"), ".memory": ("Seen",), ".sql": ("Cursor", "FenceColumn", "FenceTable")},
    )

__all__ = ["Bearer", "Cursor", "FenceColumn", "FenceTable", "Fences", "Seen"]
