"""RESP: commands are packed as servers read them, and answers come out whole and in order, however their bytes were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from holdfast.wire.resp import MORE, Malformed, Push, Refusal, pack, reader

patient = effort(deadline=None)  # a machine that is busy is no failure


def test_a_command_as_bytes() -> None:
    assert pack(b"PING") == b"*1\r\n$4\r\nPING\r\n"
    assert pack(b"SET", b"a\r\n%s", b"") == b"*3\r\n$3\r\nSET\r\n$5\r\na\r\n%s\r\n$0\r\n\r\n"


@patient
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=9), st.integers(min_value=1, max_value=50))
def test_what_is_packed_is_read_back_however_it_is_cut(words: list[bytes], size: int) -> None:
    data, parser, read = pack(*words) * 2, reader(), []
    for start in range(0, len(data), size):
        parser.feed(data[start : start + size])
        while (reply := parser.gets()) is not MORE:
            read.append(reply)
    assert read == [words, words]


def test_more_is_no_answer_that_a_server_could_give() -> None:
    parser = reader()
    assert parser.gets() is MORE
    parser.feed(b"_\r\n$-1\r\n*0\r\n:0\r\n#f\r\n*1\r\n")
    assert [parser.gets() for _ in range(5)] == [None, None, [], 0, False]
    assert parser.gets() is MORE  # an array, of which nothing but its length is here


def test_texts_are_bytes() -> None:
    parser = reader()
    parser.feed(b"+OK\r\n$2\r\n\xff\x00\r\n%1\r\n+proto\r\n:3\r\n")
    assert [parser.gets() for _ in range(3)] == [b"OK", b"\xff\x00", {b"proto": 3}]


def test_a_push_and_a_refusal_are_told_from_answers() -> None:
    parser = reader()
    parser.feed(b">2\r\n+message\r\n:1\r\n*2\r\n+message\r\n:1\r\n-ERR no\r\n")
    pushed, answered, refused = (parser.gets() for _ in range(3))
    assert type(pushed) is Push and list(pushed) == [b"message", 1]
    assert type(answered) is list and answered == [b"message", 1]
    assert type(refused) is Refusal and str(refused) == "ERR no"


@pytest.mark.parametrize("rubbish", [b"HTTP/1.1 400 Bad Request\r\n", b":x\r\n", b"$x\r\n", b"*x\r\n"])
def test_what_is_no_resp_is_malformed(rubbish: bytes) -> None:
    parser = reader()
    parser.feed(rubbish)
    with pytest.raises(Malformed):
        parser.gets()
