"""The browser that the tests of a module share. While it is there, no test of asyncio can run: its own loop is in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import chromium  # docs/site
from playwright.sync_api import sync_playwright

from holdfast.serve import surveys


@pytest.fixture(scope="module", autouse=True)
def _brisk() -> Iterator[None]:
    """Surveys that rest less: on a busy machine, those that take 2 % of it take half a minute. tests/serve/test_surveys.py has that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surveys, "SHARE", 0.5)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()
