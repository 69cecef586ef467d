"""CI's own parts: stages that run at the same time fail when one of them fails, and all that CI leaves out has a task.

`.ci/run` itself needs a machine of its own and half an hour. Its functions are in `.ci/stages`, which is tested here.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = (ROOT / ".ci/run").read_text()


def ran(commands: str) -> tuple[int, str]:
    """Run commands as `.ci/run` does. Returns the exit status, and all that was printed."""
    source = f"set -euo pipefail\nsource .ci/stages\n{commands}\necho the end\n"
    done = subprocess.run(
        ["bash", "-c", source], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def test_stages_run_at_the_same_time_and_are_told_one_by_one() -> None:
    """Each of the two waits for what the other one does."""
    meet = "1 mkdir {0}; for i in $(seq 500); do [ -d {1} ] && echo {0} is met && exit; sleep 0.02; done; exit 1"
    status, told = ran(f"cd $(mktemp -d)\nlanes 2 '{meet.format('one', 'two')}' '{meet.format('two', 'one')}'")
    assert status == 0, told
    assert sorted(re.findall("(?:one|two) is met$", told, re.MULTILINE)) == ["one is met", "two is met"]
    whole = r"== .*\n(?:one|two) is met\n\d+ s, with \d+ \+ \d+ s of a core\n"
    assert len(re.findall(whole, told)) == 2
    assert told.endswith("the end\n")


def test_no_more_stages_than_that_run_at_the_same_time() -> None:
    """Five stages count how many there are."""
    count = "1 touch $BASHPID; ls | wc -l; sleep 0.3; rm $BASHPID"
    status, told = ran(f"cd $(mktemp -d)\nlanes 2 {' '.join([repr(count)] * 5)}")
    assert status == 0, told
    counted = re.findall(r"^\d+$", told, re.MULTILINE)
    assert len(counted) == 5
    assert max(counted) <= "2"


def test_the_next_stage_begins_when_any_has_ended() -> None:
    """The first of three, with two lanes, waits for the last one."""
    waits = "1 for i in $(seq 500); do [ -d last ] && echo well && exit; sleep 0.02; done; exit 1"
    status, told = ran(f"cd $(mktemp -d)\nlanes 2 '{waits}' '1 true' '1 mkdir last'")
    assert (status, "\nwell\n" in told) == (0, True), told


def test_each_stage_has_a_cache_of_its_own() -> None:
    status, told = ran("lanes 2 '1 echo $HOLDFAST_CACHE' '1 echo $HOLDFAST_CACHE'")
    caches = re.findall("^[.].*", told, re.MULTILINE)
    assert (status, len(set(caches)), len(caches)) == (0, 2, 2), told


FAILS = "1 until [ -d met ]; do sleep 0.02; done; exit 3"
WELL = "1 mkdir met; sleep 0.3; echo well"


@pytest.mark.parametrize("stages", [f"'{FAILS}' '{WELL}'", f"'{WELL}' '{FAILS}'", f"'{FAILS}' '{WELL}' '1 echo never'"])
def test_a_stage_that_fails_fails_all(stages: str) -> None:
    """Planted: one stage fails while another one runs, which is told all the same. Stages that wait for a lane never begin."""
    status, told = ran(f"cd $(mktemp -d)\nlanes 2 {stages}")
    assert status == 1
    assert "\nwell\n" in told
    assert re.search("ci: failed: until .*; exit 3$", told, re.MULTILINE)
    assert "\nnever\n" not in told
    assert "the end" not in told


def test_a_stage_that_hangs_is_killed_and_named() -> None:
    """Planted: a stage that never ends."""
    began = time.monotonic()
    status, told = ran("lanes 2 '0.02 sleep 60' '1 echo well'")
    assert status == 1
    assert "sleep 60 did not end within 0.02 minutes" in told
    assert "ci: failed: sleep 60\n" in told
    assert time.monotonic() - began < 40


def test_a_stage_by_itself_that_fails_ends_the_run() -> None:
    """Planted: as above, for stages that run alone."""
    assert ran("within 1 false")[0] == 1
    assert "sleep 60 did not end" in ran("within 0.02 sleep 60")[1]


def stages() -> list[str]:
    """The tasks that CI runs, in order."""
    lines = [it for it in SCRIPT.splitlines() if "say" not in it and it[:1] != "#"]
    return re.findall(r"\./task ([a-z]+(?:-[a-z]+)*)", "\n".join(lines))


def test_ci_runs_every_task_that_tests() -> None:
    wanted = {"lint", "types", "test", "coverage", "pyright", "site", "live", "uvloop", "stories", "fences", "metrics"}
    wanted |= {"cli", "serve", "page", "guests", "dates", "extras", "bench", "compat", "foreign", "clients"}
    wanted |= {"release-check", "upgrade", "conformance"}
    assert wanted | {"model", "spec", "sim", "nemesis", "mutants"} == set(stages())


def test_what_ci_leaves_out_on_older_servers_exists() -> None:
    """A pattern that no longer names a file would leave nothing out, and hide that a file was renamed."""
    found = re.search(r"^same='(.*)'$", SCRIPT, re.MULTILINE)
    assert found is not None
    tests = [it.stem for folder in ("contract", "live") for it in (ROOT / "tests" / folder).glob("test_*.py")]
    for word in found[1].split(" or "):
        assert any(it.startswith(word) for it in tests), word
