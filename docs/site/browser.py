"""Open the built site in Chromium and look for what a reader would trip over. `./task site --check`.

Knows Playwright and axe. Must not know what the pages say. Every page has to load from `file://` without
an error, without a request to another host, and without scrolling sideways on a phone. Axe audits some pages of each kind.
One page is served from a sub-path, and the search has to find something there and from `file://`.

Needs Debian's package `chromium` and the npm package `axe-core`; HOLDFAST_CHROMIUM and HOLDFAST_AXE may name them.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as TimedOut

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/site"
AXE = "axe-core@4.14.1"
THEMES = {"light": "default", "dark": "slate"}
PHONE, DESK = 320, 1440  # pixels
SEVERE = ("serious", "critical")
# Pages of each kind, which axe audits. `--every` has it audit all, which takes minutes.
AUDITED = (
    "index.html", "lock.html", "fencing.html", "why-it-is-safe.html", "performance.html", "reference/index.html", "reference/errors.html",
)  # fmt: skip
WAIT = 20_000  # milliseconds for anything that must happen
AUDIT = """async () => (await axe.run(document, {resultTypes: ["violations"], preload: false%s})).violations
    .filter(it => %s.includes(it.impact))
    .map(it => `${it.id} (${it.impact}): ${it.help}: ${it.nodes.slice(0, 3).map(node => node.target.join(" ")).join(", ")}`)"""
# What depends on the theme is colours.
COLOURS = ', runOnly: ["color-contrast"]'
WIDE = """() => document.documentElement.scrollWidth > document.documentElement.clientWidth"""


def chromium() -> str:
    """The browser."""
    for name in (os.environ.get("HOLDFAST_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"):
        if name and (found := shutil.which(name)):
            return found
    sys.exit("no browser was found: install Debian's package chromium, or set HOLDFAST_CHROMIUM to the path of one")


def axe() -> str:
    """The text of axe, which npm fetches once."""
    if (named := os.environ.get("HOLDFAST_AXE")) is not None:
        return Path(named).read_text()
    script = ROOT / "build/axe/node_modules/axe-core/axe.min.js"
    if not script.is_file():
        words = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", "--prefix", str(ROOT / "build/axe"), AXE]
        subprocess.run(words, check=True)
    return script.read_text()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder under a sub-path of a host. Yields the address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def translate_path(self, path: str) -> str:
            return super().translate_path(path.removeprefix("/some/where")) if path.startswith("/some/where/") else os.devnull

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/some/where"
        server.shutdown()


def watched(page: Page, wrong: list[str], own: str) -> None:
    """Note the errors that a page logs, and what it asks others for."""

    def asked(url: str) -> None:
        if not url.startswith((own, "data:", "blob:")):
            wrong.append(f"asks for {url}")

    page.on("console", lambda it: wrong.append(it.text) if it.type in ("error", "warning") else None)
    page.on("pageerror", lambda it: wrong.append(str(it)))
    page.on("request", lambda it: asked(it.url))


def visit(browser: Browser, addresses: dict[str, str], script: str, audited: Collection[str]) -> list[str]:
    """What is wrong with pages: as they load in the light theme, then in the dark one, then on a phone."""
    wrong: list[str] = []
    page = browser.new_page(color_scheme="light", reduced_motion="reduce")
    noted: list[str] = []
    watched(page, noted, "file:")
    for name, address in addresses.items():
        page.set_viewport_size({"width": DESK, "height": 900})
        page.goto(address, timeout=WAIT)
        for theme, rules in zip(THEMES, ("", COLOURS), strict=True) if name in audited else ():
            if not rules:
                page.add_script_tag(content=script)
            page.evaluate("theme => document.body.setAttribute('data-md-color-scheme', theme)", THEMES[theme])
            wrong += [f"{name}, {theme}: {it}" for it in page.evaluate(AUDIT % (rules, list(SEVERE)))]
        page.set_viewport_size({"width": PHONE, "height": 800})
        if page.evaluate(WIDE):
            wrong.append(f"{name}: wider than a window of {PHONE} pixels")
        wrong += [f"{name}: {it}" for it in noted]
        noted.clear()
    page.close()
    return wrong


def themed(browser: Browser, address: str) -> list[str]:
    """What is wrong with how a page chooses its theme."""
    wrong: list[str] = []
    for theme, scheme in THEMES.items():
        page = browser.new_page(color_scheme=theme)  # type: ignore[arg-type]  # (one of Playwright's literals)
        page.goto(address, timeout=WAIT)
        if (shown := page.get_attribute("body", "data-md-color-scheme")) != scheme:
            wrong.append(f"a reader who prefers the {theme} theme gets {shown}")
        page.close()
    return wrong


def search(browser: Browser, address: str, own: str) -> list[str]:
    """What is wrong with the search of a page."""
    wrong: list[str] = []
    page = browser.new_page()
    watched(page, wrong, own)
    page.goto(address, timeout=WAIT)
    try:
        page.locator(".md-search__button").first.click()
        field = page.locator("input[role=combobox]")
        field.wait_for(timeout=WAIT)
        field.fill("RateLimited")
        page.locator("a[href*='reference/errors']", has_text="RateLimited").first.wait_for(timeout=WAIT)
    except TimedOut as error:
        wrong.append(f"{address}: the search finds nothing: {error}")
    page.close()
    return wrong


def main() -> None:
    """Check the site that ./task site has built. The exit status is 1 if anything is wrong."""
    every = sys.argv[1:] == ["--every"]
    script = axe()
    names = [it.relative_to(SITE).as_posix() for it in sorted(SITE.rglob("*.html"))]
    addresses = {it: (SITE / it).as_uri() for it in names}
    audited = names if every else AUDITED
    with sync_playwright() as tool, served(SITE) as address:
        browser = tool.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        wrong = visit(browser, addresses, script, audited) + themed(browser, (SITE / "index.html").as_uri())
        wrong += search(browser, (SITE / "reference/index.html").as_uri(), "file:")
        wrong += search(browser, f"{address}/reference/index.html", address)
        browser.close()
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(names)} pages: no error, no request to another host. {len(audited)} of them: no serious finding of axe in either theme")


if __name__ == "__main__":
    main()
