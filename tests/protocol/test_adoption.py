"""What an adopter says to a node, and what a ticket tells."""

from __future__ import annotations

import pytest
from scripts.bench import spoken

from holdfast.errors import ConfigError
from holdfast.protocol.adoption import Adopted, Handover, read_ticket
from holdfast.protocol.command import KEEP, TRY
from holdfast.protocol.exclusive import Exclusive
from holdfast.scripts import ADOPT

GIVEN = Handover("jobs:\n}", b"1795883815651003:" + b"a" * 32 + b":00000001", 1795883815651009)
HORIZON = 16_000


def test_a_ticket_is_read_as_it_was_written() -> None:
    assert GIVEN.text() == f"holdfast:9df9:1795883815651009:{GIVEN.token.decode()}:jobs:\n}}"
    assert read_ticket(GIVEN.text()) == GIVEN


@pytest.mark.parametrize("wrong", [None, 7, b"holdfast:1", "", "jobs", GIVEN.text()[:60], GIVEN.text().replace("a", "A")])
def test_other_texts_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="a ticket is the text"):
        read_ticket(wrong)


@pytest.mark.parametrize("wrong", [GIVEN.text()[:-1], GIVEN.text() + " ", GIVEN.text().replace("jobs", "jobS")])
def test_a_ticket_that_was_cut_or_changed_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="was cut short or changed on its way"):
        read_ticket(wrong)


def test_a_try_takes_over_and_renewals_are_as_usual() -> None:
    """Rule H2: by the ticket's token and fence, for a token of its own."""
    token, plain = b"1795883815999999:" + b"b" * 32 + b":00000001", Exclusive("jobs", ttl=10, horizon=HORIZON)
    recipe = Adopted(GIVEN._replace(name="jobs"), prefix="", ttl=10, horizon=HORIZON)
    asked = spoken(recipe.request(token, 2.5, TRY, GIVEN.fence))
    last = [b"2500", b"1795883815651009", b"16000"]
    assert asked == [b"EVALSHA", ADOPT.sha, b"2", b"jobs", b"{jobs}:fence", GIVEN.token, token, *last]
    assert recipe.request(token, 10, KEEP, GIVEN.fence, 5) == plain.request(token, 10, KEEP, GIVEN.fence, 5)
    assert recipe.release(token) == plain.release(token)
    assert spoken(recipe.release(token, held=False))[3:] == [b"jobs", b"{jobs}:fence", token, GIVEN.token, b"0", *last[1:]]
    assert (recipe.basic, recipe.proposes, plain.basic, plain.proposes) == (False, GIVEN.fence, True, 0)
