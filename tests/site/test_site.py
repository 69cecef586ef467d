"""The site can be built, has every page and every public name, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import build as build_
import check as check_
import pytest

from holdfast import errors

pytestmark = pytest.mark.pages

FOLDER = Path(__file__).parents[2] / "docs/site"
LISTED = FOLDER.parent / "links.txt"
# A link in Markdown that leads to another host: not to this machine, and not to the repository, which has no address yet.
OUTWARD = re.compile(r"(?:\]\(|^\[[^\]]+\]: |<)(https?://(?!127\.|localhost|github\.com/OWNER/)[^\s)>]+)", re.MULTILINE)
LLMS = "- [A](index.html)\n- [B](part/b.html)\n"
INDEX = '<h2 id="one">One</h2><a href="part/b.html#two">b</a><img src="a.svg" alt="a picture"><a href="https://e.f/">e</a>'
OTHER = '<h2 id="two">Two</h2><a href="../index.html#one">a</a><a href="#two">here</a>'


@pytest.fixture
def build() -> ModuleType:
    return build_


@pytest.fixture
def check() -> ModuleType:
    return check_


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A built site of two pages, with nothing wrong."""
    (tmp_path / "part").mkdir()
    for name, text in {"index.html": INDEX, "part/b.html": OTHER, "llms.txt": LLMS, "a.svg": "<svg/>"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.timeout(300)
def test_it_is_built_with_every_public_name_and_every_link_leads_somewhere(build: ModuleType, check: ModuleType) -> None:
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
    assert unexplained((build.SITE / "errors.html").read_text(), check) == []
    whole = (build.SITE / "llms-full.txt").read_text()
    assert "## `holdfast.Lease.check(" in whole
    assert (build.SITE / "search.js").stat().st_size > 100_000


def unexplained(text: str, check: ModuleType) -> list[str]:
    """Name the errors whose messages end in an address that the built page about errors lacks."""
    anchors = check.Page(text).anchors
    kinds = [getattr(errors, name) for name in errors.__all__]
    pages = {kind.__name__: kind.page.fget(kind.__new__(kind)) for kind in kinds}
    return [name for name, page in pages.items() if page.partition("#")[2] not in anchors]


def test_an_error_without_a_place_on_the_built_page_is_found(check: ModuleType) -> None:
    headings = [f'<h2 id="{name.lower()}">{name}</h2>' for name in errors.__all__ if name != "LockBusy"]
    assert unexplained("".join(headings), check) == ["LockBusy"]
    assert unexplained("".join([*headings, '<h2 id="lockbusy">LockBusy</h2>']), check) == []


@pytest.mark.parametrize("name", ["Holdfast", "Lock", "Lease", "Semaphore", "Election", "Once", "Fill", "Rate", "Latch", "Barrier"])
@pytest.mark.parametrize("face", ["holdfast", "holdfast.aio"])
def test_every_public_method_of_both_faces_has_its_text(build: ModuleType, face: str, name: str) -> None:
    module = import_module(face)
    assert [it for it in build.undocumented(module) if it.startswith(f"{face}.{name}")] == []
    assert len([it for it, _ in build.shown(module) if it.startswith(f"{name}.")]) >= 2


def test_what_has_no_docstring_is_found(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import holdfast

    assert build.undocumented(holdfast) == []
    monkeypatch.setattr(holdfast.Lease, "forgotten", lambda self: None, raising=False)
    monkeypatch.setattr(holdfast.Lease, "unsaid", property(lambda self: None), raising=False)
    kinds = ("Leadership", "Lease")  # the one has all that the other has
    assert build.undocumented(holdfast) == [f"holdfast.{kind}.{name}" for kind in kinds for name in ("forgotten", "unsaid")]


def outward(texts: Iterable[str]) -> list[str]:
    """The links to other places, each once."""
    return sorted({link for text in texts for link in OUTWARD.findall(text)})


def test_links_to_other_places_are_listed(build: ModuleType) -> None:
    """A job asks each of them once a night, and may fail: no test here depends on another host."""
    pages = [build.ROOT / "README.md", *sorted(FOLDER.parent.glob("**/*.md"))]
    assert outward(page.read_text() for page in pages) == LISTED.read_text().splitlines()


def test_a_link_that_is_not_listed_is_found() -> None:
    text = "[a](https://a.example/x) <https://b.example> [here](http://127.0.0.1/) [c]: https://c.example\n[d]: https://d.example\n"
    assert outward([text, text]) == ["https://a.example/x", "https://b.example", "https://d.example"]


def test_every_page_is_in_the_navigation_once(build: ModuleType) -> None:
    assert build.forgotten() == []


def test_the_navigation_is_the_list_of_pages(build: ModuleType) -> None:
    assert build.outdated() == []


def test_a_page_that_the_navigation_lacks_is_found(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [it for it in build.navigation() if it.place != "lock.md"]
    monkeypatch.setattr(build, "navigation", lambda: [*listed, listed[0], build.Entry("Use", "None", "none.md")])
    assert build.forgotten() == [
        "lock.md is a page, and docs/README.md does not link to it",
        "mkdocs.yml lists none.md, and there is no such page",
        "mkdocs.yml lists index.md 2 times",
    ]


def test_a_navigation_that_is_not_the_list_of_pages_is_found_and_written(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("lock", "rate"):
        (tmp_path / f"docs/{name}.md").write_text("")
    index, settings = tmp_path / "docs/README.md", tmp_path / "mkdocs.yml"
    index.write_text("# Docs\n\n## Use\n\n- [Locks](lock.md): one, and [rates](rate.md)\n- [again](lock.md)\n\n## Performance\n")
    settings.write_text("site_name: x\n\nnav:\n  - Use:\n      - Rates: rate.md\n      - Locks: lock.md\n")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "CONFIG", settings)
    assert len(build.outdated()) == 1
    build.write_navigation()
    assert build.outdated() == []
    assert settings.read_text().startswith("site_name: x\n\nnav:\n  - Start:\n      - What it is: index.md\n")
    listed = [(it.section, it.title, it.place) for it in build.navigation()]
    assert listed[2:5] == [("Use", "Locks", "lock.md"), ("Use", "Rates", "rate.md"), ("Performance", "The machines", "environments.md")]


def test_links_fit_the_site(build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_line_about_a_page_is_its_first_sentence(build: ModuleType) -> None:
    text = "# Locks\n\n![a](b.svg)\n\n```python\nx\n```\n\n**Use** a [lock](c.md) for `that`. Then more.\n"
    assert build.summary(text) == "Use a lock for `that`."


def test_nothing_is_wrong_with_a_small_site(check: ModuleType, small: Path) -> None:
    assert check.broken(small) == []


@pytest.mark.parametrize(
    "planted, complaint",
    [
        ('<a href="none.html">x</a>', "none.html leads nowhere"),
        ('<a href="part/b.html#three">x</a>', "part/b.html#three leads to an anchor that is not there"),
        ('<a href="#three">x</a>', "#three leads to an anchor that is not there"),
        ('<a href="part">x</a>', "part names a directory"),
        ('<a href="../outside.html">x</a>', "../outside.html leads nowhere"),
        ('<a href="/index.html">x</a>', "/index.html works at the root of a host only"),
        ('<img src="none.svg" alt="x">', "none.svg leads nowhere"),
        ('<img src="a.svg">', "the picture a.svg has no text for screen readers"),
        ('<img srcset="a.svg 1x, none.svg 2x" src="a.svg" alt="x">', "none.svg leads nowhere"),
        ('<script src="https://cdn.example/x.js"></script>', "is loaded from another host"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "is loaded from another host"),
    ],
)
def test_a_fault_in_a_page_is_found(check: ModuleType, small: Path, planted: str, complaint: str) -> None:
    (small / "index.html").write_text(INDEX + planted)
    found = check.broken(small)
    assert len(found) == 1
    assert complaint in found[0]


def test_a_font_from_another_host_and_an_unlisted_page_are_found(check: ModuleType, small: Path) -> None:
    (small / "a.css").write_text("x { src: url('https://fonts.example/a.woff') } y { src: url(a.svg) }")
    (small / "new.html").write_text("")
    (small / "llms.txt").write_text(LLMS + "- [C](none.html)\n")
    assert check.broken(small) == [
        "a.css: https://fonts.example/a.woff is loaded from another host",
        "llms.txt: none.html leads nowhere",
        "llms.txt does not list new.html",
    ]


def test_a_warning_of_the_generator_fails_the_build(build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "zensical"
    monkeypatch.setattr(build, "stage", lambda: None)
    monkeypatch.setattr(build, "tell_models", lambda: None)
    monkeypatch.setattr(build, "SITE", tmp_path / "site")
    monkeypatch.setattr(build.sys, "executable", str(tmp_path / "python"))
    for line, code in (("Warning: unresolved link", 0), ("fine", 3)):
        program.write_text(f"#!/bin/sh\necho '{line}'\nexit {code}\n")
        program.chmod(0o755)
        assert build.build() == [line]

