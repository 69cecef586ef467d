"""Files with credentials and with authorities, which the environment names."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.aio
from holdfast.drivers.access import accesses
from holdfast.drivers.files import MOST, Authority, CredentialsFile, Unusable
from holdfast.errors import ConfigError, message_of
from holdfast.wire.address import Tls, parse

SECRET = "s3cret"
KINDS = pytest.mark.parametrize("kind", [holdfast.Holdfast, holdfast.aio.Holdfast], ids=["threads", "asyncio"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file as it should be."""
    path = tmp_path / "credentials"
    path.write_text(f"app:{SECRET}\n")
    path.chmod(0o600)
    return path


def read(path: object) -> tuple[str, str]:
    return CredentialsFile(str(path), "THERE")("redis://a:6379")


@pytest.mark.parametrize(
    "text, pair",
    [
        ("app:pw", ("app", "pw")),
        ("app:pw\n", ("app", "pw")),
        ("app:pw\r\n", ("app", "pw")),
        (":pw", ("", "pw")),
        ("app:p:w ", ("app", "p:w ")),
        ("é:ü", ("é", "ü")),
        ("a:" + "b" * (MOST - 2), ("a", "b" * (MOST - 2))),
    ],
)
def test_what_a_file_says(text: str, pair: tuple[str, str], file: Path) -> None:
    file.write_bytes(text.encode())
    assert read(file) == pair


@pytest.mark.parametrize("text", [b"", b"\n", b"app", b"app:", b"app:pw\nb", b"app:pw\n\n", b"app:p\rw", b"\xff:pw", b"a:" + b"b" * MOST])
def test_another_form_is_refused_and_not_shown(text: bytes, file: Path) -> None:
    file.write_bytes(text)
    with pytest.raises(Unusable) as caught:
        read(file)
    assert str(caught.value) == f"THERE names {str(file)!r}, which must hold one line, user:password (or :password for the default user)"
    frames = traceback.TracebackException.from_exception(caught.value).stack
    assert frames and "app" not in str(caught.value).replace(str(file), "")


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_modes_that_keep_the_secret(mode: int, file: Path) -> None:
    file.chmod(mode)
    assert read(file) == ("app", SECRET)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601, 0o620, 0o660, 0o610, 0o777])
def test_modes_that_do_not_keep_it_are_refused(mode: int, file: Path) -> None:
    file.chmod(mode)
    with pytest.raises(Unusable, match=f"mode {mode:03o} "):
        read(file)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(Unusable, match="which is not a file"):
        read(tmp_path / "pipe")
    with pytest.raises(Unusable, match="which is not a file"):
        read(tmp_path)
    with pytest.raises(Unusable, match="No such file"):
        read(tmp_path / "none")
    with pytest.raises(Unusable, match=r"embedded null (byte|character)"):
        read("a\0b")


def test_it_is_read_before_each_connection(file: Path) -> None:
    (way,) = accesses([parse("redis://127.0.0.1")], None, CredentialsFile(str(file), "THERE"))
    assert not way.at_hand
    assert (way.ask()[1].user, way.ask()[1].password) == ("app", SECRET)
    file.write_text("app:other")
    assert way.ask()[1].password == "other"
    file.chmod(0o644)
    with pytest.raises(ConnectionError, match=r"THERE names .*: chmod 600"):
        way.ask()


def test_an_address_with_a_password_keeps_it_and_so_does_a_server_that_needs_none(file: Path) -> None:
    there = CredentialsFile(str(file), "THERE", {"redis://127.0.0.3:6379"})
    ways = accesses([parse(f"redis://{it}") for it in ("me:own@127.0.0.1", "127.0.0.2", "127.0.0.3")], None, there)
    assert [(it.ask()[1].user, it.ask()[1].password) for it in ways] == [("me", "own"), ("app", SECRET), ("", "")]


# ------------------------------------------------ authorities


def test_an_authority_is_for_addresses_that_name_none() -> None:
    ours = Authority("/ca.pem")
    assert ours.of(Tls()) == Tls(ca_certs="/ca.pem")
    told = Tls(certfile="/c", keyfile="/k", password="p", check_hostname=False)
    assert ours.of(told) == Tls(ca_certs="/ca.pem", certfile="/c", keyfile="/k", password="p", check_hostname=False)
    for own in (Tls(ca_certs="/a"), Tls(ca_path="/a"), Tls(ca_data="a"), Tls(verify=False, check_hostname=False)):
        assert ours.of(own) is own


# ------------------------------------------------ as a client uses them


@KINDS
def test_the_environment_names_a_file_with_credentials(kind: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CREDENTIALS_FILE", str(file))
    (way,) = kind("redis://127.0.0.1")._shards.all[0].access
    assert (way.ask()[1].user, way.ask()[1].password) == ("app", SECRET)
    (way,) = kind("redis://127.0.0.1", credentials=lambda node: "mine")._shards.all[0].access
    assert way.ask()[1].password == "mine", "an argument wins"
    file.chmod(0o666)
    with pytest.raises(ConfigError) as caught:
        kind("redis://127.0.0.1")
    assert message_of(caught.value).startswith(f"HOLDFAST_CREDENTIALS_FILE names {str(file)!r}, whose mode 666")
    ours = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert SECRET not in "".join(ours.format())
    monkeypatch.setenv("HOLDFAST_CREDENTIALS_FILE", "")
    (way,) = kind("redis://127.0.0.1")._shards.all[0].access
    assert way.at_hand


@KINDS
def test_the_environment_names_an_authority(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CA", str(tmp_path / "none.pem"))
    kind("redis://a")
    kind("rediss://a?ssl_cert_reqs=none")
    with pytest.raises(ConfigError) as caught:
        kind("rediss://a")
    told = "rediss://a:6379: ssl_ca_certs cannot be used: No such file or directory (the environment sets HOLDFAST_CA)"
    assert message_of(caught.value) == told


@KINDS
@pytest.mark.parametrize(
    "variables, options, told",
    [
        ({"TTL": "40"}, {}, "HOLDFAST_TTL"),
        ({"TTL": "40", "MAX_TTL": "30"}, {}, "HOLDFAST_TTL and HOLDFAST_MAX_TTL"),
        ({"MAX_TTL": "5"}, {"ttl": 6}, "HOLDFAST_MAX_TTL"),
        ({"RESTART_GUARD": "3"}, {}, "HOLDFAST_RESTART_GUARD"),
        ({"TTL": "5"}, {"ttl": 40}, ""),
        ({"OWNER": "me"}, {"node_timeout": -1}, ""),
    ],
)
def test_an_error_names_the_variables_that_it_is_about(
    kind: Any, variables: dict[str, str], options: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"HOLDFAST_{name}", value)
    with pytest.raises(ConfigError) as caught:
        kind("redis://a", **options)
    assert message_of(caught.value).partition(" (the environment sets ")[2].removesuffix(")") == told
