"""docs/command.md and deploy/command say what the command does: verbs, exit statuses, JSON, and the manual page."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli.kit import Command, lines
from nemesis.harm import frozen
from nemesis.processes import until

from holdfast import Holdfast
from holdfast.cli import codes
from holdfast.cli.options import VERBS, parser_of
from holdfast.embedded import Nodes

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy/command"
PAGE = (ROOT / "docs/command.md").read_text()


def section(name: str) -> str:
    return PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]


def example() -> dict[str, Any]:
    """The event that the page shows."""
    (text,) = re.findall(r"```json\n(.*?)```", section("Exit status"), re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def schemas() -> dict[str, set[str]]:
    """What the page says of each object. A second table has the keys that only some events of `run` have."""
    objects, events = (re.findall(r"(?m)^\| (`.*?) \| (.*) \|$", it) for it in section("JSON").split("\n| Event of `run` |"))
    found = {name.replace("`", ""): set(re.findall(r"`(\w+)`", keys)) for name, keys in objects}
    for names, keys in events:
        for name in re.findall(r"`(\w+)`", names):
            found[f"run, event {name}"] = {"at", "event", "name", *re.findall(r"`(\w+)`", keys)}
    found["run, event exited"], found["run, event exited, lock in it"] = set(example()), set(example()["lock"])
    return found


# ------------------------------------------------ JSON


@pytest.fixture(scope="module")
def seen(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Objects as the command prints them, by the names that the page gives them."""
    holdfast = Command(tmp_path_factory.mktemp("page"), nodes.environment)
    found: dict[str, list[dict[str, Any]]] = {}

    def told(*words: str) -> list[dict[str, Any]]:
        return lines(holdfast.run(*words, "--json").stdout)

    with Holdfast(*nodes.urls) as locks:
        with locks.lock("page:a"), locks.rwlock("page:r").read(), locks.semaphore("page:s", 2):
            with holdfast.started("run", "page:a", "true"):
                until(lambda: locks.inspect("page:a").queue)
                *found["ls, each lock"], last = told("ls", "page:*")
                found["ls, last line"] = [last]
                found["top, each time"] = told("top", "page:*")
                found["inspect, each lock"] = told("inspect", "page:a", "page:r")
        with locks.lock("page:w"):
            waited = holdfast.run("run", "--json", "-w", "6s", "page:w", "true").stderr
        stubborn = "trap '' TERM; while :; do sleep 0.05; done"
        words = ("run", "--json", "--max-hold", "400ms", "--kill-after", "100ms", "page:e", "-c", stubborn)
        ended = lines(holdfast.run(*words).stderr)
        nowhere = ("run", "--json", "-n", "--fail-open", "--nodes", "redis://127.0.0.1:1", "page:o", "true")
        opened = lines(holdfast.run(*nowhere).stderr)
    inspected = found["inspect, each lock"]
    found["inspect, in queue and readers"] = [it for row in inspected for it in (*row["queue"], *row["readers"])]
    found["inspect, in nodes"] = [it for row in inspected for it in row["nodes"]]
    found["nodes"] = told("nodes")
    with Nodes(1) as new:
        adopting = Command(tmp_path_factory.mktemp("new"), new.environment)
        found["nodes adopt, each node"] = lines(adopting.run("nodes", "adopt", "--json").stdout)
    found["nodes, in nodes"] = [it for row in (*found["nodes"], *found["top, each time"]) for it in row["nodes"]]
    found["repair"] = told("repair")
    found["doctor"] = told("doctor")
    found["doctor, in checks"] = found["doctor"][0]["checks"]
    found["bench"] = told("bench", "--seconds", "1")
    found["bench, each measure"] = [found["bench"][0][it] for it in ("round_trip", "acquire", "pair", "hand_over")]
    found["hold"] = lines(holdfast.run("hold", "page:h", stdin=subprocess.DEVNULL).stdout)
    warned = _warned(tmp_path_factory.mktemp("warned"))
    for it in (*ended, *opened, *_doubted(tmp_path_factory.mktemp("doubt")), *lines(waited), *warned):
        found.setdefault(f"run, event {it['event']}", []).append(it)
    found["run, event exited, lock in it"] = [it["lock"] for it in found["run, event exited"]]
    return found


def _warned(folder: Path) -> list[dict[str, Any]]:
    """The events of a command whose nodes have another client, with another `max_ttl`."""
    with Nodes(3) as nodes:
        holdfast = Command(folder, nodes.environment)
        holdfast.run("run", "--max-ttl", "60s", "page:first", "sleep", "2")
        return lines(holdfast.run("run", "--json", "page:second", "sleep", "2").stderr)


def _doubted(folder: Path) -> list[dict[str, Any]]:
    """What is told while renewals are late, and are confirmed in the end."""
    mark = folder / "mark"
    with Nodes(3) as nodes:
        words = ("run", "--json", "--ttl", "6s", "--kill-after", "100ms", "page:d", "-c", f"echo > {mark}; read end")
        holdfast = Command(folder, nodes.environment)
        with holdfast.started(*words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            until(mark.exists)
            with frozen(nodes, 0, 1):
                told = [process.stderr.readline()]
                while "doubt" not in told[-1]:
                    told.append(process.stderr.readline())
            return lines("".join(told) + process.communicate("\n")[1])


@pytest.mark.parametrize("name", schemas())
def test_the_keys_of_each_object_are_those_of_the_page(name: str, seen: dict[str, list[dict[str, Any]]]) -> None:
    assert seen[name], "none was seen"
    for it in seen[name]:
        assert set(it) == schemas()[name]


def test_the_page_has_every_object(seen: dict[str, list[dict[str, Any]]]) -> None:
    assert set(schemas()) == set(seen)


def test_locks_of_top_are_those_of_ls(seen: dict[str, list[dict[str, Any]]]) -> None:
    rows = [it for look in seen["top, each time"] for it in look["locks"]]
    assert rows
    assert all(set(it) == schemas()["ls, each lock"] for it in rows)


def test_every_verb_with_json_is_on_the_page() -> None:
    having = {verb for verb in VERBS if any("--json" in it.option_strings for it in parser_of(verb)._actions)}
    assert having - {"once", "elect"} <= {it.split(",")[0] for it in schemas()}


# ------------------------------------------------ verbs and statuses


def test_the_page_has_every_verb() -> None:
    shown = set(re.findall(r"`(\w+)`", PAGE.split("\n## ")[0])) | set(re.findall(r"`holdfast (\w+)", PAGE))
    assert set(VERBS) <= shown


def test_the_page_has_every_exit_status() -> None:
    shown = {int(it) for row in re.findall(r"(?m)^\| ([\d, ]+) \|", section("Exit status")) for it in row.split(", ")}
    assert shown == set(codes.MEANINGS)


# ------------------------------------------------ the manual page


def test_the_manual_and_the_completion_are_those_of_the_parsers() -> None:
    spec = importlib.util.spec_from_file_location("writer", SHIPPED.parent / "command.py")
    assert spec is not None
    assert spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert {it: it.read_text() for it in SHIPPED.iterdir()} == writer.files(), "./task site man"
