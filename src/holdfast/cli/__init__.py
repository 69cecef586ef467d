"""The command `holdfast`: locks for shells, cron, systemd and containers.

Knows the public client, processes and terminals. It is the top floor: no other part of the library
may import it.
"""

from .program import main

__all__ = ["main"]
