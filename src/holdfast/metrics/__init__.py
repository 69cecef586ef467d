"""Metrics for Prometheus, with a Grafana dashboard and alert rules.

Needs the extra `holdfast[metrics]`. Knows events, what `nodes()` and `stats()` return, and the
library prometheus-client. Must not know the protocol, or how clients talk to nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy

__all__ = ["Metrics", "alerts", "by_function", "collapsed", "dashboard", "first_part"]

if TYPE_CHECKING:
    from .files import alerts, dashboard
    from .labels import by_function, collapsed, first_part
    from .prometheus import Metrics
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".files": ("alerts", "dashboard"),
            ".labels": ("by_function", "collapsed", "first_part"),
            ".prometheus": ("Metrics",),
        },
    )
