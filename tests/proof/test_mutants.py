"""What breaks without each rule: one row a rule, and what finds its absence, within which budget. docs/reliability.md shows the table.

The rungs: *script*, the tests of the scripts, on simulated servers (tests/scripts/test_mutants.py); *conversation*, a scripted
conversation of a claim, a crew or a lane, planted here; *model*, every interleaving (tests/model/test_model.py); *simulator*, whole
worlds (tests/sim/test_planted.py); of read-write locks, test_readwrite.py beside each of them. The mutants of the other rungs are planted
and found there; here stands only which they are. A row whose mutant there no longer is fails, and so does a mutant of the model or of the
simulator that is in no row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from core import test_claim
from engine import test_crew
from model.test_model import MUTANTS as MODEL
from proof import patches
from recipes import test_exclusive
from scripts.test_mutants import MUTANTS as EXCLUSIVE
from scripts.test_readwrite import MUTANTS as SHARED
from sim.test_planted import PLANTED
from sim.test_readwrite import PLANTED as PLANTED_SHARED
from wire import test_lane

from holdfast.core.claim import Claim
from holdfast.core.command import Command
from holdfast.engine.crew import Crew
from holdfast.recipes import exclusive
from holdfast.wire.lane import Lane

SCRIPTS = EXCLUSIVE | SHARED
SIMULATOR = PLANTED | PLANTED_SHARED

DOCUMENT = Path(__file__).parent.parent.parent / "docs/reliability.md"

Held = Callable[..., Any]
Plant = Callable[[pytest.MonkeyPatch], object]


@dataclass(frozen=True)
class Conversation:
    """A patch of the engine, and the test that has to notice it. `given`: the test's parameters."""

    plant: Plant
    test: Callable[..., object]
    given: dict[str, Any] = dataclasses.field(default_factory=dict)


def patched(kind: type, name: str, text: str, other: str) -> Plant:
    return lambda monkeypatch: patches.method(monkeypatch, kind, name, text, other)


CONVERSATIONS = {
    "a cede only after all nodes answered": Conversation(
        patched(Claim, "_cede", "vote.granted and vote.lower", "vote.granted and vote.lower and not any(it.owed for it in self.votes)"),
        test_claim.test_a_waiter_makes_way_as_soon_as_it_hears_of_a_lower_ticket,
    ),
    "a holder counts a burnt node again": Conversation(
        patched(Claim, "_burn", "vote.burnt, vote.granted, vote.since = True, False, inf", "vote.ceding = vote.granted = False"),
        test_claim.test_a_holder_never_counts_again_a_node_whose_cede_was_cut,
        {"cut": "broken"},
    ),
    "a command that failed moves the bound": Conversation(
        patched(Claim, "_failed", "vote.error = error", "vote.base = vote.bound = quorum.bound(now, self.ttl); vote.error = error"),
        test_claim.test_a_request_that_fails_moves_no_bound,
    ),
    "names with a hash tag share keys": Conversation(
        lambda monkeypatch: patches.function(monkeypatch, exclusive.beside, "if tag is None", "if True"),
        test_exclusive.test_the_keys_of_a_name,
        {"name": "x{t}:fence"},
    ),
    "a push is matched by its token only": Conversation(
        patched(Crew, "told", "claim.recipe.name == key and ", ""),
        test_crew.test_a_push_with_the_right_token_and_the_wrong_name_does_not_reach_the_claim,
    ),
    "a silent connection is kept for ever": Conversation(
        patched(Lane, "late", "self.line is not DOWN", "False"), test_lane.test_when_it_is_late_and_when_to_look_after_it
    ),
    "the gap rule is off": Conversation(
        patched(Claim, "_gap", "self.state is HELD and ", "False and "),
        test_claim.test_B47_S19_a_majority_that_lost_the_key_is_a_loss_though_nobody_took_it,
        {"reply": [0, 5000, 2, None]},
    ),
    "an answer after the release makes it held": Conversation(
        patched(Claim, "answered", "if self.state is LOST or self.state is OVER:", "if self.state is LOST:"),
        test_claim.test_after_the_release_nothing_is_heard_any_more,
    ),
    "a renewal outlives the release": Conversation(
        patched(
            Claim,
            "tick",
            "if self.state is OVER or self.state is LOST:\n        return False",
            "if self.state is OVER:\n        self.state = HELD",
        ),
        test_claim.test_after_the_release_nothing_is_heard_any_more,
    ),
    "renewals go to the nodes that there were when it began": Conversation(
        patched(
            Claim, "_renewal", "self._reach.up if self.votes[i].owed", "self._touched if self.votes[i].sent > -inf and self.votes[i].owed"
        ),
        test_claim.test_a_node_that_comes_back_is_asked_by_a_holder_at_its_next_renewal,
    ),
    "it holds on when its time is up": Conversation(
        patched(Claim, "_late", "now >= self.until", "False"), test_claim.test_S18_an_answer_as_usual_does_not_save_what_has_run_out
    ),
    "a release is forgotten with its connection": Conversation(
        patched(Command, "again", "self.mode is RELEASE", "False"), test_crew.test_a_release_that_was_not_answered_is_said_again_once
    ),
    "the guard trusts any uptime": Conversation(
        patched(Lane, "_introduced", "max(now + guard + 1 - uptime, self._before + guard)", "now + guard + 1 - uptime"),
        test_lane.test_an_uptime_is_wrong_if_an_earlier_run_spoke_less_than_a_guard_ago,
    ),
}


@dataclass(frozen=True)
class Row:
    """What one does without, what that breaks, and the mutants of each rung that find it. `says`: instead of mutants, why there is none."""

    without: str
    breaks: str
    script: tuple[str, ...] = ()
    conversation: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    simulator: tuple[str, ...] = ()
    says: str = ""


ROWS = (
    Row("inquiry and cede", "L1: deadlock", model=("no inquiry", "no cede"), simulator=("no inquiry",)),
    Row("ceding before all nodes have answered", "L1", conversation=("a cede only after all nodes answered",)),
    Row(
        "nothing counts from the cede's sending to its answer",
        "V, S1",
        model=("counting while ceding", "an older answer counts while ceding"),
        simulator=("counting while ceding",),
    ),
    Row(
        "a cede whose connection broke burns the node",
        "V, S1",
        conversation=("a holder counts a burnt node again",),
        model=("a cut cede is no cede",),
        simulator=("a burnt cede is ignored",),
    ),
    Row("a waiter with a burnt node starts over", "L2", model=("no start over",), simulator=("no start over",)),
    Row(
        "only an answered request moves the bound",
        "V, S1",
        conversation=("a command that failed moves the bound",),
        model=("a push counts from its arrival",),
        simulator=("a push counts from its arrival",),
    ),
    Row("an expiry is never moved back", "V, S1", script=("a renewal moves the expiry back",)),
    Row(
        "q nodes say the same fence (B12)",
        "S2",
        model=("no agreement on the fence", "no write-back"),
        simulator=("no agreement on the fence",),
    ),
    Row(
        "a grant raises the fence (B5)",
        "S2: equal fences",
        script=("a grant does not raise the fence",),
        model=("a grant does not raise the fence",),
        simulator=("a grant does not raise the fence",),
    ),
    Row(
        "the clock floor",
        "S2 after a restart",
        script=("no clock floor", "no clock floor but for the usual case"),
        model=("no clock floor",),
        simulator=("no clock floor",),
    ),
    Row(
        "the fence's record lasts as long as the lease",
        "a healthy lease is lost",
        script=("a renewal lets the fence's record run out", "a fence's record runs out under its lease"),
        simulator=("the fence's record runs out under a lease",),
    ),
    Row("the fence's record is gone when a guard is over", "S2", script=("a renewal keeps the record for longer than a guard",)),
    Row("the guard (B11)", "V, S1", conversation=("the guard trusts any uptime",), model=("no guard",), simulator=("no guard",)),
    Row(
        "a waiter's deadline is not moved back",
        "V, S1",
        script=("a late request moves a deadline back",),
        simulator=("a waiter's deadline moves back",),
    ),
    Row(
        "the cap is at least every ttl",
        "V, S1",
        script=("a cap that is less than some lease", "no cap"),
        simulator=("a grant is capped below the ttl",),
    ),
    Row("keys of their own for names with a hash tag", "S1", conversation=("names with a hash tag share keys",)),
    Row("pushes matched by token and name", "S1", conversation=("a push is matched by its token only",)),
    Row("lost is decided first, with D as it was", "S1", model=("lost is not decided first",), simulator=("lost is not decided first",)),
    Row("a silent connection is broken in the end", "L2", conversation=("a silent connection is kept for ever",)),
    Row(
        "a try ends when fewer than q can still grant", "with even N it waits for ever", model=("a try gives up when a quorum has refused",)
    ),
    Row("the gap rule", "a lost majority goes unnoticed", conversation=("the gap rule is off",), simulator=("the gap rule is off",)),
    Row("a majority is more than half", "S1", model=("a quorum of half",), simulator=("quorum of 2 in 5",)),
    Row(
        "release compares (B13)",
        "S1",
        script=("releases another's",),
        model=("release does not compare",),
        simulator=("release does not compare",),
    ),
    Row("ordered lanes", "S1", conversation=("an answer after the release makes it held",), says="that bytes keep their order is TCP's"),
    Row("drift", "S1", simulator=("no drift",)),
    Row(
        "validity counts from the sending (B3)",
        "V, S1",
        model=("validity counts from the answer",),
        simulator=("validity counts from the answer",),
    ),
    Row("a grant that comes too late is none (B1, B2)", "S1", model=("what was granted too late is held",)),
    Row("one's own token is no obstacle (B4)", "it waits for itself", script=("one's own key is in the way",)),
    Row("nothing is said after the release (B6)", "a key comes back", conversation=("a renewal outlives the release",)),
    Row(
        "renewals find nodes that came back (B7)",
        "the lease runs out",
        conversation=("renewals go to the nodes that there were when it began",),
    ),
    Row("a holder looks at its own time (B8)", "S1", conversation=("it holds on when its time is up",)),
    Row(
        "a release is said until it is heard (B9)",
        "the lock stays taken for a ttl",
        conversation=("a release is forgotten with its connection",),
    ),
    Row("every key has an expiry (B10)", "M1", script=("the queue stays for ever", "the deadlines stay for ever")),
    Row(
        "readers keep writers out, until the last one leaves",
        "V, S1",
        script=("writers share",),
        model=("the first reader that leaves frees it", "writers share"),
        simulator=("the first reader that leaves frees it", "writers share"),
    ),
    Row(
        "a reader's lease shortens no other's",
        "V",
        script=("a reader's own lease is shortened",),
        simulator=("a late reader shortens all",),
    ),
    Row("readers whose lease is over do not count", "a writer waits for the dead", script=("lapsed readers count",)),
    Row("a dead writer at the head keeps no readers out", "L2", script=("a dead writer keeps readers out",)),
    Row(
        "nobody passes a writer that waits",
        "writers starve",
        script=("passes those who wait",),
        model=("readers pass a writer that waits",),
        simulator=("readers pass those who wait",),
    ),
    Row(
        "a writer asks the readers to make way",
        "L1: deadlock",
        script=("readers are not asked",),
        model=("readers are not asked",),
        simulator=("readers are not asked",),
    ),
    Row(
        "a reader's fence is above writers', a writer's above all",
        "S2",
        script=("a reader leaves no trace",),
        model=("a writer ignores readers' fences", "a reader ignores writers' fences"),
        simulator=("a writer ignores readers' fences", "a reader ignores writers' fences"),
    ),
    Row("a reader's fence stays while it holds", "the lease is lost", script=("a reader's record runs out under it",)),
    Row(
        "a downgrade holds the node all the time",
        "S1; or the lease is lost",
        script=("a release without the twin", "no downgrade"),
        model=("a downgrade frees it first",),
        simulator=("a downgrade looks like a gap", "a downgrade does not expect its fence"),
    ),
    Row(
        "clocks step by less than the drift (B14)",
        "S1, never S2",
        says="no rule but an assumption: `test_where_it_ends.py` shows what gives and what does not",
    ),
)


def table() -> str:
    """The rows as docs/reliability.md has them."""
    lines = ["| without | breaks | found by | mutants |", "| --- | --- | --- | --- |"]
    for row in ROWS:
        found = {"script": row.script, "conversation": row.conversation, "model": row.model, "simulator": row.simulator}
        budgets = {
            "model": [f"{MODEL[it].within:,} states" for it in row.model],
            "simulator": [f"{SIMULATOR[it].within} worlds" for it in row.simulator],
        }
        rungs = [
            f"{rung} ({', '.join(dict.fromkeys(budgets[rung]))})" if rung in budgets else rung for rung, names in found.items() if names
        ]
        names = dict.fromkeys(name for names in found.values() for name in names)
        told = "; ".join([*names, row.says] if row.says else names)
        lines.append(f"| {row.without} | {row.breaks} | {', '.join(rungs)} | {told} |")
    return "\n".join(lines)


def held(nodes: int = 3, **how: Any) -> Any:
    """What the conversations' fixture gives: a lock held since 0.1."""
    talk = test_claim.Conversation(nodes, **how)
    talk.sends("request to " + " ".join(map(str, talk.reach.up)))
    for node in talk.reach.up:
        talk.answers(node, test_claim.granted(), at=0.1)
    return talk


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    it = CONVERSATIONS[name]
    given = dict(it.given)
    if "held" in it.test.__code__.co_varnames[: it.test.__code__.co_argcount]:
        given["held"] = held
    it.test(**given)  # without the mutant nothing is wrong
    it.plant(monkeypatch)
    with pytest.raises(AssertionError):
        it.test(**given)


def test_every_row_has_its_mutants_and_every_mutant_its_row() -> None:
    for row in ROWS:
        assert row.says or row.script or row.conversation or row.model or row.simulator, row.without
    for rung, there in (("script", SCRIPTS), ("conversation", CONVERSATIONS), ("model", MODEL), ("simulator", SIMULATOR)):
        named = {name for row in ROWS for name in getattr(row, rung)}
        assert named <= there.keys(), f"{rung}: {named - there.keys()}"
        assert rung == "script" or named == there.keys(), f"{rung}: in no row: {there.keys() - named}"


def test_the_document_shows_them() -> None:
    shown = DOCUMENT.read_text()
    assert table() in shown, f"docs/reliability.md should have:\n\n{table()}"
