"""Events are frozen facts, comparable whenever they happened."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import events
from holdfast.events import Acquired, Event, LeaseEvent, LockEvent, NodeDown, NodeEvent

KINDS = [getattr(events, name) for name in events.__all__]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_is_a_frozen_fact_with_named_fields(kind: type[Event]) -> None:
    values = {field.name: object() for field in fields(kind)}
    event = kind(**values)
    assert {name: getattr(event, name) for name in values} == values
    with pytest.raises(FrozenInstanceError):
        event.at = datetime.now(UTC)  # type: ignore[misc]
    assert not hasattr(event, "__dict__")
    with pytest.raises(TypeError):
        kind(*values.values())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_says_when_in_a_time_that_everybody_understands(kind: type[Event]) -> None:
    values = {field.name: "" for field in fields(kind) if field.name != "at"}
    assert kind(**values).at == datetime(1970, 1, 1, tzinfo=UTC), "until whoever hands it on has stamped it"
    assert kind(**values).at.utcoffset() == timedelta(0)


def test_every_event_of_the_list_is_there() -> None:
    kinds = "Attempt Queued Acquired Refused Renewed HeldLong Doubt Lost Released NodeDown NodeUp NodeGuarded Warned"
    kinds += " Opened Forced Discarded"
    assert {kind.__name__ for kind in KINDS} == {*kinds.split(), "Event", "LockEvent", "LeaseEvent", "NodeEvent"}
    for kind in KINDS:
        names = {field.name for field in fields(kind)}
        assert ({"name", "token", "waited"} <= names) is issubclass(kind, LockEvent)
        assert ({"name", "token", "waited", "fence"} <= names) is issubclass(kind, LeaseEvent)
        assert ("node" in names) is issubclass(kind, NodeEvent)


def test_a_discarded_lease_says_what_to_do_and_where_it_was_acquired_if_that_is_known() -> None:
    event = events.Discarded(name="nightly", token="t", waited=0.5, fence=7, remaining=9.84)
    says = (
        "the lease on 'nightly' (fence 7) was discarded without release; it is no longer renewed and ends in 9.8 s. "
        'Keep the lease that acquire() returns, or use "with".'
    )
    assert str(event) == says
    assert str(replace(event, acquired="app.py:12")) == f"{says} It was acquired at app.py:12."


def test_an_event_can_be_sent_elsewhere() -> None:
    event = Acquired(at=datetime.now(UTC), name="a", token="t", waited=0.5, fence=7)
    twin = pickle.loads(pickle.dumps(event))
    assert (twin, twin.at) == (event, event.at)
    assert hash(twin) == hash(event)


def test_what_happened_is_compared_and_when_is_not() -> None:
    event = Acquired(name="a", token="t", waited=0.5, fence=7)
    assert event.at.tzinfo is UTC
    assert replace(event, at=datetime.now(UTC)) == event
    assert replace(event, fence=8) != event


def test_events_of_locks_and_of_nodes_can_be_told_apart() -> None:
    assert issubclass(Acquired, LockEvent)
    assert issubclass(NodeDown, NodeEvent)
    assert not issubclass(LockEvent, NodeEvent)
    assert all(issubclass(kind, Event) for kind in KINDS)
