"""The table of tested servers: its rows come from examinations, and every difference is told."""

from __future__ import annotations

import servers

from holdfast.testing.conformance import Check, Examination


def examination(product: str, verdict: str = "ok") -> Examination:
    checks = [Check(it, "ok", "") for it in ("greeting", "scripts: exclusive", "expiries", "pushes", "tracking", "restart")]
    return Examination("redis://a", product, [*checks, Check("scripts: latch", verdict, ""), Check("atomicity", verdict, "")])


def test_a_row_says_what_was_found() -> None:
    assert servers.row(examination("valkey 9.1.2"), "a wheel") == f"| Valkey 9.1 | a wheel | {' | '.join(['ok'] * 7)} |"
    worse = servers.row(examination("redis 7.0.15", "unfit"), "Debian")
    assert worse == "| Redis 7.0 | Debian | ok | unfit | ok | ok | ok | unfit | ok |"
    none = servers.row(Examination("redis://a", "redis 6.0.16", [Check("greeting", "unfit", "")]), "Debian")
    assert none == f"| Redis 6.0 | Debian | unfit | {' | '.join(['not checked'] * 6)} |"


def test_newer_servers_are_lower() -> None:
    rows = [servers.row(examination(it), "x") for it in ("valkey 8.1.8", "redis 10.0.1", "redis 8.2.3")]
    assert [it.split()[2] for it in servers.table(rows).splitlines()[2:]] == ["8.2", "10.0", "8.1"]


def test_the_page_has_the_table() -> None:
    """Its rows are checked by `./task conformance`, which runs the servers."""
    page = servers.PAGE.read_text()
    rows = [it for it in page.partition(servers.BEGIN)[2].partition(servers.END)[0].splitlines() if it.startswith("| ")][2:]
    assert len(rows) == 3 + len(servers.WHEELS)
    assert servers.compared(page, servers.table(rows)) == []


def test_what_differs_is_told() -> None:
    """Planted: a server that nobody has seen, one that is not listed, and a page without a table."""
    now = servers.table([servers.row(examination("valkey 9.1.2"), "a wheel")])
    page = f"x\n{servers.BEGIN}\n\n{now}\n{servers.END}\ny"
    assert servers.compared(page, now) == []
    lacks, extra, hint = servers.compared(page, now.replace("9.1", "9.2"))
    assert lacks.startswith("docs/servers.md lacks | Valkey 9.2")
    assert extra.startswith("docs/servers.md has, and nobody saw it: | Valkey 9.1")
    assert "--write" in hint
    assert "has no part" in servers.compared("nothing", now)[0]
