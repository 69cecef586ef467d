"""The exclusive lock's words: which keys a name has, which names are refused, and commands, which are what a naive packer makes of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from scripts.bench import pack

import holdfast.scripts
from holdfast.errors import ConfigError
from holdfast.protocol.exclusive import LONGEST, SHORTEST, Exclusive, key_of, keys_of, tag_of, undo, user_name
from holdfast.scripts import RETIRE

patient = effort(deadline=None)  # a machine that is busy is no failure

TOKEN = b"1700000000000000:0123456789abcdef0123456789abcdef:0000000a"
K = 16_000


def sha(script: str) -> bytes:
    text = (Path(holdfast.scripts.__file__).parent / f"{script}.lua").read_bytes()
    return hashlib.sha1(holdfast.scripts.bare(text)).hexdigest().encode()


def crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc


def slot(key: bytes) -> int:
    """The hash slot of a key, as the specification of Redis Cluster has it."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    tagged = start >= 0 and end > start + 1
    return crc16(key[start + 1 : end] if tagged else key) % 16384


def test_slots_are_those_of_the_specification() -> None:
    assert crc16(b"123456789") == 0x31C3  # its examples, all of them
    assert slot(b"{user1000}.following") == slot(b"{user1000}.followers") == crc16(b"user1000") % 16384
    assert slot(b"foo{}{bar}") == crc16(b"foo{}{bar}") % 16384
    assert slot(b"foo{{bar}}zap") == crc16(b"{bar") % 16384
    assert slot(b"foo{bar}{zap}") == crc16(b"bar") % 16384


# ------------------------------------------------ keys


KEYS = {
    # plain: no hash tag in it
    "a": (b"{a}:fence", b"{a}:queue", b"{a}:waiters"),
    "a{b": (b"{a{b}:fence", b"{a{b}:queue", b"{a{b}:waiters"),
    "a\0%s\u00e9": (b"{a\0%s\xc3\xa9}:fence", b"{a\0%s\xc3\xa9}:queue", b"{a\0%s\xc3\xa9}:waiters"),
    # with a hash tag
    "{t}": (b"{t}:fence:{t}", b"{t}:queue:{t}", b"{t}:waiters:{t}"),
    "a{t}b": (b"{t}:fence:a{t}b", b"{t}:queue:a{t}b", b"{t}:waiters:a{t}b"),
    "{t}{u}}": (b"{t}:fence:{t}{u}}", b"{t}:queue:{t}{u}}", b"{t}:waiters:{t}{u}}"),
    "a}{t}": (b"{t}:fence:a}{t}", b"{t}:queue:a}{t}", b"{t}:waiters:a}{t}"),
    "a{{t}": (b"{{t}:fence:a{{t}", b"{{t}:queue:a{{t}", b"{{t}:waiters:a{{t}"),
    "{\n}": (b"{\n}:fence:{\n}", b"{\n}:queue:{\n}", b"{\n}:waiters:{\n}"),
    "{a{b}:x": (b"{a{b}:fence:{a{b}:x", b"{a{b}:queue:{a{b}:x", b"{a{b}:waiters:{a{b}:x"),
}


@pytest.mark.parametrize("name", KEYS)
def test_the_keys_of_a_name(name: str) -> None:
    assert keys_of(key_of(name)) == (name.encode(), *KEYS[name])
    assert KEYS[name][1].startswith(b"{%b}:" % tag_of(name)), "what decides where it lives is what a server hashes"


@pytest.mark.parametrize(
    "options, use",
    [
        ({}, "exclusive"),
        ({"slot": 2}, "permit"),
        ({"own": "election"}, "election"),
        ({"own": "once"}, "once"),
        ({"own": "once 2026-02-01"}, "once"),
        ({"own": "fill"}, "fill"),
    ],
)
@pytest.mark.parametrize("name", ["a", "[fill", "a [b]"])
def test_what_a_lock_is_for(options: dict[str, Any], use: str, name: str) -> None:
    assert Exclusive(name, ttl=9.0, horizon=1, **options).primitive == use


NO_TAG = "it has a '}' but no hash tag like '{tag}' before it; leave the '}' out"
OURS = "it looks like the keys in which locks keep their queues and fences"
REFUSED = {
    "": "a lock needs a name",
    "a}": NO_TAG,
    "{}a": NO_TAG,
    "a{}{t}": NO_TAG,
    "}{": NO_TAG,
    "{a}:fence": OURS,
    "{a}:window:x": OURS,
    "{a}:fence:x{a}": OURS,
    "{a}:queues are fun": OURS,
    "{a{b}:waiters": OURS,
    "{a\nb}:fence": OURS,
    "\u00e9" * 257: "a lock's name has 514 bytes of UTF-8; at most 512 are allowed",
    "a" * 513: "a lock's name has 513 bytes of UTF-8; at most 512 are allowed",
    "a\ud800": "which UTF-8 cannot say",
}


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_a_name_that_is_refused(name: str) -> None:
    for refused in (lambda: key_of(name), lambda: Exclusive(name, ttl=10, horizon=K)):
        with pytest.raises(ConfigError) as caught:
            refused()
        assert REFUSED[name] in str(caught.value)
        assert repr(name) in str(caught.value) or name == "" or len(name) > 100


@pytest.mark.parametrize("name", [None, b"a", 5, ["a"]])
def test_a_name_is_text(name: object) -> None:
    with pytest.raises(ConfigError, match="a lock's name is text, not "):
        key_of(name)  # type: ignore[arg-type]  # (the mistake)


def test_the_longest_name() -> None:
    assert (LONGEST, SHORTEST) == (512, 0.05)
    assert key_of("a" * 512) == b"a" * 512
    assert key_of("\u00e9" * 256, "p" * 9) == b"p" * 9 + b"\xc3\xa9" * 256  # the prefix does not count


@pytest.mark.parametrize(
    "prefix, name, key", [("p:", "a", b"p:a"), ("p:", "{t}", b"p:{t}"), ("p:", "{t}:fence", b"p:{t}:fence"), ("", "a", b"a")]
)
def test_the_key_rules_are_for_the_name_behind_its_prefix(prefix: str, name: str, key: bytes) -> None:
    if prefix:
        lock = Exclusive(name, prefix=prefix, ttl=10, horizon=K)
        assert (lock.name, lock.label) == (key, name)
    assert key_of(name, prefix) == key


def test_a_prefix_makes_no_name() -> None:
    with pytest.raises(ConfigError, match="a lock needs a name"):
        key_of("", "p:")


def accepted(name: str) -> bytes | None:
    try:
        return key_of(name)
    except ConfigError:
        return None


PIECES = (
    "{",
    "}",
    ":",
    "{t}",
    "}:",
    "fence",
    "queue",
    "waiters",
    "readers",
    "rfence",
    "t",
    "a",
    "%",
    "%s",
    "\0",
    "\n",
    "\r\n",
    " ",
    "\u00e9",
    "\U0001f512",
)
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=7).map("".join) | st.text(min_size=1, max_size=20)


@patient
@given(NAMES, NAMES)
def test_no_two_names_share_a_key_and_the_four_keys_share_a_slot(one: str, other: str) -> None:
    # Rule K1.
    found = {key: keys_of(key) for key in (accepted(one), accepted(other)) if key is not None}
    for keys in found.values():
        assert len(set(keys)) == 4
        assert len({slot(key) for key in keys}) == 1
    assert len({key for keys in found.values() for key in keys}) == 4 * len(found)


@patient
@given(NAMES)
def test_the_keys_of_a_lock_are_no_names(name: str) -> None:
    key = accepted(name)
    for each in keys_of(key)[1:] if key else ():
        assert accepted(each.decode()) is None


# ------------------------------------------------ commands


tokens = st.builds(lambda ticket, inbox, serial: b"%016d:%032x:%08x" % (ticket, inbox, serial),
    st.integers(1, 9 * 10**15 - 1), st.integers(0, 2**128 - 1), st.integers(0, 2**32 - 1))  # fmt: skip
milliseconds = st.integers(50, 86_400_000)
horizons = st.integers(1025, 43_201_000)
fences = st.integers(0, 10**16 - 1)


@patient
@given(NAMES, tokens, milliseconds, milliseconds, st.sampled_from([b"w", b"t", b"c"]), fences, horizons, fences)
def test_commands_are_what_a_naive_packer_makes(
    name: str, token: bytes, own: int, ttl: int, mode: bytes, fence: int, horizon: int, clock: int
) -> None:
    key = accepted(name)
    if key is None:
        return
    lock = Exclusive(name, ttl=own / 1000, horizon=horizon)
    for lease in (own, ttl):
        proposed = f"{fence:016}"
        expiry = max(fence // 1000 + horizon, clock // 1000 + horizon * 5 // 4)
        whole = pack("EVALSHA", sha("request"), 4, *keys_of(key), token, lease, mode, proposed, horizon, expiry)
        assert lock.request(token, lease / 1000, mode, fence, clock) == whole
    release = pack("EVALSHA", sha("release"), 4, *keys_of(key), token, horizon)
    assert lock.release(token) == release == undo(key, token, horizon)


@pytest.mark.parametrize("fence", [10**16, 2**53, 10**18])
def test_a_fence_of_more_digits_is_packed_as_long_as_it_is(fence: int) -> None:
    keys = keys_of(b"a")
    asked = pack("EVALSHA", sha("request"), 4, *keys, TOKEN, 10_000, b"w", f"{fence:016}", K, fence // 1000 + K)
    assert Exclusive("a", ttl=10, horizon=K).request(TOKEN, 10, b"w", fence) == asked


@pytest.mark.parametrize("token", [b"", b"short", TOKEN + b"x", b"x" * 58 + b"\r\n*1\r\n$8\r\nFLUSHALL\r\n"])
def test_whatever_a_token_is_it_is_one_word(token: bytes) -> None:
    lock, keys = Exclusive("a", ttl=10, horizon=K), keys_of(b"a")
    assert undo(b"a", token, K) == pack("EVALSHA", sha("release"), 4, *keys, token, K)
    assert lock.request(token, 10, b"w", 5) == pack("EVALSHA", sha("request"), 4, *keys, token, 10_000, b"w", f"{5:016}", K, K * 5 // 4)


@pytest.mark.parametrize(
    "ttl, told", [(0.05, 50), (1.001, 1001), (4.35, 4350), (8.2, 8200), (0.29, 290), (2.9996, 3000), (2.9994, 2999), (86400, 86_400_000)]
)
def test_a_ttl_is_told_in_milliseconds(ttl: float, told: int) -> None:
    asked = pack("EVALSHA", sha("request"), 4, *keys_of(b"a"), TOKEN, told, b"w", f"{5:016}", K, K * 5 // 4)
    assert Exclusive("a", ttl=ttl, horizon=K).request(TOKEN, ttl, b"w", 5) == asked  # packed in advance
    assert Exclusive("a", ttl=1, horizon=K).request(TOKEN, ttl, b"w", 5) == asked  # for an extension


def test_a_lock_of_which_only_the_key_is_known() -> None:
    lock = Exclusive.of_key(b"p:\xff{t}", K)
    assert (lock.name, lock.label, lock.horizon) == (b"p:\xff{t}", "p:\\xff{t}", K)
    assert undo(b"a}", TOKEN, K) == pack("EVALSHA", sha("release"), 4, *keys_of(b"a}"), TOKEN, K)  # whoever took that name for a lock's


def test_a_slot_is_a_lock_of_its_own_beside_the_lock_of_that_name() -> None:
    lock, slot = Exclusive("a", ttl=10, horizon=K), Exclusive("a", ttl=10, horizon=K, slot=3)
    assert (lock.name, lock.part, lock.slot) == (b"a", "a", None)
    assert (slot.name, slot.label, slot.part, slot.slot) == (b"a[slot 3]", "a", "a[slot 3]", 3)
    assert (lock.primitive, slot.primitive) == ("exclusive", "permit")
    assert Exclusive.of_key(b"a[slot 3]", K).primitive == "exclusive"
    with pytest.raises(ConfigError, match="looks like a slot"):
        key_of("a[slot 3]")
    assert key_of("a[slot 3]", parts=True) == slot.name
    assert [user_name(it) for it in ("a[slot 3]", "a", "a[slot 3]b", "\u00e9[slot 12]")] == ["a", "a", "a[slot 3]b", "\u00e9"]


def test_what_another_primitive_locks_is_a_lock_of_its_own_too() -> None:
    lock, slot = Exclusive("a", prefix="p:", ttl=10, horizon=K, own="once"), Exclusive("{x}a", ttl=10, horizon=K, own="fill")
    assert (lock.name, lock.label, lock.part, lock.slot) == (b"p:a[once]", "a", "a[once]", None)
    assert (slot.name, slot.label, slot.part, slot.slot) == (b"{x}a[fill]", "{x}a", "{x}a[fill]", None)
    assert (lock.primitive, slot.primitive) == ("once", "fill")
    assert Exclusive("a", ttl=10, horizon=K, own="once day 2026-11-22").primitive == "once"
    for name in ("a[once]", "a[election]", "a[fill]", "a[once 60s 5]", "a[once day 2026-11-22 Europe/Berlin]"):
        with pytest.raises(ConfigError, match="another primitive's lock"):
            key_of(name)
        assert key_of(name, parts=True) == name.encode()
        assert user_name(name) == "a"
    assert key_of("a[twice]") == b"a[twice]"


def test_a_lock_that_is_given_back_later() -> None:
    """By another script, which tells the nodes for how long; its requests are as usual."""
    lock = Exclusive("n", ttl=10, horizon=16_000)
    lasting, token = lock.lasting(), b"t"
    assert (lock.basic, lasting.basic) == (True, False)
    assert lasting.release(token) == lock.release(token)
    assert lasting.request(token, 10, b"w", 5) == lock.request(token, 10, b"w", 5)
    told = lasting.release(token, rest=2.5)
    assert RETIRE.sha in told and told.endswith(b"$1\r\nt\r\n$4\r\n2500\r\n")
    assert lasting.release(token, rest=1e-9).endswith(b"$1\r\n1\r\n")
