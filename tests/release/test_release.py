"""What `./task release-check` finds: each check passes on what there is.

The builds, the tools and the smoke are for the task itself, because they take a minute and a network.
"""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pytest
from release import api, artefacts, papers, smoke, wire, workflows
from release.artefacts import Built

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
    assert (ROOT / "tests/wire.txt").read_text() == wire.described(), "if this is meant: ./task release-check --freeze"


def test_the_interface_is_frozen() -> None:
    frozen = (ROOT / "tests/api.txt").read_text()
    assert frozen == api.described(ROOT / "src"), "if this is meant: ./task release-check --freeze"
    assert "\nholdfast.Lock.acquire(self, cancel: threading.Event | None = None) -> Lease\n" in frozen
    assert "\nasync holdfast.aio.Lock.acquire(self) -> Lease\n" in frozen


CHANGES = {
    "a method": ("face/lock.py", "    def try_acquire(", "    def surprise(self) -> None: ...\n\n    def try_acquire("),
    "a name": ("testing/__init__.py", '"at_end", "memory"]\n', '"memory"]\n'),
}  # fmt: skip


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

METADATA = "License-Expression: MIT\nLicense-File: LICENSE\nRequires-Python: >=3.11\nKeywords: a\nClassifier: Typing :: Typed\n\n"
INSIDE = {
    "holdfast/__init__.py": "",
    "holdfast/a.lua": "",
    "holdfast/py.typed": "",
    "h.dist-info/METADATA": METADATA,
    "h.dist-info/licenses/LICENSE": "",
    "h.dist-info/sboms/h.cdx.json": "{}",
}
SOURCES = ["holdfast/__init__.py", "holdfast/a.lua", "holdfast/py.typed"]


def made(folder: Path, inside: dict[str, str], packed: list[str], moment: int = 0) -> Built:
    """Make a wheel and an sdist."""
    folder.mkdir(exist_ok=True)
    built = Built(folder / "h.whl", folder / "h.tar.gz")
    with ZipFile(built.wheel, "w") as archive:
        for name, text in inside.items():
            archive.writestr(ZipInfo(name, (2026, 1, 1, 0, 0, moment)), text)
    with gzip.GzipFile(built.sdist, "w", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name in packed:
            tar.addfile(tarfile.TarInfo(f"h-1/{name}"), io.BytesIO())
    return built


# Says what is in the tree that it should build, in the place of a wheel.
BUILDER = '#!/bin/sh\nmkdir -p "$5"\nfind "$6" -type f >"$5/a.whl"\n: >"$5/a.tar.gz"\n'


def test_what_git_ignores_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a clone whose own path `.gitignore` names, hatchling took what other commands had put into `build`."""
    clone, builder = tmp_path / "build/clone", tmp_path / "builder"
    (clone / "build").mkdir(parents=True)
    for name, text in {".gitignore": "build/\n", "build/left.txt": "", "a.py": ""}.items():
        (clone / name).write_text(text)
    subprocess.run(["git", "init", "-q", clone], check=True)
    builder.write_text(BUILDER)
    builder.chmod(0o755)
    monkeypatch.setattr(artefacts, "ROOT", clone)
    built = artefacts.build(builder, tmp_path / "one", "0")
    assert sorted(Path(it).name for it in built.wheel.read_text().splitlines()) == [".gitignore", "a.py"]


def test_the_sources_are_those_of_the_package() -> None:
    found = artefacts.sources()
    assert "holdfast/py.typed" in found
    assert sum(it.endswith(".lua") for it in found) > 25
    assert not any("__pycache__" in it for it in found)


# ------------------------------------------------ smoke, and the report


def test_this_python_is_found() -> None:
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in smoke.pythons()


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
