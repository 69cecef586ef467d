"""What a program pays before its first lock: imports; and the time until `Holdfast.local()` has given one.

Figures: `p50` (milliseconds), `memory` (MiB).
"""

from __future__ import annotations

import importlib
from time import perf_counter
from typing import Any

from .held import memory


def alone(parameters: dict[str, Any]) -> dict[str, Any]:
    """`adapter` is what to import; "local": all the way to a first lock."""
    before, began = memory(), perf_counter()
    if parameters["adapter"] == "local":
        from holdfast import Holdfast

        with Holdfast.local() as locks, locks.lock("bench:start"):
            took = perf_counter() - began
    else:
        importlib.import_module(parameters["adapter"])
        took = perf_counter() - began
    return {"p50": took * 1e3, "memory": memory() - before}
