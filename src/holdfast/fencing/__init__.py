"""The receiving half of fencing tokens: storage that refuses a holder whose lease has ended.

    from holdfast.fencing import FenceTable, FenceColumn     # SQL: PostgreSQL, MySQL and MariaDB, SQLite, through any DB-API driver
    from holdfast.fencing.sqlalchemy import fenced, Fenced   # sessions and mapped classes; needs holdfast[sqlalchemy]
    from holdfast.fencing.redis import FencedRedis           # data in Redis or Valkey; needs holdfast[redis]
    from holdfast.fencing.http import received               # services: the header Fencing-Token
    from holdfast.fencing import Seen                        # what lives in this process

Each takes a lease, or `{name: fence}`, remembers the highest fence of each name, and raises StaleFence for a lower
one. Then nothing is written. Knows errors and checks. Must not know clients: a service that receives fences needs none.
"""

from .bearer import Bearer, Fences
from .memory import Seen
from .sql import Cursor, FenceColumn, FenceTable

__all__ = ["Bearer", "Cursor", "FenceColumn", "FenceTable", "Fences", "Seen"]
