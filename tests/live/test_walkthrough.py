"""The walkthrough ends as it is told, on whatever machine; and notices when a version does something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nemesis.processes import ran

PATIENCE = 150.0  # seconds; on an idle machine the whole walk takes 25

pytestmark = [pytest.mark.stories, pytest.mark.timeout(PATIENCE + 30)]

KEPT = [201, 201, 201, 400, 400]
ONE_TOO_MANY = [201, 201, 201, 201, 400]
EXCEEDED = [201] * 5
# Version, what is done, and which statuses the clients get (0: no answer).
TOLD = [
    ("no lock", "good weather: one after another", KEPT),
    ("no lock", "five requests at once", EXCEEDED),
    ("Version 0", "good weather: one behind another", KEPT),
    ("Version 0", "five at once: all GET, then SET", EXCEEDED),
    ("Version 0", "the holder's process is killed", [0, 201]),
    ("Version 1", "good weather: five requests at once", KEPT),
    ("Version 1", "the server restarts empty", ONE_TOO_MANY),
    ("Version 2", "good weather: five requests at once", KEPT),
    ("Version 2", "one of three servers hangs", KEPT),
    ("Version 2.1", "good weather: five requests at once", KEPT),
    ("Version 2.1", "the holder is slow", ONE_TOO_MANY),
    ("Version 2.1", "two of three servers die", EXCEEDED),
    ("holdfast", "good weather: five requests at once", KEPT),
    ("holdfast", "one of three servers hangs", KEPT),
    ("holdfast", "one of three servers restarts empty", KEPT),
    ("holdfast", "the holder's process is killed", [0, 201]),
    ("holdfast", "two of three servers die", [503] * 5),
]


def verdicts(told: str) -> dict[tuple[str, str], str]:
    """The table at the end: for each version and scene, whether it went as told."""
    rows = [re.split(r"\s{2,}", line) for line in told.partition("\nversion  ")[2].splitlines()]
    return {(row[0], row[1]): row[2] for row in rows if len(row) > 2 and row[2] in ("yes", "NO")}


def scenes(told: str) -> list[tuple[str, list[int]]]:
    """Each scene as it was printed, with the statuses of its answers."""
    found: list[tuple[str, list[int]]] = []
    for line in told.partition("\nversion  ")[0].splitlines():
        if title := re.fullmatch("  (\\S.*):", line):
            found.append((title[1], []))
        elif answer := re.match(r"    (\d{3}|---) - ", line):
            found[-1][1].append(0 if answer[1] == "---" else int(answer[1]))
    return [(title, sorted(statuses)) for title, statuses in found]


def test_everything_happens_as_told(tmp_path: Path) -> None:
    status, told, wrong = ran("examples/walkthrough.py", within=PATIENCE, TMPDIR=str(tmp_path))
    assert (status, wrong) == (0, ""), told + wrong
    assert scenes(told) == [(scene, statuses) for _, scene, statuses in TOLD], told
    assert verdicts(told) == {(version, scene): "yes" for version, scene, _ in TOLD}, told
    assert told.splitlines()[-1].startswith("Everything happened as told. "), told
    # The document's own printing.
    assert re.search(r"^    201 - \{'items': \['\d', '\d', '\d'\], 'total': 3\}$", told, re.MULTILINE), told
    assert "    400 - {'detail': 'Cannot create more than 3 items.'}" in told
    assert "    503 - {'detail': \"NoQuorum: " in told
    assert list(tmp_path.iterdir()) == []
