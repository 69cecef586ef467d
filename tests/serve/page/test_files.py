"""The page's files: as npm delivers them, typed, small, and in the wheel."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from holdfast.aio import Holdfast
from holdfast.serve import app, live
from holdfast.serve.load import Lag

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "src/holdfast/serve/page"
TYPESCRIPT = "typescript@7.0.2"
# Where npm keeps what these tests fetch, once.
FETCHED = ROOT / "build/page"
ROW = re.compile(r"^\| `([^`]+)` \| (\w+) ([\d.]+) \| `([^`]+)` \| .* \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def listed() -> dict[str, tuple[str, str, str, str]]:
    """What the list of vendored files says: package, version, path in it, digest."""
    return {it[0]: (it[1], it[2], it[3], it[4]) for it in ROW.findall((PAGE / "vendor/README.md").read_text())}


def changed(files: Mapping[str, bytes]) -> list[str]:
    """Which vendored files are not as the list has them."""
    digests = {name: it[3] for name, it in listed().items()}
    wrong = [f"{name} is not listed" for name in files if name not in digests]
    return wrong + [f"{name} is not what is listed" for name, it in digests.items() if hashlib.sha256(files[name]).hexdigest() != it]


def vendored() -> dict[str, bytes]:
    return {it.name: it.read_bytes() for it in (PAGE / "vendor").iterdir() if it.suffix in (".js", ".css")}


def test_vendored_files_are_as_listed() -> None:
    assert changed(vendored()) == []
    assert changed({**vendored(), "preact.js": b"planted"}) == ["preact.js is not what is listed"]
    assert changed({**vendored(), "new.js": b""}) == ["new.js is not listed"]


def installed(*packages: str) -> Path:
    """The folder with these packages, which npm fetches once."""
    names = [it.rpartition("@")[0] for it in packages]
    if not all((FETCHED / "node_modules" / it).is_dir() for it in names):
        words = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", "--prefix", str(FETCHED), *packages]
        subprocess.run(words, check=True, timeout=120)
    return FETCHED / "node_modules"


@functools.cache
def packages() -> Path:
    """All that these tests need of npm, in one call: a second one would remove what the first has brought."""
    return installed(TYPESCRIPT, *sorted({f"{package}@{version}" for package, version, _, _ in listed().values()}))


@pytest.mark.timeout(150)
def test_vendored_files_are_what_npm_delivers() -> None:
    folder = packages()
    for name, (package, version, path, _) in listed().items():
        assert json.loads((folder / package / "package.json").read_text())["version"] == version
        assert (folder / package / path).read_bytes() == (PAGE / "vendor" / name).read_bytes(), name


def typed(page: Path, folder: Path) -> str:
    """What the type checker says of the page's modules."""
    settings = {
        "compilerOptions": {
            "strict": True, "allowJs": True, "checkJs": True, "noEmit": True, "target": "ES2023", "module": "ES2022",
            "moduleResolution": "bundler", "lib": ["ES2023", "DOM", "DOM.Iterable"], "types": [],
        },
        "files": [str(page / "app.js")],
    }  # fmt: skip
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    words = [str(packages() / ".bin/tsc"), "-p", str(folder / "tsconfig.json")]
    return subprocess.run(words, capture_output=True, text=True, timeout=100).stdout


@pytest.mark.timeout(150)
def test_the_modules_have_types(tmp_path: Path) -> None:
    assert typed(PAGE, tmp_path) == ""


def test_the_pure_parts() -> None:
    done = subprocess.run(["node", "--test", str(Path(__file__).with_name("pure.test.mjs"))], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout
    tried = set(re.findall(r"pure\.(\w+)", Path(__file__).with_name("pure.test.mjs").read_text()))
    exported = set(re.findall(r"^export function (\w+)", (PAGE / "pure.js").read_text(), re.MULTILINE))
    # These are tried by what calls them.
    assert exported - tried == {"escaped", "join", "kept", "order", "sentence"}


def test_a_browser_asks_for_all_modules_at_once() -> None:
    named = re.findall(r'(?:modulepreload" href|src)="(ui/[^"]+\.js)"', live.assets()[""].body.decode())
    assert sorted(named) == sorted(it for it in live.assets() if it.endswith(".js"))


def test_the_page_is_small() -> None:
    files = live.assets()
    assert len(files) <= 12
    assert sum(len(it.packed) for it in files.values()) <= 32 * 1024


def test_no_module_writes_html() -> None:
    """Names are strangers' text. (The policy would refuse it, too.)"""
    writes = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\b|new Function")
    assert [it.name for it in PAGE.glob("*.js") if writes.search(it.read_text())] == []
    assert writes.search("it.innerHTML = name")


@pytest.fixture(autouse=True)
def _idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, a gateway refuses what can wait."""
    monkeypatch.setattr(Lag, "late", 0.0)


async def asked(application: Starlette, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://localhost:7420") as client:
        return await client.get(path, headers=headers)


async def test_files_are_sent_once(locks: Holdfast) -> None:
    application = app(locks)
    for path, kind in (("/", "text/html"), ("/ui/app.js", "text/javascript"), ("/ui/style.css", "text/css")):
        first = await asked(application, path)
        assert first.headers["content-type"] == f"{kind}; charset=utf-8"
        assert first.headers["content-security-policy"] == live.POLICY
        assert first.headers["content-encoding"] == "gzip"
        plain = await asked(application, path, **{"accept-encoding": "identity"})
        assert plain.content == first.content
        again = await asked(application, path, **{"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["content-security-policy"] == live.POLICY


async def test_a_busy_gateway_sends_its_files_and_nothing_else_of_the_page(locks: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    application = app(locks)
    monkeypatch.setattr(type(application.state.gateway.lag), "late", 1.0)
    assert {(await asked(application, f"/{it}")).status_code for it in live.assets()} == {200}
    assert (await asked(application, "/ui/lock?name=a")).status_code == 503


async def test_without_the_page_nothing_of_it_is_there(locks: Holdfast) -> None:
    application = app(locks, page=False)
    for path in ("/", "/ui/app.js", "/ui/snapshot", "/ui/lock?name=a"):
        assert (await asked(application, path)).status_code == 404


async def test_what_is_asked_about_locks(locks: Holdfast) -> None:
    application = app(locks, allow_force=True)
    async with locks.lock("page:asked") as lease:
        found = (await asked(application, "/ui/lock?name=page:asked")).json()
        assert (found["lock"]["fence"], found["may_force"]) == (lease.fence, True)
    assert (await asked(application, "/ui/lock")).status_code == 422
    assert (await asked(application, f"/ui/lock?name={'x' * 513}")).status_code == 414
    assert (await asked(app(locks), "/ui/lock?name=a")).json()["may_force"] is False
