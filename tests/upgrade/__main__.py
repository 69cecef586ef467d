"""The upgrade of a running fleet: `./task test upgrade`.

Builds the wheel of an earlier version from the history of this repository, and today's, and lets
processes of both contend for one lock while one replaces the other.

The earlier version is that of the newest tag. While there is no tag, it is a commit whose keys, tokens
and answers of scripts are those of today, but whose engine, and the text of request.lua, are not.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from upgrade.storm import NEW, OLD, storm

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build/upgrade"
LAST = "29746ace00ac3237d88cdbdbcfe7190c97a157b6"
QUICK, LONG = 10.0, 90.0  # seconds


def git(*words: str) -> bytes:
    """What git says."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout


def earlier() -> str:
    """The commit of the version before: the newest tag of a version that is not today's commit, or LAST."""
    head = git("rev-parse", "HEAD").strip()
    for tag in git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname").decode().split():
        if git("rev-parse", f"{tag}^{{commit}}").strip() != head:
            return tag
    return LAST


def built(source: Path, place: Path) -> None:
    """Build the wheel of a tree, and unpack it, without its requirements: those are here already."""
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:
        _run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, source])
        (wheel,) = Path(folder).glob("*.whl")
        shutil.rmtree(place, ignore_errors=True)
        _run([*pip, "install", "--no-deps", "--target", place, wheel])


def _run(words: Sequence[str | Path]) -> None:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}")


def _is_used(place: Path) -> None:
    """Fail unless a process that has a version on its path loads that."""
    program = [sys.executable, "-c", "import holdfast; print(holdfast.__file__)"]
    found = subprocess.run(program, env={**os.environ, "PYTHONPATH": str(place)}, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(place)), f"{found} is not of {place}"


def version_of(commit: str) -> Path:
    """Build the version of a commit, unless it is there."""
    found = git("rev-parse", f"{commit}^{{commit}}").decode().strip()
    place = PLACE / found
    if not (place / "holdfast/__init__.py").exists():
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(git("archive", found))) as archive:
                archive.extractall(folder, filter="data")
            built(Path(folder), place)
    return place


def main() -> int:
    """Run the storm. Returns 1 if two held the lock at once, a fence did not grow, or a version got too little."""
    parser = argparse.ArgumentParser(prog="./task test upgrade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"a storm of {QUICK:g} s, and not of {LONG:g} s")
    parser.add_argument("--seconds", type=float, help="how long it lasts")
    parser.add_argument("--commit", help="the earlier version (the newest tag)")
    options = parser.parse_args()
    commit = options.commit or earlier()
    seconds = options.seconds or (QUICK if options.quick else LONG)
    with tempfile.TemporaryDirectory(prefix="holdfast-upgrade-") as name:
        folder = Path(name)
        built(ROOT, folder / "new")
        (folder / "sections").mkdir()
        places = {OLD: version_of(commit), NEW: folder / "new"}
        for place in places.values():
            _is_used(place)
        shares, wrong = storm(places, folder / "sections", seconds)
    print(
        f"{commit[:12]} and today's version: {shares.total()} sections in {seconds:g} s, "
        f"{shares[OLD]} of the old version and {shares[NEW]} of the new one, {len(wrong)} faults"
    )
    print("\n".join(wrong[:20]), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
