"""How faults are planted into simulated worlds, and how worlds are searched for what they break."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from swarm.stage import Stage

from holdfast.scripts import LOADED, bare
from holdfast.testing.server import Lua
from holdfast.testing.timeline import timeline
from holdfast.testing.world import Violation

Fault = Callable[[pytest.MonkeyPatch], dict[str, Any]]  # plants it; returns what the world needs to know

HOLDS = ("counted", "majority", "exclusion")  # P-V and P-S1


def lua(*changes: tuple[str, str, str]) -> Fault:
    """A change of the scripts' text: (script, or "" for all that have it; what stands there; what should)."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        runs, left = Lua(), set(changes)
        for script in LOADED:
            text = script.source
            for which, old, new in changes:
                if which in ("", script.name) and bare(old.encode()) in text:
                    text = text.replace(bare(old.encode()), bare(new.encode()))
                    left.discard((which, old, new))
            # Under the digest of the script as it should be: clients do not know the difference.
            runs._compiled[script.sha] = runs._compile(text)
        assert not left
        return {"lua": runs}

    return plant


def python(where: object, name: str, make: Callable[[Any], Any]) -> Fault:
    """Something else instead of a function: `make` is given the one that stands there."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setattr(where, name, make(getattr(where, name)))
        return {}

    return plant


@dataclass(frozen=True)
class Planted:
    """A fault, the laws of which it breaks one, and where, within how many worlds, and how many turns before are passed over."""

    fault: Fault
    laws: tuple[str, ...]
    world: str
    within: int
    begins: int = 0


def is_found(laws: tuple[str, ...], worlds: Iterable[Any]) -> None:
    """Run worlds until one breaks one of these laws."""
    found, count = list[str](), 0
    for world in worlds:
        count += 1
        try:
            world.run()
        except Violation as violation:
            found.append(violation.law)
            if found[-1] in laws:
                return
    pytest.fail(f"not found in {count} worlds; other laws that were broken: {found}", pytrace=False)


def breaks_no_law(kind: str, worlds: Iterable[tuple[int, Stage]], enough: int = 0) -> None:
    """Run worlds, by their seeds. `enough`: that many, if what they are aimed at has happened in one of them."""
    count = 0
    for number, (seed, stage) in enumerate(worlds, 1):
        try:
            stage.run()
        except Violation as violation:
            pytest.fail("\n".join([f"seed {seed} --{kind} ({stage.name}): {violation}", *timeline(stage.world, 30)]), pytrace=False)
        count += not stage.void
        if count and number == enough:
            break
    assert count, "what these worlds are aimed at never happens"
