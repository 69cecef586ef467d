"""The page about performance: its table and its picture up to a million clients are what its function says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.pages

ROOT = Path(__file__).parents[2]
HANDSHAKE = re.compile(r"\| CPU to establish a connection \| (\d+) µs \|")
ROW = re.compile(r"^\| ([\d,]+)" + 4 * r" \| (\d+) shards?" + r" \| ([\d.]+) (MB|GB) \| ([\d.]+) (s|min) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def clients() -> ModuleType:
    """The module that draws the picture."""
    spec = importlib.util.spec_from_file_location("cores", ROOT / "docs/pictures/cores.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wrong(clients: ModuleType, page: str) -> list[str]:
    """What the table says that is not so."""
    found, rows = [], ROW.findall(page)
    handshake = HANDSHAKE.search(page)
    assert len(rows) == 4 and handshake is not None
    for size, *shards, memory, of, lasts, unit in rows:
        count = int(size.replace(",", ""))
        megabytes = clients.function()(clients=count, held=count, pairs=count / 60)[2]
        seconds = count * int(handshake[1]) / 1e6
        if [clients.shards(count, ttl) for ttl in clients.TTLS] != [int(it) for it in shards]:
            found.append(f"{size}: shards")
        if float(memory) * {"MB": 1, "GB": 1000}[of] != pytest.approx(megabytes, rel=0.03):
            found.append(f"{size}: memory")
        if float(lasts) * {"s": 1, "min": 60}[unit] != pytest.approx(seconds, rel=0.2):
            found.append(f"{size}: restart")
    return found


def test_the_table_is_what_the_function_says(clients: ModuleType) -> None:
    page = clients.PAGE.read_text()
    assert wrong(clients, page) == []
    # Planted: figures that somebody forgot to change.
    assert wrong(clients, page.replace("| 5 shards |", "| 6 shards |", 1)) == ["100,000: shards"]
    assert wrong(clients, page.replace("184 MB", "190 MB", 1)) == ["10,000: memory"]


def test_the_picture_is_what_the_function_draws(clients: ModuleType) -> None:
    assert clients.PICTURE.read_text() == clients.picture(), "./task picture cores"
