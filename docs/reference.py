"""The reference: every public name, from its docstring, as pages that need no server. `./task reference`.

Knows pdoc. Must not know what the docstrings say: it complains of what has none, and of references that lead nowhere.

pdoc, because it takes the docstrings as they are (Markdown; names in backticks become links), sees what is inherited since it imports
the modules, and needs no configuration but one template.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import MemberDescriptorType, ModuleType
from typing import get_type_hints

import pdoc

import holdfast

FENCING = ("holdfast.fencing", "holdfast.fencing.http", "holdfast.fencing.redis", "holdfast.fencing.sqlalchemy")
MODULES = ("holdfast", "holdfast.aio", "holdfast.errors", "holdfast.events", "holdfast.embedded", *FENCING)
ROOT = Path(__file__).parent.parent


def build(folder: Path) -> None:
    """Write the pages."""
    pdoc.render.configure(
        docformat="markdown",
        template_directory=Path(__file__).with_name("reference"),
        footer_text=f"holdfast {holdfast.__version__}",
        show_source=False,
    )
    # A NamedTuple keeps the types of its fields as text, and does not say in which module that text has a meaning.
    holdfast.NodeStatus.__new__.__annotations__.update(get_type_hints(holdfast.NodeStatus))
    pdoc.pdoc(*MODULES, output_directory=folder)


def shown(module: ModuleType) -> Iterator[tuple[str, object]]:
    """What users see in a module: its names, and the names of its classes' own members, each as it is written there."""
    for name in module.__all__:
        it = getattr(module, name)
        yield name, it
        if inspect.isclass(it):
            for member in dir(it):
                # (slots are not for users; nor is what exceptions, enums and such bring along)
                found = inspect.getattr_static(it, member)
                ours = any(member in vars(base) for base in it.__mro__ if base.__module__.startswith("holdfast"))
                if ours and not member.startswith("_") and not isinstance(found, MemberDescriptorType):
                    yield f"{name}.{member}", getattr(it, member)


def undocumented(module: ModuleType) -> list[str]:
    """Public names without a docstring. (Values, such as an enumeration's members, have none: their class tells of them.)"""
    return [
        f"{module.__name__}.{name}"
        for name, it in shown(module)
        if (callable(it) or isinstance(it, property)) and not (inspect.getdoc(it) or "").strip()
    ]


class Page(HTMLParser):
    """A page: its anchors, its links, its text without them, and the text of each member."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.unlinked = ""
        self._inside = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.anchors |= {facts["id"] or ""} if "id" in facts else set()
        if tag == "a":
            self._inside += 1
            self.links.append(facts.get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag == "a"

    def handle_data(self, data: str) -> None:
        if not self._inside and self.lasttag not in ("script", "style"):
            self.unlinked += data


def unresolved(folder: Path) -> list[str]:
    """Links within the pages that lead nowhere, names of ours that should be links, and public names that have no place."""
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        label = str(path.relative_to(folder))
        for link in page.links:
            target, _, anchor = link.partition("#")
            if ":" not in target:
                found = pages.get((path.parent / target).resolve() if target else path)
                if found is None or (anchor and anchor not in found.anchors):
                    wrong.append(f"{label}: {link} leads nowhere")
        wrong += [f"{label}: {it} is not on any page" for it in re.findall(r"\bholdfast(?:\.\w+)*\.[A-Z]\w*", page.unlinked)]
    for name in MODULES:
        module = import_module(name)
        page = pages[folder / (name.replace(".", "/") + ".html")]
        for member, it in shown(module):
            home = getattr(it, "__module__", "")
            if member not in page.anchors and not (home in MODULES and home != name):
                wrong.append(f"{name}: {member} is not shown")
    return wrong


def main() -> None:
    """Build the reference. The exit status is 1 if something has no docstring, or a reference leads nowhere."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build/reference", help="default: build/reference")
    folder: Path = parser.parse_args().folder.resolve()
    build(folder)
    wrong = [f"{it} has no docstring" for name in MODULES for it in undocumented(import_module(name))] + unresolved(folder)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{folder / 'index.html'}: {len(MODULES)} modules")


if __name__ == "__main__":
    main()
