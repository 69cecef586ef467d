"""Many worlds, on all cores: what became of each, in the order of their seeds.

Knows seeds, and processes. Must not know what happens in a world, or how to tell it to people.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Unpack

from holdfast.testing.world import Violation

from .explore import Which, explore
from .stage import Stage

# Worlds that a process is given at a time.
CHUNK = 10
# So many are lived through before another process would have started.
FEW = 2 * CHUNK


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a world.

    `law`: the one that was broken, or the exception's name; empty if all is well; `wrong`: in
    words.

    `void`: why it does not count; `seen`: how often what happened; `faults`: how many, by kind;
    `looked`: how often each law had something to look at; `messages`: that nodes got; `seconds`: of
    its time.
    """

    seed: int
    name: str
    law: str = ""
    wrong: str = ""
    void: tuple[str, ...] = ()
    seen: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    looked: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    seconds: float = 0.0


def live(stage: Stage) -> Outcome:
    """Let happen what happens on a stage."""
    world = stage.world
    law = ""
    wrong = ""
    try:
        stage.run()
    except Violation as violation:
        law = violation.law
        wrong = str(violation)
    except Exception as error:
        law = type(error).__name__
        wrong = traceback.format_exc()
    return Outcome(
        seed=world.seed,
        name=stage.name,
        law=law,
        wrong=wrong,
        void=stage.void,
        seen=world.seen,
        faults=Counter(fault.rpartition(" ")[0] for fault in world.chance.happened),
        looked=stage.laws.looked,
        messages=world.delivered,
        seconds=world.now,
    )


def campaign(seeds: range, jobs: int, **which: Unpack[Which]) -> Iterator[Outcome]:
    """Live through these worlds, `jobs` at a time, up to the first in which something is wrong."""
    some = partial(_some, which=which)
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    if jobs == 1 or len(seeds) <= FEW:
        found = map(some, chunks)
        yield from _up_to_the_first(found)
        return
    with ProcessPoolExecutor(min(jobs, len(chunks)), mp_context=get_context("spawn")) as pool:
        try:
            yield from _up_to_the_first(pool.map(some, chunks))
        finally:
            pool.shutdown(cancel_futures=True)


def _some(seeds: range, *, which: Which) -> list[Outcome]:
    return list(_up_to_the_first([live(explore(seed, records=False, **which))] for seed in seeds))


def _up_to_the_first(found: Iterator[list[Outcome]]) -> Iterator[Outcome]:
    for outcomes in found:
        for outcome in outcomes:
            yield outcome
            if outcome.law:
                return
