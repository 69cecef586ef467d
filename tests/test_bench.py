"""The bench, without its speeds: pages name what is measured. That every contender runs, `./task bench --quick` checks."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench import report  # noqa: E402  (after its place is known)
from bench.updates import __main__ as command  # noqa: E402 (after its place is known)
from bench.updates.experiment import Outcome, complaints  # noqa: E402 (after its place is known)

pytestmark = pytest.mark.slow


def test_what_is_said_of_persistence_is_what_was_measured() -> None:
    results = json.loads((ROOT / "docs/performance.json").read_text())["scenarios"]
    told = results["persistence"]["figures"]["persistence, 5 nodes"]
    operations, sources = (ROOT / "docs/nodes.md").read_text(), (ROOT / "docs/sources.md").read_text()
    for kind in ("everysec", "always"):
        [row] = re.findall(rf"^.*`appendfsync {kind}` \|.*$", operations, re.MULTILINE)
        for what, said in zip(("pair", "once"), row.split(" | ")[2:], strict=True):
            factor = said.split()[0]
            # "1.1" stands for 1.0 to 1.2, and "3" for 2.5 to 3.5.
            slack = 0.1 if "." in factor else 0.5
            measured = [it[f"{what}_{kind}"][0] for it in told.values()]
            assert all(abs(it - float(factor)) <= slack for it in measured), f"{what}, {kind}: {said}, but it was {measured}"
    [pair] = re.findall(r"`appendfsync always` \|[^|]*\| ([^|]*?) as long", operations)
    assert f"takes {pair} as long" in sources


# ------------------------------------------------ pages


def test_the_page_is_what_its_results_make_it() -> None:
    page, results = (ROOT / "docs/performance.md").read_text(), json.loads((ROOT / "docs/performance.json").read_text())
    assert report.rewritten(page, results) == page  # nobody has changed a figure by hand


# ------------------------------------------------ growth


def test_the_page_of_lost_updates_is_what_its_results_make_it() -> None:
    page, found = (ROOT / "docs/reliability.md").read_text(), json.loads((ROOT / "docs/lost-updates/results.json").read_text())
    assert report.filled(page, lambda what: command.block(what, found)) == page  # nobody has changed a figure by hand
    assert complaints([Outcome(**it) for it in found["outcomes"]]) == []
    for name, drawn in command.charts(found).items():
        assert (ROOT / "docs/lost-updates" / name).read_text() == drawn
