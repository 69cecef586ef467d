"""What viewers are told of, and how much is remembered. Times are values."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.recipes.survey import Row
from holdfast.serve import scene as scene_
from holdfast.serve.problems import mark
from holdfast.serve.scene import ALL_TENURES, CHUNK, TENURES, Queues, Scene, Tenures, Viewer

NOW = 1_800_000_000.0


def row(name: str, fence: int = 1, *, owner: str | None = "a:1", waiting: int = 0, **more: Any) -> Row:
    asked = datetime.fromtimestamp(NOW - 5, UTC)
    facts = {
        "kind": "exclusive", "group": None, "slot": None, "state": "held", "holder": f"{fence}:x", "note": None, "left": 9.0,
        "waits_since": asked if waiting else None, "nodes": 5, "asked": asked,
    }  # fmt: skip
    return Row(name=name, fence=fence, owner=owner, waiting=waiting, **{**facts, **more})  # type: ignore[arg-type] # (facts of many types)


def looked(scene: Scene, rows: list[Row], now: float = NOW, why: str = "") -> None:
    scene.begin(now)
    for it in rows:
        scene.saw(it, now)
    scene.end(now, why)


def drained(viewer: Viewer, scene: Scene) -> list[tuple[str, Any]]:
    found = []
    while (news := viewer.take(scene)) is not None:
        found.append(news)
    return found


def test_a_viewer_is_told_everything_and_then_what_changes() -> None:
    scene = Scene("g", {"prefix": "p:"})
    looked(scene, [row("a"), row("b", waiting=2)])
    scene.second(NOW, "the nodes")
    viewer = scene.joins(NOW)
    assert viewer.starting
    told = drained(viewer, scene)
    assert [kind for kind, _ in told] == ["hello", "snapshot", "nodes", "totals", "audit"]
    assert told[0][1] == {"generation": "g", "points": [(round(NOW), 2, 2, 5000)], "prefix": "p:", "at": NOW * 1000}
    assert set(told[1][1]["rows"]) == {"a", "b"}
    assert told[1][1]["left"] == 0
    assert told[2][1] == "the nodes"
    assert not viewer.starting
    looked(scene, [row("a", 2), row("b", waiting=2)], NOW + 2)
    assert [kind for kind, _ in told[1:2]] == ["snapshot"]
    ((kind, rows),) = drained(viewer, scene)
    assert kind == "rows"
    assert rows["a"].fence == 2
    assert rows.keys() == {"a"}
    looked(scene, [row("a", 2)], NOW + 4)
    assert drained(viewer, scene) == [("rows", {"b": None})]
    looked(scene, [row("a", 2)], NOW + 6)
    assert drained(viewer, scene) == []


def test_a_snapshot_comes_in_chunks_before_anything_else() -> None:
    scene = Scene("g", {})
    looked(scene, [row(f"n{at}") for at in range(2 * CHUNK + 5)])
    viewer = scene.joins(NOW)
    scene.second(NOW, None)
    told = drained(viewer, scene)
    assert [kind for kind, _ in told] == ["hello", "snapshot", "snapshot", "snapshot", "nodes", "totals", "audit"]
    assert [data["left"] for kind, data in told if kind == "snapshot"] == [CHUNK + 5, 5, 0]
    assert sum(len(data["rows"]) for kind, data in told if kind == "snapshot") == 2 * CHUNK + 5


def test_what_changes_during_a_snapshot_is_told_as_it_is_by_then() -> None:
    scene = Scene("g", {})
    looked(scene, [row("a")])
    viewer = scene.joins(NOW)
    assert viewer.take(scene) is not None
    looked(scene, [row("a", 2), row("new")])
    told = drained(viewer, scene)
    assert told[0][1]["rows"]["a"].fence == 2
    assert told[-1] == ("rows", {"new": scene.rows["new"]})


def size_of(viewer: Viewer) -> int:
    """How many things a viewer remembers."""
    return sum(len(it) for name in Viewer.__slots__ if isinstance(it := getattr(viewer, name), set | dict | list))


def slow(kind: type[Viewer], monkeypatch: pytest.MonkeyPatch) -> int:
    """What a viewer that takes nothing remembers after a thousand changes of ten locks."""
    monkeypatch.setattr(scene_, "Viewer", kind)
    scene = Scene("g", {})
    viewer = scene.joins(NOW)
    for at in range(100):
        looked(scene, [row(f"n{it}", at) for it in range(10)], NOW + at)
        scene.second(NOW + at, None)
    return size_of(viewer)


def test_a_slow_viewer_needs_memory_for_the_names_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slow(Viewer, monkeypatch) <= 10 + 6


def test_planted_a_queue_for_each_viewer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Queueing(Viewer):
        """Remembers every change."""

        def __init__(self, names: Any) -> None:
            super().__init__(names)
            self.dirty = []  # type: ignore[assignment] # (that is the fault)

        def changed(self, name: str) -> None:
            self.dirty.append(name)  # type: ignore[attr-defined] # (as above)

    assert slow(Queueing, monkeypatch) > 900


def test_rows_of_one_message_are_bounded() -> None:
    scene = Scene("g", {})
    viewer = scene.joins(NOW)
    drained(viewer, scene)
    looked(scene, [row(f"n{at}") for at in range(CHUNK + 1)])
    assert [len(data) for _, data in drained(viewer, scene)] == [CHUNK, 1]


def test_kinds_take_turns() -> None:
    scene = Scene("g", {})
    viewer = scene.joins(NOW)
    drained(viewer, scene)
    for at in range(5):
        looked(scene, [row("a", at)], NOW + at)
        scene.second(NOW + at, None)
        scene.audited({"name": "x"})
    assert [kind for kind, _ in drained(viewer, scene)] == ["rows", "nodes", "totals", "audit"]


def test_a_pass_that_fails_leaves_what_it_did_not_meet() -> None:
    scene = Scene("g", {})
    assert scene.progress() == {"complete_at": None, "interval_ms": 0, "met": None, "found": 0, "why": ""}
    looked(scene, [row("a"), row("b")])
    looked(scene, [row("a")], NOW + 2, "no quorum")
    assert set(scene.rows) == {"a", "b"}
    assert scene.progress() == {"complete_at": NOW * 1000, "interval_ms": 0, "met": None, "found": 2, "why": "no quorum"}
    scene.begin(NOW + 4)
    scene.saw(row("a"), NOW + 4)
    assert scene.progress()["met"] == 1
    scene.end(NOW + 4)
    scene.paced(2.5)
    assert set(scene.rows) == {"a"}
    assert scene.progress() == {"complete_at": (NOW + 4) * 1000, "interval_ms": 2500, "met": None, "found": 1, "why": ""}


def test_who_holds_it() -> None:
    scene = Scene("g", {})
    looked(scene, [row("a"), row("b", owner=None), row("c", owner=None, kind="read", holder="shared")])
    assert [scene.rows[it].who for it in "abc"] == ["a:1", mark("1:x"), None]


def test_a_queue_that_ends_is_no_longer_counted() -> None:
    scene = Scene("g", {})
    looked(scene, [row("a", waiting=2), row("b", waiting=1)])
    looked(scene, [row("a")], NOW + 1)
    scene.second(NOW + 1, None)
    assert scene.news("totals")["point"] == (round(NOW + 1), 1, 0, 0)


def test_points_and_audit_are_bounded() -> None:
    scene = Scene("g", {})
    for at in range(2000):
        scene.second(NOW + at, None)
        scene.audited(at)
    viewer = scene.joins(NOW)
    told = dict(drained(viewer, scene))
    assert len(told["hello"]["points"]) == 900
    assert told["audit"] == [*range(1800, 2000)]
    scene.viewers.discard(viewer)
    scene.audited(1)
    assert drained(viewer, scene) == []


def test_tenures() -> None:
    tenures = Tenures()
    for fence, at, same in ((1, 0, False), (1, 2, True), (2, 4, True), (2, 6, True)):
        tenures.saw("a", fence, "who", NOW + at, same)
    assert [(it.fence, it.first - NOW, it.last - NOW) for it in tenures.of("a")] == [(1, 0, 2), (2, 4, 6)]
    # It was free in between: the same fence is not the same tenure for certain.
    tenures.gone("a")
    tenures.saw("a", 2, "who", NOW + 9, False)
    assert len(tenures.of("a")) == 3
    tenures.gone("nothing")
    # What ended is forgotten after 15 minutes, and what is held is not.
    tenures.forget(NOW + 900 + 3)
    assert [it.first - NOW for it in tenures.of("a")] == [4, 9]
    tenures.forget(NOW + 10_000)
    assert [it.first - NOW for it in tenures.of("a")] == [9]
    tenures.gone("a")
    tenures.forget(NOW + 10_000)
    assert tenures.of("a") == []
    assert len(tenures) == 0
    assert tenures.of("b") == []


def test_tenures_of_one_name_are_bounded() -> None:
    tenures = Tenures()
    for at in range(100):
        tenures.saw("a", at, "who", NOW + at, at > 0)
    assert [it.fence for it in tenures.of("a")] == [*range(100 - TENURES, 100)]
    assert len(tenures) == TENURES
    tenures.forget(NOW + 10_000)
    assert len(tenures) == 1


def test_tenures_in_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene_, "ALL_TENURES", 100)
    tenures = Tenures()
    for at in range(60):
        for fence in (1, 2):
            tenures.saw(f"n{at}", fence, "who", NOW + at, fence == 2)
    assert len(tenures) == 100
    assert tenures.of("n0")[0].fence == 2
    # All are held now: there is no room.
    for at in range(200):
        tenures.saw(f"m{at}", 1, "who", NOW + 60, False)
    assert len(tenures) == 100
    assert ALL_TENURES == 50_000


def test_how_hot_a_lock_is() -> None:
    queues = Queues()
    assert queues.saw("a", 0, NOW) == 0
    shares = []
    for at in range(10):
        queues.begin(NOW + at)
        shares.append(queues.saw("a", at % 2, NOW + at))
    assert shares[-1] == 50
    queues.begin(NOW + 10)
    assert queues.saw("b", 1, NOW + 10) == 10
    queues.begin(NOW + 16 * 60)
    assert queues.saw("a", 0, NOW + 16 * 60) == 0
    assert len(queues) == 0


def test_a_sight_is_compact() -> None:
    scene = Scene("g", {})
    looked(scene, [row("a")])
    assert sys.getsizeof(scene.rows["a"]) < 200
