"""holdfast with somebody who listens: an observer that does nothing, the metrics of Prometheus, and OpenTelemetry's."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

import holdfast
import holdfast.aio
from holdfast.metrics import Metrics
from holdfast.otel import OtelMetrics, Tracing

from . import holdfast as plain


def _nothing(event: holdfast.events.Event) -> None:
    pass


def _listens(how: str) -> dict[str, Any]:
    match how:
        case "observer":
            return {"observer": _nothing}
        case "metrics":
            return {"observer": Metrics(registry=CollectorRegistry())}
        case _:
            tracing = Tracing()
            return {"around": tracing, "observer": [tracing, OtelMetrics()]}


class _Threads(plain.Threads):
    how = ""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.locks = holdfast.Holdfast(parameters["urls"], **plain.options(parameters), **_listens(self.how))
        self.lock = self.locks.lock


class _Asyncio(plain.Asyncio):
    how = ""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.locks = holdfast.aio.Holdfast(parameters["urls"], **plain.options(parameters), **_listens(self.how))
        self.lock = self.locks.lock


class ThreadsObserver(_Threads):
    how = "observer"


class ThreadsMetrics(_Threads):
    how = "metrics"


class ThreadsOtel(_Threads):
    how = "otel"


class AsyncioObserver(_Asyncio):
    how = "observer"


class AsyncioMetrics(_Asyncio):
    how = "metrics"


class AsyncioOtel(_Asyncio):
    how = "otel"
