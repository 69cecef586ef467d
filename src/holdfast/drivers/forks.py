"""Counts how often this process was forked since it imported holdfast. Objects that were made
before a fork belong to the parent.

Knows `fork`. Must not know what is made.

Python runs its hooks only if Python itself forks. A program that embeds Python, or an extension,
may call the C library's `fork`. uWSGI does so by default, and runs none of the hooks. So an object
that belongs to one process notes the length of `FORKS` and the process id when it is made. It
compares both before each use. Neither is enough by itself. In a new PID namespace, a child may have
the same process id as its parent.
"""

from __future__ import annotations

import os
from functools import partial

FORKS: list[None] = []  # of another length in every forked child; for reading only

# One C call, first of all hooks: no signal can come between the fork and what it notes.
os.register_at_fork(after_in_child=partial(FORKS.append, None))
