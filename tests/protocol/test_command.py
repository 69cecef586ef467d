"""The words of the conversation: each is one, and only a release is said again."""

from __future__ import annotations

import pytest

from holdfast.protocol import quorum
from holdfast.protocol.command import CEDE, KEEP, RELEASE, TRY, WAIT, Command
from holdfast.protocol.exclusive import Exclusive


@pytest.mark.parametrize("mode, again", [(WAIT, False), (TRY, False), (CEDE, False), (KEEP, False), (RELEASE, True)])
def test_only_a_release_is_said_again_after_a_reconnect(mode: bytes, again: bool) -> None:
    """A request that was not answered is void; a cede must never be repeated; a release must arrive."""
    assert Command(None, mode, b"token", 1.0).again is again


def test_a_command_keeps_what_it_was_made_of() -> None:
    asker = object()
    command = Command(asker, WAIT, b"token", 1.5, 9.0, 7)  # type: ignore[arg-type]  # (a stand-in)
    assert (command.owner, command.mode, command.token, command.sent, command.ttl, command.fence) == (asker, WAIT, b"token", 1.5, 9.0, 7)
    assert command.data == b"", "who says it packs it, once for all nodes"
    assert Command(None, RELEASE, b"token", 1.5, data=b"packed").data == b"packed"
    assert (Command(None, RELEASE, b"token", 1.5).ttl, Command(None, RELEASE, b"token", 1.5).fence) == (0.0, 0)
    assert (command.watch, Command(None, WAIT, b"token", 1.5, watch=True).watch) == (False, True)
    assert not hasattr(command, "__dict__"), "there are many of them"


def test_until_when_its_grants_count_is_reckoned_once() -> None:
    """Rule C2: the ttl less the drift, from the moment at which the request was sent."""
    command = Command(None, WAIT, b"token", 1.5, 9.0)
    assert command.bound == 0.0
    assert command.grants_until() == quorum.bound(1.5, 9.0) == command.bound
    command.ttl = 90.0
    assert command.grants_until() == quorum.bound(1.5, 9.0), "it is the same for all nodes"


def test_a_recipe_with_something_to_say_is_another_one() -> None:
    lock = Exclusive("a", ttl=9.0, horizon=16_000)
    other = lock.with_statement(lambda token, fence, ttl: b"")
    assert (lock.statement, other.statement is None) == (None, False)
    assert (other.name, other.request(b"t", 9.0, WAIT, 7)) == (lock.name, lock.request(b"t", 9.0, WAIT, 7))
