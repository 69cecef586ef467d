"""Makes temporary directories for Unix sockets.

No other user of the machine can enter one, and its path is short enough for a socket's address.

Knows the file system. Must not know what listens at the sockets.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from urllib.parse import quote

from .errors import ConfigError

# The longest address of a Unix socket on every system, in bytes. macOS has room for 104 and Linux
# for 108, both with a zero at the end.
LONGEST = 103


def private(longest: str) -> Path:
    """Make a new directory with mode 0700.

    Args:
        longest: The longest path of a socket in it, such as "node-12/socket".

    Returns:
        The directory. It is in the system's temporary directory, or in /tmp if a path there would
        be too long.

    Raises:
        ConfigError: No directory is usable.
    """
    within = f"/holdfast-{'x' * 8}/{longest}"
    for base in (tempfile.gettempdir(), "/tmp"):
        # In a URL, some characters must be escaped with a percent sign, which not every client
        # understands in a path.
        if len(os.fsencode(base + within)) <= LONGEST and quote(base) == base and os.access(base, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="holdfast-", dir=base))
    raise ConfigError(
        f"no directory for the sockets of nodes: {tempfile.gettempdir()!r} is too long, or has special "
        "characters in it, and /tmp cannot be written to. Set TMPDIR to a directory with a short name"
    )
