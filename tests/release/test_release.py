"""What `./task release-check` finds: each check passes on what there is, and finds a fault that is planted.

The builds, the tools and the smoke are for the task itself, because they take a minute and a network.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import pytest
from release import api, artefacts, papers, smoke, wire, workflows
from release.__main__ import Report
from release.artefacts import Built

from holdfast import scripts

pytestmark = pytest.mark.guards

ROOT = papers.ROOT

# ------------------------------------------------ workflows


def test_the_workflows_keep_our_rules() -> None:
    files = workflows.texts()
    assert workflows.complaints(files) == []
    assert workflows.unpaired(files) == []


FAULTS = {
    "no digest": (
        "release.yml",
        "pypi-publish@dc37677b2e1c63e2034f94d8a5b11f265b73ba33 # v1.14.2",
        "pypi-publish@v1.14.2",
        "pin it by its digest",
    ),
    "no version": ("ci.yml", " # v7.0.1", "", "pin it by its digest"),
    "rights for all": ("docs.yml", "permissions: {}", "permissions: write-all", "must stand at the top"),
    "rights unnamed": (
        "nightly.yml",
        "    permissions:\n      contents: read # to check out the repository\n",
        "",
        "does not say which permissions",
    ),
    "identity without an environment": ("release.yml", "    environment:\n      name: pypi\n", "", "publish may take an identity"),
    "a secret": ("release.yml", "attestations: true", "password: ${{ secrets.TOKEN }}", "needs a secret"),
    "an expression in the shell": (
        "release.yml",
        'release-check --tag "$TAG"',
        "release-check --tag ${{ github.ref_name }}",
        "expands an expression",
    ),
    "no timeout": ("ci.yml", "    timeout-minutes: 60\n", "", "gates has no timeout"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_workflow_is_found(fault: str) -> None:
    name, before, after, complaint = FAULTS[fault]
    files = workflows.texts()
    assert before in files[name], "the workflow has changed: plant the fault elsewhere"
    found = workflows.complaints({**files, name: files[name].replace(before, after)})
    assert found, fault
    assert all(it.startswith(f"{name}: ") for it in found)
    assert complaint in "\n".join(found)


def test_a_missing_workflow_and_two_digests_are_found() -> None:
    files = workflows.texts()
    assert workflows.complaints({it: text for it, text in files.items() if it != "ci.yml"}) == ["there is no workflow ci.yml"]
    other = files["ci.yml"].replace("3d3c42e5", "00000000", 1)
    assert workflows.unpaired({**files, "ci.yml": other}) == ["actions/checkout is pinned in two ways"]


def test_findings_of_actionlint_that_are_known_and_gone() -> None:
    known = {("a.yml", "odd"): "why"}
    finding: dict[str, Any] = {"file": "x/a.yml", "line": 3, "message": "odd thing"}
    assert workflows.told([finding], known) == []
    assert workflows.told([], known) == ["actionlint no longer says 'odd' of a.yml: take it from KNOWN"]
    assert workflows.told([finding, {**finding, "message": "new"}], known) == ["actionlint: a.yml:3: new"]


# ------------------------------------------------ papers


def test_the_papers_are_right() -> None:
    assert papers.complaints(papers.texts(), papers.project(), papers.version()) == []


PAPERS = {
    "a Python": ("SUPPORT.md", "3.11, 3.12, 3.13 |", "3.11, 3.12 |", "SUPPORT.md must list Python 3.11, 3.12, 3.13"),
    "a server": ("SUPPORT.md", "Redis 6.2", "Redis 6.0", "SUPPORT.md must say Redis 6.2"),
    "a server on another page": ("docs/installation.md", "Valkey >= 7.2", "Valkey >= 8.0", "docs/installation.md must say Valkey 7.2"),
    "an old version": ("SECURITY.md", "| 0.1 | yes |", "| 0.0 | yes |", "SECURITY.md must list 0.1"),
    "a citation": ("CITATION.cff", "version: 0.1.0", "version: 0.2.0", "CITATION.cff says version: 0.2.0"),
    "a recipe": ("deploy/conda/recipe.yaml", "hiredis >=3", "hiredis >=2", "recipe.yaml runs with"),
    "a recipe of another version": ("deploy/conda/recipe.yaml", '"0.1.0"', '"0.0.1"', "recipe.yaml has the version 0.0.1"),
    "a recipe for one machine": ("deploy/conda/recipe.yaml", "noarch: python", "skip: win", "noarch"),
    "a changelog": ("CHANGELOG.md", "## 0.1.0", "## 0.0.9", "CHANGELOG.md has no section 0.1.0"),
}  # fmt: skip


@pytest.mark.parametrize("fault", PAPERS)
def test_a_paper_that_is_wrong_is_found(fault: str) -> None:
    name, before, after, complaint = PAPERS[fault]
    said = papers.texts()
    assert before in said[name], "the paper has changed: plant the fault elsewhere"
    found = papers.complaints({**said, name: said[name].replace(before, after)}, papers.project(), papers.version())
    assert complaint in "\n".join(found)


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


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_interface_is_found(change: str, tmp_path: Path) -> None:
    name, before, after = CHANGES[change]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "src/holdfast" / name
    text = file.read_text()
    assert before in text, "the source has changed: plant the change elsewhere"
    file.write_text(text.replace(before, after, 1))
    assert api.described(tmp_path / "src") != (ROOT / "tests/api.txt").read_text()


def test_a_change_of_a_script_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    script = scripts.RELEASE
    other = scripts.Script(script.name, script.source + b"\n", script.keys, script.arguments)
    monkeypatch.setattr(scripts, "RELEASE", other)
    assert wire.described() != (ROOT / "tests/wire.txt").read_text()


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

METADATA = (
    "License-Expression: MIT\nLicense-File: LICENSE\nRequires-Python: >=3.11\nKeywords: a\nClassifier: Typing :: Typed\n\n"
)
INSIDE = {
    "holdfast/__init__.py": "",
    "holdfast/a.lua": "",
    "holdfast/py.typed": "",
    "h.dist-info/METADATA": METADATA,
    "h.dist-info/licenses/LICENSE": "",
    "h.dist-info/sboms/h.cdx.json": "{}",
}
SOURCES = ["holdfast/__init__.py", "holdfast/a.lua", "holdfast/py.typed"]
PACKED = [*artefacts.WANTED, *(f"src/{it}" for it in SOURCES), *(f"tests/test_{it}.py" for it in range(100))]


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


def test_artefacts_that_have_everything_are_well(tmp_path: Path) -> None:
    assert artefacts.contents(made(tmp_path, INSIDE, PACKED), SOURCES) == []


@pytest.mark.parametrize("name", INSIDE)
def test_a_file_that_the_wheel_lacks_is_found(name: str, tmp_path: Path) -> None:
    inside = {it: text for it, text in INSIDE.items() if it != name}
    if name.endswith("METADATA"):
        inside[name] = METADATA.replace("MIT", "BSD")
    assert len(artefacts.contents(made(tmp_path, inside, PACKED), SOURCES)) == 1


@pytest.mark.parametrize("name", [*artefacts.WANTED, "src/holdfast/a.lua", "tests/"])
def test_a_file_that_the_sdist_lacks_is_found(name: str, tmp_path: Path) -> None:
    packed = [it for it in PACKED if not it.startswith(name)]
    assert artefacts.contents(made(tmp_path, INSIDE, packed), SOURCES) != []


def test_a_module_that_no_import_finds_is_found(tmp_path: Path) -> None:
    assert list(artefacts.misplaced(["holdfast/a.py", "holdfast/x/migrations/0001_b.py"])) == []
    assert list(artefacts.misplaced(["holdfast/a-b.py", "0/c.py"])) == ["holdfast/a-b.py", "0/c.py"]
    more = {**INSIDE, "holdfast/left-over.py": ""}
    assert len(artefacts.contents(made(tmp_path, more, PACKED), SOURCES)) == 2


def test_builds_that_differ_are_found(tmp_path: Path) -> None:
    """Planted: a time in the wheel, and another file in the sdist."""
    one = made(tmp_path / "one", INSIDE, PACKED)
    assert artefacts.different(one, made(tmp_path / "same", INSIDE, PACKED)) == []
    late, more = made(tmp_path / "late", INSIDE, PACKED, moment=2), made(tmp_path / "more", INSIDE, [*PACKED, "x"])
    (told,) = artefacts.different(one, late)
    assert "h.whl" in told
    assert "(2026, 1, 1, 0, 0, 0)" in told
    (told,) = artefacts.different(one, more)
    assert "packed otherwise" in told


def test_a_page_whose_commands_fail_is_found(tmp_path: Path) -> None:
    """Planted: the name of another version, and a page without commands."""
    page = (ROOT / "docs/verify.md").read_text()
    assert len(artefacts.commands(page)) == 3
    built = made(tmp_path, INSIDE, PACKED)
    assert len(artefacts.followed(built, page)) == 3
    whole = tmp_path / f"holdfast-{papers.version()}-py3-none-any.whl"
    bill = f"holdfast-{papers.version()}.dist-info/sboms/holdfast.cdx.json"
    with ZipFile(whole, "w") as archive:
        archive.writestr(bill, "{}")
    assert artefacts.followed(built, page) == []
    assert artefacts.followed(built, "") == ["docs/verify.md has no commands"]


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


def test_what_is_wrong_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    report.check("one", list)
    report.check("two", lambda: ["bad", "worse"])
    assert report.wrong == ["bad", "worse"]
    assert "one: well" in (told := capsys.readouterr().out)
    assert "two: 2 wrong" in told


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
