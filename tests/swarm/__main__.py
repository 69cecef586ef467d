"""Explores worlds full of faults: `./task sim --seeds 0..1000`.

Each seed is a world of its own, always the same: simulated nodes run the shipped scripts, the
shipped engine speaks to them through a network that breaks, and laws are watched at every event.
The first broken law ends it, with exit status 1 and the last that happened; `--replay SEED` tells
everything that happens in one world, `--shrink SEED` makes one that fails as small as it can be.
Exit status 2: nothing that was aimed at happened, or a law has never had anything to look at.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from holdfast.testing.timeline import timeline

from .campaign import Outcome, campaign, live
from .explore import Exploration, Which, explore, plan_of
from .faults import WorldSettings
from .picture import picture, window
from .shrink import RUNS, Shrinking
from .stage import Stage

LAST = 60  # lines of a failure's timeline
# Worlds after which each law must have had something to look at.
ENOUGH = 100
# But for those about gaps, which hardly ever happen in worlds without an operator: those of a
# read-write lock, and of wrong clocks.
HANDS = ("gap", "unfounded")
# And but for that about several names, which only worlds of sets and the swarm have.
NAMES = ("whole",)
KINDS = {
    "swarm": "worlds whose size and faults are a matter of chance",
    "shared": "worlds of a read-write lock",
    "skewed": "worlds in which some clocks are wrong",
    "promoted": "worlds in which replicas are promoted",
    "sets": "worlds of many who want several names at once",
}
FIELDS = {it.name: type(getattr(plan_of(0), it.name)) for it in fields(WorldSettings)}


def main(arguments: list[str] | None = None) -> int:
    summary, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="./task sim", description=summary, epilog=more)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=_seeds, metavar="A..B", help="explore the worlds of these seeds, without B")
    what.add_argument("--replay", type=int, metavar="SEED", help="tell what happens in this one")
    what.add_argument("--shrink", type=int, metavar="SEED", help="leave out what does not matter for what is wrong in this one")
    parser.add_argument("--quick", action="store_true", help="shorter worlds (other ones: also for --replay)")
    for kind, words in KINDS.items():
        parser.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, default="", help=f"{words} (also for --replay)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: one for each core)")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="how much to try when shrinking (default: %(default)s)")
    parser.add_argument("--only", type=_faults, metavar="FAULTS", help="of a replay: the faults that may happen: 'restarts 2, cedes cut 1'")
    parser.add_argument("--plan", type=_plan, default={}, metavar="CHANGES", help="of a replay: what is different: 'clients=2, names=1'")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="of a replay: draw it, too")
    parser.add_argument("--from", type=float, dest="begins", metavar="SECONDS", help="of a picture or timeline (default: all)")
    parser.add_argument("--to", type=float, dest="ends", metavar="SECONDS", help="the same")
    options = parser.parse_args(arguments)
    which: Which = {"kind": options.kind, "quick": options.quick}
    if options.seeds is not None:
        return explore_all(options.seeds, options.jobs, which)
    if options.shrink is not None:
        return shrink(options.shrink, which, options.runs)
    return replay(options, which)


def explore_all(seeds: range, jobs: int, which: Which) -> int:
    """Live through these worlds, up to the first violation."""
    began = time.monotonic()
    told = began
    total = Total()
    void = Counter[str]()
    for number, outcome in enumerate(campaign(seeds, jobs, **which), 1):
        if outcome.law:
            _tell_failure(outcome, which)
            return 1
        if outcome.void:
            void[outcome.name] += 1
        else:
            total.add(outcome)
        if time.monotonic() > told + 5.0:
            told = time.monotonic()
            print(f"{number} of {len(seeds)} worlds, {total.seen['held']} holds, {told - began:.0f} s", flush=True)
    total.tell()
    took = time.monotonic() - began
    print(f"{total.worlds} worlds in {took:.1f} s ({total.worlds / took:.1f} a second): no law is broken", end="")
    print(f" ({void.total()} more do not count, as what they were aimed at did not happen)" if void else "")
    excused = {*([] if which["kind"] in ("", "swarm") else HANDS), *([] if which["kind"] in ("sets", "swarm") else NAMES)}
    if blind := [law for law, times in total.looked.items() if not times and law not in excused]:
        print(f"laws that had nothing to look at: {', '.join(blind)}")
    return 0 if total.worlds and not (blind and total.worlds >= ENOUGH) else 2


class Total:
    """What happened in all worlds that count."""

    def __init__(self) -> None:
        self.worlds = 0
        self.messages = 0
        self.seconds = 0.0
        self.seen = Counter[str]()
        self.faults = Counter[str]()
        self.looked = dict[str, int]()

    def add(self, outcome: Outcome) -> None:
        """One more world."""
        self.worlds = self.worlds + 1
        self.messages = self.messages + outcome.messages
        self.seconds = self.seconds + outcome.seconds
        self.seen.update({what: times for what, times in outcome.seen.items() if what not in outcome.faults})
        self.faults.update(outcome.faults)
        for law, times in outcome.looked.items():
            self.looked[law] = self.looked.get(law, 0) + times

    def tell(self) -> None:
        """All of it, as tables."""
        for title, table in (("happened", self.seen), ("faults", self.faults), ("laws had something to look at", self.looked)):
            print(f"{title}:")
            for what, times in sorted(table.items()):
                print(f"{times:10}  {what}")
        print(f"{self.messages} messages, {self.faults.total()} faults, {self.seconds / 3600:.1f} simulated hours")


def replay(options: argparse.Namespace, which: Which) -> int:
    """Tell all that happens in one world."""
    stage = _stage(options.replay, which, options.plan, options.only)
    outcome = live(stage)
    begins = options.begins or 0.0
    ends = options.ends if options.ends is not None else stage.world.now
    print(*timeline(stage.world, begins=begins, ends=ends), sep="\n")
    if outcome.law:
        print(_headline(outcome))
    print(f"seed {outcome.seed}, {outcome.name}: {outcome.seen}, {stage.world.fingerprint()}")
    if options.svg is not None:
        first, last = window(stage.world, bool(outcome.law))
        begins = first if options.begins is None else begins
        ends = last if options.ends is None else ends
        options.svg.write_text(picture(stage, outcome, begins, ends))
        print(f"drawn from {begins:.3f} to {ends:.3f} s: {options.svg}")
    return 1 if outcome.law else 0


def shrink(seed: int, which: Which, runs: int) -> int:
    """Make a failing world as small as it can be, and tell it."""
    plan = plan_of(seed, **which)
    if plan is None:
        print(f"seed {seed} is a scene, and as small as it can be")
        return 2
    shrinking = Shrinking(seed, plan, runs)
    if not shrinking.law:
        print(f"seed {seed} ({plan.name}): no law is broken")
        return 2
    before = len(shrinking.smallest.only)
    case = shrinking.run()
    stage = case.stage()
    outcome = live(stage)
    print(*timeline(stage.world), sep="\n")
    print(_headline(outcome))
    print(f"{len(case.only)} of {before} faults are left, after {shrinking.runs} runs: {', '.join(case.only) or 'none'}")
    print(f"All of it: {_command(seed, which)} --only {', '.join(case.only)!r} --plan {case.changes(plan)!r}")
    return 1


def _stage(seed: int, which: Which, changes: dict[str, object], only: Sequence[str] | None) -> Stage:
    plan = plan_of(seed, **which)
    if plan is None:
        return explore(seed, only=only)
    # `_plan` has looked at them.
    return Exploration(seed, replace(plan, **changes), only=only)  # type: ignore[arg-type]  # (options of several types)


def _tell_failure(outcome: Outcome, which: Which) -> None:
    """Say what is wrong, and what led to it: it is lived through once more for that."""
    stage = explore(outcome.seed, **which)
    again = live(stage)
    print(_headline(outcome))
    print(*timeline(stage.world, LAST), sep="\n")
    if again.wrong != outcome.wrong and not outcome.wrong.startswith("Traceback"):
        print(f"And it is not the same each time, as it has to be: {_headline(again)}")
    print(f"All of it: {_command(outcome.seed, which)}")


def _headline(outcome: Outcome) -> str:
    return f"seed {outcome.seed} ({outcome.name}), at {outcome.seconds:.6f} s: {outcome.wrong}"


def _command(seed: int, which: Which) -> str:
    kinds = [which["kind"]] if which["kind"] else []
    quick = ["quick"] if which["quick"] else []
    return " ".join([f"./task sim replay {seed}", *(f"--{it}" for it in quick + kinds)])


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    if not dots or not first.isdigit() or not last.isdigit() or int(first) >= int(last):
        raise argparse.ArgumentTypeError("seeds are a range such as 0..100")
    return range(int(first), int(last))


def _faults(text: str) -> tuple[str, ...]:
    return tuple(it.strip() for it in text.split(",") if it.strip())


def _plan(text: str) -> dict[str, object]:
    try:
        call = ast.parse(f"dict({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        changes = {it.arg or "": ast.literal_eval(it.value) for it in call.keywords}
    except (SyntaxError, ValueError):
        raise argparse.ArgumentTypeError("changes look like 'clients=2, ttls=(0.5, 1.0)'") from None
    for name, value in changes.items():
        if name not in FIELDS or not isinstance(value, (int, float) if FIELDS[name] is float else FIELDS[name]):
            raise argparse.ArgumentTypeError(f"a plan has no {name}={value!r}; it has {', '.join(FIELDS)}")
    return changes


if __name__ == "__main__":
    sys.exit(main())
