"""Builds wheel and sdist, twice, and says what is wrong with them."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
# What an sdist must have beside the sources, so that a distributor can test and document what it builds.
WANTED = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md", "constraints.txt", "docs/README.md", "task", "tests/conftest.py")


class Built(NamedTuple):
    """What one build has made."""

    wheel: Path
    sdist: Path


def moment() -> str:
    """The time of the commit, as SOURCE_DATE_EPOCH has it."""
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build(python: Path, folder: Path, epoch: str, *, mask: int = 0o022, language: str = "C") -> Built:
    """Build the sdist of the repository's files, and the wheel from the unpacked sdist.

    The files are copied first. hatchling forgets what git ignores if the path of the tree matches a pattern of
    `.gitignore`, such as `/build/` or `.cache/`, and would pack all that other commands have put into `build`.

    Args:
        python: A Python that has `build` and hatchling.
        folder: Where to put what is built. A folder of this name with `-sources` gets the copy.
        epoch: SOURCE_DATE_EPOCH.
        mask: The umask meanwhile.
        language: The locale meanwhile.
    """
    tree = copied(folder.with_name(f"{folder.name}-sources"))
    words: list[str | Path] = [python, "-m", "build", "--no-isolation", "--outdir", folder, tree]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "LC_ALL": language, "TZ": "Asia/Kathmandu" if mask else "UTC"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(words, env=environment, umask=mask, stdout=-1, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the build of {tree} ended with {done.returncode}:\n{done.stdout}")
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def copied(folder: Path) -> Path:
    """Copy the files of the repository, with the times and rights of today."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
    return folder


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def different(one: Built, other: Built) -> list[str]:
    """What differs between two builds of the same sources."""
    return [
        f"two builds differ: {a.name} is {digest(a)[:16]}… and {digest(b)[:16]}…; {_first_difference(a, b)}"
        for a, b in zip(one, other, strict=True)
        if digest(a) != digest(b)
    ]


def _first_difference(one: Path, other: Path) -> str:
    listed = []
    for path in (one, other):
        if path.suffix == ".whl":
            with ZipFile(path) as archive:
                listed.append([f"{it.filename} {it.date_time} {it.external_attr:o} {it.CRC}" for it in archive.infolist()])
        else:
            with tarfile.open(fileobj=gzip.open(path)) as archive:
                listed.append([f"{it.name} {it.mtime} {it.mode:o} {it.size}" for it in archive.getmembers()])
    pairs = zip(*listed, strict=False)
    return next((f"{a} | {b}" for a, b in pairs if a != b), "the same files, packed otherwise")


def contents(built: Built, sources: Iterable[str]) -> list[str]:
    """What is missing in a wheel or an sdist.

    Args:
        built: Both.
        sources: The files that belong in the wheel, by their places in it.
    """
    with ZipFile(built.wheel) as archive:
        inside = set(archive.namelist())
        metadata = message_from_bytes(archive.read(next(it for it in inside if it.endswith(".dist-info/METADATA"))))
    with tarfile.open(built.sdist) as archive:
        packed = {it.partition("/")[2] for it in archive.getnames()}
    wrong = [f"the wheel lacks {it}" for it in sorted(set(sources) - inside)]
    wrong += [f"the wheel has {it}, which is no source" for it in sorted(inside - set(sources)) if it.startswith("holdfast/")]
    wrong += [f"no import finds {it}" for it in sorted(misplaced(inside))]
    wrong += ["the wheel has no bill of materials"] * (not any(re.search(r"\.dist-info/sboms/.+\.cdx\.json$", it) for it in inside))
    wrong += ["the wheel has no licence file"] * (not any(".dist-info/licenses/" in it for it in inside))
    wrong += [f"the sdist lacks {it}" for it in WANTED if it not in packed]
    wrong += ["the sdist lacks the tests"] * (sum(it.startswith("tests/") for it in packed) < 100)
    wrong += [f"the sdist lacks src/{it}" for it in sorted(set(sources)) if f"src/{it}" not in packed and "/pages/" not in it]
    for field, value in (("License-Expression", "MIT"), ("Requires-Python", ">=3.11"), ("License-File", "LICENSE")):
        if metadata.get(field) != value:
            wrong.append(f"the metadata say {field}: {metadata.get(field)}, not {value}")
    wrong += ["the metadata have no keywords"] * (not metadata.get("Keywords"))
    wrong += ["the metadata do not say Typing :: Typed"] * ("Typing :: Typed" not in metadata.get_all("Classifier", []))
    return wrong


def misplaced(names: Iterable[str]) -> Iterator[str]:
    """Modules that no import finds. Django finds its migrations itself."""
    for it in names:
        parts = it.removesuffix(".py").split("/")
        if it.endswith(".py") and parts[-2:-1] != ["migrations"] and not all(map(str.isidentifier, parts)):
            yield it


def sources() -> list[str]:
    """The files that belong in the wheel: the package, and the pages of the documentation."""
    files = (it for it in (ROOT / "src/holdfast").rglob("*") if it.is_file() and "__pycache__" not in it.parts)
    pages = [f"holdfast/cli/pages/{it.name}" for it in (ROOT / "docs").glob("*.md")]
    return sorted([*pages, *(it.relative_to(ROOT / "src").as_posix() for it in files)])


def checked(python: Path, built: Built) -> list[str]:
    """What check-wheel-contents and twine say."""
    wrong = []
    # W004 complains of the names that Django gives to migrations: `misplaced` does the rest of its work.
    for words in (["check_wheel_contents", "--ignore=W004", str(built.wheel)], ["twine", "check", "--strict", *map(str, built)]):
        done = subprocess.run([python, "-m", *words], cwd=built.wheel.parent, stdout=-1, stderr=-2, text=True, check=False)
        if done.returncode:
            wrong.append(f"{words[0]}: {done.stdout.strip()}")
    return wrong


def commands(page: str) -> list[str]:
    """The commands of docs/installation.md that need nothing but the files, in order."""
    parts = [page.partition(f"\n### {it}\n")[2].partition("\n### ")[0] for it in ("The digest", "What is inside")]
    blocks = [it for part in parts for it in re.findall(r"```text\n(.*?)```", part, re.DOTALL)]
    return [line for it in blocks for line in it.splitlines()]


def followed(built: Built, page: str) -> list[str]:
    """What goes wrong if a user follows docs/installation.md, beside the files that were built."""
    found = commands(page)
    wrong = ["docs/installation.md has no commands"] * (len(found) < 3)
    for line in found:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        done = subprocess.run(line, shell=True, cwd=built.wheel.parent, env=environment, stdout=-1, stderr=-2, text=True, check=False)
        if done.returncode:
            wrong.append(f"docs/installation.md: `{line}` ended with {done.returncode}: {done.stdout.strip()}")
    return wrong


VALIDATE = """
import sys
from zipfile import ZipFile
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
with ZipFile(sys.argv[1]) as archive:
    (name,) = [it for it in archive.namelist() if it.endswith(".cdx.json")]
    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(archive.read(name).decode())
sys.exit(f"{name}: {found}" if found else 0)
"""


def bill(python: Path, wheel: Path) -> list[str]:
    """What is wrong with a wheel's bill of materials, by the schema of CycloneDX."""
    done = subprocess.run([python, "-c", VALIDATE, wheel], stdout=-1, stderr=-2, text=True, check=False)
    return [f"the bill of materials: {done.stdout.strip()}"] if done.returncode else []
