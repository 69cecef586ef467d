"""The tests of the client for Node, and the vectors, find what it does wrong: each planted fault fails one of them."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients.storm import planted

# What is planted: the file, its text, what replaces it, and the test that finds it.
FAULTS = {
    "there is no guard": ("node.js", "this.wake = this.guard.meets(", "this.wake = -this.guard.meets(", "guards a server"),
    "a server counts under each of its addresses": ("index.js", "if (met && met.node !== node)", "if (false)", "counts a server once"),
    "two addresses of a server keep each other out": (
        "index.js",
        "if (met && met.node !== node)",
        "if (met)",
        "takes a server that has two addresses back",
    ),
    "tickets stay above those of a wrong clock": ("index.js", "this.tickets.last = 0;", "", "draws tickets"),
    "the clock of tickets is not corrected": ("index.js", "claim.corrected(by)", "{}", "draws tickets"),
    "a failover in an address is passed over": ("index.js", "if (url.search)", "if (false)", "refuses an address"),
    "a second promotion is not seen": ("node.js", "run + fact('master_replid')", "run", "guards a server that was promoted"),
    "a clock that was read late counts": ("node.js", "now - sent > this.client.K / 2", "false", "a clock that was read late"),
    "any time is told": ("node.js", "!(seconds + microseconds > 0)", "false", "uses no node that tells no time"),
    "the client's own lateness is the node's": ("node.js", "late < patience * LATE", "true", "where the client was late"),
    "a silent connection is kept": (
        "node.js",
        "now - this.oldest() > this.client.patience",
        "0 > this.client.patience",
        "hung up on in time",
    ),
    "any ttl will do": ("index.js", "if (ttl / 3 < trip)", "if (false)", "refuses a ttl"),
    "a connection is made as fast as a lease is short": ("index.js", "if (state !== 'up')", "if (false)", "gives a connection"),
    "time mends no refusal": ("node.js", "if (PASSING.test(reply.message))", "if (false)", "too many clients"),
    "time mends every refusal": ("node.js", "if (PASSING.test(reply.message))", "if (true)", "the password is missing"),
    "a node of use is one that was met": ("node.js", "!this.isRefused(reply) && left === 0", "left === 0", "SCRIPT LOAD is refused"),
    "MOVED is heard again and again": ("node.js", "isElsewhere ? 'useless' : 'down'", "'down'", "MOVED"),
    "the mode of a Valkey is not read": ("node.js", "fact('server_mode') === 'cluster'", "false", "a node of a cluster of Valkey"),
    "a release is forgotten with its connection": ("node.js", "this.unsaid.clear();", "unsaid.length = 0;", "a release that was owed"),
    "a grant below the proposed fence counts": ("index.js", "< command.P", "< 0", "a grant below"),
    "a connection in doubt is kept": ("node.js", "!IN_DOUBT.test(value.message)", "true", "leaves it in doubt"),
    "missed heartbeats are caught up": ("claim.js", "while (time >= this.beat)", "if (time >= this.beat)", "heartbeats that were missed"),
    "a lease outlives its client": ("index.js", "claim.state === 'held' ? 'lost' : 'over'", "'over'", "its client was closed"),
    "the settings are noted with each acquire": ("index.js", "now - node.noted.at < 30_000", "false", "notes its settings twice a minute"),
}
# The same of claim.js, which the vectors find: each breaks a conversation.
OF_CLAIMS = {
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

VECTORS = "the vectors"
ALL = FAULTS | {name: ("claim.js", *change, VECTORS) for name, change in OF_CLAIMS.items()}
LATE = ("a clock that was read late", "where the client was late", "hung up on in time", "heartbeats that were missed")


def is_found(fault: tuple[str, str, str, str], folder: Path) -> bool:
    """Plant a fault, and run the test that is to find it."""
    *change, finds = fault
    folder.mkdir()
    file = "vectors" if finds == VECTORS else "late" if finds in LATE else "client"
    command = ["node", *([] if finds == VECTORS else [f"--test-name-pattern={finds}"]), f"dist/test/{file}.test.js"]
    return subprocess.run(command, cwd=planted(folder, tuple(change)), stdout=subprocess.DEVNULL, timeout=60).returncode == 1


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Which faults are found. The tests wait more than they work, so that several run at a time."""
    folder = tmp_path_factory.mktemp("faults")
    with ThreadPoolExecutor(4) as pool:
        runs = {name: pool.submit(is_found, fault, folder / str(at)) for at, (name, fault) in enumerate(ALL.items())}
    return {name: run.result() for name, run in runs.items()}


@pytest.mark.parametrize("name", ALL)
def test_a_fault_is_found(name: str, found: dict[str, bool]) -> None:
    assert found[name]


@pytest.mark.parametrize("finds", ["refuses", VECTORS])
def test_without_a_fault_they_pass(finds: str, tmp_path: Path) -> None:
    assert not is_found(("index.js", "", "", finds), tmp_path / "as it is")
