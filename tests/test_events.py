"""Events are frozen facts, comparable whenever they happened."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime

import pytest

from holdfast import events
from holdfast.events import Acquired, Event, LockEvent, NodeDown, NodeEvent

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
