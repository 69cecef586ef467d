"""Primaries with replicas, and real Sentinels that watch them. They are real processes. Must not know locks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contract.cluster import ask
from nemesis.processes import Running, free_port, until

from holdfast.embedded import find_server

DOWN_AFTER = 800  # milliseconds without an answer, after which a Sentinel takes a primary for dead
TIMEOUT = 2000  # milliseconds: Sentinel's failover-timeout
PATIENCE = 180.0  # seconds for anything to happen
SECRET = "of-the-group"


class Process(Running):
    """A server or a Sentinel with a file of settings. `login`: what an address has of the user who asks."""

    def __init__(self, folder: Path, lines: Sequence[str], *, sentinel: bool = False, login: str | None = None) -> None:
        self.port = free_port()
        self._login = ("" if sentinel else f":{SECRET}@") if login is None else login
        own = folder / str(self.port)
        own.mkdir()
        (own / "settings").write_text("\n".join([f"port {self.port}", f"dir {own}", "bind 127.0.0.1", *lines, ""]))
        with (own / "log").open("ab") as log:
            super().__init__(find_server(), own / "settings", *(["--sentinel"] if sentinel else []), stdout=log, stderr=log)
        until(lambda: self.ask("PING") == "PONG", PATIENCE, f"{self.port} has started")

    def ask(self, *words: object) -> Any:
        """One command as the user of clients."""
        return ask(f"redis://{self._login}127.0.0.1:{self.port}", *words, patience=1.0)

    def info(self) -> dict[str, str]:
        """What it says of replication."""
        return dict(line.split(":", 1) for line in self.ask("INFO", "replication").splitlines() if ":" in line)


class Group:
    """A primary and its two replicas.

    The primary takes writes while it has one replica, so that the one that is promoted can grant locks
    before the old primary is back. The bound is true all the same: faults cut off both replicas together.
    """

    def __init__(self, name: str, folder: Path, lag: int) -> None:
        self.name, self._lag = name, lag
        self.primary = Process(folder, self._lines())
        self.servers = [self.primary, *(Process(folder, self._lines(self.primary)) for _ in range(2))]
        self.settled()

    def _lines(self, primary: Process | None = None) -> list[str]:
        return [
            'save ""',
            "repl-diskless-sync-delay 0",
            "min-replicas-to-write 1",
            f"min-replicas-max-lag {self._lag}",
            # Without it, a Sentinel whose user is unknown would be the user of clients.
            f"requirepass {SECRET}",
            "masteruser copy",
            f"masterauth {SECRET}",
            *(f"user {it} on >{SECRET} ~* &* +@all" for it in ("copy", "watch")),
            *([] if primary is None else [f"replicaof 127.0.0.1 {primary.port}"]),
        ]

    def settled(self) -> None:
        """Wait until a primary has both others as replicas, which have caught up.

        On a busy machine, Sentinels may have seen one more failure, so that it is another one than before.
        """
        until(lambda: any(self._leads(it) for it in self.servers), PATIENCE, f"{self.name} has its replicas")

    def _leads(self, server: Process) -> bool:
        leads = server.info().get("min_slaves_good_slaves") == "2"
        if leads:
            self.primary = server
        return leads

    def close(self) -> None:
        """End all."""
        for it in self.servers:
            it.end()


class Watch:
    """Three Sentinels, which watch all groups."""

    def __init__(self, folder: Path, groups: Sequence[Group]) -> None:
        lines = []
        for it in groups:
            lines += [
                f"sentinel monitor {it.name} 127.0.0.1 {it.primary.port} 2",
                f"sentinel auth-user {it.name} watch",
                f"sentinel auth-pass {it.name} {SECRET}",
                f"sentinel down-after-milliseconds {it.name} {DOWN_AFTER}",
                f"sentinel failover-timeout {it.name} {TIMEOUT}",
            ]
        self._sentinels = [Process(folder, lines, sentinel=True) for _ in range(3)]
        self._groups = groups
        for it in groups:
            self.knows(it)

    @property
    def places(self) -> str:
        """Where they are, as in an address."""
        return ",".join(f"127.0.0.1:{it.port}" for it in self._sentinels)

    def knows(self, group: Group) -> None:
        """Wait until all name the same primary, its replica, and each other.

        On a busy machine, Sentinels may have seen one more failure. Then the servers have changed places once more.
        """
        try:
            until(lambda: all(self._sees(it, group) for it in self._sentinels), PATIENCE)
        except AssertionError:
            told = [it.ask("SENTINEL", word, group.name) for it in self._sentinels for word in ("MASTER", "REPLICAS")]
            raise AssertionError(f"the Sentinels know {group.name}: {told}") from None

    @staticmethod
    def _sees(sentinel: Process, group: Group) -> bool:
        told = sentinel.ask("SENTINEL", "MASTER", group.name)
        facts = dict(zip(told[::2], told[1::2], strict=True))
        primary = next((it for it in group.servers if str(it.port) == facts["port"]), group.primary)
        if primary.info()["role"] == "master":
            group.primary = primary
        links = sentinel.ask("SENTINEL", "REPLICAS", group.name)
        well = sum(dict(zip(it[::2], it[1::2], strict=True))["flags"] == "slave" for it in links)
        known = facts["port"], facts["flags"], facts["num-other-sentinels"], well
        return known == (str(group.primary.port), "master", "2", 2)

    def close(self) -> None:
        """End all."""
        for it in self._sentinels:
            it.end()
