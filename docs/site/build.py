"""Build the site: pages, reference, search, llms.txt. `./task site`.

Knows where the texts are and how zensical is run. Must not know what the texts say.

zensical reads `build/pages`, which this script writes: the Markdown files of the project, with links that fit the
site, and one page of the reference for each public module. Nothing is fetched while the site is built or read.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MemberDescriptorType, ModuleType
from typing import Any

import yaml

# What is imported from there is beside this folder. Tests and types know both folders already.
sys.path.insert(0, str(Path(__file__).parents[1] / "pictures"))

import frame
import history
import scenes

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PAGES, SITE = ROOT / "build/pages", ROOT / "build/site"
CONFIG = ROOT / "mkdocs.yml"
# Texts that have another place on the site than docs/x.md, which becomes x.md.
MOVED = {
    "README.md": "index.md",
    "docs/README.md": "reading.md",
    "examples/README.md": "examples.md",
    "bench/environments/README.md": "environments.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "SUPPORT.md": "support.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
}
# Pages that docs/README.md does not link to, and where they stand in the navigation: section, title, place.
UNLISTED = (("Performance", "The machines", "environments.md"), ("How it is built", "Changes", "changelog.md"))
FILES = (".svg", ".png", ".json")  # what pages show, link to or load, and is copied as it is
# The pages of the reference: title, what it is for, and the public modules on it.
REFERENCE: dict[str, tuple[str, tuple[str, ...]]] = {
    "holdfast": ("Clients and leases for threads and greenlets", ("holdfast",)),
    "aio": ("The same clients and leases for asyncio", ("holdfast.aio",)),
    "typing": ("The options that calls take, and other names for type hints", ("holdfast.typing",)),
    "errors": ("The errors that calls raise", ("holdfast.errors",)),
    "events": ("The events that observers receive", ("holdfast.events",)),
    "fencing": (
        "What receives fencing tokens and refuses late holders",
        ("holdfast.fencing", "holdfast.fencing.http", "holdfast.fencing.redis", "holdfast.fencing.sqlalchemy"),
    ),
    "config": ("Clients from the settings of a framework, an application or a file", ("holdfast.config",)),
    "integrations": (
        "FastAPI, other ASGI frameworks, and WSGI",
        (
            "holdfast.integrations.fastapi",
            "holdfast.integrations.asgi",
            "holdfast.integrations.idempotency",
            "holdfast.integrations.wsgi",
        ),
    ),
    "testing": (
        "Tests of your code, without servers or in virtual time",
        ("holdfast.testing", "holdfast.testing.simulation", "holdfast.testing.plugin"),
    ),
    "embedded": ("Real servers on this machine, for tests and demonstrations", ("holdfast.embedded",)),
}
_LINK = re.compile(r'(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)(?:\s+"(?P<title>[^"]*)")?\)')
_CODE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$|(?<!`)(`+)(?!`)(?:.+?)(?<!`)\3(?!`)", re.MULTILINE | re.DOTALL)


# ------------------------------------------------ which pages


def texts() -> dict[Path, str]:
    """The Markdown files of the project that are pages, and the place of each on the site."""
    found = {ROOT / source: place for source, place in MOVED.items()}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if path not in found:
            found[path] = path.relative_to(ROOT / "docs").as_posix()
    return found


def configuration() -> dict[str, Any]:
    """What mkdocs.yml says. (Names of Python objects in it are not looked up.)"""
    loader = type("Loader", (yaml.SafeLoader,), {})
    # A type checker does not know the methods of a class that `type` makes.
    loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)  # type: ignore[attr-defined]  # (of no known type)
    found: dict[str, Any] = yaml.load(CONFIG.read_text(), loader)
    return found


@dataclass(frozen=True)
class Entry:
    """A page in the navigation."""

    section: str
    title: str
    place: str


def navigation() -> list[Entry]:
    """All pages, in the order in which the site lists them."""
    return [
        Entry(section, title, place)
        for part in configuration()["nav"]
        for section, entries in part.items()
        for entry in entries
        for title, place in entry.items()
    ]


def forgotten() -> list[str]:
    """Pages without an entry in the navigation, and entries without a page, and what is listed twice."""
    pages = {*texts().values(), "reference/index.md", *(f"reference/{it}.md" for it in REFERENCE)}
    listed = [it.place for it in navigation()]
    return [
        *(f"{it} is a page, and docs/README.md does not link to it" for it in sorted(pages - set(listed))),
        *(f"mkdocs.yml lists {it}, and there is no such page" for it in sorted(set(listed) - pages)),
        *(f"mkdocs.yml lists {it} {listed.count(it)} times" for it in sorted(set(listed)) if listed.count(it) > 1),
    ]


def outline() -> list[Entry]:
    """The navigation that docs/README.md asks for: its sections and links, what it cannot link to, and the reference."""
    places, found = texts(), [Entry("Start", "What it is", "index.md"), Entry("Start", "All pages", "reading.md")]
    text = (ROOT / "docs/README.md").read_text()
    for section, body in re.findall(r"^## (.+?) *\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
        for title, file in re.findall(r"\[([^\]]+)\]\(([\w./-]+\.md)\)", body):
            place = places.get((ROOT / "docs" / file).resolve(), file)
            if place not in {it.place for it in found}:
                found.append(Entry(section, title[0].upper() + title[1:], place))
        found += [Entry(*it) for it in UNLISTED if it[0] == section]
    found.append(Entry("Reference", "Overview", "reference/index.md"))
    found += [Entry("Reference", modules[0], f"reference/{name}.md") for name, (_, modules) in REFERENCE.items()]
    return found


def outdated() -> list[str]:
    """What is wrong if mkdocs.yml lists other pages than docs/README.md, or in another order."""
    if navigation() == outline():
        return []
    return ["docs/README.md lists the pages otherwise than mkdocs.yml does under nav: run ./task site --nav"]


def write_navigation() -> None:
    """Write the list of pages in docs/README.md into mkdocs.yml, under nav."""
    lines, section = ["nav:"], ""
    for entry in outline():
        if entry.section != section:
            section = entry.section
            lines.append(f"  - {section}:")
        lines.append(f"      - {entry.title}: {entry.place}")
    settings, _, _ = CONFIG.read_text().partition("\nnav:")
    CONFIG.write_text("\n".join([settings, *lines]) + "\n")


# ------------------------------------------------ pages


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text, changed where it is no code."""
    parts, at = [], 0
    for code in _CODE.finditer(text):
        parts += [change(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, change(text[at:])])


def page(source: Path, places: dict[Path, str], repository: str, copied: set[Path]) -> str:
    """A text as a page: its links lead to pages of the site, to the repository, or nowhere. Adds the pictures to `copied`."""
    here = Path(places[source]).parent

    def linked(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if re.match(r"\w+:", link["target"]) or not target:
            return link[0]
        file = (source.parent / target).resolve()
        place = places.get(file)
        if place is None and file.suffix in FILES and file.is_relative_to(ROOT / "docs"):
            copied.add(file)
            place = file.relative_to(ROOT / "docs").as_posix()
        if place is not None:
            to = os.path.relpath(place, here)
            return f"{link['image']}[{link['text']}]({to}{f'#{anchor}' if anchor else ''})"
        name = file.relative_to(ROOT).as_posix()
        shown = f"{name}: {link['title']}" if link["title"] else name
        if repository and file.exists():
            return f'[{link["text"]}]({repository}/{name}{f"#{anchor}" if anchor else ""} "{shown}")'
        return f'<span class="source" title="{shown}">{link["text"]}</span>'

    # A link's text may contain code, so code is put aside while links are changed.
    kept: list[str] = []

    def aside(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\0{len(kept) - 1}\0"

    changed = _LINK.sub(linked, _CODE.sub(aside, source.read_text()))
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], changed)


def repository() -> str:
    """Where the files of this revision can be read, or "" if mkdocs.yml has no repo_url."""
    url = configuration().get("repo_url", "")
    if not url:
        return ""
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return f"{url.rstrip('/')}/blob/{revision.strip()}"


def stage() -> None:
    """Write the pages that zensical reads."""
    shutil.rmtree(PAGES, ignore_errors=True)
    places, copied, where = texts(), set[Path](), repository()
    for source, place in places.items():
        put(PAGES / place, page(source, places, where, copied))
    for file in copied:
        target = PAGES / file.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    shutil.copytree(HERE / "assets", PAGES / "site")
    put(PAGES / "site/site.css", (HERE / "assets/site.css").read_text() + "\n" + frame.themes())
    put(PAGES / "site/histories.js", played())
    rows = "".join(f"| [{', '.join(modules)}]({name}.md) | {what} |\n" for name, (what, modules) in REFERENCE.items())
    put(PAGES / "reference/index.md", f"# Reference\n\nEvery public name.\n\n| Module | What it has |\n| --- | --- |\n{rows}")
    for name, (what, modules) in REFERENCE.items():
        put(PAGES / f"reference/{name}.md", "\n\n".join([f"# {modules[0]}", f"{what}.", *map(described, modules)]) + "\n")


def put(path: Path, text: str) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def played() -> str:
    """The histories that the interactive page plays, with their pictures, as a script that also works from file://."""
    histories = [json.loads((HERE / f"histories/{make.__name__}.json").read_text()) for make in scenes.SCENES]
    pictures = {it["name"]: history.draw(it) for it in histories}
    return f"var histories = {json.dumps(histories)}\nvar pictures = {json.dumps(pictures)}\n"


# ------------------------------------------------ the reference


def home(module: ModuleType, name: str) -> str:
    """The page of the reference that a public name of this module is shown on, as the name of its module."""
    own = getattr(getattr(module, name), "__module__", module.__name__)
    shown = {it for _, modules in REFERENCE.values() for it in modules}
    return own if own in shown and own != module.__name__ and name in import_module(own).__all__ else module.__name__


def described(name: str) -> str:
    """A module's part of its page, as mkdocstrings reads it."""
    module = import_module(name)
    parts = [f'## {name} {{ #{name} }}'] if name not in {it[0] for _, it in REFERENCE.values()} else []
    own = [it for it in module.__all__ if home(module, it) == name]
    parts += [f"::: {name}.{it}" for it in own]
    elsewhere = [f"[`{it}`][{home(module, it)}.{it}]" for it in module.__all__ if home(module, it) != name]
    if elsewhere:
        parts.append(f"Also importable from `{name}`: {', '.join(elsewhere)}.")
    return "\n\n".join(parts)


def shown(module: ModuleType) -> Iterator[tuple[str, object]]:
    """What users see in a module: its names, and the names of its classes' own members, each as it is written there."""
    for name in module.__all__:
        it = getattr(module, name)
        yield name, it
        if inspect.isclass(it):
            for member in dir(it):
                # Slots are not for users, nor is what exceptions, enumerations and such bring along.
                found = inspect.getattr_static(it, member)
                ours = any(member in vars(base) for base in it.__mro__ if base.__module__.startswith("holdfast"))
                if ours and not member.startswith("_") and not isinstance(found, MemberDescriptorType):
                    yield f"{name}.{member}", getattr(it, member)


def undocumented(module: ModuleType) -> list[str]:
    """Public names without a docstring. (Values, such as members of an enumeration, have none: their class describes them.)"""
    return [
        f"{module.__name__}.{name}"
        for name, it in shown(module)
        if (callable(it) or isinstance(it, property)) and not (inspect.getdoc(it) or "").strip()
    ]


def modules() -> Iterator[ModuleType]:
    """The public modules."""
    for _, names in REFERENCE.values():
        yield from map(import_module, names)


# ------------------------------------------------ for language models


def summary(text: str) -> str:
    """The first sentence of a page."""
    prose = (part.strip() for part in re.split(r"\n\s*\n", outside_code(text, lambda it: re.sub(r"<[^>]*>", "", it))))
    first = next((it for it in prose if re.match(r"[\w*`\[]", it) and not it.startswith("```")), "")
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split())).replace("**", "")
    return re.split(r"(?<=[.!?:]) (?=[A-Z`])", plain, maxsplit=1)[0].rstrip(":")


def told(module: ModuleType) -> str:
    """A module's part of the reference, as plain Markdown."""
    parts = [f"# {module.__name__}"]
    for name, it in shown(module):
        try:
            signature = str(inspect.signature(it)) if callable(it) else ""
        except (TypeError, ValueError):
            signature = ""
        text = inspect.getdoc(it) if callable(it) or isinstance(it, property | ModuleType) else None
        if text:
            parts.append(f"## `{module.__name__}.{name}{re.sub(r' at 0x[0-9a-f]+', '', signature)}`\n\n{text}")
    return "\n\n".join(parts)


def tell_models() -> None:
    """Write llms.txt, with one line for each page, and llms-full.txt, with all of them."""
    index, whole, section = ["# holdfast", f"\n> {configuration()['site_description']}"], [], ""
    for entry in navigation():
        text = (PAGES / entry.place).read_text()
        if entry.section != section:
            section = entry.section
            index.append(f"\n## {section}\n")
        about = summary(text)
        index.append(f"- [{entry.title}]({entry.place.removesuffix('.md')}.html){f': {about}' if about else ''}")
        if not entry.place.startswith("reference/"):
            whole.append(text.strip())
    put(SITE / "llms.txt", "\n".join(index) + "\n")
    put(SITE / "llms-full.txt", "\n\n".join([*whole, *map(told, modules())]) + "\n")


# ------------------------------------------------ all of it


def build() -> list[str]:
    """Build the site in build/site. Returns what is wrong."""
    wrong = outdated() + forgotten() + [f"{it} has no docstring" for module in modules() for it in undocumented(module)]
    if wrong:
        return wrong
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    ran = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT, capture_output=True, text=True, check=False)
    said = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout + ran.stderr)
    if ran.returncode or re.search(r"\b(warning|error)s?\b", said, re.IGNORECASE):
        return [said.strip() or f"zensical ended with {ran.returncode}"]
    # Its links would begin at the root of a host, and the site may be anywhere.
    (SITE / "404.html").unlink()
    tell_models()
    from check import broken  # beside this file

    return broken(SITE)


def main() -> None:
    """Build the site. The exit status is 1 on any warning, or if a link leads nowhere."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nav", action="store_true", help="only write the list of pages in docs/README.md into mkdocs.yml")
    if parser.parse_args().nav:
        return write_navigation()
    began = time.monotonic()
    if wrong := build():
        sys.exit("\n".join(wrong))
    pages = len(list(SITE.rglob("*.html")))
    print(f"{SITE / 'index.html'}: {pages} pages in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
