"""What breaks without each rule: one row a rule, and what finds its absence, within which budget.

The rungs: *script*, the tests of the scripts, on simulated servers (tests/scripts/test_mutants.py); *conversation*, a scripted one
of a claim, an engine or a connection, planted here; *model*, every interleaving (tests/model/test_model.py); *simulator*, whole
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

import conversations
import pytest
import test_errors
from engine import test_engine as test_engine
from engine import test_health, test_registry, test_upkeep
from engine import test_recorder as test_record
from model.test_model import MUTANTS as MODEL
from operations.inspection import test_commands as test_inspection
from proof import patches
from protocol import script, test_exclusive, test_renewal, test_ticket
from scripts.test_mutants import MUTANTS as EXCLUSIVE
from scripts.test_readwrite import MUTANTS as SHARED
from sim.test_failovers import PLANTED_FAILOVERS
from sim.test_planted import PLANTED
from sim.test_readwrite import PLANTED as PLANTED_SHARED
from wire import test_connection as test_connection
from wire import test_handshake

from holdfast import errors
from holdfast.engine import registry
from holdfast.engine.engine import Engine
from holdfast.engine.health import Health
from holdfast.engine.recorder import Recorder
from holdfast.engine.upkeep import Upkeep
from holdfast.operations.inspection import commands as inspection
from holdfast.protocol import exclusive
from holdfast.protocol.claim import Claim
from holdfast.protocol.command import Command
from holdfast.protocol.renewal import Renewal
from holdfast.protocol.ticket import Tickets
from holdfast.protocol.vote import Vote
from holdfast.wire import handshake
from holdfast.wire.connection import Connection

pytestmark = pytest.mark.guards

SCRIPTS = EXCLUSIVE | SHARED
SIMULATOR = PLANTED | PLANTED_SHARED | PLANTED_FAILOVERS


Plant = Callable[[pytest.MonkeyPatch], object]


@dataclass(frozen=True)
class Conversation:
    """A patch of the engine, and the test that has to notice it. `given`: the test's parameters."""

    plant: Plant
    test: Callable[..., object]
    given: dict[str, Any] = dataclasses.field(default_factory=dict)


def patched(kind: type, name: str, text: str, other: str) -> Plant:
    return lambda monkeypatch: patches.method(monkeypatch, kind, name, text, other)


def claim(name: str) -> Callable[[], None]:
    """Return what plays a conversation of a claim, in all its variants."""

    def play() -> None:
        conversations.play(Path(script.__file__).parent / "claim", name, script.ways)

    return play


CONVERSATIONS = {
    "a cede only after all nodes answered": Conversation(
        patched(Claim, "_cede", "vote.granted and vote.lower", "vote.granted and vote.lower and not any(it.owed for it in self.votes)"),
        claim("test_a_waiter_makes_way_as_soon_as_it_hears_of_a_lower_ticket"),
    ),
    "a holder counts a burnt node again": Conversation(
        patched(Claim, "_burn", "vote.burns()", "vote.ceding = vote.granted = False"),
        claim("test_a_holder_never_counts_again_a_node_whose_cede_was_cut"),
    ),
    "a command that failed moves the bound": Conversation(
        patched(Claim, "_failed", "vote.failed(", "vote.base = vote.bound = quorum.bound(now, self.ttl); vote.failed("),
        claim("test_a_request_that_fails_moves_no_bound"),
    ),
    "names with a hash tag share keys": Conversation(
        lambda monkeypatch: patches.function(monkeypatch, exclusive.beside, "if tag else", "if False else"),
        test_exclusive.test_the_keys_of_a_name,
        {"name": "x{t}:fence"},
    ),
    "a push is matched by its token only": Conversation(
        patched(Engine, "_told_by", "and claim.recipe.name == key", "and True"),
        test_engine.test_a_push_with_the_right_token_and_the_wrong_name_does_not_reach_the_claim,
    ),
    "a silent connection is kept for ever": Conversation(
        patched(Connection, "late", "self.state is not DOWN", "False"), test_connection.test_when_it_is_late_and_when_to_look_after_it
    ),
    "the gap rule is off": Conversation(
        patched(Claim, "_gap", "if self.state is not HELD:", "if True:"),
        claim("test_B47_S19_a_majority_that_lost_the_key_is_a_loss_though_nobody_took_it"),
    ),
    "a denial tells no fence": Conversation(
        patched(Claim, "could_hold", "if fence <= self._above:", "if not fence:"),
        claim("test_T_is_above_every_fence_that_a_denial_told"),
    ),
    "a missing answer is suspected for ever": Conversation(
        patched(Vote, "raised", "if self.unheard else", "if True else"),
        claim("test_a_fence_that_its_owner_raises_is_no_gap"),
    ),
    "a node that only a renewal won vouches for all of the lease": Conversation(
        patched(Claim, "_begins", " and vote.sent <= self.since", ""),
        claim("test_a_node_that_only_a_renewal_won_vouches_from_its_answer_on"),
    ),
    "an answer after the release makes it held": Conversation(
        patched(Claim, "answered", "if self.state is LOST or self.state is OVER:", "if self.state is LOST:"),
        claim("test_after_the_release_nothing_is_heard_any_more"),
    ),
    "a renewal outlives the release": Conversation(
        patched(
            Claim,
            "tick",
            "if self.state is OVER or self.state is LOST:\n        return False",
            "if self.state is OVER:\n        self.state = HELD",
        ),
        claim("test_after_the_release_nothing_is_heard_any_more"),
    ),
    "renewals go to the nodes that there were when it began": Conversation(
        patched(Claim, "_renew", "self._node_set.up if votes[node].owed", "self._may_know if votes[node].sent > -inf and votes[node].owed"),
        claim("test_a_node_that_comes_back_is_asked_by_a_holder_at_its_next_renewal"),
    ),
    "it holds on when its time is up": Conversation(
        patched(Claim, "_late", "now >= self.until", "False"), claim("test_S18_an_answer_as_usual_does_not_save_what_has_run_out")
    ),
    "a release is forgotten with its connection": Conversation(
        patched(Command, "again", "self.mode is RELEASE", "False"), test_engine.test_a_release_that_was_not_answered_is_said_again_once
    ),
    "a value without an expiry is no lock": Conversation(
        patched(Vote, "no_lock", "in str(self.error)", "in str(self.error) or self.left == -1"),
        claim("test_S11_what_waits_in_vain_for_a_value_without_an_expiry_is_busy"),
    ),
    "what never expires is not watched": Conversation(
        patched(Claim, "_first_in_line", "answer.left == NO_KEY or", "answer.left < 0 or"),
        claim("test_S11_a_value_without_an_expiry_is_a_holder_that_is_watched_and_looked_at_every_third_of_a_ttl"),
    ),
    "a warning for each value": Conversation(
        patched(Engine, "_warn_of", 'f"key {claim.recipe.part}"', "claim.warning(node)"),
        test_engine.test_a_value_without_an_expiry_is_warned_of_once_for_a_name_and_a_node_whatever_it_is,
    ),
    "warnings are remembered for ever": Conversation(
        patched(Recorder, "warn", "len(self._warned) > REMEMBERED", "False"),
        test_record.test_the_oldest_warnings_are_forgotten_so_that_their_number_is_bounded,
    ),
    "a flush is not asked about": Conversation(
        patched(Claim, "changed", "flushed and self.state is HELD", "False"),
        claim("test_a_holder_asks_a_node_that_was_flushed_at_once"),
    ),
    "a restart without a guard is not asked about": Conversation(
        patched(Health, "_forgetful", "return before != connection.run_id and self._settings.guard is None", "return False"),
        test_engine.test_without_a_guard_a_holder_asks_a_node_that_has_restarted_at_once,
        {"guard": None, "restarted": True, "asked": 1},
    ),
    "every restart is asked about": Conversation(
        patched(Claim, "joined", "if restarted:", "if True:"),
        test_engine.test_without_a_guard_a_holder_asks_a_node_that_has_restarted_at_once,
        {"guard": None, "restarted": False, "asked": 0},
    ),
    "each flush is asked about": Conversation(
        patched(Claim, "_flushed", "vote.owed or vote.burnt", "vote.burnt"),
        test_engine.test_a_thousand_leases_ask_a_flushed_node_in_one_write,
    ),
    "a flushed node is asked that cannot be spoken to": Conversation(
        patched(Claim, "_flushed", " or self._node_set.standing[node] is not Standing.UP", ""),
        claim("test_a_node_that_cannot_be_spoken_to_is_not_asked_when_it_was_flushed"),
    ),
    "a flush prolongs what is not renewed": Conversation(
        patched(Claim, "_flushed", "self.ttl if self._renewal.wanted else max(self.until - now, 0.001)", "self.ttl"),
        claim("test_a_lease_that_is_not_renewed_is_not_made_longer_by_a_flush"),
    ),
    "a waiter asks a flushed node before its holder": Conversation(
        patched(Claim, "changed", "self.votes[node].watched is None", "(self.votes[node].watched is None and not flushed)"),
        claim("test_only_holders_ask_at_once_and_whoever_watches"),
    ),
    "an error of a node is handed on as it is": Conversation(
        patched(Connection, "received", "Refusal(readable(str(reply)))", "Refusal(str(reply))"),
        test_connection.test_an_error_that_answers_a_question_is_short_and_can_be_printed,
    ),
    "a refusal of a node is told as it is": Conversation(
        patched(Connection, "_greeted", "refused(word, readable(str(reply)), ", "refused(word, str(reply), "),
        test_handshake.test_what_a_node_refuses_with_is_short_and_can_be_printed,
        {"place": 7, "word": "INFO"},
    ),
    "what a server says of itself is kept as it is": Conversation(
        lambda monkeypatch: patches.function(monkeypatch, handshake.told_of, "key: readable(value)", "key: value"),
        test_handshake.test_of_what_a_server_says_of_itself_little_is_kept,
    ),
    "what inspect shows can forge lines": Conversation(
        lambda monkeypatch: monkeypatch.setattr(inspection, "readable", str),
        test_inspection.test_what_others_wrote_cannot_forge_a_line_nor_fill_the_screen,
    ),
    "what LockBusy shows can forge lines": Conversation(
        lambda monkeypatch: monkeypatch.setattr(errors, "readable", lambda text, most=0: text),
        test_errors.test_busy_shows_a_holder_on_one_short_line_and_keeps_it_whole,
    ),
    "the guard trusts any uptime": Conversation(
        patched(Connection, "_met", "max(now + guard + 1 - lasted, self._before + guard)", "now + guard + 1 - lasted"),
        test_connection.test_an_uptime_is_wrong_if_an_earlier_run_spoke_less_than_a_guard_ago,
    ),
    "the word about another run is believed": Conversation(
        patched(Connection, "_met", "self._adopted == self.run_id.encode()", "self._adopted is not None"),
        test_connection.test_the_word_about_another_run_or_none_ends_no_guard,
        {"told": b"$40\r\n" + b"b" * 40 + b"\r\n"},
    ),
    "the word about a new run is believed though this client knows better": Conversation(
        patched(
            Connection,
            "_met",
            "aged = max(now + guard + 1 - lasted, self._before + guard)",
            "aged = -inf if lasted == inf else max(now + guard + 1 - lasted, self._before + guard)",
        ),
        test_connection.test_a_client_that_an_earlier_run_has_answered_knows_better_than_the_operator,
    ),
    "a promotion is not seen": Conversation(
        patched(Connection, "_met", "reign = handshake.reign(facts)", 'reign = ""'),
        test_connection.test_a_replica_that_was_promoted_is_left_alone_though_its_process_is_old,
    ),
    "the note of an earlier promotion is believed": Conversation(
        patched(Connection, "_note", "self.manners.reigns + tenure.encode()", "self.manners.reigns"),
        test_connection.test_a_replica_that_was_promoted_is_left_alone_though_its_process_is_old,
    ),
    "the note is believed though this client knows better": Conversation(
        patched(Connection, "_met", "self._reigned(now), self._before + guard)", "self._reigned(now), -inf)"),
        test_connection.test_a_node_that_served_us_and_was_promoted_again_is_left_alone_whatever_the_note_says,
        {"fresh": {"a" * 40}},
    ),
    "a waiver of the guard outlasts a promotion": Conversation(
        patched(Connection, "_met", "if tenure and (settled", "if tenure and self.run_id not in self.manners.fresh and (settled"),
        test_connection.test_servers_that_were_just_made_are_guarded_after_a_promotion,
    ),
    "a server that is new at a place that moves needs no guard": Conversation(
        patched(Connection, "_tenure", '(facts["run_id"] if self.address.moves else "")', '""'),
        test_connection.test_a_server_that_is_new_at_a_place_that_moves_is_left_alone_like_a_promoted_one,
    ),
    "a server is asked that nobody confirms": Conversation(
        patched(Connection, "say", "self.state is UP and question.sent < self.sure", "self.state is UP"),
        test_connection.test_nothing_is_asked_of_a_server_that_nobody_confirms,
    ),
    "a note outlasts what is known of the place": Conversation(
        patched(Connection, "_note", "if self._brief:", "if False:"),
        test_connection.test_a_note_ends_with_what_is_known_of_the_place_where_the_same_server_may_be_the_node_once_more,
    ),
    "the note is by the client's clock": Conversation(
        patched(Connection, "_stamp", "round((since + self.ahead + self.blur) * 1e6)", "round(since * 1e6)"),
        test_connection.test_a_replica_that_was_promoted_is_left_alone_though_its_process_is_old,
    ),
    "a deposed primary has no time": Conversation(
        patched(Connection, "_met", "guard += self.outlives or 0.0", "pass"),
        test_connection.test_a_promoted_server_is_left_alone_until_its_old_primary_has_stopped_too,
    ),
    "a restart hides a promotion": Conversation(
        patched(Connection, "_met", "max(now + guard + 1 - lasted", "max(now + guard - (self.outlives or 0.0) + 1 - lasted"),
        test_connection.test_a_restart_may_hide_a_promotion,
    ),
    "a deposed primary has no time where this client knows the new one": Conversation(
        patched(Connection, "_met", "min(self._known + guard, aged)", "min(self._known + guard - (self.outlives or 0.0), aged)"),
        test_connection.test_a_promoted_server_is_left_alone_until_its_old_primary_has_stopped_too,
    ),
    "a deposed primary has no time where this client knew the old one": Conversation(
        patched(
            Connection, "_met", "_reigned(now), self._before + guard)", "_reigned(now), self._before + guard - (self.outlives or 0.0))"
        ),
        test_connection.test_a_promoted_server_is_left_alone_until_its_old_primary_has_stopped_too,
    ),
    "a node that can fail over needs no bound": Conversation(
        patched(Connection, "_met", "bool(reign or handshake.replicas(facts))", "bool(reign)"),
        test_connection.test_a_node_that_can_fail_over_needs_a_bound,
        {"url": "redis://h", "facts": {"connected_slaves": 1}, "unbounded": True, "guard": 32.0},
    ),
    "a server counts again as soon as its connection is gone": Conversation(
        patched(Health, "_twin", "it[1] > lately", "it[1] == inf"), test_health.test_a_server_is_not_counted_again_while_its_votes_last
    ),
    "a server that is refused as a twin has votes": Conversation(
        patched(
            Health, "introduced", "if twin is not None:", "self._runs[connection.run_id] = connection.node, inf\n    if twin is not None:"
        ),
        test_health.test_a_server_that_is_refused_as_a_twin_does_not_keep_the_first_one_out,
    ),
    "a node is used that confirmed no subscription": Conversation(
        lambda monkeypatch: patches.function(monkeypatch, handshake.unfit, "not subscribed or ", ""),
        test_handshake.test_a_server_that_confirms_no_subscription_is_refused,
    ),
    "an answer that nobody asked for is passed over": Conversation(
        patched(Connection, "received", 'self.bad = ConnectionError("it says what nobody asked for")\n                return', "continue"),
        test_connection.test_an_answer_that_nobody_asked_for,
    ),
    "replies of any size are read": Conversation(
        patched(Connection, "_oversized", "self._reader.check(bytes(data))", "pass"),
        test_connection.test_what_is_larger_than_any_answer_is_refused_before_it_is_read,
    ),
    "tickets go back with the clock": Conversation(
        patched(Tickets, "ticket", "max(self._ticket + 1, now)", "now"),
        test_ticket.test_a_clock_that_stands_still_or_goes_back_costs_a_microsecond_each,
    ),
    "two tokens are alike": Conversation(
        patched(Tickets, "token", "(self._serial + 1) % 2**32", "0"), test_ticket.test_B07_no_two_tokens_are_alike
    ),
    "a push counts before the first answer": Conversation(
        patched(Vote, "grants_by_push", "if self.sent > -inf:", "if True:"),
        claim("test_a_push_before_the_first_answer_on_a_new_connection_has_no_bound"),
    ),
    "an unconfirmed renewal is not repeated": Conversation(
        patched(Renewal, "doubts", "if self.doubt or now < self._asked + patience:", "if True:"),
        claim("test_S17_B45_an_unconfirmed_renewal_is_repeated_sooner"),
    ),
    "what begins together asks together": Conversation(
        patched(Tickets, "place", "return (ticket * GOLDEN + self._offset) % 2**32 / 2**32", "return 0.0"),
        test_engine.test_what_begins_together_does_not_ask_together_for_ever,
        {"held": True},
    ),
    "what leaves late moves what comes after it": Conversation(
        patched(Renewal, "_next_turn", "self._turn += period * (1 + missed)", "self._turn = now + period"),
        test_renewal.test_each_comes_to_its_place_by_asking_sooner_twice_and_keeps_it,
        {"place": 0.5},
    ),
    "one turn wakes all": Conversation(
        patched(
            Engine,
            "_wake_timed",
            "for timed in islice(self._timers.passed(now), TURN)",
            "left = 10**9\n    for timed in self._timers.passed(now)",
        ),
        test_engine.test_one_turn_wakes_so_many_claims_and_the_next_one_comes_at_once,
    ),
    "what one turn has left is late": Conversation(
        patched(Engine, "_wake_timed", "self._timers.looked(now)", "pass"),
        test_engine.test_one_turn_wakes_so_many_claims_and_the_next_one_comes_at_once,
    ),
    "a broken connection takes its grant away": Conversation(
        patched(Vote, "disconnected", "self.owed = 0", "self.owed = 0\n    self.granted = False"),
        claim("test_what_a_broken_connection_granted_counts_on"),
    ),
    "every holder asks at once after a reconnect": Conversation(
        patched(Claim, "joined", "if self.doubt and self._renewal.wanted:", "if self._renewal.wanted:"),
        claim("test_a_node_that_comes_back_is_asked_by_a_holder_at_its_next_renewal"),
    ),
    "an outage never ends the wait": Conversation(
        patched(Claim, "_dismayed", "if now >= self._gives_up:", "if False:"),
        claim("test_B18_waiting_has_an_end_when_a_majority_is_away"),
    ),
    "a lease outlasts its max_hold": Conversation(
        patched(Claim, "hold", "self.until = min(until, self.limit)", "self.until = until"),
        claim("test_B24_S24_a_lease_ends_when_it_was_held_for_as_long_as_allowed"),
    ),
    "what was left is released": Conversation(
        patched(Claim, "release", "if self.stays:", "if False:"),
        claim("test_a_claim_that_stays_ends_without_a_release"),
    ),
    "what was left is released when it is lost": Conversation(
        patched(Claim, "lose", "if not self.stays:", "if True:"),
        claim("test_a_claim_that_stays_is_not_released_however_it_ends"),
    ),
    "no heartbeat": Conversation(
        patched(Claim, "_heartbeat", "beat or (expired", "False or (expired"),
        claim("test_heartbeats_go_to_every_node_that_owes_nothing"),
    ),
    "the first in line does not ask when the holder's key expires": Conversation(
        patched(Claim, "_first_in_line", "if answer.left >= 0:", "if False:"),
        claim("test_B38_S27_first_in_line_asks_again_when_the_holders_key_has_run_out"),
    ),
    "a foreign holder is not watched": Conversation(
        patched(Claim, "_first_in_line", "if answer.left == NO_KEY or", "if True or"),
        claim("test_the_first_in_line_has_a_foreign_holder_watched_once"),
    ),
    "a holder makes way": Conversation(
        patched(
            Claim,
            "check",
            "    return self._confirm(good, now, otherwise)",
            "    self._cede(now)\n        return self._confirm(self._counting(now), now, otherwise)",
        ),
        claim("test_a_holder_does_not_make_way"),
    ),
    "any fence counts": Conversation(
        patched(Claim, "_told", "if answer.fence > self.latest(now) and", "if False and"),
        claim("test_a_fence_that_no_clock_allows_is_neither_counted_nor_written_back"),
    ),
    "a clock that was read late counts": Conversation(
        patched(Connection, "_told_first_time", "if now - sent > self.manners.prompt:", "if False:"),
        test_health.test_an_answer_that_lay_unread_makes_no_clock_right,
        {"late": 25.0, "off": -12.5},
    ),
    "a ticket of a wrong clock is kept": Conversation(
        patched(Claim, "moved", "self.ticket += int(seconds * 1e6)", "pass"),
        claim("test_a_ticket_of_a_clock_that_was_wrong_is_given_up_for_one_of_the_right_clock"),
    ),
    "the registry compares no max_ttl": Conversation(
        lambda it: patches.function(it, registry._setting, "if theirs.max_ttl != own.max_ttl:", "if False:"),
        test_registry.test_another_max_ttl_is_a_difference,
    ),
    "the registry compares no failover": Conversation(
        lambda it: patches.function(it, registry._setting, "for run in sorted(own.runs & theirs.runs):", "for run in ():"),
        test_registry.test_another_failover_is_a_difference,
    ),
    "patience never comes back": Conversation(
        patched(Upkeep, "relax", "if not self._briefs[ttl]:", "if False:"),
        test_upkeep.test_patience_is_a_third_of_the_shortest_lease_that_lives,
    ),
    "patience comes back with the first claim that ends": Conversation(
        patched(Upkeep, "relax", "*[it / 3 for it in self._briefs]", ""),
        test_upkeep.test_patience_is_a_third_of_the_shortest_lease_that_lives,
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
    ),
    Row("the fence's record is gone when a guard is over", "S2", script=("a renewal keeps the record for longer than a guard",)),
    Row(
        "the guard (B11)",
        "V, S1",
        conversation=(
            "the guard trusts any uptime",
            "the word about another run is believed",
            "the word about a new run is believed though this client knows better",
        ),
        model=("no guard",),
        simulator=("no guard",),
    ),
    Row(
        "the guard after a promotion",
        "V, S1",
        conversation=(
            "a promotion is not seen",
            "the note of an earlier promotion is believed",
            "the note is believed though this client knows better",
            "a waiver of the guard outlasts a promotion",
            "a server that is new at a place that moves needs no guard",
            "a note outlasts what is known of the place",
            "the note is by the client's clock",
            "a node that can fail over needs no bound",
        ),
        model=("no guard after a promotion", "a note of another reign is believed"),
        simulator=("no guard after a promotion", "no guard at a new place"),
    ),
    Row(
        "a server is used only while it is confirmed where the node is",
        "V, S1",
        conversation=("a server is asked that nobody confirms",),
        simulator=("a place is asked for once",),
    ),
    Row(
        "the guard is longer by the time of a deposed primary",
        "V, S1",
        conversation=(
            "a deposed primary has no time",
            "a restart hides a promotion",
            "a deposed primary has no time where this client knows the new one",
            "a deposed primary has no time where this client knew the old one",
        ),
        model=("a bound that is too short",),
        simulator=("a bound that is too short",),
    ),
    Row(
        "a server counts once while its votes last",
        "S1",
        conversation=("a server counts again as soon as its connection is gone", "a server that is refused as a twin has votes"),
    ),
    Row(
        "nodes have as long to answer as the claims that live can wait",
        "one short lease makes every later one NoQuorum",
        conversation=("patience never comes back", "patience comes back with the first claim that ends"),
    ),
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
    Row(
        "a silent connection is broken in the end",
        "L2",
        conversation=("a silent connection is kept for ever",),
        simulator=("silence is borne for long",),
    ),
    Row("a release is said again after a reconnect", "L2: it lasts a ttl", simulator=("a release is forgotten with its connection",)),
    Row("a renewal every ttl/3", "a healthy lease comes near its end", simulator=("a lease is renewed late",)),
    Row("an expiry never moves back in the client", "an extension is not kept", simulator=("a renewal shortens what was extended",)),
    Row("`nodes()` says why a node is of no use", "an operator does not know", simulator=("nodes() gives no cause",)),
    Row(
        "a try ends when fewer than q can still grant", "with even N it waits for ever", model=("a try gives up when a quorum has refused",)
    ),
    Row("the gap rule", "a lost majority goes unnoticed", conversation=("the gap rule is off",), simulator=("the gap rule is off",)),
    Row("a denial tells its node's fence, and T is above it", "S2, if a record was deleted", conversation=("a denial tells no fence",)),
    Row(
        "a missing answer may have been a new grant, until the next answer",
        "a lease is lost without need",
        conversation=("a missing answer is suspected for ever",),
    ),
    Row(
        "a node that only a renewal won vouches from its answer on",
        "a lost majority goes unnoticed",
        conversation=("a node that only a renewal won vouches for all of the lease",),
    ),
    Row("a majority is more than half", "S1", model=("a quorum of half",), simulator=("quorum of 2 in 5",)),
    Row(
        "release compares (B13)",
        "S1",
        script=("releases another's",),
        model=("release does not compare",),
        simulator=("release does not compare",),
    ),
    Row(
        "ordered connections",
        "S1",
        conversation=("an answer after the release makes it held",),
        says="that bytes keep their order is TCP's",
    ),
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
    Row(
        "another program's value without an expiry is a lock",
        "the two kinds cannot share a name",
        conversation=("a value without an expiry is no lock", "what never expires is not watched"),
    ),
    Row(
        "a name is warned of once",
        "logs and memory fill up",
        conversation=("a warning for each value", "warnings are remembered for ever"),
    ),
    Row(
        "a holder asks a flushed node at once, once, and before waiters do",
        "a lost majority goes unnoticed for a third of a ttl",
        conversation=(
            "a flush is not asked about",
            "each flush is asked about",
            "a restart without a guard is not asked about",
            "every restart is asked about",
            "a flushed node is asked that cannot be spoken to",
            "a flush prolongs what is not renewed",
            "a waiter asks a flushed node before its holder",
        ),
    ),
    Row(
        "what nodes and other programs say is short and printable",
        "memory; lines that were never logged",
        conversation=(
            "an error of a node is handed on as it is",
            "a refusal of a node is told as it is",
            "what a server says of itself is kept as it is",
            "what inspect shows can forge lines",
            "what LockBusy shows can forge lines",
        ),
    ),
    Row(
        "what a node refuses is known, and until when",
        "nodes() says that all is well while nobody gets a lock, or that nothing is when all is",
        simulator=("what nodes refuse is not noted", "a node that refused once refuses for ever"),
    ),
    Row(
        "a node has confirmed the subscription",
        "pushed grants are lost",
        conversation=("a node is used that confirmed no subscription",),
    ),
    Row(
        "a connection in doubt is closed",
        "S1: answers go to the wrong commands",
        conversation=("an answer that nobody asked for is passed over", "replies of any size are read"),
    ),
    Row(
        "tickets grow, and tokens are unique",
        "S1; L3",
        conversation=("tickets go back with the clock", "two tokens are alike"),
    ),
    Row("a pushed grant has the bound of an answer", "V, S1", conversation=("a push counts before the first answer",)),
    Row(
        "what a broken connection granted counts on, and doubt is resolved",
        "leases are lost without need",
        conversation=("a broken connection takes its grant away", "an unconfirmed renewal is not repeated"),
    ),
    Row(
        "holders that rejoin wait for their next renewal",
        "a thousand holders ask at once",
        conversation=("every holder asks at once after a reconnect",),
    ),
    Row(
        "claims ask in places of their own, and a turn wakes 50 of them at most",
        "beside thousands of leases an acquire waits for all of their renewals",
        conversation=(
            "what begins together asks together",
            "what leaves late moves what comes after it",
            "one turn wakes all",
            "what one turn has left is late",
        ),
    ),
    Row("waiting that cannot succeed ends", "callers wait for ever", conversation=("an outage never ends the wait",)),
    Row("`max_hold` ends a lease", "a stuck holder keeps the lock", conversation=("a lease outlasts its max_hold",)),
    Row(
        "what a client leaves runs out by itself",
        "the lock is handed on while its work goes on",
        conversation=("what was left is released", "what was left is released when it is lost"),
    ),
    Row(
        "a waiter asks again by itself",
        "L2: lost pushes, dead and foreign holders",
        conversation=(
            "no heartbeat",
            "the first in line does not ask when the holder's key expires",
            "a foreign holder is not watched",
        ),
    ),
    Row("a holder never cedes", "S1", conversation=("a holder makes way",)),
    Row("a fence that no clock allows does not count", "S2", conversation=("any fence counts",)),
    Row("a clock that was read late is asked for again", "S2", conversation=("a clock that was read late counts",)),
    Row("tickets of a wrong clock are replaced", "L3", conversation=("a ticket of a wrong clock is kept",)),
    Row("clients compare their `max_ttl`", "S1: guards of different length", conversation=("the registry compares no max_ttl",)),
    Row(
        "clients compare their `failover`",
        "S1: guards of different length after a promotion",
        conversation=("the registry compares no failover",),
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


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    it = CONVERSATIONS[name]
    it.test(**it.given)  # without the mutant nothing is wrong
    it.plant(monkeypatch)
    with pytest.raises(AssertionError):
        it.test(**it.given)


def test_every_row_has_its_mutants_and_every_mutant_its_row() -> None:
    for row in ROWS:
        assert row.says or row.script or row.conversation or row.model or row.simulator, row.without
    for rung, there in (("script", SCRIPTS), ("conversation", CONVERSATIONS), ("model", MODEL), ("simulator", SIMULATOR)):
        named = {name for row in ROWS for name in getattr(row, rung)}
        assert named <= there.keys(), f"{rung}: {named - there.keys()}"
        assert rung == "script" or named == there.keys(), f"{rung}: in no row: {there.keys() - named}"
