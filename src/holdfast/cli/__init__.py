"""The command `holdfast`: locks for shells, cron, systemd and containers.

Knows the public client, processes and terminals. Only the commands of frameworks, such as
`manage.py holdfast`, import it.
"""

from .program import main

__all__ = ["main"]
