"""The failover race: a lock on a primary with a replica is held twice when the primary dies, one on independent masters is not.

Starts real servers, kills some, and prints who has the lock: `python run.py --help`.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast import Holdfast, NoQuorum
from holdfast.embedded import Nodes

STORY = """\
First the usual set-up: a primary, an asynchronous replica, and a lock made of SET NX (redis-py's own Lock). The primary answers A's SET and
dies before the replica has heard of it; the replica is promoted; B asks for the same lock. Then the same lock from holdfast, on three
independent masters: one of them dies after it has granted the lock to A, and comes back empty; B asks for the same lock.

Here replication lags because a relay between the two servers holds it back, so that the race is lost every time. In the field it takes a
busy network, and luck."""
STATUS = "exit status: 0 if the first lock had two holders and the second had one, else 1."

NAME = "invoice:42"
PATIENCE = 30.0  # seconds for a server to do what it must


class Relay:
    """What lies between a replica and its primary: passes everything on, until replication is held back."""

    def __init__(self, primary: int) -> None:
        self._primary, self._lags, self._ends = primary, threading.Event(), list[socket.socket]()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def hold_back(self) -> None:
        """From now on nothing that the primary says arrives."""
        self._lags.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for end in (self._door, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _serve(self) -> None:
        with suppress(OSError):  # closed; or the primary is dead, and the replica asks again in vain
            while True:
                replica, _ = self._door.accept()
                self._ends += replica, socket.create_connection(("127.0.0.1", self._primary))
                for source, target in ((replica, self._ends[-1]), (self._ends[-1], replica)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._lags.is_set():
                    target.sendall(data)


def replicated(in_time: bool) -> bool:
    """The lock on a primary with a replica. Does it have two holders in the end? `in_time`: replication does not lag."""
    print("A primary with a replica, and SET NX:")
    with Nodes(2, tcp=True) as servers:
        primary, replica = (redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) for url in servers.urls)
        told = urlsplit(servers.urls[0])
        assert told.port is not None and told.password is not None
        with Relay(told.port) as relay:
            replica.config_set("masterauth", told.password)
            primary.config_set("repl-diskless-sync-delay", 0)
            replica.replicaof("127.0.0.1", str(relay.port))
            wait_until(lambda: replica.info("replication").get("master_link_status") == "up", "the replica does not follow")
            if not in_time:
                relay.hold_back()
            ours = primary.lock(NAME, timeout=30)
            print(f"  A asks the primary: {'it has the lock for 30 s' if ours.acquire(blocking=False) else 'refused'}")
            if in_time:
                wait_until(lambda: replica.exists(NAME) == 1, "the replica does not hear of the lock")
            servers.kill(0)
            print(
                "  the primary dies; the replica has "
                + ("heard" if replica.exists(NAME) else "not heard")
                + " of the lock, and is promoted"
            )
            replica.replicaof("NO", "ONE")
        twice = bool(replica.lock(NAME, timeout=30).acquire(blocking=False))
        print(f"  B asks the new primary: {'it has the lock, too. TWO HOLDERS' if twice else 'refused'}")
        return twice


def independent(unguarded: bool) -> bool:
    """The lock on three independent masters. Has it one holder throughout? `unguarded`: two die, and nobody guards against that."""
    print("Three independent masters, and holdfast:")
    with Nodes(3) as servers, client(servers, unguarded) as a, client(servers, unguarded) as b:
        lease = a.lock(NAME, ttl=30).acquire()
        wait_until(lambda: lease.votes == 3, "not all three masters grant the lock")
        print(f"  A has the lock, from {lease.votes} masters, with fence {lease.fence}")
        if unguarded:
            # Else A would ask each restarted master at once, and be there before B.
            lease.leave()
        for node in range(2 if unguarded else 1):
            servers.kill(node)
            servers.restart(node)
            print(f"  master {node + 1} dies, and comes back empty")
        wait_until(lambda: all(it.state in ("up", "guarded") for it in b.nodes()), "a master does not come back")
        try:
            twice = b.lock(NAME).try_acquire()
        except NoQuorum:
            twice = None
        if twice is not None:
            print(f"  B asks: it has the lock, too, with fence {twice.fence}. TWO HOLDERS")
            return False
        print(f"  B asks: refused; A can still extend its lease, to {lease.extend():.0f} s")
        lease.release()
        with b.lock(NAME, wait=PATIENCE) as later:
            print(f"  A releases; B has the lock, with fence {later.fence}. ONE HOLDER AT A TIME")
            return later.fence > lease.fence


def client(servers: Nodes, unguarded: bool) -> Holdfast:
    """A client that is connected to all nodes."""
    options: dict[str, Any] = {"restart_guard": None} if unguarded else {}
    locks = Holdfast(*servers.urls, **options)
    locks.ready(wait=PATIENCE)
    return locks


def wait_until(true: object, else_told: str) -> None:
    """Wait until the function returns something true."""
    assert callable(true)
    until = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > until:
            sys.exit(f"after {PATIENCE:.0f} s: {else_told}")
        time.sleep(0.005)


def main() -> None:
    """Tell the story."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=STORY, epilog=STATUS, formatter_class=form)
    planted = ("in-time", "unguarded")
    parser.add_argument(
        "--plant", choices=planted, help="in-time: replication does not lag; unguarded: two masters die, and no restart guard"
    )
    plant = parser.parse_args().plant
    twice, once = replicated(in_time=plant == "in-time"), independent(unguarded=plant == "unguarded")
    print("As told: two holders, then one." if twice and once else "Not as told.")
    sys.exit(not (twice and once))


if __name__ == "__main__":
    main()
