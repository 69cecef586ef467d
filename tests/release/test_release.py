"""What `./task release` finds: each check passes on what there is.

The builds, the tools and the smoke are for the task itself, because they take a minute and a network.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from release import api, artefacts, papers, wire, workflows

pytestmark = pytest.mark.guards

ROOT = papers.ROOT

# ------------------------------------------------ workflows


def test_the_workflows_keep_our_rules() -> None:
    files = workflows.texts()
    assert workflows.complaints(files) == []
    assert workflows.unpaired(files) == []


# ------------------------------------------------ papers


def test_the_papers_are_right() -> None:
    assert papers.complaints(papers.texts(), papers.project(), papers.version()) == []


def test_a_tag_must_be_the_version() -> None:
    project = {**papers.project(), "urls": {"Source": "https://example.org"}}
    released = "## 1.2.3 (2027-01-01)"
    assert papers.tagged("v1.2.3", "1.2.3", project, released) == []
    assert "they must be vX.Y.Z and X.Y.Z" in papers.tagged("v1.2.4", "1.2.3", project, released)[0]
    assert len(papers.tagged("1.2.3", "1.2.3", project, released)) == 2
    assert papers.tagged("v1.2.3", "1.2.3", project, "## 1.2.3 (not released)") == ["CHANGELOG.md says that 1.2.3 is not released"]
    assert "Source" in papers.tagged("v1.2.3", "1.2.3", {}, released)[0]


# ------------------------------------------------ interface and wire


def test_the_wire_is_frozen() -> None:
    assert (ROOT / "tests/wire.txt").read_text() == wire.described(), "if this is meant: ./task release --freeze"


def test_the_interface_is_frozen() -> None:
    frozen = (ROOT / "tests/api.txt").read_text()
    assert frozen == api.described(ROOT / "src"), "if this is meant: ./task release --freeze"
    assert "\nholdfast.Lock.acquire(self, cancel: threading.Event | None = None) -> Lease\n" in frozen
    assert "\nasync holdfast.aio.Lock.acquire(self) -> Lease\n" in frozen


def test_a_frozen_file_changes_with_the_changelog(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)

    def write(*names: str, text: str) -> None:
        (tmp_path / "tests").mkdir(exist_ok=True)
        for it in names:
            (tmp_path / it).write_text(text)

    git("init", "-q")
    write("CHANGELOG.md", text="# Changes\n\n## 0.1.0 (not released)\n")
    write(*papers.FROZEN, text="none")
    git("add", ".")
    git("commit", "-qm", "none")
    write(*papers.FROZEN, text="nobody has a version to compare with")
    assert papers.unannounced(tmp_path) == []
    write(*papers.FROZEN, "CHANGELOG.md", text="one")
    git("add", ".")
    git("commit", "-qm", "one")
    assert papers.unannounced(tmp_path) == []
    write("tests/api.txt", text="two")
    assert papers.unannounced(tmp_path) == ["tests/api.txt has changed, and CHANGELOG.md has not"]
    write("CHANGELOG.md", text="two")
    assert papers.unannounced(tmp_path) == []
    git("commit", "-qam", "two")
    assert papers.unannounced(tmp_path) == []
    write("tests/wire.txt", text="three")
    git("commit", "-qam", "three")
    (told,) = papers.unannounced(tmp_path)
    assert told.endswith("changed tests/wire.txt and not CHANGELOG.md")
    write("CHANGELOG.md", text="three")
    git("commit", "-qam", "what three forgot")
    assert papers.unannounced(tmp_path) == []


# ------------------------------------------------ artefacts


def test_the_sources_are_those_of_the_package() -> None:
    found = artefacts.sources()
    assert "holdfast/py.typed" in found
    assert sum(it.endswith(".lua") for it in found) > 25
    assert not any("__pycache__" in it for it in found)


# ------------------------------------------------ smoke, and the report


def test_the_bill_of_materials_lists_scripts_and_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.util import module_from_spec, spec_from_file_location
    from types import SimpleNamespace

    for name, known in (("metadata.plugin", "MetadataHookInterface"), ("builders.hooks.plugin", "BuildHookInterface")):
        monkeypatch.setitem(sys.modules, f"hatchling.{name}.interface", SimpleNamespace(**{known: object}))
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    said = json.loads(module.bill("a", "1", "MIT", ["hiredis>=3"], {"x.lua": b"return 1"}))
    assert [it["name"] for it in said["components"]] == ["hiredis", "x.lua"]
    assert said["components"][0]["properties"] == [{"name": "holdfast:requirement", "value": "hiredis>=3"}]
    assert said["components"][1]["hashes"][0]["alg"] == "SHA-256"
    assert "timestamp" not in json.dumps(said)
    assert "serialNumber" not in said
    assert module.bill("a", "1", "MIT", [], {"x.lua": b"return 2"}) != module.bill("a", "1", "MIT", [], {"x.lua": b""})
