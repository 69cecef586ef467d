"""The reference can be built, and has a place and a text for everything that users see."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from html import unescape
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "docs/reference.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["reference"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    built = subprocess.run([sys.executable, "-W", "error", str(SCRIPT), str(folder)], capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


@pytest.mark.parametrize("face", ["holdfast", "holdfast.aio"])
def test_every_public_method_of_both_faces_has_its_text(script: ModuleType, folder: Path, face: str) -> None:
    page = (folder / (face.replace(".", "/") + ".html")).read_text()
    seen = 0
    for name, it in script.shown(import_module(face)):
        if name.partition(".")[0] in ("Holdfast", "Lock", "Lease"):
            part = unescape(re.sub(r"<[^>]*>", "", re.split(rf'id="{name}"[^>]*>', page)[1].partition('<div id="')[0]))
            first = re.sub(r"[`*]", "", (inspect.getdoc(it) or "").partition(".")[0].replace("\n", " "))
            assert first, name
            assert first in " ".join(part.replace("*", "").split()), name  # (a star may be a star, or Markdown's)
            seen += 1
    assert seen >= 20


def test_what_has_no_docstring_is_found(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import holdfast

    assert script.undocumented(holdfast) == []
    monkeypatch.setattr(holdfast.Lease, "forgotten", lambda self: None, raising=False)
    monkeypatch.setattr(holdfast.Lease, "unsaid", property(lambda self: None), raising=False)
    kinds = ("Leadership", "Lease")  # (one has all that the other has)
    assert script.undocumented(holdfast) == [f"holdfast.{kind}.{name}" for kind in kinds for name in ("forgotten", "unsaid")]


def test_what_leads_nowhere_is_found(script: ModuleType, folder: Path, tmp_path: Path) -> None:
    assert script.unresolved(folder) == []
    for page in folder.rglob("*.html"):
        copy = tmp_path / page.relative_to(folder)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(page.read_text())
    errors = tmp_path / "holdfast/errors.html"
    text = errors.read_text().replace('id="Closed"', 'id="Gone"')
    errors.write_text(text.replace("</main>", '<a href="#nowhere">holdfast.Linked</a> holdfast.engine.Hidden</main>'))
    found = script.unresolved(tmp_path)
    assert "holdfast/errors.html: #nowhere leads nowhere" in found
    assert "holdfast/errors.html: #Closed leads nowhere" in found
    assert "holdfast.html: holdfast/errors.html#Closed leads nowhere" in found
    assert "holdfast/errors.html: holdfast.engine.Hidden is not on any page" in found
    assert "holdfast.errors: Closed is not shown" in found
    assert not [it for it in found if "Linked" in it]
