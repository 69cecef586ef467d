"""The OpenAPI document, from the table of routes.

Knows OpenAPI 3.1, and the JSON schemas of pydantic's models. Must not know what a route does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import getdoc
from typing import Any

from pydantic import TypeAdapter

from ..version import VERSION
from . import models
from .problems import MEDIA
from .routing import Entry

# What the parts of paths may be.
_PARTS: dict[str, Any] = {"lease_id": models.LeaseId, "name": models.Name, "key": models.Name}


def document(routes: Sequence[Entry]) -> dict[str, Any]:
    """Describe routes."""
    used: set[Any] = {models.ProblemDocument, *[it.asked for it in routes if it.asked]}
    used |= {it for entry in routes for it in entry.answers.values() if not isinstance(it, str)}
    found, definitions = TypeAdapter.json_schemas(
        [(it, "validation", TypeAdapter(it)) for it in used], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[Any, Any] = {model: schema for (model, _), schema in found.items()}
    for it in definitions["$defs"].values():
        for field in it.get("properties", {}).values():
            # What has no default may be left out. Generators would ask for it.
            if field.get("default", ...) is None:
                del field["default"]
    paths: dict[str, Any] = {}
    for entry in routes:
        path = entry.path.replace(":path}", "}")
        paths.setdefault(path, {})[entry.method.lower()] = _operation(entry, path, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "holdfast", "summary": "Distributed locks over HTTP.", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # A gateway for one machine asks nobody who they are.
        "security": [{"token": []}, {}],
    }


def _operation(entry: Entry, path: str, schemas: dict[Any, Any]) -> dict[str, Any]:
    text = getdoc(entry.endpoint) or ""
    parameters = [
        {"in": "path", "name": it, "required": True, "schema": TypeAdapter(_PARTS[it]).json_schema()}
        for it in re.findall(r"{(\w+)}", path)
    ]
    parameters += [
        {"in": "header", "name": name, "required": True, "description": about, "schema": {"type": "string"}}
        for name, about in entry.headers.items()
    ]
    problem = {"content": {MEDIA: {"schema": schemas[models.ProblemDocument]}}, "description": "What went wrong"}
    found: dict[str, Any] = {
        "operationId": entry.endpoint.__name__,
        "summary": text.partition("\n")[0].partition(". ")[0].removesuffix("."),
        "description": text,
        "parameters": parameters,
        "responses": {
            **{str(status): _answer(kind, schemas) for status, kind in entry.answers.items()},
            "4XX": problem,
            "5XX": problem,
        },
    }
    if entry.public:
        found["security"] = []
    if entry.asked is not None and issubclass(entry.asked, models.Parameters):
        properties = entry.asked.model_json_schema()["properties"]
        parameters += [{"in": "query", "name": name, "schema": about} for name, about in properties.items()]
    elif entry.asked is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[entry.asked]}}}
    return found


def _answer(kind: Any, schemas: dict[Any, Any]) -> dict[str, Any]:
    media, schema = (kind, {"type": "string"}) if isinstance(kind, str) else ("application/json", schemas[kind])
    return {"description": "", "content": {media: {"schema": schema}}}
