"""What the papers around the code say: security, support, citation, the recipe for conda. It must be what pyproject.toml says."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PAPERS = (
    "SECURITY.md",
    "SUPPORT.md",
    "CITATION.cff",
    "CODE_OF_CONDUCT.md",
    "deploy/conda/recipe.yaml",
    "docs/nodes.md",
    "docs/installation.md",
    "README.md",
    "CHANGELOG.md",
)
FROZEN = ("tests/api.txt", "tests/wire.txt")


def texts() -> dict[str, str]:
    """The papers by their paths."""
    return {it: (ROOT / it).read_text() for it in PAPERS}


def project() -> dict[str, Any]:
    """What pyproject.toml says of the project."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def version() -> str:
    """The version, from the one place that has it."""
    found = re.search(r'^VERSION = "([^"]+)"$', (ROOT / "src/holdfast/version.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def pythons(of: Mapping[str, Any]) -> list[str]:
    """The versions of Python in the classifiers."""
    return [it.rpartition(" ")[2] for it in of["classifiers"] if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", it)]


def complaints(said: Mapping[str, str], of: Mapping[str, Any], current: str) -> list[str]:
    """What the papers say that is not so.

    Args:
        said: The papers.
        of: The project, as pyproject.toml has it.
        current: The version.
    """
    wrong = []
    oldest = of["requires-python"].removeprefix(">=")
    versions = pythons(of)
    if versions[0] != oldest:
        wrong.append(f"pyproject.toml requires {oldest}, and its classifiers begin with {versions[0]}")
    listed = re.search(r"^\| Python \| ([^|]+?) \|", said["SUPPORT.md"], re.MULTILINE)
    if listed is None or re.findall(r"3\.\d+", listed[1]) != versions:
        wrong.append(f"SUPPORT.md must list Python {', '.join(versions)}")
    for server, least in re.findall(r"(Redis|Valkey) (\d\.\d)(?:,| and newer)", said["docs/nodes.md"])[:2]:
        if not re.search(rf"{server} (>= )?{least}", said["SUPPORT.md"]):
            wrong.append(f"SUPPORT.md must say {server} {least}, as docs/nodes.md does")
        if not re.search(rf"{server} (>= )?{least}", said["docs/installation.md"]):
            wrong.append(f"docs/installation.md must say {server} {least}, as docs/nodes.md does")
    line = ".".join(current.split(".")[:2])
    if not re.search(rf"^\| {re.escape(line)} \| yes \|", said["SECURITY.md"], re.MULTILINE):
        wrong.append(f"SECURITY.md must list {line} as a version that gets repairs")
    if not re.search(rf"^## {re.escape(current)}\b", said["CHANGELOG.md"], re.MULTILINE):
        wrong.append(f"CHANGELOG.md has no section {current}")
    cited = yaml.safe_load(said["CITATION.cff"])
    for name, value in (("version", current), ("license", of["license"]), ("title", of["name"])):
        if cited.get(name) != value:
            wrong.append(f"CITATION.cff says {name}: {cited.get(name)}, not {value}")
    return wrong + recipe(said["deploy/conda/recipe.yaml"], of, current)


def recipe(text: str, of: Mapping[str, Any], current: str) -> list[str]:
    """What the recipe for conda says that is not so."""
    told = yaml.safe_load(text)
    least = of["requires-python"]
    wanted = [f"python {least}", *(re.sub(r"(?=[<>=])", " ", it, count=1) for it in of["dependencies"])]
    wrong = []
    if told["context"]["version"] != current:
        wrong.append(f"recipe.yaml has the version {told['context']['version']}, not {current}")
    if sorted(told["requirements"]["run"]) != sorted(wanted):
        wrong.append(f"recipe.yaml runs with {told['requirements']['run']}, not {wanted}")
    if told["about"]["license"] != of["license"]:
        wrong.append(f"recipe.yaml has the licence {told['about']['license']}, not {of['license']}")
    if told["build"].get("noarch") != "python":
        wrong.append("recipe.yaml is not noarch: python")
    return wrong


def tagged(tag: str, current: str, of: Mapping[str, Any], changes: str) -> list[str]:
    """What keeps a tag from being released."""
    wrong = []
    if tag != f"v{current}":
        wrong.append(f"the tag is {tag}, and the version is {current}: they must be vX.Y.Z and X.Y.Z")
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        wrong.append(f"{tag} is no tag of the form vX.Y.Z")
    if re.search(rf"^## {re.escape(current)} \(not released\)", changes, re.MULTILINE):
        wrong.append(f"CHANGELOG.md says that {current} is not released")
    if not of.get("urls", {}).get("Source"):
        wrong.append("pyproject.toml has no [project.urls] with a Source: say where the repository is before the first upload")
    return wrong


def unannounced() -> list[str]:
    """Changes of a frozen file, committed or not, with which or after which CHANGELOG.md did not change. None before the first release."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    if "(not released)" in changes and changes.count("\n## ") == 1:
        return []

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.split()

    wrong = []
    for file in FROZEN:
        changed = set(git("diff", "HEAD", "--name-only"))
        if file in changed and "CHANGELOG.md" not in changed:
            wrong.append(f"{file} has changed, and CHANGELOG.md has not")
        # What a commit forgot can be mended by a later one: nobody can change the commit.
        told = git("log", "-1", "--format=%H", "--", "CHANGELOG.md")
        for commit in git("log", "--no-merges", "--diff-filter=M", "--format=%H", *(f"^{it}" for it in told), "HEAD", "--", file):
            wrong.append(f"commit {commit[:12]} changed {file} and not CHANGELOG.md")
    return wrong
