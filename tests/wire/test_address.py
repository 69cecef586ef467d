"""Addresses: what a URL names, what is wrong with it, and that nobody ever reads a password in an error, a label or a repr."""

from __future__ import annotations

import traceback
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.wire.address import Address, parse

patient = effort(deadline=None)  # a machine that is busy is no failure

GOOD = {
    "redis://h/123456789": Address("redis://h:6379/123456789", "h", 6379, database=123456789),
    f"redis://{'m' * 1024}@h": Address("redis://h:6379", "h", 6379, user="m" * 1024),
    "redis://h": Address("redis://h:6379", "h", 6379),
    "redis://h/": Address("redis://h:6379", "h", 6379),
    "redis://h:7000": Address("redis://h:7000", "h", 7000),
    "redis://10.0.0.1:7000/3": Address("redis://10.0.0.1:7000/3", "10.0.0.1", 7000, database=3),
    "redis://h/0": Address("redis://h:6379", "h", 6379),
    "redis://h?db=15": Address("redis://h:6379/15", "h", 6379, database=15),
    "redis://h/2?db=3": Address("redis://h:6379/3", "h", 6379, database=3),  # as redis-py has it
    "redis://h/2?db=3&db=4": Address("redis://h:6379/4", "h", 6379, database=4),
    "REDIS://Cache.Example:1": Address("redis://cache.example:1", "cache.example", 1),
    "redis://[::1]": Address("redis://[::1]:6379", "::1", 6379),
    "redis://[2001:db8::2]:7001/1": Address("redis://[2001:db8::2]:7001/1", "2001:db8::2", 7001, database=1),
    "redis://me@h": Address("redis://h:6379", "h", 6379, user="me"),
    "redis://:pw@h": Address("redis://h:6379", "h", 6379, password="pw"),
    "redis://me:pw@[::1]:7000/1": Address("redis://[::1]:7000/1", "::1", 7000, database=1, user="me", password="pw"),
    "redis://m%40e:p%3A%2F%3F%23%40%25w@h": Address("redis://h:6379", "h", 6379, user="m@e", password="p:/?#@%w"),
    "redis://me:p@w:x@h": Address("redis://h:6379", "h", 6379, user="me", password="p@w:x"),  # the last @ counts, and the first :
    "unix:///run/r.sock": Address("unix:///run/r.sock", path="/run/r.sock"),
    "unix:///run/r%20s.sock?db=4": Address("unix:///run/r s.sock?db=4", path="/run/r s.sock", database=4),
    "unix:///run/r.sock?db=0": Address("unix:///run/r.sock", path="/run/r.sock"),
    "unix://me:p%2Fw@/run/r.sock": Address("unix:///run/r.sock", path="/run/r.sock", user="me", password="p/w"),
}

BAD = {
    "": "'': a node's address begins with redis:// or unix://",
    "h": "'h': a node's address begins with redis:// or unix://",
    "h:6379": "'h:6379': a node's address begins with redis:// or unix://",
    "http://h": "'http://h': a node's address begins with redis:// or unix://",
    "rediss://h": "'rediss://h': a node's address begins with redis:// or unix://",
    "redis:/h": "'redis:/h': a node's address begins with redis:// or unix://",
    "redis://": "'redis://' names no host: write redis://host:6379",
    "redis://:7000": "'redis://:7000' names no host: write redis://host:6379",
    "redis:///1": "'redis:///1' names no host: write redis://host:6379",
    "redis://h:port": "'redis://h' is no address of a node: its host, port or options cannot be read",
    "redis://h:70000": "'redis://h:70000' is no address of a node: its host, port or options cannot be read",
    "redis://[::1": "'redis://[::1' is no address of a node: its host, port or options cannot be read",
    "redis://h?db": "'redis://h' is no address of a node: its host, port or options cannot be read",
    "redis://h/x": "'redis://h/x': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "redis://h/1/2": "'redis://h/1/2': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "redis://h/-1": "'redis://h/-1': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "redis://h?db=": "'redis://h': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "redis://h?db=\u0663": "'redis://h': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "redis://h?db=\xb2": "'redis://h': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "redis://h?ssl=1&a=2": "'redis://h': the only option of an address is ?db=, and it has no #fragment",
    "unix://": "'unix://' names no socket: write unix:///path/of/the/socket, with three slashes",
    "unix://s": "'unix://s' names no socket: write unix:///path/of/the/socket, with three slashes",
    "unix:///s?db=x": "'unix:///s': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "unix:///s?mode=1": "'unix:///s': the only option of an address is ?db=, and it has no #fragment",
    "redis://h#1": "'redis://h': the only option of an address is ?db=, and it has no #fragment",
    "unix:///s#1": "'unix:///s': the only option of an address is ?db=, and it has no #fragment",
    "redis://h/1234567890": "'redis://h/1234567890': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "redis://h?db=" + "1" * 5000: "'redis://h': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    "unix://run/r.sock": "'unix://run/r.sock' names no socket: write unix:///path/of/the/socket, with three slashes",
    "1redis://h": "'...': a node's address begins with redis:// or unix://",
    " redis://h": "'...': a node's address begins with redis:// or unix://",
    "redis://m\udcffe@h": "the user of 'redis://h' 'm\\udcffe' has half of a surrogate pair in it, which UTF-8 cannot say",
    f"redis://{'m' * 1025}@h": "the user of 'redis://h' has 1025 bytes of UTF-8; at most 1024 are allowed",
    # with a password in it
    "redis://me:pw@h:port": "'redis://h' is no address of a node: its host, port or options cannot be read",
    "redis://me:pw@": "'redis://' names no host: write redis://host:6379",
    "redis:/me:pw@h": "'...' is no address of a node: in user, password and path write / ? # @ : as %2F %3F %23 %40 %3A",
    "redis://me:p\udcffw@h": "'redis://h': its password has half of a surrogate pair in it, which UTF-8 cannot say",
    "redis://h:pw": "'redis://h' is no address of a node: its host, port or options cannot be read",
    "redis://h?password=pw": "'redis://h': the only option of an address is ?db=, and it has no #fragment",
    "unix:///s?password=pw": "'unix:///s': the only option of an address is ?db=, and it has no #fragment",
    "me:pw@redis://h": "'...' is no address of a node: in user, password and path write / ? # @ : as %2F %3F %23 %40 %3A",
    "me:pw@h": "'...' is no address of a node: in user, password and path write / ? # @ : as %2F %3F %23 %40 %3A",
}


@pytest.mark.parametrize("url", GOOD)
def test_a_good_address(url: str) -> None:
    assert parse(url) == GOOD[url]


@pytest.mark.parametrize("url", BAD)
def test_a_bad_address_says_what_to_write_instead(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(url)
    assert BAD[url] in str(caught.value)


@pytest.mark.parametrize("url", [None, 6379, b"redis://h", ["redis://h"]])
def test_an_address_is_text(url: object) -> None:
    with pytest.raises(ConfigError, match=f"is text like 'redis://host:6379', not {type(url).__name__}"):
        parse(url)  # type: ignore[arg-type]


STARTS = ("", "redis:", "redis://", "redis://h", "redis://h:1/", "redis://h?", "redis://[", "unix://", "unix:///s?")


@patient
@given(st.sampled_from(STARTS), st.text())
def test_rubbish_is_an_address_or_a_config_error(start: str, rest: str) -> None:
    try:
        address = parse(start + rest)
    except ConfigError:
        return
    assert (address.host != "") != (address.path != "")  # one of them, and not both
    assert 0 <= address.port < 65536 and address.database >= 0


SECRETS = st.text(min_size=1).map(lambda text: f"sEcr3t{text}Sec4eT")  # two words to look for, and anything between and around them


def seen(url: str) -> str:
    """Whatever a user, a log or a traceback may show of an address."""
    try:
        address = parse(url)
    except ConfigError as error:
        return "".join([repr(error), *traceback.format_exception(error)]).lower()
    return f"{address.label} {address!r} {address}".lower()


@patient
@given(st.text(), SECRETS, st.sampled_from(["redis://{}@h:7000/1", "redis://{}@[::1]", "unix://{}@/run/r.sock?db=1"]))
def test_user_and_password_are_percent_encoded_and_seen_nowhere(user: str, password: str, frame: str) -> None:
    url = frame.format(f"{quote(user, safe='')}:{quote(password, safe='')}")
    assert (parse(url).user, parse(url).password) == (user, password)
    assert "secr3t" not in seen(url) and "sec4et" not in seen(url)


MANGLED = (
    "redis://me:{}@h",
    "redis://:{}@h:port",
    "redis://:{}@",
    "redis://:{}@h/x",
    "redis://:{}@h?a=b",
    "redis://:{}@[h",
    "redis://{}@:1",
    "redis:/:{}@h",
    "redis:{}@h",
    "rediss://:{}@h",
    ":{}@h",
    "unix://:{}@s",
    "unix://:{}@/s?db=x",
    "unix://:{}@/s?db",
    "http://:{}@h/",
)


@patient
@given(SECRETS, st.sampled_from(MANGLED))
@example("sEcr3t\u2100", "redis://:{}@h")  # which the parser refuses, quoting it: it has a slash in it when normalized
def test_a_password_is_not_seen_even_of_a_malformed_address(password: str, frame: str) -> None:
    text = seen(frame.format(password))
    assert "secr3t" not in text and "sec4et" not in text


@pytest.mark.parametrize("start", ["8675309", "sEcr3t", "sEcr3t:", "sEcr3t]"])  # the first looks like a port, the last like an address
@pytest.mark.parametrize("special", "/?#")
@pytest.mark.parametrize("frame", ["redis://me:{}@h", "redis://:{}@h:1/2?db=3", "unix://:{}@/run/r.sock", "http://:{}@h"])
def test_a_password_that_is_not_percent_encoded_is_refused_and_no_part_of_it_seen(frame: str, special: str, start: str) -> None:
    text = seen(frame.format(f"{start}{special}db=Sec4eT"))
    assert "write / ? # @ : as %2f %3f %23 %40 %3a" in text
    assert start.lower() not in text and "sec4et" not in text


def test_what_an_address_does_not_name_is_empty() -> None:
    tcp, unix = parse("redis://h"), parse("unix:///s")
    assert (tcp.path, tcp.database, tcp.user, tcp.password) == ("", 0, "", "")
    assert (unix.host, unix.port, unix.database, unix.user, unix.password) == ("", 0, 0, "", "")


def test_an_address_is_immutable() -> None:
    with pytest.raises(AttributeError):
        parse("redis://h").host = "other"  # type: ignore[misc]
