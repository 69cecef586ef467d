"""What `./task release` finds: each check passes on what there is.

The builds, the tools and the smoke are for the task itself, because they take a minute and a network.
"""

from __future__ import annotations

import pytest
from release import api, papers, wire, workflows

pytestmark = pytest.mark.guards

ROOT = papers.ROOT

# ------------------------------------------------ workflows


def test_the_workflows_keep_our_rules() -> None:
    files = workflows.texts()
    assert workflows.complaints(files) == []
    assert workflows.unpaired(files) == []


# ------------------------------------------------ papers


def test_the_papers_are_right() -> None:
    assert papers.complaints(papers.texts(), papers.project(), papers.version()) == []


# ------------------------------------------------ interface and wire


def test_the_wire_is_frozen() -> None:
    assert (ROOT / "tests/wire.txt").read_text() == wire.described(), "if this is meant: ./task release --freeze"


def test_the_interface_is_frozen() -> None:
    frozen = (ROOT / "tests/api.txt").read_text()
    assert frozen == api.described(ROOT / "src"), "if this is meant: ./task release --freeze"
    assert "\nholdfast.Lock.acquire(self, cancel: threading.Event | None = None) -> Lease\n" in frozen
    assert "\nasync holdfast.aio.Lock.acquire(self) -> Lease\n" in frozen
