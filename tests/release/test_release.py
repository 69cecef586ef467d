"""What `./task release` finds: each check passes on what there is.

The builds, the tools and the smoke are for the task itself, because they take a minute and a network.
"""

from __future__ import annotations

import json
import sys

import pytest
from release import api, papers, wire, workflows

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


# ------------------------------------------------ interface and wire


def test_the_wire_is_frozen() -> None:
    assert (ROOT / "tests/wire.txt").read_text() == wire.described(), "if this is meant: ./task release --freeze"


def test_the_interface_is_frozen() -> None:
    frozen = (ROOT / "tests/api.txt").read_text()
    assert frozen == api.described(ROOT / "src"), "if this is meant: ./task release --freeze"
    assert "\nholdfast.Lock.acquire(self, cancel: threading.Event | None = None) -> Lease\n" in frozen
    assert "\nasync holdfast.aio.Lock.acquire(self) -> Lease\n" in frozen


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
