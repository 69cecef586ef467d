"""Damage a script in one place: the tests of test_request.py and test_release.py must notice.

Those rules of docs/protocol.md that the scripts keep are taken away here, and what else could be written wrongly is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from scripts import test_release, test_request
from scripts.bench import Bench, simulated
from scripts.faulty import planted

from holdfast.scripts import EXCLUSIVE, RELEASE, REQUEST, Script
from holdfast.testing.values import REDIS_7_2

pytestmark = pytest.mark.guards

TESTS: list[Callable[[Bench], None]] = [
    test for module in (test_request, test_release) for name, test in vars(module).items() if name.startswith("test_")
]

# What is damaged, and how: a text that is in the script once, and what stands there instead.
MUTANTS: dict[str, tuple[Script, str, str]] = {
    # The usual case
    "takes a name that is held": (REQUEST, "ARGV[1], 'NX', 'PX'", "ARGV[1], 'PX'"),
    "overtakes those who wait": (REQUEST, "if call('EXISTS', KEYS[3]) == 0 then", "if true then"),
    "leaves its mark on a name that others wait for": (REQUEST, "    call('DEL', KEYS[1])\n", ""),
    "does not raise the fence": (REQUEST, "least = old + 1", "least = old"),
    "takes an equal proposal": (REQUEST, "if not old or old >= P then", "if not old or old > P then"),
    "takes a lower proposal": (REQUEST, "if not old or old >= P then", "if not old then"),
    # The usual renewal
    "renews what another has": (REQUEST, "call('GET', KEYS[1]) == ARGV[1] and call", "call('GET', KEYS[1]) and call"),
    "a renewal overlooks who waits": (REQUEST, " == ARGV[1] and call('EXISTS', KEYS[3]) == 0 then", " == ARGV[1] then"),
    "a renewal leaves a record that is lower": (REQUEST, "if F >= tonumber(ARGV[4]) then", "if F > 0 then"),
    "a renewal leaves a record that is gone": (REQUEST, "if F >= tonumber(ARGV[4]) then", "if F == 0 or F >= tonumber(ARGV[4]) then"),
    "a usual renewal moves the expiry back": (REQUEST, "        if left < ttl then\n", "        if true then\n"),
    "a usual renewal does not renew": (REQUEST, "            call('PEXPIRE', KEYS[1], ARGV[2])\n", ""),
    "a usual renewal lets the fence's record run out": (REQUEST, "if call('PTTL', KEYS[2]) < left then", "if false then"),
    "a usual renewal keeps its record too short": (REQUEST, "string.format('%.0f', math.min(left + K, 2 * K))", "ARGV[2]"),
    "a usual renewal keeps its record too long": (REQUEST, "string.format('%.0f', math.min(left + K, 2 * K))", "4 * K"),
    "compares fences as texts": (REQUEST, "if not old or old >= P then", "if not old or tostring(old) >= ARGV[4] then"),
    "no clock floor": (REQUEST, "if not old or old >= P then", "if old and old >= P then"),
    "the clock floor is now": (REQUEST, "t[2] - K * 500\n", "t[2]\n"),
    "the clock floor is a ceiling": (REQUEST, "if least > P then", "if least < P then"),
    "keeps its own fence too short": (REQUEST, "'PXAT', ARGV[6], 'GET'", "'PX', '1000', 'GET'"),
    "keeps a raised fence too short": (REQUEST, "math.max(math.floor(least / 1000) + K, tonumber(ARGV[6]))", "ARGV[6]"),
    "keeps a raised fence for the horizon only": (
        REQUEST,
        "math.max(math.floor(least / 1000) + K, tonumber(ARGV[6]))",
        "math.floor(least / 1000) + K",
    ),
    "the record runs out under a long lease": (
        REQUEST,
        "if ttl * 4 > K * 3 and call('PTTL', KEYS[2]) < ttl then",
        "if false then",
    ),
    "a long lease shortens its record": (REQUEST, "ttl * 4 > K * 3 and call('PTTL', KEYS[2]) < ttl", "ttl * 4 > K * 3"),
    "a raised fence as a number": (REQUEST, "string.format('%.0f', least), 'PXAT'", "least, 'PXAT'"),
    "a raised fence's expiry as a number": (REQUEST, "string.format('%.0f', expiry)", "expiry"),
    # Fences
    "a fence as a number": (REQUEST, "call('SET', fence, text(F), 'PXAT'", "call('SET', fence, F, 'PXAT'"),
    "a fence's expiry as a number": (
        REQUEST,
        "text(math.max(math.floor(F / 1000) + K, deadline))",
        "math.max(math.floor(F / 1000) + K, deadline)",
    ),
    "fences as Lua writes numbers": (REQUEST, "return string.format('%.0f', number)", "return tostring(number)"),
    "keeps a fence too short": (
        REQUEST,
        "math.max(math.floor(F / 1000) + K, deadline)",
        "math.max(math.floor(F / 1000), deadline)",
    ),
    "a fence's record runs out under its lease": (
        REQUEST,
        "text(math.max(math.floor(F / 1000) + K, deadline))",
        "text(math.floor(F / 1000) + K)",
    ),
    "a renewal lets the fence's record run out": (
        REQUEST,
        "    if call('PTTL', fence) < left then call('PEXPIRE', fence, text(math.min(left + K, 2 * K))) end\n",
        "",
    ),
    "a renewal keeps the record for the ttl it asks for": (
        REQUEST,
        "    if left >= ttl then return left end\n",
        "    if left >= ttl then return ttl end\n",
    ),
    "a renewal keeps the record no longer than it has to": (REQUEST, "text(math.min(left + K, 2 * K))", "text(left)"),
    "a renewal keeps the record for longer than a guard": (
        REQUEST,
        "text(math.min(left + K, 2 * K))",
        "text(left + K)",
    ),
    "a renewal's record has an expiry as a number": (
        REQUEST,
        "text(math.min(left + K, 2 * K))",
        "math.min(left + K, 2 * K)",
    ),
    "a raised fence's record runs out under its lease": (
        REQUEST,
        "math.max(getF(), P), now + left)",
        "math.max(getF(), P), now)",
    ),
    "a try's fence runs out under its lease": (
        REQUEST,
        "setF(math.max(getF() + 1, P), now + ttl)",
        "setF(math.max(getF() + 1, P), now)",
    ),
    "no clock floor but for the usual case": (REQUEST, "or now * 1000 - K * 500 - 1", "or 0"),
    "a renewal forgets the clock floor": (REQUEST, "mode == 'k' and P or math.max(getF(), P), now", "P, now"),
    "a lost record rises under a lease": (REQUEST, "mode == 'k' and P or math.max", "math.max"),
    "a renewal never raises": (REQUEST, "if F < P then return setF(mode == 'k' and P or math.max(getF(), P), now + left) end", ""),
    "a renewal lowers": (
        REQUEST,
        "if F < P then return setF(mode == 'k' and P or math.max(getF(), P), now + left) end",
        "if F ~= P then return setF(P, now) end",
    ),
    # Leases
    "a renewal moves the expiry back": (REQUEST, "    if left >= ttl then return left end\n", ""),
    "a renewal does not move the expiry": (REQUEST, "keepF(keep(name))", "keepF(ttl)"),
    "a day's lease as a number": (REQUEST, "call('PEXPIRE', key, ARGV[2])", "call('PEXPIRE', key, ttl)"),
    "a day's try as a number": (REQUEST, "call('SET', name, token, 'PX', ARGV[2])", "call('SET', name, token, 'PX', ttl)"),
    # Waiting
    "scores by another part of the token": (
        REQUEST,
        "call('ZADD', queue, string.sub(token, 1, 16), token)",
        "call('ZADD', queue, 0, token)",
    ),
    "a late request moves a deadline back": (REQUEST, "math.max(deadline, tonumber", "math.min(deadline, tonumber"),
    "a heartbeat moves no deadline": (
        REQUEST,
        "math.max(deadline, tonumber(call('HGET', waiters, token) or 0))",
        "tonumber(call('HGET', waiters, token) or deadline)",
    ),
    "a heartbeat takes a new place": (
        REQUEST,
        "call('ZADD', queue, string.sub(token, 1, 16), token) == 1",
        "call('ZADD', queue, now, token) == 1",
    ),
    "the queue stays for ever": (REQUEST, "    keep(queue)\n", ""),
    "the deadlines stay for ever": (REQUEST, "    keep(waiters) ", "    "),
    "a deadline is a duration": (REQUEST, "== 1, now + ttl", "== 1, ttl"),
    # Promoting
    "grants the lapsed": (REQUEST, "if deadline and deadline > now then", "if deadline then"),
    "grants nobody": (REQUEST, "if deadline and deadline > now then", "if false then"),
    "the deadline stays": (REQUEST, "        call('HDEL', waiters, head)\n", ""),
    "a grant does not raise the fence": (REQUEST, "setF(math.max(getF() + 1, tonumber", "setF(math.max(getF(), tonumber"),
    "a grant ignores the ticket": (REQUEST, "tonumber(string.sub(head, 1, 16)), mine and P or 0", "0, mine and P or 0"),
    "a grant ignores the proposal": (REQUEST, ", mine and P or 0), deadline)", ", 0), deadline)"),
    "a grant takes the caller's proposal for another": (REQUEST, "mine and P or 0", "P"),
    "no cap": (REQUEST, "            deadline = math.min(deadline, now + 2 * K)\n", ""),
    "a cap that is less than some lease": (REQUEST, "now + 2 * K", "now + K"),
    "a granted lease as a number": (REQUEST, "head, 'PXAT', text(deadline)", "head, 'PXAT', deadline"),
    "tells itself by a push": (REQUEST, "            if mine then return F end\n", ""),
    "grants to the deaf": (REQUEST, "' ' .. name) ~= 0 then return end", "' ' .. name) then return end"),
    "a refused PUBLISH ends the script": (REQUEST, "if redis.pcall('PUBLISH'", "if call('PUBLISH'"),
    "the deaf keep the node": (REQUEST, "            call('DEL', name)\n        end\n", "        end\n"),
    "pushes to another inbox": (REQUEST, "string.sub(head, 18, 49), 'g '", "string.sub(head, 17, 48), 'g '"),
    "a name ends at its NUL": (REQUEST, "'g ' .. head .. ' ' .. text(F) .. ' ' .. name", "string.format('g %s %.0f %s', head, F, name)"),
    "a fence is pushed as Lua writes it": (REQUEST, "' ' .. text(F) .. ' '", "' ' .. F .. ' '"),
    # The holder's answers
    "says nothing of lower tickets": (REQUEST, "return lower and {F, 1, 0} or F", "return F"),
    "anybody who waits is lower": (REQUEST, "local lower = head and head < token", "local lower = head"),
    "a renewal is called fresh": (REQUEST, "return lower and {F, 1, 0} or F", "return {F, lower and 1 or 0, 1}"),
    "one's own key is in the way": (REQUEST, "if holder == token then", "if false then"),
    # Ceding
    "no cede": (REQUEST, "if mode == 'c' and lower then", "if false then"),
    "cedes to nobody": (REQUEST, "if mode == 'c' and lower then", "if mode == 'c' then"),
    "cedes unasked": (REQUEST, "if mode == 'c' and lower then", "if lower then"),
    "cedes and leaves": (REQUEST, "        enqueue()\n        call('DEL', name)\n", "        call('DEL', name)\n"),
    "a node taken back by a cede is called held": (
        REQUEST,
        "        if F then return {F, 0, 1} end\n    else\n",
        "        if F then return {F, 0, 0} end\n    else\n",
    ),
    # Trying
    "a try waits": (REQUEST, "elseif mode == 't' then", "elseif mode == 'no' then"),
    "a try promotes nobody": (
        REQUEST,
        "        local F = promote()                         -- (its",
        "        local F                                     -- (its",
    ),
    "a try takes what was granted": (
        REQUEST,
        "        if call('EXISTS', name) == 0 then           -- those",
        "        if true then                                -- those",
    ),
    "a try gives up where all are gone": (
        REQUEST,
        "        if call('EXISTS', name) == 0 then           -- those",
        "        if false then                               -- those",
    ),
    "a try's fence is its ticket": (REQUEST, "setF(math.max(getF() + 1, P), now + ttl)", "setF(P, now + ttl)"),
    "a try's fence is not raised": (REQUEST, "setF(math.max(getF() + 1, P), now + ttl)", "setF(math.max(getF(), P), now + ttl)"),
    # Inquiries
    "no inquiry": (REQUEST, "elseif fresh and holder > token and", "elseif false and"),
    "asks with every heartbeat": (REQUEST, "elseif fresh and holder > token and", "elseif holder > token and"),
    "asks lower holders too": (REQUEST, "elseif fresh and holder > token and", "elseif fresh and"),
    "asks foreign holders": (
        REQUEST,
        "elseif fresh and holder > token and string.match(holder, '^%d+:%x+:%x+$') then",
        "elseif fresh and holder > token then",
    ),
    "asks readers": (REQUEST, "'^%d+:%x+:%x+$'", "'^%d+:%x+:%x+'"),
    "asks the wrong one": (REQUEST, "'i ' .. holder .. ' 0 '", "'i ' .. token .. ' 0 '"),
    "a refused inquiry ends the script": (
        REQUEST,
        "        redis.pcall('PUBLISH', string.sub(holder",
        "        call('PUBLISH', string.sub(holder",
    ),
    # Denials
    "denies in the old holder's name": (REQUEST, "holder = call('GET', name)\nreturn", "return"),
    "tells no place": (REQUEST, "call('ZRANK', queue, token) or -1", "-1"),
    "tells nothing after an empty place": (REQUEST, "call('ZRANK', queue, token) or -1", "call('ZRANK', queue, token) or nil"),
    "tells all of a long value": (REQUEST, "holder and string.sub(holder, 1, 64)", "holder"),
    # release
    "releases another's": (RELEASE, "if holder == token then", "if holder then"),
    "releases nothing": (RELEASE, "if holder == token then", "if false then"),
    "keeps the key": (RELEASE, "    call('DEL', name)\n    holder, mine", "    holder, mine"),
    "answers 0": (RELEASE, "holder, mine = false, 1", "holder, mine = false, 0"),
    "answers 1": (RELEASE, "call('GET', name), 0\n", "call('GET', name), 1\n"),
    "forgets to hand on": (RELEASE, "holder, mine = false, 1", "mine = 1"),
    "hands on what is held": (RELEASE, "if holder then return mine end\n", ""),
    "does not cancel": (RELEASE, "if call('ZREM', queue, token) == 1 then call('HDEL', waiters, token) end\n", ""),
    "cancels by half": (RELEASE, "then call('HDEL', waiters, token) end", "then end"),
    "hands on to the lapsed": (RELEASE, "if deadline and deadline > now then", "if deadline then"),
    "hands on to who has no deadline": (RELEASE, "if deadline and deadline > now then", "if not deadline or deadline > now then"),
    "hands on to nobody": (RELEASE, "if deadline and deadline > now then", "if false then"),
    "leaves the deadline": (RELEASE, "    call('HDEL', waiters, head)\n", ""),
    "does not raise the fence for the next": (RELEASE, "F and F + 1 or", "F or"),
    "hands on without the clock floor": (RELEASE, "or now * 1000 - K * 500,", "or 0,"),
    "hands on without the ticket": (RELEASE, "tonumber(string.sub(head, 1, 16)))", "0)"),
    "the next one's fence as a number": (RELEASE, "call('SET', fence, text(F)", "call('SET', fence, F"),
    "the next one's expiry as a number": (
        RELEASE,
        "text(math.max(math.floor(F / 1000) + K, deadline))",
        "math.max(math.floor(F / 1000) + K, deadline)",
    ),
    "keeps the next one's fence too short": (
        RELEASE,
        "math.max(math.floor(F / 1000) + K, deadline)",
        "math.max(math.floor(F / 1000), deadline)",
    ),
    "the next one's fence runs out under its lease": (
        RELEASE,
        "text(math.max(math.floor(F / 1000) + K, deadline))",
        "text(math.floor(F / 1000) + K)",
    ),
    "the next one's lease without a cap": (RELEASE, "        deadline = math.min(deadline, now + 2 * K)\n", ""),
    "the next one's lease as a number": (RELEASE, "head, 'PXAT', text(deadline)", "head, 'PXAT', deadline"),
    "hands on to the deaf": (RELEASE, "' ' .. name) ~= 0 then return mine end", "' ' .. name) then return mine end"),
    "lets the deaf keep it": (RELEASE, "        call('DEL', name)\n    end\n", "    end\n"),
    "a refused PUBLISH ends the release": (RELEASE, "if redis.pcall('PUBLISH'", "if call('PUBLISH'"),
    "hands on fences as Lua writes numbers": (RELEASE, "return string.format('%.0f', number)", "return tostring(number)"),
    "hands on names that end at their NUL": (
        RELEASE,
        "'g ' .. head .. ' ' .. text(F) .. ' ' .. name",
        "string.format('g %s %.0f %s', head, F, name)",
    ),
}


def failures(scripts: tuple[Script, ...]) -> Iterator[str]:
    """The tests that fail with these scripts, on a simulated server that writes numbers as nobody expects."""
    for test in TESTS:
        try:
            bench = simulated(REDIS_7_2, scripts)
            try:
                test(bench)
            finally:
                bench.close()
        except Exception:
            yield test.__name__


def test_the_scripts_pass() -> None:
    assert list(failures(EXCLUSIVE)) == []


@pytest.mark.parametrize("damage", MUTANTS)
def test_the_tests_notice(damage: str) -> None:
    script, text, other = MUTANTS[damage]
    mutant = planted(script, text, other)
    noticed = failures(tuple(mutant if it is script else it for it in EXCLUSIVE))
    assert next(noticed, None), f"no test fails: {damage}"
