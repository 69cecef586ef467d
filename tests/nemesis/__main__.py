"""Harms real servers, their network and their clients, and checks what the clients believed: `./task nemesis`.

Five real servers, each in a network namespace of its own where root may make one, all of them behind proxies; client processes with
threads and asyncio. Needs Linux. Exits with 1 if a law is broken, and with 3 if too little happened for the run to mean anything.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import servers
from .campaign import LEAPS, MEMORY, WITHIN, Campaign, Phase, Result, summary, table
from .faults import CABLES, KINDS

QUICK = ((WITHIN, 41.0), (LEAPS, 6.0), (MEMORY, 5.0))  # seconds
QUICK_MORE = 12.0  # seconds that the first may take longer on a busy machine
SHARES = ((WITHIN, 0.8), (LEAPS, 0.12), (MEMORY, 0.08))
FAULTS_QUICK, FAULTS_A_MINUTE, HOLDS_A_MINUTE, AIMED_SHARE = 100, 40, 250, 0.4
CABLED = {name for name, kind in KINDS.items() if kind.group == CABLES}
LONG = 300.0  # seconds from which on every kind of fault has to have happened
BROKEN, VOID = 1, 3


def main(arguments: Sequence[str] | None = None) -> int:
    summary_, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="./task nemesis", description=summary_, epilog=more)
    parser.add_argument("--minutes", type=float, metavar="M", default=1.0, help="how long the faults go on (1)")
    parser.add_argument("--quick", action="store_true", help="as every push has it: at least 100 faults, in 75 seconds")
    parser.add_argument("--seed", type=int, help="of what is drawn (a new one)")
    parser.add_argument("--clients", type=int, default=5, help="processes (5)")
    parser.add_argument("--users", type=int, default=4, help="threads or tasks in each (4)")
    parser.add_argument("--server", help="another server's executable")
    parser.add_argument("--out", type=Path, default=Path("build/nemesis"), help="where a failure's history goes (build/nemesis)")
    options = parser.parse_args(arguments)
    if sys.platform != "linux":
        parser.error("the nemesis knows Linux's processes only")
    options.seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {options.seed}", flush=True)
    return faults(options)


def _tell(line: str) -> None:
    print(line, flush=True)


def faults(options: argparse.Namespace) -> int:
    """All phases, one after the other; until one is broken."""
    why_not = servers.own_network()
    _tell(f"NO CABLES ({why_not}): packets are not lost, only the proxies' bytes" if why_not else "each server in a network of its own")
    if shutil.which("cc") is None:
        _tell("NO CLOCKS (cc is not installed): nobody's clock is set")
    results: list[Result] = []
    phases = QUICK if options.quick else [(phase, options.minutes * 60 * share) for phase, share in SHARES]
    for phase, seconds in phases:
        results.append(asyncio.run(_phase(options, phase, seconds, not why_not)))
        if results[-1].broken:
            break
    _tell(f"\n{table(results)}\n")
    for result in results:
        _tell(summary(result))
    for result in results:
        if result.broken:
            _convict(result, options.out)
            return BROKEN
    if lacks := lacking(results, options.quick, cables=not why_not):
        _tell("void: " + "; ".join(lacks))
        return VOID
    return 0


async def _phase(options: argparse.Namespace, phase: Phase, seconds: float, cables: bool) -> Result:
    campaign = Campaign(
        phase, options.seed, clients=options.clients, users=options.users, cables=cables, executable=options.server, tell=_tell
    )
    more = seconds + QUICK_MORE if options.quick and phase is WITHIN else 0.0
    began = time.monotonic()
    result = await campaign.run(seconds, more, lambda it: len(it.happened) >= FAULTS_QUICK)
    _tell(f"{phase.name}: over after {time.monotonic() - began:.0f} s, {len(result.broken)} violations")
    return result


def lacking(results: Sequence[Result], quick: bool, cables: bool) -> list[str]:
    """What too little happened of, for the run to mean anything."""
    strikes = [it for result in results for it in result.happened]
    minutes, holds = sum(it.seconds for it in results) / 60, sum(it.holds for it in results)
    lacks = []
    least = FAULTS_QUICK if quick else int(FAULTS_A_MINUTE * minutes)
    if len(strikes) < least:
        lacks.append(f"{len(strikes)} faults, fewer than {least}")
    if holds < HOLDS_A_MINUTE * minutes:
        lacks.append(f"{holds} holds, fewer than {HOLDS_A_MINUTE} a minute")
    if sum(it.aimed for it in results) < AIMED_SHARE * len(strikes):
        lacks.append(f"of {len(strikes)} faults only {sum(it.aimed for it in results)} met the moment that they were aimed at")
    drawn = {name for result in results for name in result.phase.kinds}
    never = {it for it in drawn if _possible(it, cables, shutil.which("cc") is not None)} - {it.kind for it in strikes}
    if sum(it.seconds for it in results) > LONG and never:
        lacks.append(f"never happened: {', '.join(sorted(never))}")
    return lacks


def _possible(kind: str, cables: bool, clocks: bool) -> bool:
    return (cables or kind not in CABLED) and (clocks or "clock" not in kind)


def _convict(result: Result, out: Path) -> None:
    """Say what was broken, and what happened around it."""
    _tell(f"\nBROKEN in {result.phase.name}, seed {result.seed}; everything is in {result.save(out)}")
    for it in result.broken[:10]:
        _tell(f"  {it}")
    first = result.broken[0]
    for strike in result.strikes:
        if strike.began < first.at + 1 and strike.ended > first.at - 1:
            _tell(f"  fault: {vars(strike)}")
    for line in result.history.around(first.at):
        _tell(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
