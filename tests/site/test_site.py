"""The site can be built, has every page and every public name, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import build
import check
import pytest

pytestmark = pytest.mark.pages

FOLDER = Path(__file__).parents[2] / "docs/site"
LISTED = FOLDER.parent / "links.txt"
# A link in Markdown that leads to another host: not to this machine, and not to the repository, which has no address yet.
OUTWARD = re.compile(r"(?:\]\(|^\[[^\]]+\]: |<)(https?://(?!127\.|localhost|github\.com/OWNER/)[^\s)>]+)", re.MULTILINE)


@pytest.mark.timeout(300)
def test_it_is_built_with_every_public_name_and_every_link_leads_somewhere() -> None:
    built = subprocess.run([sys.executable, FOLDER / "build.py"], capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    assert check.broken(build.SITE) == []
    for name, (_, modules) in build.REFERENCE.items():
        page = check.Page((build.SITE / f"reference/{name}.html").read_text())
        for module in map(import_module, modules):
            for it in module.__all__:
                at = build.home(module, it)
                if at == module.__name__:
                    assert f"{at}.{it}" in page.anchors, f"{at}.{it} has no place on the page {name}"
    whole = (build.SITE / "llms-full.txt").read_text()
    assert "## `holdfast.Lease.check(" in whole
    assert (build.SITE / "search.js").stat().st_size > 100_000


@pytest.mark.parametrize("name", ["Holdfast", "Lock", "Lease", "Semaphore", "Election", "Once", "Fill", "Rate", "Latch", "Barrier"])
@pytest.mark.parametrize("face", ["holdfast", "holdfast.aio"])
def test_every_public_method_of_both_faces_has_its_text(face: str, name: str) -> None:
    module = import_module(face)
    assert [it for it in build.undocumented(module) if it.startswith(f"{face}.{name}")] == []
    assert len([it for it, _ in build.shown(module) if it.startswith(f"{name}.")]) >= 2


def test_links_to_other_places_are_listed() -> None:
    """A job asks each of them once a night, and may fail: no test here depends on another host."""
    pages = [build.ROOT / "README.md", *sorted(FOLDER.parent.glob("**/*.md"))]
    assert sorted({link for page in pages for link in OUTWARD.findall(page.read_text())}) == LISTED.read_text().splitlines()


def test_every_page_is_in_the_navigation_once() -> None:
    assert build.forgotten() == []


def test_the_navigation_is_the_list_of_pages() -> None:
    assert build.outdated() == []


def test_links_fit_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "docs/pictures").mkdir(parents=True)
    (tmp_path / "src").mkdir()
    for name in ("docs/lock.md", "docs/pictures/a.svg", "src/it.py"):
        (tmp_path / name).write_text("")
    readme = tmp_path / "README.md"
    links = '[the `lock`](docs/lock.md#how) ![a](docs/pictures/a.svg) [b](https://e.f/) `[c](d.md)` [test](src/it.py "test_x")'
    readme.write_text(f"{links}\n\n```md\n[h](docs/lock.md)\n```\n")
    places, copied = {readme: "index.md", tmp_path / "docs/lock.md": "lock.md"}, set[Path]()
    code = "\n\n```md\n[h](docs/lock.md)\n```\n"
    kept = "[the `lock`](lock.md#how) ![a](pictures/a.svg) [b](https://e.f/) `[c](d.md)` "
    assert build.page(readme, places, "", copied) == f'{kept}<span class="source" title="src/it.py: test_x">test</span>{code}'
    assert copied == {tmp_path / "docs/pictures/a.svg"}
    linked = build.page(readme, places, "https://host/blob/1", copied)
    assert linked == f'{kept}[test](https://host/blob/1/src/it.py "src/it.py: test_x"){code}'
