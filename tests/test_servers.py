"""The table of tested servers: its rows come from examinations, and every difference is told."""

from __future__ import annotations

import servers


def test_the_page_has_the_table() -> None:
    """Its rows are checked by `./task test servers`, which runs the servers."""
    page = servers.PAGE.read_text()
    rows = [it for it in page.partition(servers.BEGIN)[2].partition(servers.END)[0].splitlines() if it.startswith("| ")][2:]
    assert len(rows) == 3 + len(servers.WHEELS)
    assert servers.compared(page, servers.table(rows)) == []
