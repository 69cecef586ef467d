"""`./task bench --quick`: does every contender still run, and are the results sane? For CI: it says nothing of speed.

Knows every work and every contender. Every lock that can be waited for is fought for, and must have had one holder at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from . import growth, scenarios, watching
from .catalogue import ALL, OURS, PEER, C, Contender
from .runner import Case, Row, Stage, once

SECONDS = 0.1
LANES = 3  # measurements at a time, each with servers of its own: speed does not matter


def jobs() -> list[tuple[Case, Contender]]:
    """A pair for each contender, a fight for each that can wait, and every other case for those who are ours and one other."""
    found: list[tuple[Case, Contender]] = []
    for it in ALL:
        if "push" in it.name:
            continue
        if "batches" in it.name:
            found.append((replace(scenarios.MANY.cases[0], parameters={"tasks": 10}), it))
        else:
            found.append((Case("pair", "pair", (it,), min(it.most, 5)), it))
        if it.kind == PEER or (it.face != C and "floor" not in it.name):
            found.append((_fight(min(it.most, 5), 1), it))
    found += [(_fight(5, 2), it) for it in ALL if it.name in ("holdfast", "holdfast asyncio") or "push" in it.name]
    for scenario in (
        scenarios.DELAYED,
        scenarios.PRIMITIVES,
        scenarios.PERSISTENCE,
        scenarios.MANY,
        scenarios.CROWD,
        scenarios.BUSY,
        scenarios.FAULTS,
        scenarios.START,
        scenarios.SERVER,
        scenarios.HANDSHAKE,
    ):
        case = scenario.cases[-1]
        found += [(case, it) for it in case.contenders[:2]]
    found += [(scenarios.TELLING.cases[0], it) for it in scenarios.TELLING.cases[0].contenders]
    held = scenarios.HELD.cases[0]
    found += [(replace(held, watch=watching.counted(0.2, steps=2), parameters={"leases": 20}), it) for it in held.contenders]
    beside, shared = scenarios.LEASES.cases[-1], scenarios.BURSTS.cases[0]
    found += [(replace(beside, parameters={"leases": 20, "measured": 0.2}), it) for it in beside.contenders]
    few = {"leases": 20, "clients": 4, "together": 5, "ttl": 1.0, "max_ttl": 1.0}
    found += [(replace(shared, watch=watching.bursts(1.0, 0.5), parameters=few), it) for it in shared.contenders]
    some, many = scenarios.MULTITUDE.cases
    found += [(replace(some, parameters={"clients": 20, "storm": 0}), it) for it in some.contenders]
    found += [(replace(many, parameters={"clients": 100, "storm": 1}), it) for it in many.contenders]
    waiting = scenarios.HANDOVER.cases[-1]
    found += [(replace(waiting, watch=watching.counted(0.2), parameters={"waiters": 4}), it) for it in waiting.contenders[:2]]
    return [*found, *_grown()]


def _grown() -> list[tuple[Case, Contender]]:
    """Something of each axis along which cost grows, and what only there is measured."""
    small = {"nodes": 9, "waiters": 3, "tasks": 10, "delay": 1, "clients": 10, "names": 1000}
    cases = [replace(it.case(small[it.name]), name=it.of(small[it.name])) for it in growth.AXES.values()]
    cases[-2] = replace(cases[-2], watch=watching.counted(1.0, steps=2))
    cases[-1] = replace(cases[-1], watch=growth.remembered(0.2))
    return [(replace(it, seconds=None), it.contenders[0]) for it in cases]


def _fight(nodes: int, processes: int) -> Case:
    parameters = {"waiters": 4, "processes": processes, "hold": 0.001, "think": 0.001}
    return Case("hand-over", "handover", (), nodes, 0, "none", parameters, after=watching.commands_each, seconds=0.2)


def complaint(case: Case, contender: Contender, row: Row) -> str | None:
    """What is wrong with a row, if anything."""
    if "error" in row:
        return str(row["error"])
    others = {"waiting": "commands", "primitives": "rate", "persistence": "once_always", "handshake": "cpu"}
    others["held"] = "peak" if "peak" in dict(case.figures) else "cpu"
    others["multitude"] = "connections" if case.parameters.get("storm") else "memory"
    wanted = others.get(case.work, "p50")
    if not row.get(wanted, -1.0) >= 0.0 or (wanted == "p50" and not row["p50"] > 0.0):
        return f"{wanted} is {row.get(wanted)}"
    if case.name.startswith("names:") and not row.get("node_bytes", 0) > 0:
        return f"a lease has {row.get('node_bytes')} bytes on a node"
    if case.work == "handover" and row["commands"] <= 0:
        return "nobody has sent a command"
    # Another library may lose its leases on a busy machine. That is a result.
    if row.get("lost") and contender.kind == OURS:
        return f"{row['lost']} leases were lost"
    return None


def main(say: Callable[[str], None]) -> int:
    """Run all of it; 1 if anything is wrong."""
    todo, wrong, lock = jobs(), list[str](), threading.Lock()
    todo.reverse()

    def lane() -> None:
        stage = Stage()
        try:
            while True:
                with lock:
                    if not todo:
                        return
                    case, contender = todo.pop()
                row = once(stage, replace(case, pin="none", own_servers=case.own_servers), contender, SECONDS)
                trouble = complaint(case, contender, row)
                with lock:
                    say(f"{'WRONG' if trouble else 'ok'}  {case.name}: {contender.name}{': ' + trouble if trouble else ''}")
                    if trouble:
                        wrong.append(contender.name)
        finally:
            stage.close()

    count = len(todo)
    with ThreadPoolExecutor(LANES) as lanes:
        for it in [lanes.submit(lane) for _ in range(LANES)]:
            it.result()
    say(f"{count - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0
