"""The vectors find what a client does wrong: each planted fault breaks a conversation."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from clients.storm import planted

FAULTS = {
    "a grant is good from the arrival of its answer": ("vote.base = request.good;", "vote.base = good(this.now, this.terms.ttl);"),
    "no drift": ("ttl - (ttl / 100 + 2)", "ttl"),
    "a waiter asks when all others do": ("this.sooner > 0", "false"),
    "an extension asks for the usual ttl": ("this.ask(vote, 'k', false, ttl)", "this.ask(vote, 'k')"),
    "an extension is confirmed by answers to what was asked before": ("this.reached('last') >= this.extension.latest && ", ""),
    "an extension is confirmed though the lease ends sooner": (" && this.deadline >= this.extension.until", ""),
    "an extension that nobody confirms is waited for": ("this.extensionIs(false);\n        if (!isTurn", "if (!isTurn"),
    "any majority will do, whatever its fences": (
        "fences.find((fence) => fences.filter((other) => other === fence).length >= this.quorum)",
        "fences[this.quorum - 1]",
    ),
    "a quorum of half": ("Math.floor(standing.length / 2) + 1", "Math.ceil(standing.length / 2)"),
    "the clock does not come first": ("if (held && this.now >= this.deadline)", "if (false)"),
    "the gap rule is off": ("if (this.state === 'held' && !this.vouched(vote))", "if (false)"),
    "nobody makes way": ("if (vote.lower)", "if (false)"),
    "a node counts while it is asked to cede": (
        "Object.assign(vote, { since: Infinity, last: -Infinity, bound: 0 });",
        "vote.since = Infinity;",
    ),
    "what is said meanwhile counts": ("if (!request || (ceding && request.mode !== 'c'))", "if (!request)"),
    "a cede that was cut is no cede": ("if (isCeding(vote))\n                this.burn(vote);", ""),
    "any fence counts": ("K * 1500", "Infinity"),
    "nothing is written back": ("if (rest.length >= this.quorum)", "if (false)"),
    "no release when it is lost": ("if (vote.touched)\n                this.release(vote.node, this.token);", ";"),
    "a burnt node counts again": ("if (vote.burnt)\n            return this.release(vote.node, this.token);", ""),
    "a missing answer is never suspected": ("word.third === 1 || shown", "word.third === 1"),
    "a broken connection takes its grant away": ("{ owed: [], sent: -Infinity,", "{ bound: 0, owed: [], sent: -Infinity,"),
    "a node that only a renewal won vouches for all of the lease": (" && vote.sent <= this.since", ""),
    "an unconfirmed renewal is not repeated": ("this.askAgain = this.now + this.patience;", ""),
    "an outage never ends the wait": ("if (this.now >= this.givesUp())", "if (false)"),
    "an outage from before the claim counts": ("many(isDown) <= spare", "true"),
    "answers to an old token count": ("if (token !== this.token)\n            return;", ""),
    "a burnt node is renewed": ("!== 'up' || vote.burnt)", "!== 'up')"),
    "who granted late vouches for all of the lease": ("vote.last === -Infinity && vote.sent <= this.since", "vote.last === -Infinity"),
    "the first in line asks again and again": ("vote.again = Infinity;", ""),
    "heartbeats go to nodes that owe an answer": ("vote.owed.length === 0", "true"),
    "nodes that owe two answers are renewed": ("owed.length < 2", "true"),
    "a try makes way": ("this.terms.patient", "true"),
    "a ticket of a wrong clock is kept": ("this.terms.ticket += by;", ""),
}


def run(folder: Path) -> int:
    return subprocess.run(["node", "dist/test/vectors.test.js"], cwd=folder, stdout=subprocess.DEVNULL, timeout=60).returncode


def test_the_client_as_it_is_passes(tmp_path: Path) -> None:
    assert run(planted(tmp_path)) == 0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(fault: tuple[str, str], tmp_path: Path) -> None:
    assert run(planted(tmp_path, ("claim.js", *fault))) == 1
