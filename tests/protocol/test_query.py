"""One command to every node: who is asked, who is waited for, and when it is over."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from holdfast.protocol.command import READ, Command
from holdfast.protocol.nodes import NodeSet, Standing
from holdfast.protocol.query import Answers, Query

REFUSED = ConnectionError("refused")
FULL = Exception("OOM command not allowed when used memory > 'maxmemory'.")


class Survey:
    """A round that has begun at 1.0, to last until 2.0, and its nodes."""

    def __init__(self, *standing: Standing, asks: tuple[int, ...] | None = None, enough: Callable[[Answers], bool] | None = None) -> None:
        self.node_set = NodeSet([f"node{i}" for i in range(len(standing))], 1.0, 9.0, 16_000)
        for node, how in enumerate(standing):
            self.stands(node, how)
        nodes = range(len(standing)) if asks is None else asks
        self.round = Query({i: b"ask %d" % i for i in nodes}, self.node_set, deadline=2.0, enough=enough)
        assert (self.round.wake, self.round.armed, self.round.over) == (2.0, inf, False)
        self.round.begin(1.0)
        self.owed: dict[int, Command] = {}

    def stands(self, node: int, how: Standing) -> None:
        self.node_set.note(node, how, 0.0, REFUSED if how is Standing.DOWN else None, free=9.5)

    def asks(self, *nodes: int, at: float = 1.0) -> None:
        """Just these were asked since the last look, each what is meant for it."""
        sends, self.round.sends = self.round.sends, []
        assert [node for node, _ in sends] == list(nodes)
        for node, command in sends:
            assert (command.owner, command.mode, command.sent, command.data) == (self.round, READ, at, b"ask %d" % node)
            assert (command.again, command.watch) == (False, False), "nobody wants to know any more, after a reconnect"
            self.owed[node] = command

    def answers(self, node: int, reply: object, at: float = 1.5) -> bool:
        something = self.round.answered(node, self.owed.pop(node), reply, at)
        assert type(something) is bool
        return something

    def goes_on(self) -> None:
        assert (self.round.over, self.round.wake) == (False, 2.0)

    def is_over(self, answers: dict[int, object], causes: dict[int, str], sufficient: bool) -> None:
        assert (self.round.over, self.round.wake) == (True, inf)
        assert self.round.answers == answers
        assert {node: str(cause) for node, cause in self.round.causes.items()} == causes
        assert self.round.sufficient is sufficient


def test_an_error_is_a_cause_and_no_answer() -> None:
    survey = Survey(Standing.UP, Standing.UP, Standing.UP)
    survey.asks(0, 1, 2)
    survey.answers(0, FULL)
    survey.answers(1, FULL)
    survey.goes_on()
    assert survey.answers(2, 1)
    survey.is_over({2: 1}, {0: str(FULL), 1: str(FULL)}, False)


def test_a_node_that_is_away_is_not_waited_for() -> None:
    # Rule R4.
    survey = Survey(Standing.DOWN, Standing.UP, Standing.GUARDED)
    survey.asks(1)
    survey.goes_on()
    assert survey.answers(1, 1)
    left = "guarded, 8.0 s left: it started recently and may have forgotten locks"
    survey.is_over({1: 1}, {0: "refused", 2: left}, False)


def test_which_nodes_will_be_of_use_by_themselves() -> None:
    survey = Survey(Standing.UP, Standing.GUARDED, Standing.DOWN, Standing.GUARDED, asks=(0, 1, 2))
    assert survey.round.guarded == [1], "(the other one was not asked)"
    survey.stands(1, Standing.UP)
    assert survey.round.guarded == []


def test_a_node_that_is_being_dialled_is_waited_for_and_asked_when_it_can_be() -> None:
    survey = Survey(Standing.UP, Standing.CONNECTING, Standing.CONNECTING)
    survey.asks(0)
    survey.answers(0, 0)
    survey.goes_on()
    survey.stands(1, Standing.UP)
    assert survey.round.joined(1, 1.25)
    survey.asks(1, at=1.25)
    survey.stands(2, Standing.DOWN)
    assert not survey.round.tick(1.5)
    assert survey.answers(1, 1)
    survey.is_over({0: 0, 1: 1}, {2: "refused"}, True)


@pytest.mark.parametrize("how", [Standing.DOWN, Standing.GUARDED])
def test_a_node_that_turns_out_to_be_away_may_be_the_last_that_was_waited_for(how: Standing) -> None:
    survey = Survey(Standing.UP, Standing.CONNECTING)
    survey.asks(0)
    survey.answers(0, 0)
    survey.stands(1, how)
    assert survey.round.tick(1.5)
    assert (survey.round.over, survey.round.answers, set(survey.round.causes)) == (True, {0: 0}, {1})


def test_a_node_that_answered_with_an_error_and_joins_again_is_asked_again() -> None:
    survey = Survey(Standing.UP, Standing.UP)
    survey.asks(0, 1)
    survey.answers(0, Exception("LOADING"))
    survey.stands(0, Standing.CONNECTING)
    assert not survey.round.tick(1.1)
    survey.stands(0, Standing.UP)
    assert survey.round.joined(0, 1.2)
    survey.asks(0, at=1.2)
    survey.goes_on()
    survey.answers(1, 1)
    survey.goes_on()  # its error is forgotten
    survey.answers(0, 0)
    survey.is_over({0: 0, 1: 1}, {}, True)


def test_who_is_not_asked_again() -> None:
    survey = Survey(Standing.UP, Standing.UP, Standing.CONNECTING, asks=(0, 1, 2))
    survey.asks(0, 1)
    survey.answers(0, 0)
    assert not survey.round.joined(0, 1.1)  # it has answered
    assert not survey.round.joined(2, 1.1)  # it cannot be spoken to
    survey.asks()
    some = Survey(Standing.UP, Standing.UP, asks=(0,))
    some.asks(0)
    assert not some.round.joined(1, 1.1)  # it was never to be asked
    assert some.answers(0, 0)
    some.is_over({0: 0}, {}, False)  # (one of two is no quorum)
    assert not some.round.joined(0, 1.2)  # it is over


def test_at_its_deadline_it_is_over_in_any_case() -> None:
    survey = Survey(Standing.UP, Standing.UP, Standing.CONNECTING)
    survey.asks(0, 1)
    survey.answers(0, 0)
    assert not survey.round.tick(1.999)
    survey.goes_on()
    assert survey.round.tick(2.0)
    survey.is_over({0: 0}, {1: "no answer yet", 2: "no answer yet"}, False)
    assert (survey.round.heard, survey.round.ended) == (1.5, 2.0), "what was heard, and how long it has waited"


def test_an_answer_at_the_deadline_is_one() -> None:
    survey = Survey(Standing.UP, Standing.UP, Standing.UP)
    survey.asks(0, 1, 2)
    survey.answers(0, 0)
    assert survey.answers(1, 1, at=2.5)
    survey.is_over({0: 0, 1: 1}, {2: "no answer yet"}, True)


@pytest.mark.parametrize("reply", [1, FULL], ids=["an answer", "an error"])
def test_what_comes_when_it_is_over_changes_nothing(reply: object) -> None:
    """Somebody may be reading the answers by then, in another thread."""
    survey = Survey(Standing.UP, Standing.UP)
    survey.asks(0, 1)
    survey.answers(0, 0)
    survey.round.tick(2.0)
    assert not survey.answers(1, reply, at=2.1)
    assert not survey.round.tick(2.2)
    survey.is_over({0: 0}, {1: "no answer yet"}, False)


def test_what_is_enough_without_any_answer_is_over_at_once() -> None:
    survey = Survey(Standing.UP, Standing.UP, enough=lambda _: True)
    survey.is_over({}, {0: "no answer yet", 1: "no answer yet"}, False)


def test_it_may_be_put_off() -> None:
    round_ = Query({0: b"ask"}, NodeSet(["node0"], 1.0, 9.0, 16_000), deadline=inf)
    assert round_.wake == inf
    round_.put_off(7.5)
    assert (round_.deadline, round_.wake, round_.over) == (7.5, 7.5, False)
    round_.begin(7.0)
    assert not round_.tick(7.4)
    assert round_.tick(7.5)
    assert round_.over
