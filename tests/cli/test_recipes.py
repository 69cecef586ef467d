"""The recipes of docs/command.md run as they stand there, as far as a machine without systemd and Kubernetes can."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from cli.kit import Command, until

from holdfast import Holdfast
from holdfast.embedded import Nodes

PAGE = (Path(__file__).parents[2] / "docs/command.md").read_text().split("\n## Recipes\n")[1].split("\n## ")[0]


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """What the recipes run: programs that write down that they ran."""
    for name in ("python", "backup.sh", "importer", "migrate.sh"):
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
        commands.append(fields[5])

    def run(line: str) -> int:
        return subprocess.run(["/bin/sh", "-c", line], env=holdfast.environment, timeout=20, check=False).returncode

    # Three hosts at the same tick: one of them runs it.
    assert [run(commands[0]) for _ in range(3)] == [0, 0, 0]
    assert len([it for it in ran(programs) if "report.py" in it]) == 1
    # The last one still runs: skipped, quietly.
    with Holdfast(*nodes.urls, fresh=nodes.run_ids) as locks, locks.lock("backup"):
        done = subprocess.run(["/bin/sh", "-c", commands[1]], env=holdfast.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not any("backup.sh" in it for it in ran(programs))
    assert run(commands[1]) == 0
    assert any("backup.sh" in it for it in ran(programs))


def test_systemd(programs: Path, holdfast: Command) -> None:
    text = block("ini")
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", text)
    words = [it.replace("/usr/bin/", f"{programs}/bin/") for it in shlex.split(line)]
    done = subprocess.run(words, env=holdfast.environment, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [it.split()[-1] for it in ran(programs)] == ["importer"]
    assert "KillMode=mixed" in text, "TERM to everybody would reach the command twice"
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("the command line ran; systemd-analyze is not installed")
    unit = programs / "importer.service"
    unit.write_text(text.replace("/usr/bin/", f"{programs}/bin/"))
    checked = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, timeout=30, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_kubernetes(programs: Path, holdfast: Command) -> None:
    container = yaml.safe_load(block("yaml"))
    assert set(container) == {"command", "env", "readinessProbe", "terminationGracePeriodSeconds"}
    assert [it["name"] for it in container["env"]] == ["HOLDFAST_NODES"]
    probe = container["readinessProbe"]["exec"]["command"]
    with subprocess.Popen(container["command"], env=holdfast.environment) as process:
        until(lambda: len(ran(programs)) >= 2)  # with --again it works again and again
        assert subprocess.run(probe, env=holdfast.environment, timeout=20, check=False).returncode == 0
        process.terminate()
        process.wait(20)
    assert subprocess.run(probe, env=holdfast.environment, timeout=20, check=False).returncode == 0, "a standby is ready, too"
    nowhere = {**holdfast.environment, "HOLDFAST_NODES": "redis://127.0.0.1:1"}
    assert subprocess.run(probe, env=nowhere, timeout=20, check=False, stderr=subprocess.DEVNULL).returncode == 69


def test_a_shell_script(programs: Path, holdfast: Command, nodes: Nodes) -> None:
    script = block("bash").replace("./migrate.sh", "migrate.sh") + 'echo "$held"\nwait\n'
    words = ["bash", "-c", script]
    done = subprocess.run(words, env=holdfast.environment, capture_output=True, text=True, timeout=20, check=True)
    assert json.loads(done.stdout)["name"] == "deploy"
    assert any("migrate.sh" in it for it in ran(programs))
    with Holdfast(*nodes.urls, fresh=nodes.run_ids) as locks:
        assert not locks.is_locked("deploy")
