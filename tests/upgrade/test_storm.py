"""What a storm of two versions notices. That two real versions get on is for `./task upgrade`, which builds an earlier one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from upgrade import __main__ as upgrade
from upgrade.storm import NEW, OLD, storm

pytestmark = pytest.mark.stories

SOURCE = upgrade.ROOT / "src"
SECONDS = 3.0  # beside the time that processes take to start


def copied(folder: Path, name: str, before: str, after: str) -> Path:
    """Copy the package, with a change."""
    copy = folder / "copy"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "holdfast" / name
    text = file.read_text()
    assert text.count(before) == 1, f"{name} has changed: plant {after!r} elsewhere"
    file.write_text(text.replace(before, after))
    return copy


# Each is a version that cannot share nodes with today's: what must be seen then.
PLANTED = {
    "other keys": (
        "protocol/exclusive.py",
        'self.name, self.part = key_of(name, prefix), name',
        'self.name, self.part = key_of(name, prefix + "x"), name',
        "held at once",
    ),
    "a request that takes a lock from its holder": (
        "scripts/request.lua",
        "if call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then",
        "if call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) then",
        "held at once",
    ),
    "an engine that takes nothing": (
        "protocol/exclusive.py",
        'self.name, self.part = key_of(name, prefix), name',
        'raise SystemExit(3)',
        "ended with 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED)
def test_a_version_that_cannot_share_nodes_is_found(plant: str, tmp_path: Path) -> None:
    name, before, after, shown = PLANTED[plant]
    places = {OLD: copied(tmp_path, name, before, after), NEW: SOURCE}
    outcome = storm(places, tmp_path, SECONDS)
    assert any(shown in it for it in outcome.wrong), outcome.wrong


def test_the_same_version_twice_is_well(tmp_path: Path) -> None:
    """Otherwise the faults above would be found in anything. (A busy machine may give one of them little.)"""
    outcome = storm({OLD: copied(tmp_path, "version.py", '"0.1.0"', '"0.0.9"'), NEW: SOURCE}, tmp_path, SECONDS)
    assert [it for it in outcome.wrong if "sections" not in it] == []
    assert outcome.share(OLD) > 0
    assert outcome.share(NEW) > 0


def test_the_earlier_version_is_in_the_history() -> None:
    assert upgrade.git("cat-file", "-t", upgrade.earlier()).strip() in (b"commit", b"tag")
    assert upgrade.git("merge-base", "--is-ancestor", upgrade.earlier(), "HEAD") == b""
