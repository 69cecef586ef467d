"""RESP: commands are packed as servers read them, and answers come out whole and in order, however their bytes were cut."""

from __future__ import annotations

from unittest import mock

import hiredis
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from holdfast.scripts import PERMITS
from holdfast.wire import resp
from holdfast.wire.resp import MORE, Malformed, Push, Refusal, evalsha, pack, reader, usual

patient = effort(deadline=None)  # a machine that is busy is no failure


def test_a_command_as_bytes() -> None:
    assert evalsha(PERMITS, b"k", b"3") == pack(b"EVALSHA", PERMITS.sha, b"1", b"k", b"3")
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


# ------------------------------------------------ what is too large


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def heard(data: bytes, size: int) -> list[object]:
    """What a reader makes of these bytes, looking at all of them."""
    parser, read = reader(), list[object]()
    for piece in pieces(data, size):
        parser.check(piece)
        parser.feed(piece)
        while (reply := parser.gets()) is not MORE:
            read.append(reply)
    assert not parser.unfinished
    return read


TEXTS = st.one_of(st.binary(max_size=40), st.sampled_from([b"*2147483647\r\n", b"\r\n$99999999999\r\n", b"\r", b"\n", b"x\r", b"-" * 40]))


@patient
@given(st.lists(TEXTS, min_size=1, max_size=9), st.integers(min_value=1, max_value=50))
def test_what_a_string_says_is_no_header_however_it_is_cut(words: list[bytes], size: int) -> None:
    data = pack(*words) + b"%1\r\n+" + b"long " * 20 + b"\r\n=7\r\ntxt:abc\r\n*-1\r\n$-1\r\n:1\r\n" + b"-ERR " + b"e" * 90 + b"\r\n"
    told = [words, {b"long " * 20: b"abc"}, None, None, 1]
    read = heard(data, size)
    assert read[:-1] == told
    assert type(read[-1]) is Refusal


@pytest.mark.parametrize("size", [1, 2, 7, 100])
@pytest.mark.parametrize(
    "data",
    [
        b"*2147483647\r\n",
        b"*1048577\r\n",
        b"%1048577\r\n",
        b"~1048577\r\n",
        b">1048577\r\n",
        b"*2\r\n*1048577\r\n",
        b"$33554433\r\n",
        b"=33554433\r\n",
        b":1\r\n$4\r\n\r\n\r\n\r\n*2147483647\r\n",
        b"+a\n$40\r\n*2147483647\r\n",  # a line feed alone ends no line: the header of a string is not one, and that of the list is
        b"+a\r$40\r\n*2147483647\r\n",
        b"*1\r\n-" + b"x" * 99 + b"\r\n*2147483647\r\n",
    ],
)
def test_a_header_that_claims_too_much_is_refused_before_it_is_read(data: bytes, size: int) -> None:
    parser = reader()

    def hears() -> None:
        for piece in pieces(data, size):
            parser.check(piece)

    with pytest.raises(Malformed, match=r"of .* (bytes|items)"):
        hears()


def test_as_much_as_a_node_may_say_is_not_refused() -> None:
    parser = reader()
    parser.check(b"*1048576\r\n")
    parser.check(b"$33554432\r\n")
    assert parser.unfinished == 21


@pytest.mark.parametrize("piece", [b"x" * (1 << 20), b"$1048560\r\n" + b"x" * 1048560 + b"\r\n"])
def test_a_reply_that_never_ends_is_refused(piece: bytes) -> None:
    parser = reader()
    parser.check(b"*1000000\r\n")

    def hears() -> None:
        for _ in range(33):
            parser.check(piece)

    with pytest.raises(Malformed, match="more than 33554432 bytes"):
        hears()


# ------------------------------------------------ where a reply ends


def _several(kind: bytes, items: list[bytes], each: int = 1) -> bytes:
    return b"%b%d\r\n" % (kind, len(items) // each) + b"".join(items)


PLAIN = st.one_of(
    st.binary(max_size=40).map(lambda it: b"$%d\r\n%b\r\n" % (len(it), it)),
    st.sampled_from([
        b":1\r\n", b"+OK\r\n", b"+" + b"long " * 20 + b"\r\n", b"-ERR no\r\n", b"_\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"%0\r\n",
        b",1.5\r\n", b"#t\r\n", b"=7\r\ntxt:abc\r\n", b"(12345678901234567890\r\n",
    ]),
)  # fmt: skip
REPLIES = st.recursive(
    PLAIN,
    lambda it: st.one_of(
        st.lists(it, max_size=4).map(lambda items: _several(b"*", items)),
        st.lists(it, max_size=3).map(lambda items: _several(b">", [b"+message\r\n", *items])),
        st.lists(it, max_size=2).map(lambda items: _several(b"%", [b for item in items for b in (b"+key\r\n", item)], 2)),
    ),
    max_leaves=8,
)


def ends_are_known(replies: list[bytes], size: int, kept: int = 8) -> list[object]:
    """The replies, cut anywhere, by a reader that changes its parser whenever it was given a few bytes."""
    parser, read, given = reader(), list[object](), 0
    with mock.patch.object(resp, "KEPT", kept):
        for piece in pieces(b"".join(replies), size):
            parser.check(piece)
            parser.feed(piece)
            given += len(piece)
            while (reply := parser.gets()) is not MORE:
                read.append(reply)
            assert parser.unfinished == given - sum(map(len, replies[: len(read)]))
    assert parser.unfinished == 0
    return read


@patient
@given(st.lists(REPLIES, min_size=1, max_size=5), st.integers(min_value=1, max_value=50))
def test_a_reader_knows_where_replies_end_and_loses_nothing_with_a_parser(replies: list[bytes], size: int) -> None:
    """What one parser without checks makes of it is right."""
    plain, right = hiredis.Reader(notEnoughData=MORE), list[object]()
    plain.feed(b"".join(replies))
    while (reply := plain.gets()) is not MORE:
        right.append(reply)
    assert repr(ends_are_known(replies, size)) == repr(right)


def test_a_parser_is_kept_while_it_is_given_little() -> None:
    parser = reader()
    first = parser.gets
    for _ in range(100):
        parser.check(b"$1000\r\n" + b"x" * 1000 + b"\r\n")
        assert parser.gets == first


def test_a_parser_that_was_given_much_is_replaced_between_two_replies_and_not_before() -> None:
    """hiredis never gives back what it needed for the answers to INFO, some kilobytes a connection."""
    parser = reader()
    first = parser.gets
    for piece in (b"*2\r\n$2000\r\n", b"x" * 2000, b"\r\n"):
        parser.check(piece)
        assert parser.gets == first
    parser.check(b":1\r\n")
    assert parser.gets == first and not parser.unfinished
    parser.check(b":1\r\n")
    second = parser.gets
    assert second != first
    parser.check(b":1\r\n")
    assert parser.gets == second


# ------------------------------------------------ what needs no look


@pytest.mark.parametrize(
    "data, whether",
    [
        (b"$16\r\n1600000000000000\r\n", True),
        (b":1\r\n:-3\r\n+OK\r\n_\r\n", True),
        (b"$16\r\n1600000000000000\r\n*2147483647\r\n", False),
        (b"*1\r\n", False),
        (b"$16\r\n160000000000000", False),
        (b"", False),
    ],
)
def test_what_is_usual_has_no_header_that_could_be_large_and_is_complete(data: bytes, whether: bool) -> None:
    assert (usual(memoryview(data)) is not None) is whether
