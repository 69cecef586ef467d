"""The browser that all tests of the page share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import chromium  # docs/site
from playwright.sync_api import sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()
