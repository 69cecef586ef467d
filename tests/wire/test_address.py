"""Addresses: what a URL names, what is wrong with it, and that nobody ever reads a password in an error, a label or a repr."""

from __future__ import annotations

import codecs
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.wire.address import Address, Sentinels, Tls, masked, parse

patient = effort(deadline=None)  # a machine that is busy is no failure

LONG = f"{'.'.join(['a' * 62] * 4)}.b."  # 254 bytes, with the dot at its end

GOOD = {
    "redis://h/123456789": Address("redis://h:6379/123456789", "h", 6379, database=123456789),
    f"redis://{'m' * 1024}@h": Address("redis://h:6379", "h", 6379, user="m" * 1024),
    "redis://h": Address("redis://h:6379", "h", 6379),
    f"redis://{LONG}": Address(f"redis://{LONG}:6379", LONG, 6379),
    "redis://h/": Address("redis://h:6379", "h", 6379),
    "redis://10.0.0.1:7000/3": Address("redis://10.0.0.1:7000/3", "10.0.0.1", 7000, database=3),
    "redis://h/0": Address("redis://h:6379", "h", 6379),
    "redis://h/2?db=3": Address("redis://h:6379/3", "h", 6379, database=3),  # as redis-py has it
    "redis://h/2?db=3&db=4": Address("redis://h:6379/4", "h", 6379, database=4),
    "REDIS://Cache.Example:1": Address("redis://cache.example:1", "cache.example", 1),
    "redis://[::1]": Address("redis://[::1]:6379", "::1", 6379),
    "redis://me@h": Address("redis://h:6379", "h", 6379, user="me"),
    "redis://:pw@h": Address("redis://h:6379", "h", 6379, password="pw"),
    "redis://me:pw@[::1]:7000/1": Address("redis://[::1]:7000/1", "::1", 7000, database=1, user="me", password="pw"),
    "redis://m%40e:p%3A%2F%3F%23%40%25w@h": Address("redis://h:6379", "h", 6379, user="m@e", password="p:/?#@%w"),
    "redis://me:p@w:x@h": Address("redis://h:6379", "h", 6379, user="me", password="p@w:x"),  # the last @ counts, and the first :
    "unix:///run/r.sock": Address("unix:///run/r.sock", path="/run/r.sock"),
    "unix:///run/r%20s.sock?db=4": Address("unix:///run/r s.sock?db=4", path="/run/r s.sock", database=4),
    "unix:///run/r.sock?db=0": Address("unix:///run/r.sock", path="/run/r.sock"),
    "redis://h?username=me&password=p%2Fw+%26": Address("redis://h:6379", "h", 6379, user="me", password="p/w+&"),  # a plus is a plus
    "redis://me@h?password=pw": Address("redis://h:6379", "h", 6379, user="me", password="pw"),
    "valkey://h:7000/3": Address("valkey://h:7000/3", "h", 7000, database=3),
    "redis://[fe80::1%25eth0]:7000": Address("redis://[fe80::1%25eth0]:7000", "fe80::1%eth0", 7000),
    "rediss://h": Address("rediss://h:6379", "h", 6379, tls=Tls()),
    "valkeys://me:pw@[::1]/1": Address("valkeys://[::1]:6379/1", "::1", 6379, database=1, user="me", password="pw", tls=Tls()),
    "rediss://h?ssl_cert_reqs=required&ssl_check_hostname=True": Address("rediss://h:6379", "h", 6379, tls=Tls()),
    "rediss://h?ssl_cert_reqs=optional&ssl_check_hostname=no": Address("rediss://h:6379", "h", 6379, tls=Tls(check_hostname=False)),
    "rediss://h?ssl_cert_reqs=none": Address("rediss://h:6379", "h", 6379, tls=Tls(verify=False, check_hostname=False)),
    "rediss://h?db=2&ssl_ca_certs=/a+b%20c&ssl_ca_path=/d&ssl_ca_data=--BEGIN+&ssl_certfile=/c&ssl_keyfile=/k&ssl_password=p%26": Address(
        "rediss://h:6379/2",
        "h",
        6379,
        database=2,
        tls=Tls(ca_certs="/a+b c", ca_path="/d", ca_data="--BEGIN+", certfile="/c", keyfile="/k", password="p&"),
    ),
    "redis://me@h?failover=15": Address("redis://h:6379", "h", 6379, user="me", failover=15.0),
    "redis://h/2?failover=0": Address("redis://h:6379/2", "h", 6379, database=2, failover=0.0),
    "redis://h?unproven=true": Address("redis://h:6379", "h", 6379, unproven=True),
    "unix:///run/r.sock?unproven=no": Address("unix:///run/r.sock", path="/run/r.sock"),
    "unix:///run/r.sock?failover=86400": Address("unix:///run/r.sock", path="/run/r.sock", failover=86400.0),
    "unix://me:p%2Fw@/run/r.sock": Address("unix:///run/r.sock", path="/run/r.sock", user="me", password="p/w"),
}

BOUND = "failover is a number of seconds from 0 to 86400, as in redis://host?failover=15"
UNFOUND = "names no host that can be looked up: write redis://host:6379"


def refused(text: str) -> dict[str, str]:
    """What `addresses.txt` has: addresses, and what is told of each."""
    found, told = dict[str, str](), ""
    for line in text.splitlines():
        if not line.startswith("    "):
            told = line
            continue
        for written, _, shown in (it.partition(" => ") for it in line[4:].split(" | ")):
            url = "" if written == "~" else codecs.decode(written, "unicode_escape")
            found[url] = told.replace("<>", shown or url)
    return found


BAD = {
    **refused((Path(__file__).parent / "addresses.txt").read_text()),
    **{f"redis://h?failover={it}": f"'redis://h': {BOUND}" for it in ("", "-1", "15s", "1e3", "86401", "inf", "nan", "%D9%A3")},
    "redis://h?db=" + "1" * 5000: "'redis://h': the database is a number, as in redis://host:6379/1 or unix:///path?db=1",
    f"redis://{'m' * 1025}@h": "the user of 'redis://h' has 1025 bytes of UTF-8; at most 1024 are allowed",
    f"redis://{'a' * 64}": f"'redis://{'a' * 64}' {UNFOUND}",  # a label of more than 63 bytes: nobody can be asked
    f"redis://{'.'.join(['a' * 62] * 4)}.bcd": UNFOUND,  # 255 bytes
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
        parse(url)  # type: ignore[arg-type]  # (the mistake)


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
@given(st.text(), SECRETS, st.sampled_from(["redis://{}@h:7000/1", "rediss://{}@[::1]", "unix://{}@/run/r.sock?db=1"]))
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
    "rediss:://:{}@h",
    "rediss://h?ssl_password={}",
    "rediss://h?ssl_certfile=/c&ssl_keyfile=&ssl_password={}",
    "rediss://h?password={}&password={}&x=1",
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
    text = seen(frame.replace("{}", password))
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


@patient
@given(SECRETS)
def test_passwords_may_be_options_and_are_seen_nowhere(password: str) -> None:
    url = f"rediss://h?password={quote(password, safe='')}&ssl_certfile=/c&ssl_password={quote(password, safe='')}"
    address = parse(url)
    assert address.tls is not None and address.password == address.tls.password == password
    assert "secr3t" not in seen(url) and "sec4et" not in seen(url)


def test_a_place_is_the_same_for_all_databases_and_users() -> None:
    one, other = parse("rediss://me@h:7000/1?ssl_cert_reqs=none"), parse("valkey://h:7000")
    assert one.place == other.place == ("h", 7000) and parse("unix:///s?db=1").place == ("/s", 0)


def test_an_address_is_immutable() -> None:
    with pytest.raises(AttributeError):
        parse("redis://h").host = "other"  # type: ignore[misc]  # (the mistake)


def test_masked_texts_are_the_same_texts_and_show_no_password() -> None:
    url = "redis://me:s3cret@a:6379"
    given = {"a": [url, ("redis://b",)], "b": iter([5, None, b"x"])}
    assert masked(given) == {"a": [url, ["redis://b"]], "b": [5, None, b"x"]}
    assert repr(masked([url])) == "['redis://a:6379']"
    address = parse(masked(url))
    assert address.password == "s3cret"
    assert parse(address) is address


def test_an_address_with_other_credentials_is_the_same_place() -> None:
    address = parse("redis://someone:secret@a:7000/2")
    other = address.signed("app", "other")
    assert (other.user, other.password, other.place, other.database) == ("app", "other", address.place, address.database)
    assert other != address
    assert hash(other) == hash(address.signed("app", "other"))


def test_sentinels_and_the_group_that_they_watch() -> None:
    found = parse(
        "rediss+sentinel://me:p%40@s2:5,s1,[::1]:7/it.is/3?failover=15&unproven=true&sentinel_username=ask&sentinel_password=pw&ssl_cert_reqs=none"
    )
    assert found.label == "rediss+sentinel://s2:5,s1:26379,[::1]:7/it.is/3"
    assert found.sentinels == Sentinels((("s2", 5), ("s1", 26379), ("::1", 7)), "it.is", "ask", "pw")
    assert (found.user, found.password, found.database, found.failover, found.moves, found.unproven) == ("me", "p@", 3, 15.0, True, True)
    assert found.tls is not None
    assert (
        parse("valkey+sentinel://s1,s2/a").place == parse("redis+sentinel://s2:26379,s1/a").place != parse("redis+sentinel://s1,s2/b").place
    )
    assert found.but(host="h", port=1).signed("x", "y").sentinels == found.sentinels
    assert "pw" not in repr(found)
