"""What `./task release` finds: each check passes on what there is.

The builds, the tools and the smoke are for the task itself, because they take a minute and a network.
"""

from __future__ import annotations

import pytest
import yaml
from release import api, papers, wire, workflows

pytestmark = pytest.mark.guards

ROOT = papers.ROOT

# ------------------------------------------------ workflows


@pytest.mark.parametrize("name", workflows.texts())
def test_a_job_has_a_timeout_no_secret_and_an_environment_if_it_may_take_an_identity(name: str) -> None:
    """The rest is zizmor's and actionlint's to find."""
    text = workflows.texts()[name]
    assert "secrets." not in text
    for told in yaml.safe_load(text)["jobs"].values():
        assert "timeout-minutes" in told
        rights = told["permissions"]
        assert rights.get("id-token") != "write" or "environment" in told or "attestations" in rights


# ------------------------------------------------ papers


def test_the_papers_are_right() -> None:
    assert papers.complaints(papers.texts(), papers.project(), papers.version()) == []


# ------------------------------------------------ interface and wire


def test_the_wire_is_frozen() -> None:
    assert (ROOT / "tests/wire.txt").read_text() == wire.described(), "if this is meant: ./task release --freeze"


def test_the_interface_is_frozen() -> None:
    assert (ROOT / "tests/api.txt").read_text() == api.described(ROOT / "src"), "if this is meant: ./task release --freeze"
