"""What makes the set-up unsafe is said without `-v`: here that two clients disagree about the longest lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.kit import Command

from holdfast.embedded import Nodes

# The first client of these nodes says what it has, and the next one differs. A client says it a second after it has connected.
LONG = "2"
DIFFERS = "max_ttl=60 at "


@pytest.fixture
def disagreeing(tmp_path: Path) -> Iterator[Command]:
    """The command, after a client with another `max_ttl`, on nodes of its own."""
    with Nodes(3) as nodes:
        found = Command(tmp_path, nodes.environment)
        assert found.run("run", "--max-ttl", "60s", "other", "sleep", LONG).stderr == ""
        yield found


@pytest.mark.parametrize("words", [("run",), ("once", "--keep", "1h"), ("elect",)])
def test_it_is_said_once(disagreeing: Command, words: tuple[str, ...]) -> None:
    done = disagreeing.run(*words, "x", "sleep", LONG)
    assert done.returncode == 0
    assert done.stderr.count(DIFFERS) == 1, done.stderr


def test_verbose_says_it_once_too_and_quiet_does_not(disagreeing: Command) -> None:
    assert disagreeing.run("run", "-v", "x", "sleep", LONG).stderr.count(DIFFERS) >= 1
    assert disagreeing.run("run", "--max-ttl", "61s", "-q", "x", "sleep", LONG).stderr == ""
