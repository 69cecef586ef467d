"""The gateway does what its OpenAPI document says, as schemathesis sees it."""

from __future__ import annotations

import json
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


FROZEN = Path(__file__).with_name("openapi.txt")


def bare(it: dict[str, Any]) -> dict[str, Any]:
    """A part of the document, without what is said for people."""
    return {key: value for key, value in it.items() if not (key in ("summary", "description") and isinstance(value, str))}


async def test_what_clients_may_send_and_get_stays_as_it_is(client: httpx.AsyncClient) -> None:
    """Clients are generated from it. Write a change that you mean into the file, and tell it in CHANGELOG.md."""
    answer = await client.get("/openapi.json")
    its, document = answer.json()["paths"]["/v1/nodes"]["get"], answer.json(object_hook=bare)
    document["info"]["version"] = "of this release"
    assert (its["summary"], its["description"]) == ("Show how the nodes are", "Show how the nodes are.")
    parts = {**document.pop("paths"), **document["components"].pop("schemas"), "": document}
    assert [f"{name} {json.dumps(it, sort_keys=True)}" for name, it in sorted(parts.items())] == FROZEN.read_text().splitlines()
