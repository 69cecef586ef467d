"""Events are frozen facts, comparable whenever they happened."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import events
from holdfast.events import Acquired, Event

KINDS = [getattr(events, name) for name in events.__all__]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_is_a_frozen_fact_with_named_fields(kind: type[Event]) -> None:
    values: dict[str, Any] = {name: object() for name in kind.fields}
    event = kind(**values)
    assert {name: getattr(event, name) for name in values} == values == event.facts()
    with pytest.raises(AttributeError, match="an event does not change"):
        event.at = datetime.now(UTC)  # type: ignore[misc]  # (the mistake)
    with pytest.raises(AttributeError, match="an event does not change"):
        del event.at
    assert not hasattr(event, "__dict__")
    with pytest.raises(TypeError):
        kind(*values.values())  # type: ignore[misc]  # (the mistake)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_fields_are_those_that_are_annotated_and_the_defaults_those_that_are_assigned(kind: type[Event]) -> None:
    lines = {name for it in kind.__mro__ for name in inspect.get_annotations(it)}
    assert set(kind.fields) == lines == kind.names_of_fields
    assert kind.fields[0] == "at" and len(kind.fields) == len(lines)
    needed: dict[str, Any] = {name: "" for name in kind.fields if name not in kind.defaults}
    event = kind(**needed)
    assert event.facts() == {**kind.defaults, **needed}
    for name in needed:
        with pytest.raises(TypeError, match=rf"missing \['{name}'\], unknown \[\]"):
            kind(**{key: value for key, value in needed.items() if key != name})
    with pytest.raises(TypeError, match=r"missing \[\], unknown \['nmae'\]"):
        kind(**needed, nmae="a")  # type: ignore[call-arg]  # (the mistake)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_says_when_in_a_time_that_everybody_understands(kind: type[Event]) -> None:
    values: dict[str, Any] = {name: "" for name in kind.fields if name != "at"}
    assert kind(**values).at == datetime(1970, 1, 1, tzinfo=UTC), "until whoever hands it on has stamped it"
    assert kind(**values).at.utcoffset() == timedelta(0)


def test_a_discarded_lease_says_what_to_do_and_where_it_was_acquired_if_that_is_known() -> None:
    event = events.Ended(how="discarded", name="nightly", token="t", waited=0.5, fence=7, remaining=9.84)
    says = (
        "the lease on 'nightly' (fence 7) was discarded without release; it is no longer renewed and ends in 9.8 s. "
        'Keep the lease that acquire() returns, or use "with".'
    )
    assert str(event) == says
    assert str(event.replace(acquired="app.py:12")) == f"{says} It was acquired at app.py:12."
    lost = event.replace(how="lost")
    assert str(lost) == repr(lost)


def test_an_event_can_be_sent_elsewhere() -> None:
    event = Acquired(at=datetime.now(UTC), name="a", token="t", waited=0.5, fence=7, fences={"a": 7}, names=("a",))
    for twin in (pickle.loads(pickle.dumps(event)), copy.copy(event), copy.deepcopy(event)):
        assert (twin, twin.at) == (event, event.at)
        assert hash(twin) == hash(event)


def test_what_happened_is_compared_and_when_is_not() -> None:
    event = Acquired(name="a", token="t", waited=0.5, fence=7)
    assert event.at.tzinfo is UTC
    assert event.replace(at=datetime.now(UTC)) == event
    assert event.replace(fence=8) != event
    assert event != events.Renewed(name="a", token="t", waited=0.5, fence=7, remaining=1.0)
    assert event != "Acquired"
    if sys.version_info >= (3, 13):
        assert copy.replace(event, fence=8) == event.replace(fence=8)


def test_an_event_prints_as_the_call_that_makes_it() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    event = events.Called(at=at, name="a", kind="rate", how="allowed", took=3.5)
    assert repr(event) == f"Called(at={at!r}, name='a', kind='rate', how='allowed', took=3.5, key_given=False, retry_after=0.0)"
