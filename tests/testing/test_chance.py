"""Faults with names, numbers and dice of their own."""

from __future__ import annotations

from holdfast.testing.chance import Chance


def drawn(chance: Chance, times: int = 20) -> list[float | None]:
    hits = [chance.strikes("restarts", 0.5) for _ in range(times)]
    return [None if dice is None else dice.random() for dice in hits]


def test_the_same_seed_has_the_same_faults() -> None:
    assert drawn(Chance(1)) == drawn(Chance(1)) != drawn(Chance(2))


def test_faults_are_named_numbered_and_told() -> None:
    told: list[str] = []
    chance = Chance(0, saw=told.append)
    chance.strikes("restarts")
    chance.strikes("cedes cut")
    chance.strikes("restarts")
    assert chance.happened == ["restarts 1", "cedes cut 1", "restarts 2"]
    assert told == ["restarts", "cedes cut", "restarts"]


def test_what_never_happens_is_not_drawn() -> None:
    chance = Chance(0)
    assert [chance.strikes("restarts", 0.0) for _ in range(9)] == [None] * 9
    assert drawn(chance) == drawn(Chance(0))


def test_a_fault_that_is_left_out_changes_no_other() -> None:
    everything = Chance(3)
    all_of_them = drawn(everything)
    left = [fault for fault in everything.happened if fault != "restarts 2"]
    without = Chance(3, left)
    some = drawn(without)
    assert without.happened == left
    hits = [at for at, it in enumerate(all_of_them) if it is not None]
    assert some == [None if at == hits[1] else it for at, it in enumerate(all_of_them)]


def test_kinds_do_not_disturb_one_another() -> None:
    both = Chance(4)
    for _ in range(7):
        both.strikes("refusals", 0.5)
    assert drawn(both) == drawn(Chance(4))


def test_nothing_may_happen() -> None:
    chance = Chance(0, [])
    assert set(drawn(chance)) == {None}
    assert chance.happened == []
