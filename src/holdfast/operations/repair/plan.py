"""Repair: when a client looks for what a node has forgotten, and what an operator is told.

Shared by both faces.

Knows recipes, and that queries have answers. Must not know who waits: each function is a plan, or a
step of one.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from ... import checks
from ...checks import Seconds
from ...engine.plans import Ask, Do, Pause, Plan
from ...engine.settings import Settings
from ...engine.status import NodeStatus
from ...protocol.query import Query
from ..inspection.plan import unheard
from . import commands as recipes
from .commands import BATCH, RepairTally, Work

LONGEST = 3600.0  # seconds between two steps of a repair
ANY = "*"  # what a repair is of, in messages


class Repaired(NamedTuple):
    """What `repair` found and did.

    `found`: how many results, cached values, limits, latches and barriers the nodes keep. `mended`:
    how many copies of them were written back to nodes that had none, or an older one. `lacking`:
    how many copies some nodes still lack, because a node did not
    answer or the value changed meanwhile: call `repair` again. `nodes`: the addresses of the nodes
    on which nothing is lacking now;
    `left_out`: those of the others, such as nodes that are down or guarded.
    """

    found: int
    mended: int
    lacking: int
    nodes: tuple[str, ...]
    left_out: tuple[str, ...]


# ------------------------------------------------ read repair


def mend(settings: Settings, *keys: bytes, shard: int = 0) -> Do:
    """Have the nodes that lack something of these registers get it back. Nobody waits for that."""
    work = recipes.mending(keys, len(settings.addresses), patience(settings))
    return Do(lambda it: it.steer(lambda engine, now: engine.notices.run(keys[0], work, now)), shard)


def patience(settings: Settings) -> int:
    """Return after how many microseconds an answer of one node is no longer written to another.

    That is half of the fence horizon.
    """
    return settings.horizon * 500


# ------------------------------------------------ the repair of all nodes


def pace(pause: Seconds) -> float:
    """The seconds between two steps, checked."""
    return checks.seconds(pause, "pause", most=LONGEST)


def repair(settings: Settings, pause: float) -> Plan[tuple[RepairTally, Mapping[str, bool]]]:
    """Make sure that every node has what a majority has.

    Args:
        settings: Those of the shard.
        pause: Seconds between two steps.

    Returns:
        What became of all registers, and by node's address whether it has been repaired.
    """
    size, decides, former = len(settings.addresses), settings.quorum, settings.lists[-1] if settings.lists else ()
    seen: Query = yield Ask(dict.fromkeys(range(size), recipes.server()))
    runs = {node: run_id for node, reply in seen.answers.items() if (run_id := recipes.run_of(reply))}
    if not decides.met(runs):
        raise unheard(settings, seen, ANY, "repair")
    tally, cursors, scanned = RepairTally(), dict.fromkeys(runs, b"0"), set(runs)
    while cursors:
        seen = yield Ask({node: recipes.registers(settings.prefix, it) for node, it in cursors.items()})
        found: dict[bytes, set[int]] = {}
        going: dict[int, bytes] = {}
        for node in cursors:
            step = recipes.listed(seen.answers.get(node), settings.prefix)
            if step is None:
                scanned.discard(node)
                continue
            if step[0] != b"0":
                going[node] = step[0]
            for key in step[1]:
                found.setdefault(key, set()).add(node)
        if not decides.met(scanned):
            raise unheard(settings, seen, ANY, "repair")
        cursors = going
        keys = sorted(found)
        for at in range(0, len(keys), BATCH):
            work = recipes.mending(keys[at : at + BATCH], size, patience(settings), found, scanned, former)
            tally.add((yield from asked(work)))
            yield Pause(pause)
    whole = [node for node in runs if node not in tally.unsure]
    notes = {node: recipes.note(settings.prefix, runs[node]) for node in whole}
    seen = yield Ask(notes)
    done = [node for node in whole if node in seen.answers]
    yield from known({runs[node]: True for node in done})
    return tally, {it.label: node in done for node, it in enumerate(settings.addresses)}


def asked(work: Work) -> Generator[Any, Any, RepairTally]:
    """What a job does, as part of a plan: its caller waits for it."""
    try:
        asks = next(work)
        while True:
            asks = work.send((yield Ask(asks)))
    except StopIteration as end:
        tally: RepairTally = end.value
        return tally


def total(parts: list[tuple[RepairTally, Mapping[str, bool]]]) -> Repaired:
    """Return what became of all shards together."""
    tally = RepairTally()
    for part, _ in parts:
        tally.add(part)
    nodes = {label: done for _, those in parts for label, done in those.items()}
    return Repaired(
        tally.found,
        tally.mended,
        tally.lacking,
        tuple(label for label, done in nodes.items() if done),
        tuple(label for label, done in nodes.items() if not done),
    )


def marked(settings: Settings, nodes: tuple[NodeStatus, ...]) -> Plan[tuple[NodeStatus, ...]]:
    """Ask the nodes that are up whether they have been repaired since their servers started."""
    up = {at: node.run_id for at, node in enumerate(nodes) if node.state == "up"}
    seen: Query = yield Ask({at: recipes.noted(settings.prefix, run_id) for at, run_id in up.items()})
    told = {up[at]: isinstance(it, bytes) for at, it in seen.answers.items()}
    yield from known(told)
    return tuple(node._replace(repaired=told.get(node.run_id)) for node in nodes)


def known(runs: Mapping[str, bool]) -> Plan[None]:
    """Have `nodes()` tell from now on which runs of servers were repaired."""
    yield Do(lambda it: it.steer(lambda engine, now: engine.health.repaired(runs)))
    # What was asked before has been done when this is over.
    yield Ask({})
