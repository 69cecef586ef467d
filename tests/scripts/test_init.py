"""The scripts as the package hands them out."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import holdfast.scripts
from holdfast.scripts import (
    ADOPT,
    ARRIVE,
    BASIC,
    ELECTION,
    EXCLUSIVE,
    FILLS,
    FORCE_RELEASE,
    INSPECT,
    LOADED,
    MENDING,
    NAMES,
    ONCE,
    PERMITS,
    RATES,
    REGISTERS,
    REGISTRY,
    REQUEST,
    RETIRE,
    RW_FORCE_RELEASE,
    SHARED,
    Script,
    bare,
)

ALL = (*LOADED, INSPECT, FORCE_RELEASE, RW_FORCE_RELEASE, NAMES, REGISTERS)
OWN = (*EXCLUSIVE, RETIRE, ADOPT, PERMITS, *RATES, *ELECTION, *ONCE, *FILLS, ARRIVE, REGISTRY, *MENDING)  # each of which is one file

FOLDER = Path(holdfast.scripts.__file__).parent


def text_of(script: Script) -> str:
    """The script's file, with its comments."""
    return (FOLDER / f"{script.name}.lua").read_text()


def test_a_script_is_its_file_without_comments_and_indentation() -> None:
    for script in OWN:
        assert script.source == bare(text_of(script).encode())
        lines = script.source.decode().split("\n")
        told = text_of(script).split("\n")
        assert len(lines) == len(told), "the numbers of lines in a node's errors are those of the file"
        for line, there in zip(lines, told, strict=True):
            code = there.strip(" ")
            assert line == ("" if code.startswith("--") else there.lstrip(" ")), script.name


def test_only_whole_lines_of_comment_are_taken_out_and_no_text_of_a_script_s_can_look_like_one() -> None:
    assert bare(b"-- a\n  -- b\n  x = 'a -- b' -- c\n\n\ty = 1\n--") == b"\n\nx = 'a -- b' -- c\n\ny = 1\n"
    # Within brackets like these, a line that begins with two dashes would be part of a text.
    assert not [it.name for it in FOLDER.glob("*.lua") if re.search(r"\[=*\[", it.read_text())]


def test_what_a_client_of_plain_locks_loads_is_small() -> None:
    assert (*EXCLUSIVE, REGISTRY) == BASIC
    assert sum(len(it.source) for it in BASIC) < 8 * 1024


def test_the_digest_is_the_one_that_servers_compute() -> None:
    for script in LOADED:
        assert script.sha == hashlib.sha1(script.source).hexdigest().encode()


@pytest.mark.parametrize("script", [*SHARED, RW_FORCE_RELEASE], ids=lambda script: script.name)
def test_a_script_of_read_write_locks_is_the_common_part_and_its_file(script: Script) -> None:
    common, own = ((FOLDER / f"{name}.lua").read_text() for name in ("rw_common", script.name))
    rest = FOLDER / f"{script.name}_else.lua"
    whole = own + common + rest.read_text() if rest.exists() else common + own
    assert script.source == bare(whole.encode())


def named(word: str, head: str) -> tuple[str, ...]:
    """The names in the first sentence after this word in a script's head."""
    [sentence] = re.findall(rf"^-- {word}: ([^.]*)", head, re.MULTILINE) or [""]
    return tuple(re.findall(r"`([^`]+)`", sentence))


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_the_head_comment_names_the_keys_and_arguments_in_order(script: Script) -> None:
    head = re.match(r"(--.*\n)+", (FOLDER / f"{script.name}.lua").read_text())[0]  # type: ignore[index]  # (it matches)
    assert head.startswith(f"-- {script.name}: ")
    assert len(named("KEYS", head)) == script.keys
    assert named("ARGV", head) == script.arguments
    assert re.search(r"^-- Answer", head, re.MULTILINE)


def test_a_python_without_the_module_sha1_names_scripts_by_hashlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_sha1", None)
    spec = importlib.util.spec_from_file_location("holdfast.scripts", holdfast.scripts.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.REQUEST.sha == REQUEST.sha
