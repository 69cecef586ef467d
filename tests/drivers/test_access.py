"""The way in at a node: whose functions are asked, what they may say, and that what they raise is never shown."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

import holdfast.aio
from holdfast import ConfigError, Holdfast, Node
from holdfast.drivers.access import Access, accesses
from holdfast.wire.address import Address

SECRET = "s3cret"


def signed(who: str, node: str) -> tuple[str, str]:
    return who, f"{SECRET} of {node}"


def by_threads(function: Callable[[str], object], option: str) -> Address:
    """The address, as threads ask for it: this is what an option of the node says."""
    (way,) = accesses([Node("redis://me@127.0.0.1", **{option: function})], None, None)  # type: ignore[arg-type]  # (an option by its name)
    return way.ask()[1]


def by_tasks(function: Callable[[str], object], option: str) -> Address:
    """As tasks do, with a coroutine function."""

    async def later(node: str) -> object:
        return function(node)

    async def ask(way: Access) -> Address:
        found = way.begin_finding()
        address = await way.found(found) if isinstance(found, Awaitable) else found
        said = way.begin_asking(address)[1]
        return await way.signed(said, address) if isinstance(said, Awaitable) else said

    (way,) = accesses([Node("redis://me@127.0.0.1", **{option: later})], None, None)  # type: ignore[arg-type]  # (an option by its name)
    return asyncio.run(ask(way))


ASKED = pytest.mark.parametrize("ask", [by_threads, by_tasks])


def test_what_a_node_says_wins_over_the_client() -> None:
    own, other = ssl.create_default_context(), ssl.create_default_context()
    nodes = [
        Node("rediss://127.0.0.1", credentials=partial(signed, "own"), ssl=own),
        Node("rediss://127.0.0.2"),
        Node("redis://127.0.0.3", resolve=lambda node: ("127.0.0.4", 7000)),
    ]
    ways = accesses(nodes, other, partial(signed, "all"))
    asked = [it.ask() for it in ways]
    assert [it.user for _, it in asked] == ["own", "all", "all"]
    assert [places[0][1] for places, _ in asked] == [("127.0.0.1", 6379), ("127.0.0.2", 6379), ("127.0.0.4", 7000)]
    assert [it._context for it in ways] == [own, other, None]
    assert [it.asks for it in ways] == ["credentials()", "credentials()", "resolve() and credentials()"]
    assert not ways[2].at_hand


@ASKED
@pytest.mark.parametrize(
    "option, said, told",
    [
        ("resolve", ("127.0.0.9", 1), ("127.0.0.9", 1, "me", "")),
        ("resolve", ("127.0.0.9", 65535), ("127.0.0.9", 65535, "me", "")),
        ("credentials", "pw", ("127.0.0.1", 6379, "me", "pw")),
        ("credentials", ("", "pw"), ("127.0.0.1", 6379, "", "pw")),
    ],
)
def test_what_functions_say(ask: Callable[..., Address], option: str, said: object, told: tuple[object, ...]) -> None:
    found = ask(lambda _: said, option)
    assert (found.host, found.port, found.user, found.password) == told


NO_PLACES = (None, "a:1", ("a",), ("", 1), ("a", 0), ("a", "1"), ("a", True), ("a", 65536))
REFUSED = [("resolve", it, f"gives (host, port), such as ('10.0.0.7', 6379), not {type(it).__name__}") for it in NO_PLACES]
REFUSED += [("credentials", it, f"gives a password or (user, password), not {type(it).__name__}") for it in (None, b"pw", ("pw",))]
REFUSED += [("credentials", it, "gave half of a surrogate pair, which UTF-8 cannot say") for it in ("\udcff", ("\udcff", "pw"))]


@ASKED
@pytest.mark.parametrize("option, said, complaint", REFUSED)
def test_what_they_may_not_say(ask: Callable[..., Address], option: str, said: object, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(lambda _: said, option)
    assert caught.value.message == f"{option}() {complaint}"


def test_a_coroutine_is_nothing_for_threads() -> None:
    async def later(node: str) -> str:
        return SECRET

    for option in ("resolve", "credentials"):
        with pytest.raises(ConfigError, match=f"^{option}.*, not coroutine"):
            by_threads(later, option)


@ASKED
@pytest.mark.parametrize("option", ["resolve", "credentials"])
def test_a_function_that_raises_is_named_without_its_words(ask: Callable[..., Address], option: str) -> None:
    def broken(node: str) -> object:
        raise ValueError(SECRET)

    with pytest.raises(ConnectionError, match=rf"^{option}\(\) raised ValueError at test_access.py:\d+$") as caught:
        ask(broken, option)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("kind", [Holdfast, holdfast.aio.Holdfast])
def test_what_cannot_go_together_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="credentials is a function of one argument"):
        kind("redis://h", credentials=SECRET)
    with pytest.raises(ConfigError, match=r"^redis://h:6379: the address has a password, .*credentials=") as caught:
        kind(f"redis://:{SECRET}@h", "redis://i", credentials=print)
    assert SECRET not in str(caught.value)
