"""`python -m bench.work WORK PARAMETERS`: does one kind of work with one contender and prints the figures as JSON.

Knows how adapters are found, and on which kind of loop they run. Must not know what the work is.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
from typing import Any


def main(work: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Load the adapter, do the work."""
    module = importlib.import_module(f"bench.work.{work}")
    if hasattr(module, "alone"):
        found: dict[str, Any] = module.alone(parameters)
        return found
    place, _, name = parameters["adapter"].partition(":")
    adapter = getattr(importlib.import_module(f"bench.{place}"), name)
    if not inspect.iscoroutinefunction(adapter.acquire):
        figures: dict[str, Any] = module.threads(adapter, parameters)
        return figures
    if parameters["uvloop"]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return dict(runner.run(module.tasks(adapter, parameters)))
    return dict(asyncio.run(module.tasks(adapter, parameters)))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))), flush=True)
    os._exit(0)  # whoever still waits for a lock in a thread does not keep the process
