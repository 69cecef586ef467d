"""What a node lets a client do: how servers word that they do not, and what an administrator has to type."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.scripts import GCRA, PROBE, REQUEST, RW_REQUEST
from holdfast.wire import rights
from holdfast.wire.resp import Refusal, pack

FULL = "OOM command not allowed when used memory > 'maxmemory'."


@pytest.mark.parametrize(
    "told, means",
    [
        (FULL, FULL),
        (f"@user_script: 3: -{FULL}", FULL),  # Redis 6.2
        (f"{FULL} script: 0a1b2c, on @user_script:12.", FULL),
        ("ERR Error running script (call to f_0a): @user_script:5: @user_script: 5: -MISCONF x", "MISCONF x"),
        ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS Not enough good replicas to write."),
        ("BUSY Redis is busy running a script.", "BUSY Redis is busy running a script."),
        ("ERR max number of clients reached", "ERR max number of clients reached"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", None),
        ("NOPERM User app has no permissions to run the 'get' command", None),
        ("ERR it says OOM", None),
    ],
)
def test_a_refusal_that_ends_by_itself_is_told_in_the_servers_words(told: str, means: str | None) -> None:
    found = rights.passing(told)
    assert (None if found is None else str(found)) == means


def test_the_probe_is_a_key_of_the_prefix() -> None:
    assert b"{app:holdfast}:probe" in rights.question("app:") and PROBE.sha in rights.question("app:")
    assert rights.question("", b"more").endswith(b"$4\r\nmore\r\n")


def told(*pairs: str) -> list[bytes]:
    return [it.encode() for it in pairs]


NOPERM = "ERR ACL failure in script: User app has no permissions to run the 'x' command"


@pytest.mark.parametrize(
    "reply, rule",
    [
        (told("PEXPIRE", NOPERM, "ZADD", NOPERM), "ACL SETUSER app +pexpire +zadd"),
        (told("SET", FULL, "PEXPIRE", NOPERM), "ACL SETUSER app +pexpire"),
        (told("PUBLISH", "ERR ACL failure in script: No permissions to access a channel"), f"ACL SETUSER app '&{'?' * 32}'"),
        (Refusal("NOPERM User app has no permissions to run the 'evalsha' command"), "ACL SETUSER app +evalsha"),
        (Refusal("NOPERM No permissions to access a key"), "ACL SETUSER app '~p:*' '~{p:*'"),
    ],
)
def test_what_is_forbidden_is_named_with_the_rule_that_grants_it(reply: object, rule: str) -> None:
    wrong = rights.judged(reply, "app", "p:")
    assert isinstance(wrong, ConfigError) and wrong.fix == rule
    assert "user 'app' may not use " in wrong.message and wrong.message.endswith(f". Grant it: {rule}")


def test_without_a_prefix_all_keys_are_granted() -> None:
    assert rights.rule({"EVALSHA": "NOPERM No permissions to access a key"}, "app", "") == "ACL SETUSER app '~*'"


def test_a_command_that_the_server_does_not_have_is_no_right_that_is_missing() -> None:
    wrong = rights.judged(told("PEXPIRE", "ERR Unknown Redis command called from script", "ZADD", NOPERM), "app", "")
    assert isinstance(wrong, ConfigError) and wrong.fix == "" and "its server does not know PEXPIRE, " in wrong.message


@pytest.mark.parametrize("reply, means", [([], None), (told("MGET", NOPERM), None), (told("SET", FULL), FULL), (Refusal(FULL), FULL)])
def test_what_is_not_needed_or_passes_makes_no_node_unfit(reply: object, means: str | None) -> None:
    wrong = rights.judged(reply, "app", "")
    assert not isinstance(wrong, ConfigError) and (None if wrong is None else str(wrong)) == means


@pytest.mark.parametrize("reply", [b"OK", 1, [b"SET"], [b"SET", 1], None])
def test_an_answer_that_the_script_does_not_give_makes_a_node_unfit(reply: object) -> None:
    assert rights.refused(reply) is None
    assert isinstance(rights.judged(reply, "app", ""), ConfigError)


def test_a_command_that_a_server_refuses_for_a_while_is_not_forbidden() -> None:
    """Otherwise a full disk was told as a missing right, and waiting for a read-write lock ended at once."""
    reply = told("SET", FULL, "MGET", NOPERM, "PEXPIREAT", "NOREPLICAS Not enough good replicas to write.")
    assert rights.forbidden(reply) == {"MGET": NOPERM}
    assert rights.forbidden(Refusal("NOPERM")) == rights.forbidden(None) == {}


def test_the_call_of_a_script_that_needs_what_is_forbidden_is_an_error() -> None:
    lacks = {"ZSCORE": NOPERM, "ZCARD": NOPERM}
    wrong = rights.lacking(pack(b"EVALSHA", RW_REQUEST.sha, b"6"), lacks, "app", "p:")
    assert isinstance(wrong, ConfigError) and wrong.fix == "ACL SETUSER app +zscore"
    assert wrong.message.startswith("user 'app' may not use ZSCORE (read-write locks, latches and barriers): ")
    for script in (REQUEST, GCRA):
        assert rights.lacking(pack(b"EVALSHA", script.sha, b"4"), lacks, "app", "p:") is None, "it does not need them"
    assert rights.lacking(pack(b"EVALSHA", RW_REQUEST.sha, b"6"), {"ZCARD": NOPERM}, "app", "p:") is None
