"""What the build makes: a README without links to nowhere, for the package index, and the bill of materials."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # hatchling is only there while a distribution is built. `./task release extras` builds one.
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", SimpleNamespace(MetadataHookInterface=object))  # type: ignore[arg-type]  # (a stand-in)
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", SimpleNamespace(BuildHookInterface=object))  # type: ignore[arg-type]  # (a stand-in)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def relative(text: str) -> list[str]:
    return re.findall(r"\]\((?!\w+:|#)[^)]*\)", text)


def update(hook: ModuleType, metadata: dict[str, object]) -> str:
    it = hook.IndexReadme()
    it.root = str(ROOT)
    it.update(metadata)
    readme = metadata["readme"]
    assert isinstance(readme, dict)
    assert readme["content-type"] == "text/markdown"
    return str(readme["text"])


def test_the_readme_on_the_package_index_has_no_link_to_nowhere(hook: ModuleType) -> None:
    assert len(relative((ROOT / "README.md").read_text())) > 30
    text = update(hook, {})
    assert relative(text) == []
    assert "Choosing starts from your problem" in text


def test_the_links_become_absolute_when_the_source_has_an_address(hook: ModuleType) -> None:
    text = update(hook, {"urls": {"Source": "https://example.org/holdfast/"}})
    assert relative(text) == []
    assert "[First run](https://example.org/holdfast/docs/installation.md)" in text
    assert "](https://example.org/holdfast/docs/pictures/page-light.png)" in text


@pytest.mark.parametrize(
    "link, shown",
    [
        ("[a](b.md#c)", "a"),
        ('[test](tests/a.py "test_b")', ""),
        ("![a](b.svg)", ""),
        ("[a](#b)", "[a](#b)"),
        ("[a](https://b.c)", "[a](https://b.c)"),
        ("[a](mailto:b)", "[a](mailto:b)"),
    ],
)
def test_each_kind_of_link(hook: ModuleType, link: str, shown: str) -> None:
    assert hook.for_index(f"x {link} y", None) == f"x {shown} y"


def test_the_bill_of_materials_lists_scripts_and_requirements(hook: ModuleType) -> None:
    text = hook.bill("a", "1", "MIT", ["hiredis>=3"], {"x.lua": b"return 1"})
    said = json.loads(text)
    assert [it["name"] for it in said["components"]] == ["hiredis", "x.lua"]
    assert said["components"][0]["properties"] == [{"name": "holdfast:requirement", "value": "hiredis>=3"}]
    assert said["components"][1]["hashes"][0]["alg"] == "SHA-256"
    assert "timestamp" not in text and "serialNumber" not in text, "the same sources make the same wheel"
    assert hook.bill("a", "1", "MIT", [], {"x.lua": b"return 2"}) != hook.bill("a", "1", "MIT", [], {"x.lua": b""})
