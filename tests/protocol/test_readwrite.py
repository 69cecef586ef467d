"""The read-write lock's keys and commands, byte by byte."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.protocol import exclusive
from holdfast.protocol.command import READER, WRITER
from holdfast.protocol.exclusive import key_of
from holdfast.protocol.readwrite import ReadWrite, rw_keys_of, undo
from holdfast.scripts import RW_RELEASE, RW_REQUEST
from holdfast.wire.resp import pack

TOKEN = b"1700000000000000:0123456789abcdef0123456789abcdef:0000000a"
K = 16_000
KEYS = {
    "x": [b"x", b"{x}:fence", b"{x}:rwqueue", b"{x}:rwwaiters", b"{x}:readers", b"{x}:rfence"],
    "a{b}c": [b"a{b}c", b"{b}:fence:a{b}c", b"{b}:rwqueue:a{b}c", b"{b}:rwwaiters:a{b}c", b"{b}:readers:a{b}c", b"{b}:rfence:a{b}c"],
    "{b}:fences": [b"{b}:fence:{b}:x"],
}


@pytest.mark.parametrize("name", ["x", "a{b}c"])
def test_the_keys_of_a_name(name: str) -> None:
    assert list(rw_keys_of(key_of(name))) == KEYS[name]


@pytest.mark.parametrize("key", KEYS["x"][1:])
def test_its_keys_are_no_names(key: bytes) -> None:
    with pytest.raises(ConfigError, match="looks like the keys"):
        key_of(key.decode())


@pytest.mark.parametrize("kind", [READER, WRITER])
def test_what_it_says(kind: bytes) -> None:
    lock = ReadWrite("x", kind, prefix="p:", horizon=K)
    keys = rw_keys_of(b"p:x")
    token = TOKEN + kind
    assert (lock.name, lock.label, lock.part, lock.kind) == (b"p:x", "x", "x", kind)
    assert lock.primitive == ("read" if kind == READER else "write")
    asked = pack(b"EVALSHA", RW_REQUEST.sha, b"6", *keys, token, b"16000", b"10000", b"w", b"0000000000000005")
    assert lock.request(token, 10.0, b"w", 5) == asked
    release = pack(b"EVALSHA", RW_RELEASE.sha, b"6", *keys, token, b"16000")
    assert lock.release(token) == release == undo(b"p:x", token, K)


def test_an_exclusive_grant_is_undone_by_its_own_script() -> None:
    assert undo(b"x", TOKEN, K) == exclusive.undo(b"x", TOKEN, K)
