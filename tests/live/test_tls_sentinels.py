"""Sentinels that speak TLS and ask for a user, before servers that do so too: for both faces.

Needs a server that was built with TLS, as Debian's is. `.ci/run` sees to it that these tests run on one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.cluster import asks
from contract.faces import Face
from live.groups import PATIENCE, SECRET, Process
from live.tls_kit import FRONTS, Papers
from nemesis.processes import free_port, until

from holdfast.errors import NoQuorum

pytestmark = pytest.mark.skipif("own" not in FRONTS, reason="this server was built without TLS")

PEER, WORD = "of-the-peers", "of-the-clients"
# All that holdfast asks of a Sentinel.
RIGHTS = "-@all +auth +sentinel|get-master-addr-by-name"


class Started(Process):
    """A server or a Sentinel: `tls` is its port with TLS, and `port` one for this test alone."""

    def __init__(self, folder: Path, lines: list[str], sentinel: bool = False) -> None:
        self.tls = free_port()
        super().__init__(folder, [f"tls-port {self.tls}", *lines], sentinel=sentinel, login="")

    def told(self, word: str) -> Any:
        """What a Sentinel tells a peer."""
        return asks(f"redis://127.0.0.1:{self.port}", [("AUTH", "peer", PEER), ("SENTINEL", word, "it")])[-1]


class Place:
    """A primary and its replica, which talk over TLS, and three Sentinels."""

    def __init__(self, folder: Path, papers: Papers) -> None:
        tls = [
            f"tls-cert-file {papers.node.cert}",
            f"tls-key-file {papers.node.key}",
            f"tls-ca-cert-file {papers.authority}",
            "tls-auth-clients no",
            "tls-replication yes",
        ]
        # The test asks servers without a password, and clients come as the user app.
        own = [*tls, f"user app on >{SECRET} ~* &* +@all", 'save ""', "repl-diskless-sync-delay 0"]
        self.servers = [Started(folder, own)]
        first = self.servers[0].tls
        self.servers.append(Started(folder, [*own, f"replicaof 127.0.0.1 {first}"]))
        watch = [
            *tls,
            f"sentinel monitor it 127.0.0.1 {first} 2",
            "sentinel sentinel-user peer",
            f"sentinel sentinel-pass {PEER}",
            f"user peer on >{PEER} ~* &* +@all",
            f"user app on >{WORD} {RIGHTS}",
            "user default on nopass -@all +ping",
        ]
        self.sentinels = [Started(folder, watch, sentinel=True) for _ in range(3)]
        for it in self.sentinels:
            until(lambda it=it: self._well(it), PATIENCE, "the Sentinels know each other and the replica")  # type: ignore[misc]  # (mypy knows no type of a default in a lambda)

    @property
    def places(self) -> str:
        return ",".join(f"127.0.0.1:{it.tls}" for it in self.sentinels)

    def _well(self, sentinel: Started) -> bool:
        told = sentinel.told("MASTER")
        facts = dict(zip(told[::2], told[1::2], strict=True))
        return (facts["flags"], facts["num-other-sentinels"], facts["num-slaves"]) == ("master", "2", "1")

    def close(self) -> None:
        for it in (*self.sentinels, *self.servers):
            it.end()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, papers: Papers) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("sentinels"), papers)
    yield found
    found.close()


APP = f"&sentinel_username=app&sentinel_password={WORD}"


def client(face: Face, place: Place, authority: str, user: str = APP, group: str = "it") -> Any:
    """A client whose first Sentinel is down."""
    url = f"rediss+sentinel://app:{SECRET}@127.0.0.1:1,{place.places}/{group}?failover=0&ssl_ca_certs={authority}{user}"
    return face.keep(face.kind(url, ttl=1, max_ttl=1, outage=60, node_timeout=5))


async def test_a_lock_where_sentinels_have_tls_and_users(face: Face, place: Place, papers: Papers) -> None:
    one = client(face, place, papers.authority)
    lease = await face.acquire(one.lock("tls.sentinels", wait=60))
    assert lease.held
    await face.release(lease)
    (node,) = one.nodes()
    assert node.node == f"rediss+sentinel://127.0.0.1:1,{place.places}/it"


async def test_sentinels_whose_authority_is_not_trusted(face: Face, place: Place, papers: Papers) -> None:
    with pytest.raises(NoQuorum, match="'it'") as caught:
        await face.ready(client(face, place, papers.stranger), 1)
    assert str(caught.value).count("its certificate is not good for 127.0.0.1") == 3


async def test_a_failover_is_followed_over_tls(face: Face, place: Place, papers: Papers) -> None:
    one = client(face, place, papers.authority)
    await face.release(await face.acquire(one.lock("tls.sentinels", wait=60)), confirm=True)
    (before,) = one.nodes()
    old = next(it for it in place.servers if f"run_id:{before.run_id}" in it.ask("INFO", "server"))
    until(lambda: any(it.told("FAILOVER") == "OK" for it in place.sentinels), PATIENCE, "a failover begins")
    # Until Sentinels have told it, it goes on. They cut the connections of its clients, such as this one.
    await asyncio.to_thread(until, lambda: "role:slave" in old.ask("INFO", "replication"), PATIENCE, "the old primary is told")
    await face.release(await face.acquire(one.lock("tls.sentinels", wait=60)), confirm=True)
    assert one.nodes()[0].run_id not in ("", before.run_id)
