"""The audit log: forced releases, and requests that were refused for who they are from.

Knows files. Must not know requests.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Any

from ..errors import ConfigError

LOGGER = "holdfast.audit"
# The address and the id of the request that is served now. The gate sets it: each request has a context of its own.
asking: ContextVar[Mapping[str, Any]] = ContextVar("holdfast_asking")


class Audit:
    """Writes one line of JSON for each event, to a file and to the logger `holdfast.audit`.

    Args:
        path: The file. It is appended to. None: there is only the logger.

    Raises:
        ConfigError: The file cannot be opened.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: IO[str] | None = None
        # Called with each event and its facts: the page shows what was taken away.
        self.heard: Callable[[str, dict[str, Any]], None] | None = None
        self.reopen()

    def reopen(self) -> None:
        """Open the file again, after a log rotation has moved it away."""
        if self._path is None:
            return
        try:
            opened = open(  # noqa: SIM115 - it stays open
                os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8", buffering=1
            )
        except OSError as error:
            raise ConfigError(f"the audit log {self._path} cannot be opened: {error}") from None
        self.close()
        self._file = opened

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def note(self, event: str, **facts: Any) -> None:
        """Write an event.

        Args:
            event: What happened: "force", "unauthenticated" or "forbidden".
            facts: What is known of it, besides the request that it is about. Never a token of a
                client.
        """
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "event": event, **asking.get({}), **facts})
        logging.getLogger(LOGGER).warning("%s", line)
        if self.heard is not None:
            self.heard(event, facts)
        if self._file is not None:
            self._file.write(line + "\n")
