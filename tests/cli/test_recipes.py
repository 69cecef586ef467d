"""The recipes of docs/command.md run as they stand there, as far as a machine without systemd and Kubernetes can."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from cli.kit import Command
from nemesis.processes import until

from holdfast import Holdfast
from holdfast.embedded import Nodes

WHOLE = (Path(__file__).parents[2] / "docs/command.md").read_text()
PAGE = WHOLE.split("\n## Recipes\n")[1].split("\n## ")[0]
ONCE = WHOLE.split("\n## Once\n")[1].split("\n## ")[0]
BIN = "/usr/local/bin/"


def blocks(language: str, page: str = PAGE) -> list[str]:
    return [str(it) for it in re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)]


def block(language: str) -> str:
    (found,) = blocks(language)
    return found


def moved(text: str, folder: Path) -> str:
    """The text, with the programs that these tests have put into another folder."""
    return text.replace(BIN, f"{folder}/bin/")


def configured(folder: Path, nodes: Nodes) -> None:
    """Write the page's configuration file, with nodes that exist, where the command looks for it."""
    names = ", ".join(f'"{it}"' for it in nodes.urls)
    text, count = re.subn(r"(?m)^nodes = \[.*\]$", f"nodes = [{names}]", block("toml"))
    assert count == 1
    file = folder / ".config/holdfast/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def of_cron(holdfast: Command) -> dict[str, str]:
    """What cron gives to its jobs, and what the tests need besides: where the source is."""
    ours = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "HOME")
    kept = {it: holdfast.environment[it] for it in ours if it in holdfast.environment}
    return {**kept, "PATH": "/usr/bin:/bin"}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """What the recipes run: programs that write down that they ran."""
    for name in ("python", "report", "backup", "importer", "nightly", "migrate.sh"):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\necho "$0 $* $HOLDFAST_NAME" >> {tmp_path}/ran\n')
        file.chmod(0o755)
    return tmp_path


def ran(folder: Path) -> list[str]:
    return (folder / "ran").read_text().splitlines() if (folder / "ran").exists() else []


def test_cron(programs: Path, holdfast: Command, nodes: Nodes) -> None:
    lines = block("cron").splitlines()
    assert len(lines) == 2
    commands = []
    for line in lines:
        fields = line.split(None, 5)
        assert all(re.fullmatch(r"\*(/\d+)?|\d+", it) for it in fields[:5]), line
        commands.append(moved(fields[5], programs))
    configured(programs, nodes)
    environment = of_cron(holdfast)

    def run(line: str) -> int:
        return subprocess.run(["/bin/sh", "-c", line], env=environment, timeout=20, check=False).returncode

    # Three hosts at the same tick: one of them runs it.
    assert [run(commands[0]) for _ in range(3)] == [0, 0, 0]
    assert len([it for it in ran(programs) if "/bin/report" in it]) == 1
    # The last one still runs: skipped, quietly.
    with Holdfast(*nodes.urls) as locks, locks.lock("backup"):
        done = subprocess.run(["/bin/sh", "-c", commands[1]], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not any("/bin/backup" in it for it in ran(programs))
    assert run(commands[1]) == 0
    assert any("/bin/backup" in it for it in ran(programs))


def test_the_nodes_of_systemd_s_environment() -> None:
    (line,) = [it for it in blocks("text") if it.startswith("HOLDFAST_")]
    name, _, value = line.strip().partition("=")
    (words,) = shlex.split(value)
    assert name == "HOLDFAST_NODES"
    assert words.split() == ["redis://a", "redis://b", "redis://c"]


def test_systemd(programs: Path, holdfast: Command) -> None:
    service, timer, nightly = (moved(it, programs) for it in blocks("ini"))
    for name, text in {"importer": service, "nightly": nightly}.items():
        (line,) = re.findall(r"(?m)^ExecStart=(.*)$", text)
        done = subprocess.run(shlex.split(line), env=holdfast.environment, capture_output=True, text=True, timeout=20, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert ran(programs)[-1].startswith(f"{programs}/bin/{name} ")
        assert "KillMode=mixed" in text, "TERM to everybody would reach the command twice"
    assert "SuccessExitStatus=75" in nightly
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("the command lines ran; systemd-analyze is not installed")
    units = {"importer.service": service, "nightly.timer": timer, "nightly.service": nightly}
    files = [programs / it for it in units]
    for file in files:
        file.write_text(units[file.name])
    checked = subprocess.run([analyze, "verify", *files], capture_output=True, text=True, timeout=30, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_whether_a_job_of_once_is_done(holdfast: Command) -> None:
    asks, forgets = next(it for it in blocks("text", ONCE) if "python3" in it).splitlines()

    def told(line: str) -> str:
        words = [sys.executable, *shlex.split(line)[1:]]
        return subprocess.run(words, env=holdfast.environment, capture_output=True, text=True, timeout=20, check=True).stdout

    words = ("once", "--per", "day", "--keep", "7d", "report", "--", "echo", "ran")
    assert "known=False" in told(asks)
    assert holdfast.run(*words).stdout == "ran\n"
    assert "known=True" in told(asks)
    assert holdfast.run(*words).stdout == ""
    assert (told(forgets), told(forgets)) == ("True\n", "False\n")
    assert holdfast.run(*words).stdout == "ran\n"
    assert told(forgets) == "True\n"


def test_kubernetes(programs: Path, holdfast: Command) -> None:
    container = yaml.safe_load(blocks("yaml")[0])
    # (No probe: an outage of the nodes would take every replica out of use at once.)
    assert set(container) == {"command", "env", "terminationGracePeriodSeconds"}
    assert [it["name"] for it in container["env"]] == ["HOLDFAST_NODES"]
    with subprocess.Popen(container["command"], env=holdfast.environment) as process:
        until(lambda: len(ran(programs)) >= 2)  # with --again it works again and again
        process.terminate()
        process.wait(20)


def test_a_cron_job_of_kubernetes(programs: Path, holdfast: Command) -> None:
    job = yaml.safe_load(blocks("yaml")[1])
    kubernetes_validate.validate(job, "1.37", strict=True)
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    for _ in range(2):
        subprocess.run(container["command"], env=holdfast.environment, timeout=20, check=True)
    assert len(ran(programs)) == 1


def test_a_shell_script(programs: Path, holdfast: Command, nodes: Nodes) -> None:
    script = block("bash").replace("./migrate.sh", "migrate.sh") + 'echo "$held"\nwait\n'
    words = ["bash", "-c", script]
    done = subprocess.run(words, env=holdfast.environment, capture_output=True, text=True, timeout=20, check=True)
    assert json.loads(done.stdout)["name"] == "deploy"
    assert any("migrate.sh" in it for it in ran(programs))
    with Holdfast(*nodes.urls) as locks:
        assert not locks.is_locked("deploy")
