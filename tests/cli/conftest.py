"""What the tests of the command share: it runs as real processes, on the real nodes of the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.kit import Command
from nemesis.arena import beater
from nemesis.processes import until

from holdfast import Holdfast
from holdfast.embedded import Nodes


@pytest.fixture
def holdfast(tmp_path: Path, nodes: Nodes) -> Command:
    """The command, in an environment that names the nodes that no test harms."""
    return Command(tmp_path, nodes.environment)


@pytest.fixture
def locks(nodes: Nodes) -> Iterator[Holdfast]:
    """A client of the same nodes, connected to all of them: a lease that is taken before is on a majority only."""
    with Holdfast(*nodes.urls, owner="the-test") as found:
        found.ready()
        until(lambda: all(it.state == "up" for it in found.nodes()))
        yield found


@pytest.fixture(scope="session")
def beats(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The instrument: a program that shows when it lived."""
    return beater(tmp_path_factory.mktemp("beater"))
