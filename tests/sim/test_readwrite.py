"""Worlds of a read-write lock, and faults planted into its scripts and into the downgrade. More: `./task sim --shared --seeds 0..500`."""

from __future__ import annotations

import pytest
from sim.planting import HOLDS, Planted, breaks_no_law, is_found, lua, python
from swarm.explore import SHARED, explore

from holdfast.protocol.claim import Claim
from holdfast.protocol.command import READER

pytestmark = pytest.mark.stories

EACH = 3  # seeds of each kind of world; more, until what these worlds are aimed at has happened,
MOST = 10  # but no more than these
KEPT = (5,)  # a write-back was under way when a writer began its downgrade: what it raised looked like a gap


@pytest.mark.parametrize("which", range(len(SHARED)), ids=lambda it: SHARED[it].name)
def test_no_law_is_broken(which: int) -> None:
    seeds = range(which, MOST * len(SHARED), len(SHARED))
    breaks_no_law("shared", ((it, explore(it, shared=True, quick=it not in KEPT)) for it in seeds), EACH)


def forgetful(claim: Claim) -> None:
    """It tells nobody that its fence is about to rise."""
    claim.token = claim.token[:-2] + READER
    for vote in claim.votes:
        vote.owed = 0


PLANTED = {
    "the first reader that leaves frees it": Planted(
        lua(("", "        if call('EXISTS', readers) == 1 then return end\n", "")), HOLDS, "readers, calm", 3
    ),
    "a late reader shortens all": Planted(
        lua(("", "local longer = fresh or deadline - now > call('PTTL', name)", "local longer = true")), HOLDS, "readers, mixed", 3
    ),
    "writers share": Planted(lua(("", "holder == 'shared' and isReader(it) end", "holder == 'shared' end")), HOLDS, "readers, calm", 3),
    "a writer ignores readers' fences": Planted(
        lua(("", "math.max(getF(fence) + 1, getF(rfence) + 1, P)", "math.max(getF(fence) + 1, P)")), ("fence",), "readers, three", 3
    ),
    "a reader ignores writers' fences": Planted(lua(("", "F = math.max(F + 1, P)", "F = P")), ("fence",), "readers, three", 3),
    "readers pass those who wait": Planted(
        lua(("", "elseif fits(token) and call('EXISTS', queue) == 0 then                  --", "elseif fits(token) then --")),
        ("order",),
        "readers, calm",
        3,
    ),
    "readers are not asked": Planted(
        lua(("", "isReader(token) and {} or call('ZRANGE', readers, 0, -1)", "{}")), ("idle",), "readers, calm", 10
    ),
    "a downgrade looks like a gap": Planted(
        lua(("", "    promote(P)\n    return {F, 0, 0}", "    promote(P)\n    return {F, 0, 1}")), ("lost", "unfounded"), "readers, calm", 3
    ),
    "a downgrade does not expect its fence": Planted(
        python(Claim, "_share", lambda _: forgetful), ("lost", "unfounded", "fence"), "readers, calm", 3
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    known = planted.fault(monkeypatch)
    first = [it.name for it in SHARED].index(planted.world)
    is_found(planted.laws, (explore(first + turn * len(SHARED), shared=True, **known) for turn in range(planted.within)))
