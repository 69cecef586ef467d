"""What cannot be asked of a client, and of a lease that there is, is refused, and nobody is asked. What can be is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face
from face.test_arguments import ASKED, LONGEST, refused

from holdfast.errors import ConfigError


@pytest.fixture
async def lease(face: Face, five: Cluster, name: str) -> AsyncIterator[tuple[Any, Any]]:
    """A client, and a lease that is only extended when a test asks for it."""
    client = await face.connected(five, max_ttl=LONGEST, prefix=f"{name}/")
    lease = await face.acquire(client.lock("held", ttl=LONGEST, renew=False))
    yield client, lease
    await face.release(lease)


@pytest.mark.parametrize("where", ASKED)
async def test_b02_b36_what_cannot_be_asked_for_is_refused_and_nobody_is_asked(
    face: Face, five: Cluster, lease: tuple[Any, Any], where: str
) -> None:
    def asked() -> list[list[int]]:
        return [five.calls(it) for it in ("evalsha", "eval", "get")]

    argument, method = ASKED[where]
    before, left = asked(), lease[1].remaining
    for value in argument.wrong:
        with pytest.raises(ConfigError) as caught:
            await face.call(method(*lease), value)
        refused(caught.value, argument.says)
    assert lease[1].remaining < left, "it was not extended"
    assert asked() == before, "nothing was said to any node"


@pytest.mark.parametrize("where", ASKED)
async def test_what_can_be_asked_for_is_answered(face: Face, lease: tuple[Any, Any], where: str) -> None:
    argument, method = ASKED[where]
    for value in argument.right:
        answer = await face.call(method(*lease), value)
        match where:
            case "extend(ttl)":
                meant = LONGEST if value is None else value.total_seconds() if isinstance(value, timedelta) else value
                assert meant * 0.98 - 2 < answer <= LONGEST
            case "ready(wait)":
                assert {it.state for it in answer} == {"up"}
            case "inspect(name)":
                assert (answer.name, answer.state) == (value, "free")
            case "names(pattern)":
                assert set(answer) <= {"held"}
            case _:  # nobody has it
                assert not answer
