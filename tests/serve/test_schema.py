"""The gateway does what its OpenAPI document says: as schemathesis sees it, and to clients that are generated from it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli.kit import Command
from serve import tools
from serve.serving import address

PIPES: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
QUOTAS = ("--max-requests", "100000", "--max-keepalives", "100000")
SERVE = ("serve", "--bind", "127.0.0.1:0", "--max-lag", "1m", *QUOTAS, "--allow-force", "--no-page")
# Of each operation. `./task serve -k schemathesis` with 170 makes 2,000 cases.
EXAMPLES = os.environ.get("HOLDFAST_SCHEMA_EXAMPLES", "8")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
PATIENCE = 240


@pytest.fixture
def url(holdfast: Command) -> Iterator[str]:
    with holdfast.started(*SERVE, **PIPES) as process:
        yield address(process)


def schemathesis(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    # Streams of events have no end.
    found = [str(tools.python() / "schemathesis"), "run", f"{url}/openapi.json", "--checks", CHECKS, "--seed", "7"]
    found += ["--phases", "fuzzing", "--max-examples", EXAMPLES, "--request-timeout", "60", "--exclude-path-regex", "events$", *words]
    return subprocess.run(found, capture_output=True, text=True, timeout=PATIENCE * 10, check=False)


@pytest.mark.timeout(PATIENCE * 10)
def test_schemathesis_finds_nothing(url: str) -> None:
    done = schemathesis(url)
    assert done.returncode == 0, done.stdout[-4000:]
    cases = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert cases is not None
    assert int(cases[1]) == int(cases[2]) >= 40
    print(cases[0])


TAKES = """
import sys
from generated.client import Client
from generated.api.default import acquire, release
from generated.models import Acquire, Held, ProblemDocument, Released

client = Client(base_url=sys.argv[1])
held = acquire.sync("a-lease-of-a-generated-client", client=client, body=Acquire(names=["schema:python"], wait_ms=5000))
assert isinstance(held, Held), held
busy = acquire.sync_detailed("another-lease-of-a-generated-client", client=client, body=Acquire(names=["schema:python"]))
assert isinstance(busy.parsed, ProblemDocument), busy
assert (busy.status_code, busy.parsed.type_, busy.parsed["holder"]["owner"] is None) == (409, "/problems/busy", False), busy
print(held.state, held.fences["schema:python"] == held.fence)
released = release.sync(held.id, client=client)
assert isinstance(released, Released), released
print(released.state)
"""


@pytest.mark.timeout(PATIENCE)
def test_a_generated_client_in_python(url: str, tmp_path: Path) -> None:
    tool = tools.python()

    def run(*words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "api.json").write_text(httpx.get(f"{url}/openapi.json", timeout=60).text)
    (tmp_path / "takes.py").write_text(TAKES)
    run(str(tool / "openapi-python-client"), "generate", "--path", "api.json", "--output-path", "generated", "--meta", "none")
    run(str(tool / "mypy"), "--python-executable", str(tool / "python"), "generated", "takes.py")
    assert run(str(tool / "python"), "takes.py", url).split() == ["held", "True", "released"]


TAKES_TS = """
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] });
const path = { lease_id: "a-lease-of-a-client-in-typescript" };
const held = await client.PUT("/v1/leases/{lease_id}", { params: { path }, body: BODY });
if (!held.data || held.data.state !== "held") throw new Error(JSON.stringify(held.error));
const until: number = performance.now() + held.data.valid_ms;
console.log(held.data.state, until > performance.now());
const released = await client.DELETE("/v1/leases/{lease_id}", { params: { path } });
console.log(released.data?.state);
"""
BODY = '{ names: ["schema:typescript"], kind: "exclusive", wait_ms: 5000, linger_ms: 2000, count: 1, label: "" }'


@pytest.mark.timeout(PATIENCE)
def test_a_generated_client_in_typescript(url: str, tmp_path: Path) -> None:
    place = tools.node()
    (tmp_path / "node_modules").symlink_to(place / "node_modules")
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    (tmp_path / "api.json").write_text(httpx.get(f"{url}/openapi.json", timeout=60).text)
    tool = place / "node_modules/.bin"

    def run(*words: str, succeeds: bool = True) -> str:
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE, check=False)
        assert (done.returncode == 0) == succeeds, done.stdout + done.stderr
        return done.stdout

    run(str(tool / "openapi-typescript"), "api.json", "-o", "api.d.ts")
    compiler = (str(tool / "tsc"), "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom", "takes.ts")
    # A field that does not exist is refused before it is sent.
    (tmp_path / "takes.ts").write_text(TAKES_TS.replace("BODY", BODY.replace("wait_ms", "wait")))
    assert "does not exist in type" in run(*compiler, succeeds=False)
    (tmp_path / "takes.ts").write_text(TAKES_TS.replace("BODY", BODY))
    run(*compiler)
    assert run("node", "takes.js", url).split() == ["held", "true", "released"]
