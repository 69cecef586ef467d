"""Worlds of a read-write lock, and faults planted into its scripts and into the downgrade. More: `./task sim --shared --seeds 0..500`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from swarm.explore import SHARED, explore

from holdfast.protocol.claim import Claim
from holdfast.protocol.command import READER
from holdfast.scripts import LOADED, bare
from holdfast.testing.server import Lua
from holdfast.testing.timeline import timeline
from holdfast.testing.world import Violation

pytestmark = pytest.mark.stories

EACH = 3  # seeds of each kind of world; more, until what these worlds are aimed at has happened,
MOST = 10  # but no more than these
KEPT = (5,)  # a write-back was under way when a writer began its downgrade: what it raised looked like a gap


@pytest.mark.parametrize("which", range(len(SHARED)), ids=lambda it: SHARED[it].name)
def test_no_law_is_broken(which: int) -> None:
    count = 0
    for number, seed in enumerate(range(which, MOST * len(SHARED), len(SHARED))):
        if number >= EACH and count:
            break
        stage = explore(seed, shared=True, quick=seed not in KEPT)
        try:
            stage.run()
        except Violation as violation:
            pytest.fail("\n".join([f"seed {seed} --shared ({stage.name}): {violation}", *timeline(stage.world, 30)]), pytrace=False)
        count += not stage.void
    assert count, "what these worlds are aimed at never happens"


def lua(text: str, other: str) -> Callable[[pytest.MonkeyPatch], dict[str, Any]]:
    """A change of the scripts' text."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        runs, changed = Lua(), 0
        for script in LOADED:
            changed += bare(text.encode()) in script.source
            # Under the digest of the script as it should be: clients do not know the difference.
            runs._compiled[script.sha] = runs._compile(script.source.replace(bare(text.encode()), bare(other.encode())))
        assert changed
        return {"lua": runs}

    return plant


def python(name: str, other: Any) -> Callable[[pytest.MonkeyPatch], dict[str, Any]]:
    """Something else instead of a method of the claim."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setattr(Claim, name, other)
        return {}

    return plant


def forgetful(claim: Claim) -> None:
    """It tells nobody that its fence is about to rise."""
    claim.token = claim.token[:-2] + READER
    for vote in claim.votes:
        vote.owed = 0


@dataclass(frozen=True)
class Planted:
    """A fault, the laws of which it breaks one, and in which kind of world, within how many of them."""

    fault: Callable[[pytest.MonkeyPatch], dict[str, Any]]
    laws: tuple[str, ...]
    world: str
    within: int = 3


HOLDS = ("counted", "majority", "exclusion")
PLANTED = {
    "the first reader that leaves frees it": Planted(
        lua("        if call('EXISTS', readers) == 1 then return end\n", ""), HOLDS, "readers, calm"
    ),
    "a late reader shortens all": Planted(
        lua("local longer = fresh or deadline - now > call('PTTL', name)", "local longer = true"), HOLDS, "readers, mixed"
    ),
    "writers share": Planted(lua("holder == 'shared' and isReader(it) end", "holder == 'shared' end"), HOLDS, "readers, calm"),
    "a writer ignores readers' fences": Planted(
        lua("math.max(getF(fence) + 1, getF(rfence) + 1, P)", "math.max(getF(fence) + 1, P)"), ("fence",), "readers, three"
    ),
    "a reader ignores writers' fences": Planted(lua("F = math.max(F + 1, P)", "F = P"), ("fence",), "readers, three"),
    "readers pass those who wait": Planted(
        lua("elseif fits(token) and call('EXISTS', queue) == 0 then                  --", "elseif fits(token) then --"),
        ("order",),
        "readers, calm",
    ),
    "readers are not asked": Planted(
        lua("isReader(token) and {} or call('ZRANGE', readers, 0, -1)", "{}"), ("idle",), "readers, calm", 10
    ),
    "a downgrade looks like a gap": Planted(
        lua("    promote(P)\n    return {F, 0, 0}", "    promote(P)\n    return {F, 0, 1}"), ("lost", "unfounded"), "readers, calm"
    ),
    "a downgrade does not expect its fence": Planted(python("_share", forgetful), ("lost", "unfounded", "fence"), "readers, calm"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    known = planted.fault(monkeypatch)
    first, found = [it.name for it in SHARED].index(planted.world), list[str]()
    for turn in range(planted.within):
        try:
            explore(first + turn * len(SHARED), shared=True, **known).run()
        except Violation as violation:
            found.append(str(violation).partition(":")[0])
            if found[-1] in planted.laws:
                return
    pytest.fail(f"not found in {planted.within} worlds; other laws that were broken: {found}", pytrace=False)
