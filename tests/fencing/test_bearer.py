"""Who bears a fence, and what is no fence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from holdfast import ConfigError, Holdfast, Misuse
from holdfast.embedded import Nodes
from holdfast.fencing.bearer import Bearer, fence_of, fences_of

OPEN = SimpleNamespace(name="a", fence=None, fences={})


def test_a_lease_its_fences_or_anything_with_a_name_and_a_fence() -> None:
    assert list(fences_of({"b": 2**53 - 1, "a": 1}).items()) == [("a", 1), ("b", 2**53 - 1)], "records are locked in one order"
    assert fences_of(SimpleNamespace(name="a", fence=7)) == {"a": 7}
    assert fences_of(SimpleNamespace(name="b,a", fence="each has its own", fences={"b": 2, "a": 1})) == {"a": 1, "b": 2}
    assert fence_of({"a": 1}) == ("a", 1)


def test_real_leases(nodes: Nodes) -> None:
    with Holdfast(*nodes.urls) as locks:
        with locks.lock("bearer") as lease:
            assert isinstance(lease, Bearer)
            assert fence_of(lease) == ("bearer", lease.fence)
        assert fence_of(lease) == ("bearer", lease.fence), "also when it is over: that is whom fences are for"
        with locks.lock("bearer:b", "bearer:a") as lease:
            assert fences_of(lease) == lease.fences
            with pytest.raises(Misuse, match="several names"):
                fence_of(lease)


@pytest.mark.parametrize("empty", [OPEN, SimpleNamespace(name="a", fence=None), {}], ids=str)
def test_an_open_lease_writes_only_where_that_was_said(empty: Bearer) -> None:
    with pytest.raises(Misuse, match="bears no fence"):
        fences_of(empty)
    with pytest.raises(Misuse, match="bears no fence"):
        fence_of(empty)
    assert fences_of(empty, unfenced=True) == {}
    assert fence_of(empty, unfenced=True) is None


def test_a_real_open_lease(nodes: Nodes) -> None:
    with Holdfast("redis://127.0.0.1:1", node_timeout=0.1, outage=0.1) as locks:
        with locks.lock("bearer", wait=0, fail_open=True) as lease:
            with pytest.raises(Misuse, match="bears no fence"):
                fences_of(lease)
            assert fences_of(lease, unfenced=True) == {}


@pytest.mark.parametrize("fence", [0, -1, 2**53, 1.0, "7", True], ids=repr)
def test_what_is_no_fence(fence: object) -> None:
    with pytest.raises(ConfigError, match="a fence is a whole number from 1"):
        fences_of({"a": fence})  # type: ignore[dict-item]  # (the mistake)


@pytest.mark.parametrize("given", [7, "a", None, ("a", 7)], ids=repr)
def test_what_bears_none(given: object) -> None:
    with pytest.raises(ConfigError, match="bears a fence"):
        fences_of(given)  # type: ignore[arg-type]  # (the mistake)


@pytest.mark.parametrize("name", [7, "x" * 513], ids=["no text", "too long"])
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(ConfigError, match="a lock's name"):
        fences_of({name: 7})  # type: ignore[dict-item]  # (the mistake)
