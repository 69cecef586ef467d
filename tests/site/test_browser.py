"""What the check in a browser is for is found. `./task site --check` runs these, for they need Chromium and axe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import browser
import pytest


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser.sync_playwright() as tool:
        program = tool.chromium.launch(executable_path=browser.chromium(), args=["--no-sandbox"])
        yield program
        program.close()


@pytest.mark.parametrize("name, both", [("unguarded", True), ("guarded", False), ("queue", False)])
def test_the_player_is_used_with_the_keyboard_alone(chromium: Any, name: str, both: bool) -> None:
    page = chromium.new_page()
    page.goto(f"{(browser.SITE / 'why-it-is-safe.html').as_uri()}#{name}")
    page.focus("#play-step")
    last = int(page.get_attribute("#play-step", "max"))
    verdicts = set()
    for at in range(1, last + 1):
        page.keyboard.press("ArrowRight")
        assert page.get_attribute("#play-step", "aria-valuetext").startswith(f"Step {at + 1} of {last + 1}. ")
        verdicts.add(page.inner_text(".play-verdict"))
    assert ("A and B both believe that they hold the lock." in verdicts) is both
    assert "A believes that it holds the lock." in verdicts
    page.get_by_role("button", name="First").press("Enter")
    assert "Nothing has happened yet" in page.inner_text(".play-told")
    page.get_by_role("button", name="Play").press("Enter")
    page.locator(".play-told", has_text="A calls acquire()").wait_for()
    page.get_by_role("button", name="Pause").press("Enter")
    assert page.get_by_role("button", name="Play").count() == 1
    page.close()
