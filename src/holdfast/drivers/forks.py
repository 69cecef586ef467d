"""How often this process was forked since it imported holdfast: what was made before belongs to the parent.

Knows `fork`. Must not know what is made.
"""

from __future__ import annotations

import os
from functools import partial

FORKS: list[None] = []  # of another length in every forked child; for reading only

# One C call, first of all hooks: no signal can come between the fork and what it notes.
os.register_at_fork(after_in_child=partial(FORKS.append, None))
