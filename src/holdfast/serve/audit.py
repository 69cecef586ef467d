"""The audit log: forced releases, and requests that were refused for who they are from.

Knows files. Must not know requests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from typing import Any

from ..errors import ConfigError
from .load import Limits

LOGGER = "holdfast.audit"
# Refusals of one kind and one client, or address, that are written in a second. The others are only counted, and the
# count is written some seconds later.
LINES, SUMMARY = 5, 10.0
# Forced releases that are remembered.
FORCED = 200
# The address and the id of the request that is served now. The gate sets it: each request has a context of its own.
asking: ContextVar[Mapping[str, Any]] = ContextVar("holdfast_asking")


class _File(WatchedFileHandler):
    """A file that only its owner can read. Once a log rotation has moved it, it is opened again."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=partial(os.open, mode=0o600))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line. If that cannot be done, stderr has it, and the request gets its answer."""
        try:
            super().emit(record)
        except OSError:
            # The folder is gone, or no descriptor is left.
            self.handleError(record)


class Audit:
    """Writes one line of JSON for each event, to a file and to the logger `holdfast.audit`.

    Args:
        path: The file. It is appended to. None: there is only the logger.

    Raises:
        ConfigError: The file cannot be opened.
    """

    def __init__(self, path: str | None) -> None:
        # Locks that were taken away, for the page.
        self.forced: deque[dict[str, Any]] = deque(maxlen=FORCED)
        self._limits = Limits(LINES)
        # What was not written, by the kind and the client.
        self._left_out: Counter[tuple[str, str]] = Counter()
        try:
            self._file = logging.NullHandler() if path is None else _File(path)
        except OSError as error:
            raise ConfigError(f"the audit log {path} cannot be opened: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def note(self, event: str, **facts: Any) -> None:
        """Write an event.

        Args:
            event: What happened: "force", or a refusal: "unauthenticated", "forbidden" or
                "misdirected". Of many refusals in a second, most are only counted.
            facts: What is known of it, besides the request that it is about. Never a token of a
                client.
        """
        facts = {**asking.get({}), **facts}
        if event != "force":
            who = str(facts.get("client", facts.get("address", "")))
            if self._limits.take(f"{event} {who}", time.monotonic()):
                if not self._left_out[event, who]:
                    asyncio.get_running_loop().call_later(SUMMARY, self._summarise, event, who, facts)
                self._left_out[event, who] += 1
                return
        at = self._write(event, facts)
        if event == "force" and facts["nodes"]:
            self.forced.append({"at": at, **{it: facts[it] for it in ("client", "name", "reason")}})

    def _summarise(self, event: str, who: str, facts: dict[str, Any]) -> None:
        count = self._left_out.pop((event, who))
        whose: dict[str, Any] = {it: facts[it] for it in ("address", "client") if it in facts}
        self._write("left-out", {"of": event, **whose, "count": count})

    def _write(self, event: str, facts: Mapping[str, Any]) -> str:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "event": event, **facts})
        logging.getLogger(LOGGER).warning("%s", line)
        self._file.handle(logging.makeLogRecord({"msg": line}))
        return at
