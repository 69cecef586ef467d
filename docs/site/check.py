"""Resolve every link, anchor and picture of a built site, without a browser.

Knows HTML and files. Must not know what the pages say. It also complains of anything that a page would load from
another host, of links that a sub-path would break, and of pictures and frames without a text for screen readers.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img", "script", "iframe", "source", "video", "audio", "embed", "object", "link"}
_URL = re.compile(r"""url\(\s*['"]?([^'")]+)['"]?\s*\)""")


class Page(HTMLParser):
    """A page: its anchors, what it links to, what it loads, and its pictures without a text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.silent: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        for name in ("id", "name"):
            if facts.get(name) and (name == "id" or tag == "a"):
                self.anchors.add(facts[name] or "")
        if tag == "a" and facts.get("href") is not None:
            self.links.append(facts["href"] or "")
        for name in ("src", "href", "data", "poster"):
            if tag in LOADED and facts.get(name) and facts.get("rel") not in ("canonical", "next", "prev"):
                self.loads.append(facts[name] or "")
        self.loads += [it.split()[0] for it in (facts.get("srcset") or "").split(",") if it.strip()]
        if tag == "img" and not facts.get("alt"):
            self.silent.append(facts.get("src") or "")


def broken(site: Path) -> list[str]:
    """What is wrong with the links of a built site."""
    site = site.resolve()
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        label = path.relative_to(site).as_posix()
        for link in page.links + page.loads:
            if (complaint := _leads(link, path, site, pages, link in page.loads)) is not None:
                wrong.append(f"{label}: {link} {complaint}")
        wrong += [f"{label}: the picture {it} has no text for screen readers" for it in page.silent]
    for path in sorted(site.rglob("*.css")):
        for link in _URL.findall(path.read_text()):
            if (complaint := _leads(link, path, site, pages, True)) is not None:
                wrong.append(f"{path.relative_to(site).as_posix()}: {link[:80]} {complaint}")
    return wrong + _listed(site, pages)


def _leads(link: str, path: Path, site: Path, pages: dict[Path, Page], loaded: bool) -> str | None:
    """What is wrong with a link, if anything is."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return "is loaded from another host" if loaded else None
    if link.startswith("/"):
        return "works at the root of a host only"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        return "names a directory, which cannot be opened from file://"
    if not target.is_file() or not target.is_relative_to(site):
        return "leads nowhere"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "leads to an anchor that is not there"
    return None


def _listed(site: Path, pages: dict[Path, Page]) -> list[str]:
    """What is wrong with llms.txt: a link that leads nowhere, or a page that it does not list."""
    links = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text())
    missing = [it for it in links if site / it not in pages]
    unlisted = [it.relative_to(site).as_posix() for it in pages if it.relative_to(site).as_posix() not in links]
    return [
        *(f"llms.txt: {it} leads nowhere" for it in missing),
        *(f"llms.txt does not list {it}" for it in unlisted),
    ]
