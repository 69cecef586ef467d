"""Findings in wire/address.py: each of these fails today."""

from __future__ import annotations

import traceback

import pytest

from holdfast.errors import ConfigError
from holdfast.wire.address import parse

LEAKS = {
    "a slash, and a number before it": "redis://me:12/SECRET@h",  # in the complaint about the database
    "a slash, of a unix socket": "unix://:x/SECRET@/run/r.sock",  # in the label: accepted, as another path
    "a question mark": "redis://me:12?db=SECRET@h",  # in the complaint about the database
    "a question mark and an equals sign": "redis://me:12?SECRET=x@h",  # as an unknown option
    "an option, as redis-py has it": "redis://h?password=SECRET",
    "an option, of a unix socket": "unix:///s?db=0&password=SECRET",
    "before the scheme": "me:SECRET@redis://h",
}


@pytest.mark.parametrize("url", LEAKS.values(), ids=LEAKS)
def test_a_password_is_seen_nowhere(url: str) -> None:
    try:
        address = parse(url)
    except ConfigError as error:
        seen = "".join(traceback.format_exception(error))
    else:
        seen = f"{address.label} {address!r}"
    assert "SECRET" not in seen.upper()


def test_a_password_with_a_number_sign_is_not_taken_for_another_server() -> None:
    # Accepted today: host "me", port 12, the rest of the password and the real host dropped as a fragment.
    with pytest.raises(ConfigError):
        parse("redis://me:12#34@cache.example/1")


@pytest.mark.parametrize("url", ["redis://h#1", "unix:///s#1"])
def test_a_fragment_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse(url)


def test_a_unix_address_has_no_host() -> None:
    # Accepted today as /redis.sock: the user meant /tmp/redis.sock, or a relative path.
    with pytest.raises(ConfigError):
        parse("unix://tmp/redis.sock")


def test_a_database_of_thousands_of_digits_is_a_config_error() -> None:
    with pytest.raises(ConfigError):  # int() raises a plain ValueError
        parse("redis://h/" + "1" * 5000)


@pytest.mark.parametrize("url", ["redis://me:p\udcffw@h", "redis://m\udcffe:pw@h", "unix:///s\udcff"])
def test_what_utf_8_cannot_say_is_a_config_error(url: str) -> None:
    # Environment variables that are no UTF-8 come like this. User and password raise UnicodeEncodeError in Lane.connected, inside
    # the keeper: the engine is declared dead, and all leases lost.
    if url.startswith("unix"):
        pytest.skip("a path may be any bytes")
    with pytest.raises(ConfigError):
        parse(url)
