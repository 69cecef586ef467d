"""The vectors find what a client does wrong: each planted fault breaks a conversation."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from clients.storm import planted

FAULTS = {
    "a grant is good from the arrival of its answer": ("this.boundOf(request.sent), now)", "this.boundOf(now), now)"),
    "no drift": ("this.terms.ttl - (this.terms.ttl / 100 + 2)", "this.terms.ttl"),
    "any majority will do, whatever its fences": (
        "fences.find((fence) => fences.filter((other) => other === fence).length >= this.quorum)",
        "fences[this.quorum - 1]",
    ),
    "a quorum of half": ("Math.floor(standing.length / 2) + 1", "Math.ceil(standing.length / 2)"),
    "the clock does not come first": ("if (held && now >= this.deadline)", "if (false)"),
    "the gap rule is off": ("if (this.state === 'held' && !this.vouched(vote, now))", "if (false)"),
    "nobody makes way": ("if (vote.lower)", "if (false)"),
    "a node counts while it is asked to cede": ("vote.since = undefined;\n            vote.granted = false;", "vote.since = undefined;"),
    "what is said meanwhile counts": ("if (vote.ceding && request.mode !== 'c')", "if (false)"),
    "a cede that was cut is no cede": ("if (vote.ceding)\n                this.burn(vote);", ""),
    "any fence counts": ("this.terms.K * 1500", "Infinity"),
    "nothing is written back": ("if (rest.length >= this.quorum)", "if (false)"),
    "no release when it is lost": ("this.votes.forEach((vote, node) => vote.touched &&", "this.votes.forEach((vote, node) => false &&"),
}


def run(folder: Path) -> int:
    return subprocess.run(["node", "dist/test/vectors.test.js"], cwd=folder, stdout=subprocess.DEVNULL, timeout=60).returncode


def test_the_client_as_it_is_passes(tmp_path: Path) -> None:
    assert run(planted(tmp_path)) == 0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(fault: tuple[str, str], tmp_path: Path) -> None:
    assert run(planted(tmp_path, ("claim.js", *fault))) == 1
