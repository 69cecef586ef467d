"""The gateway does what its OpenAPI document says, as schemathesis sees it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from cli.kit import Command
from serve import tools
from serve.serving import served

QUOTAS = ("--max-requests", "100000", "--max-keepalives", "100000")
# Of each operation. `./task test serve -k schemathesis` with 170 makes 2,000 cases.
EXAMPLES = os.environ.get("HOLDFAST_SCHEMA_EXAMPLES", "8")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
PATIENCE = 240


@pytest.fixture
def url(holdfast: Command) -> Iterator[str]:
    with served(holdfast, *QUOTAS, "--allow-force", "--no-page") as (url, _):
        yield url


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
