"""What a client of redis-py says of its server that few clients say, and what is refused. tests/integrations/test_lent_clients.py has the
rest, in each version of these libraries."""

from __future__ import annotations

import ssl
from typing import Any

import coredis
import pytest
import redis
from redis.credentials import CredentialProvider

from holdfast import ConfigError
from holdfast.foreign_clients import ForeignServer, place


class Rotating(CredentialProvider):
    """Says another password each time."""

    def __init__(self, alone: bool = False) -> None:
        self.asked, self.alone = 0, alone

    def get_credentials(self) -> Any:
        self.asked += 1
        return (f"secret{self.asked}",) if self.alone else ("ada", f"secret{self.asked}")

    async def get_credentials_async(self) -> Any:
        return self.get_credentials()


def test_the_path_of_a_socket_is_quoted() -> None:
    assert place(redis.Redis(unix_socket_path="/run/it is.sock", db=2)).address == "unix:///run/it%20is.sock?db=2"


def test_a_provider_is_asked_each_time() -> None:
    provider = Rotating()
    ask = place(redis.Redis("db", credential_provider=provider)).login
    assert ask is not None
    assert provider.asked == 0
    assert [ask("redis://db:6379"), ask("redis://db:6379")] == [("ada", "secret1"), ("ada", "secret2")]
    login = place(redis.Redis("db", credential_provider=Rotating(alone=True))).login
    assert login is not None
    assert login("") == "secret1"


def test_tls_is_as_the_client_has_it() -> None:
    def context(**options: Any) -> ssl.SSLContext:
        found = place(redis.Redis("db", ssl=True, **options)).context()
        assert found is not None
        return found

    assert not context(ssl_check_hostname=False).check_hostname
    assert context(ssl_min_version=ssl.TLSVersion.TLSv1_3).minimum_version == ssl.TLSVersion.TLSv1_3
    assert {it["name"] for it in context(ssl_ciphers="ECDHE-RSA-AES128-GCM-SHA256").get_ciphers()} != {
        it["name"] for it in context().get_ciphers()
    }
    flags = ssl.VerifyFlags.VERIFY_X509_STRICT
    assert context(ssl_include_verify_flags=[flags]).verify_flags & flags
    assert not context(ssl_include_verify_flags=[flags], ssl_exclude_verify_flags=[flags]).verify_flags & flags
    with pytest.raises(FileNotFoundError):
        context(ssl_certfile="none.pem")
    assert place(redis.Redis("db")).context() is None


class Strange(redis.Connection):
    """A connection of a user's own."""


def different() -> redis.Redis:
    """A client with Sentinels that ask for different passwords."""
    found = redis.Sentinel([("a", 26379)])
    found.sentinels.append(redis.Redis("b", 26379, password="other"))
    return found.master_for("it")


def test_what_holdfast_cannot_follow_is_refused_by_its_name() -> None:
    cases: dict[str, Any] = {
        "redis_connect_func": redis.Redis("db", redis_connect_func=print),
        "Strange": redis.Redis(connection_pool=redis.ConnectionPool(connection_class=Strange)),
        "replicas": redis.Sentinel([("a", 26379)]).slave_for("it"),
        "asks replicas": coredis.Sentinel([coredis.connection.TCPLocation("a", 26379)]).replica_for("it"),
        "different passwords": different(),
        "no client": object(),
    }
    for word, client in cases.items():
        with pytest.raises(ConfigError, match=word) as caught:
            place(client)
        assert "nodes=" in str(caught.value)


def test_a_client_without_a_server_is_told_what_to_do() -> None:
    fake = type("FakeRedis", (), {"__module__": "fakeredis._server"})
    with pytest.raises(ConfigError, match=r"holdfast\.testing"):
        place(fake())


def test_what_is_about_connections_is_left_aside(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "holdfast.compat")
    assert place(redis.Redis("db", socket_timeout=3, client_name="app")) == ForeignServer("redis://db:6379", None, None)
    assert "socket_timeout" in caplog.text
