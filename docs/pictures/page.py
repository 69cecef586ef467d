"""Screenshots of the live page in both themes, of a scene on real nodes: `./task site picture page`.

Knows Playwright, the command and the example of a crowd. Must not know how the page draws anything. One node is down and one is
guarded when the pictures are made. With `--states FOLDER` it writes each state at three widths, to look at after a change of the page.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from browser import chromium  # docs/site
from playwright.sync_api import Browser, Page, sync_playwright

from holdfast.embedded import Nodes

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PORT = 7421
WIDTHS = {390: 844, 820: 1180, 1440: 900}
THEMES = ("light", "dark")
# Seconds in which the crowd makes a history.
HISTORY = 75.0


def started(stack: ExitStack, nodes: Nodes, *words: str) -> subprocess.Popen[bytes]:
    """Start a program on these nodes, which ends with the stack."""
    process = subprocess.Popen([sys.executable, *words], env={**os.environ, **nodes.environment}, cwd=ROOT)

    def end() -> None:
        process.terminate()
        process.wait()

    stack.callback(end)
    return process


def opened(browser: Browser, theme: str, width: int) -> Page:
    """The page, live."""
    size: Any = {"width": width, "height": WIDTHS[width]}
    page = browser.new_page(color_scheme=theme, viewport=size)  # type: ignore[arg-type]  # (one of Playwright's literals)
    page.goto(f"http://127.0.0.1:{PORT}/")
    page.locator(".link-live").wait_for()
    page.locator(".foot", has_text="complete").wait_for()
    return page


def take(page: Page, path: Path) -> None:
    """One picture."""
    page.wait_for_timeout(1500)
    page.screenshot(path=path, full_page=bool(page.viewport_size and page.viewport_size["width"] < 1100))
    print(path)


def pictures(browser: Browser, nodes: Nodes, history: float) -> None:
    """The two pictures of the documentation."""
    pages = [opened(browser, it, 1440) for it in THEMES]
    time.sleep(history)
    nodes.kill(4)
    nodes.restart(3)
    for theme, page in zip(THEMES, pages, strict=True):
        page.locator(".node.guarded").wait_for()
        page.locator(".node.down").wait_for()
        page.locator(".line:has(.name[title='gpu'])").click()
        page.locator(".line:has(.name[title='deploy'])").click()
        page.locator("#take").wait_for()
        take(page, HERE / f"page-{theme}.png")


def states(browser: Browser, nodes: Nodes, gateway: subprocess.Popen[bytes], folder: Path) -> None:
    """Each state at each width, in both themes."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {(theme, width): opened(browser, theme, width) for theme in THEMES for width in WIDTHS}

    def all_of(name: str) -> None:
        for (theme, width), page in pages.items():
            take(page, folder / f"{name}-{theme}-{width}.png")

    all_of("quiet")
    for page in pages.values():
        page.locator(".line:has(.name[title='deploy'])").click()
        page.locator("#take").click()
        page.fill("#reason", "the build hangs")
    all_of("dialog")
    for page in pages.values():
        page.keyboard.press("Escape")
        page.keyboard.press("?")
    all_of("keys")
    for page in pages.values():
        page.keyboard.press("Escape")
    nodes.kill(4)
    nodes.restart(3)
    all_of("trouble")
    nodes.kill(0)
    nodes.kill(1)
    time.sleep(3)
    all_of("no-quorum")
    gateway.terminate()
    gateway.wait()
    all_of("lost")


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(prog="./task site picture page", description=__doc__)
    parser.add_argument("--states", type=Path, metavar="FOLDER", help="write every state at three widths, and not the two pictures")
    parser.add_argument("--history", type=float, default=HISTORY, help="seconds in which the crowd makes a history (default: %(default)s)")
    options = parser.parse_args()
    with ExitStack() as stack:
        nodes = stack.enter_context(Nodes(5, tcp=True))
        started(stack, nodes, str(ROOT / "examples/crowd.py"), "--changes", "2")
        gateway = started(stack, nodes, "-m", "holdfast", "serve", "--bind", f"127.0.0.1:{PORT}", "--allow-force")
        time.sleep(10)
        tool = stack.enter_context(sync_playwright())
        browser = tool.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        stack.callback(browser.close)
        if options.states:
            states(browser, nodes, gateway, options.states)
        else:
            pictures(browser, nodes, options.history)


if __name__ == "__main__":
    main()
