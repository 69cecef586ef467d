"""Answers and problems: in JSON, or in lines for a shell if the client prefers text.

Knows Starlette's responses. Must not know routes.
"""

from __future__ import annotations

import json
import shlex
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Scope

from ..fencing.http import FENCING_TOKEN, header_of
from .models import Held
from .problems import Problem

TEXT = "text/plain; charset=utf-8"
# What a route returns: a model, perhaps with a status.
Answer = Response | BaseModel | tuple[BaseModel, int]


def said(scope: Scope, answer: Answer) -> Response:
    """Return the response for what a route has returned."""
    if isinstance(answer, Response):
        return answer
    body, status = (answer, 200) if isinstance(answer, BaseModel) else answer
    headers = {"cache-control": "no-store"}
    fences = _header_of(tuple(body.fences.items())) if isinstance(body, Held) and body.fences else ""
    if fences:
        headers[FENCING_TOKEN] = fences
    if _prefers_text(scope):
        facts = body.model_dump() | ({"fencing_token": fences} if fences else {})
        return Response(lines(facts), status, headers, TEXT)
    return Response(body.model_dump_json(), status, headers, "application/json")


def respond(scope: Scope, problem: Problem) -> Response:
    """Return the response for a problem."""
    found, headers = problem.document(scope["holdfast.instance"]), problem.headers()
    if _prefers_text(scope):
        # In zsh, nobody may set `status`.
        found["code"], found["state"] = found.pop("status"), problem.kind
        return Response(lines(found), problem.status, {**headers, "content-type": TEXT})
    return Response(json.dumps(found), problem.status, headers)


@lru_cache(maxsize=4096)
def _header_of(fences: tuple[tuple[str, int], ...]) -> str:
    # A client asks again and again for the same lease, whose fences stay the same.
    return header_of(dict(fences))


def _prefers_text(scope: Scope) -> bool:
    return any(name == b"accept" and value.startswith(b"text/plain") for name, value in scope["headers"])


def lines(facts: dict[str, Any]) -> str:
    """Write facts as lines of key=value that a shell can `eval`. Lists and tables are left out."""
    plain = {key: value for key, value in facts.items() if not isinstance(value, list | dict)}
    return "".join(f"{key}={_shell(value)}\n" for key, value in plain.items() if key.isidentifier())


def _shell(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return shlex.quote("" if value is None else str(value))
