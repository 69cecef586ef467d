"""Celery's workers on a stage, and a client that shares the names of a stage's programs.

Knows programs/proj.py. Must not know what is tested.
"""

from __future__ import annotations

from integrations.stage import Stage

from holdfast import Holdfast


def worker(stage: Stage, *options: str, **environment: str) -> int:
    """Start a worker, and wait until it works. Returns its pid."""
    name = f"w{len(stage.processes)}"
    words = ["celery", "-A", "proj", "worker", "-n", name, "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    before = stage.logs().count(" ready.")
    process = stage.start(*words, *(options or ("--pool", "prefork", "-c", "2")), **environment)
    stage.until(lambda: stage.logs().count(" ready.") > before, f"the worker {name} works")
    return process.pid


def other(stage: Stage, prefix: str = "") -> Holdfast:
    """A client that shares the names of the programs, or has a prefix of its own, and is patient on a busy machine."""
    nodes = stage.environment["HOLDFAST_NODES"].split(",")
    return Holdfast(*nodes, prefix=prefix or stage.environment["HOLDFAST_PREFIX"], ttl=2, max_ttl=4, node_timeout=1)
