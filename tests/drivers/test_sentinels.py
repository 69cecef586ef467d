"""What Sentinels are asked, whose answer counts, and what happens when they disagree, are silent, or are none.

Small servers with scripted answers play the Sentinels: real ones cannot be made to disagree at will. The live tests have real ones.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from holdfast.clock import clock
from holdfast.drivers.access import accesses
from holdfast.drivers.sentinels import primary
from holdfast.errors import ConfigError
from holdfast.wire.address import parse
from holdfast.wire.resp import pack

ASKED = pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", b"it")
UNKNOWN = b"*-1\r\n"


def names(host: str, port: int) -> bytes:
    """The answer of a Sentinel that knows the group."""
    return pack(host.encode(), b"%d" % port)


class Played:
    """Listens, and answers whoever has asked. None: it never does; b"": it hangs up."""

    def __init__(self, answer: bytes | None, wanted: bytes = ASKED) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port, self._answer, self._wanted = self._listener.getsockname()[1], answer, wanted
        self.heard = b""
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                self.heard = b""
                while len(self.heard) < len(self._wanted) and (data := connection.recv(4096)):
                    self.heard += data
                if self._answer:
                    connection.sendall(self._answer)
                elif self._answer is not None:
                    connection.close()
        except OSError:
            pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        # Who asked has hung up, so the thread ends. Until then it may still accept somebody.
        self._thread.join(5)
        for it in [*self._connections, self._listener]:
            it.close()


@pytest.fixture
def played() -> Iterator[list[Played]]:
    found: list[Played] = []
    yield found
    for it in found:
        it.close()


def ask(
    sentinels: list[Played], *answers: bytes | None, patience: float = 10.0, options: str = "", wanted: bytes = ASKED
) -> tuple[str, int]:
    sentinels += [Played(it, wanted) for it in answers]
    where = ",".join(f"127.0.0.1:{it.port}" for it in sentinels)
    return primary(parse(f"redis+sentinel://{where}/it{options}"), None, patience)


def test_the_place_is_what_a_majority_says(played: list[Played]) -> None:
    assert ask(played, names("a", 1), names("a", 1), names("a", 1)) == ("a", 1)
    # (The answers of two are enough, so the third may not have read the question yet.)
    assert [it.heard for it in played].count(ASKED) >= 2


def test_neither_the_first_that_knows_of_a_failover_nor_one_that_was_cut_off_decides(played: list[Played]) -> None:
    """Rule G13: once a majority has named the new primary to a client, no majority names the old one to another."""
    assert ask(played, names("old", 1), names("new", 2), names("new", 2)) == ("new", 2)
    for answers in ([names("old", 1), names("new", 2)], [names("old", 1), names("new", 2), None]):
        with pytest.raises(ConnectionError, match=r"'it' .*old:1; .*new:2"):
            ask([], *answers, patience=0.5)


def test_nobody_waits_for_a_minority_that_is_silent(played: list[Played]) -> None:
    began = clock()
    assert ask(played, None, names("a", 1), names("a", 1), patience=60) == ("a", 1)
    assert clock() - began < 20


def test_a_minority_is_not_believed(played: list[Played]) -> None:
    # They may be cut off from the others, together with a former primary.
    with pytest.raises(ConnectionError, match="'it'"):
        ask(played, None, names("a", 1), b"", patience=0.5)


def test_without_an_answer_each_is_named_with_what_is_wrong(played: list[Played]) -> None:
    began = clock()
    refusals = b"-NOAUTH Authentication required.\r\n", b"-ERR unknown command\r\n", b"+OK\r\n"
    with pytest.raises(ConnectionError, match="'it'") as caught:
        ask(played, None, b"", *refusals, b"?!", UNKNOWN, patience=1.0)
    assert clock() - began < 30
    told = str(caught.value).partition(": ")[2].split("; ")
    assert [it.partition(" ")[2] for it in told] == [
        "has not answered",
        "cannot be reached: it closed the connection",
        "refuses: NOAUTH Authentication required.",
        "refuses: ERR unknown command",
        "is no Sentinel",
        told[5].partition(" ")[2],
        "does not know the group",
    ]
    assert "does not speak the servers' protocol" in told[5]


def test_a_group_that_none_of_them_knows_is_a_mistake(played: list[Played]) -> None:
    with pytest.raises(ConfigError, match="its Sentinels know no group 'it'"):
        ask(played, UNKNOWN, UNKNOWN)


def test_a_password_for_sentinels_is_said_first_and_never_shown(played: list[Played]) -> None:
    login = pack(b"AUTH", b"me", b"s3cret")
    options = "?sentinel_username=me&sentinel_password=s3cret"
    assert ask(played, b"+OK\r\n" + names("a", 1), options=options, wanted=login + ASKED) == ("a", 1)
    assert played[0].heard == login + ASKED
    played[0].close()
    played.clear()
    with pytest.raises(ConnectionError, match="refuses: WRONGPASS") as caught:
        ask(played, b"-WRONGPASS no\r\n" * 3, options="?sentinel_password=s3cret", wanted=pack(b"AUTH", b"s3cret") + ASKED, patience=2.0)
    assert "s3cret" not in str(caught.value)


def test_sentinels_may_have_tls_though_nobody_knows_the_node_s_own_host_yet() -> None:
    (access,) = accesses([parse("rediss+sentinel://s1,s2:1/it")], None, None)
    assert access.tunnel(access.address.but(host="the-primary")) is not None
