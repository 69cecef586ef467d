"""The scripts as the package hands them out."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import holdfast.scripts
from holdfast.scripts import (
    ANNOUNCE,
    ARRIVE,
    ELECTION,
    EXCLUSIVE,
    FILLS,
    GCRA,
    LOADED,
    LOOK,
    MEND,
    MENDING,
    ONCE,
    PEEK,
    PERMITS,
    PUT,
    RATES,
    RECALL,
    RELEASE,
    REQUEST,
    ROLL,
    RW_FORCE_RELEASE,
    RW_RELEASE,
    RW_REQUEST,
    SHARED,
    STORE,
    VOID,
    WATCH,
    WINDOW,
    Script,
)

OWN = (*EXCLUSIVE, PERMITS, *RATES, *ELECTION, *ONCE, *FILLS, ARRIVE, ROLL, *MENDING)  # each of which is one file

FOLDER = Path(holdfast.scripts.__file__).parent


def test_a_script_is_its_file() -> None:
    for script in OWN:
        assert script.source == (FOLDER / f"{script.name}.lua").read_bytes()


def test_the_digest_is_the_one_that_servers_compute() -> None:
    for script in LOADED:
        assert script.sha == hashlib.sha1(script.source).hexdigest().encode()


@pytest.mark.parametrize("script", [*SHARED, RW_FORCE_RELEASE], ids=lambda script: script.name)
def test_a_script_of_read_write_locks_is_the_common_part_and_its_file(script: Script) -> None:
    common, own = ((FOLDER / f"{name}.lua").read_text() for name in ("rw_common", script.name))
    rest = FOLDER / f"{script.name}_else.lua"
    assert script.source.decode() == (own + common + rest.read_text() if rest.exists() else common + own)
    assert script.sha == hashlib.sha1(script.source).hexdigest().encode()
    head = re.match(r"(--.*\n)+", own)[0]  # type: ignore[index]
    assert head.startswith(f"-- {script.name}: ")
    [keys], [arguments] = (re.findall(rf"^-- {word} +(.*)$", head, re.MULTILINE) for word in ("KEYS", "ARGV"))
    assert len(keys.split()) == script.keys
    assert tuple(arguments.split()) == script.arguments
    assert re.search(r"^-- Answer: ", head, re.MULTILINE)
    code = re.sub(r"--.*", "", script.source.decode())
    assert {int(number) for number in re.findall(r"KEYS\[(\d+)\]", code)} == set(range(1, script.keys + 1))
    assert {int(number) for number in re.findall(r"ARGV\[(\d+)\]", code)} == set(range(1, len(script.arguments) + 1))


def test_those_that_lanes_load() -> None:
    assert SHARED == (RW_REQUEST, RW_RELEASE)
    assert (*EXCLUSIVE, *SHARED, PERMITS, *RATES, *ELECTION, *ONCE, *FILLS, ARRIVE, ROLL, *MENDING) == LOADED
    assert MENDING == (RECALL, MEND)
    assert EXCLUSIVE == (REQUEST, RELEASE)
    assert RATES == (GCRA, WINDOW)
    assert ELECTION == (ANNOUNCE, WATCH)
    assert ONCE == (LOOK, STORE)
    assert FILLS == (PEEK, PUT, VOID)
    names = ["request", "release", "permits", "gcra", "window", "announce", "watch", "look", "store"]
    names += ["peek", "put", "void", "arrive", "roll", "recall", "mend"]
    assert [script.name for script in OWN] == names


@pytest.mark.parametrize("script", OWN, ids=lambda script: script.name)
def test_the_head_comment_names_the_keys_and_arguments(script: Script) -> None:
    head = script.source.decode().partition("\nlocal ")[0]
    assert head.startswith(f"-- {script.name}: ")
    assert all(line.startswith("--") for line in head.splitlines())
    [keys] = re.findall(r"^-- KEYS +(.*)$", head, re.MULTILINE) or [""]
    [arguments] = re.findall(r"^-- ARGV +(.*)$", head, re.MULTILINE) or [""]
    assert len(keys.split()) == script.keys
    assert tuple(arguments.split()) == script.arguments
    assert re.search(r"^-- Answer: ", head, re.MULTILINE)


ONCE_EACH = [it for it in OWN if it not in RATES]


@pytest.mark.parametrize("script", ONCE_EACH, ids=lambda script: script.name)
def test_the_body_uses_what_the_head_comment_names_and_nothing_else(script: Script) -> None:
    code = re.sub(r"--.*", "", script.source.decode())
    assert {int(number) for number in re.findall(r"KEYS\[(\d+)\]", code)} == set(range(1, script.keys + 1))
    assert {int(number) for number in re.findall(r"ARGV\[(\d+)\]", code)} == set(range(1, len(script.arguments) + 1))
    assert not re.search(r"(KEYS|ARGV)(?!\[\d+\])", code)


@pytest.mark.parametrize("script, common", [(GCRA, 2), (WINDOW, 1)], ids=lambda it: getattr(it, "name", ""))
def test_the_body_of_a_rate_uses_a_key_and_some_arguments_for_each_limit(script: Script, common: int) -> None:
    code = re.sub(r"--.*", "", script.source.decode())
    assert len(re.findall(r"\bKEYS\b", code)) == code.count("ipairs(KEYS)") == 1
    assert {int(number) for number in re.findall(r"ARGV\[(\d+)\]", code)} == set(range(1, common + 1))
    each = len(script.arguments) - common
    places = re.findall(rf"ARGV\[{each} \* i(?: ([+-]) (\d+))?\]", code)
    first = sorted(each + int(f"{sign}{number or 0}") for sign, number in places)
    assert first == list(range(common + 1, len(script.arguments) + 1))
    assert len(re.findall(r"ARGV\[", code)) == common + each
