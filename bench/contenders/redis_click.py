"""A command that runs another under a Redlock, as it is written by hand: redis-py, and click for its options.

Run by itself, as a script. The nodes are asked in turn, as redis-py's users do.
"""

import os
import subprocess
import sys
import uuid

import click
import redis

UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--ttl", default=15.0, help="seconds")
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(ttl: float, name: str, command: tuple[str, ...]) -> None:
    """Run a command while holding a lock."""
    nodes = [redis.Redis.from_url(it) for it in os.environ["HOLDFAST_NODES"].split(",")]
    token = uuid.uuid4().hex
    granted = sum(bool(it.set(name, token, nx=True, px=int(ttl * 1000))) for it in nodes)
    try:
        if granted <= len(nodes) // 2:
            sys.exit(75)
        code = subprocess.call(command)
    finally:
        for it in nodes:
            it.eval(UNLOCK, 1, name, token)
    sys.exit(code)


if __name__ == "__main__":
    run()
