"""Hold a lock for as long as this process lives, by `holdfast serve --resp` and redis-py."""

from typing import Any

import redis

# The lease ends with its connection, so there is only one. (redis-py has no types for `execute_command`.)
locks: Any = redis.Redis(port=7421, single_connection_client=True)
found = locks.execute_command("LOCK", "invoice:42", "WAIT", 5000, "SESSION")
if found is None:
    raise SystemExit("another process has it")
lease, fence, valid_ms = found
locks.execute_command("CHECK", lease)  # before each step that must not happen twice: raises if it is lost
print("working with fence", fence)  # pass the fence to what you write to
locks.execute_command("UNLOCK", lease)
