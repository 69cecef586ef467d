"""The frozen interface: every public name and signature, as a text. It is compared with tests/api.txt.

griffe reads the package without importing it, so the modules for frameworks are read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

# Modules whose names are public: a change of one needs a line in the changelog.
MODULES = (
    "holdfast",
    "holdfast.aio",
    "holdfast.compat.pottery",
    "holdfast.compat.redis",
    "holdfast.compat.redis.aio",
    "holdfast.config",
    "holdfast.embedded",
    "holdfast.errors",
    "holdfast.events",
    "holdfast.fencing",
    "holdfast.fencing.http",
    "holdfast.fencing.redis",
    "holdfast.fencing.sqlalchemy",
    "holdfast.integrations.apscheduler",
    "holdfast.integrations.asgi",
    "holdfast.integrations.celery",
    "holdfast.integrations.celery_beat",
    "holdfast.integrations.django",
    "holdfast.integrations.django.testing",
    "holdfast.integrations.dramatiq",
    "holdfast.integrations.fastapi",
    "holdfast.integrations.flask",
    "holdfast.integrations.idempotency",
    "holdfast.integrations.wsgi",
    "holdfast.metrics",
    "holdfast.otel",
    "holdfast.serve",
    "holdfast.testing",
    "holdfast.testing.conformance",
    "holdfast.testing.plugin",
    "holdfast.testing.simulation",
    "holdfast.typing",
)


def described(folder: Path) -> str:
    """Describe the package that lies in a folder, such as an installed one.

    Args:
        folder: The folder that has `holdfast` in it.

    Returns:
        One line for each name. The lines are sorted within a module.
    """
    package = griffe.load("holdfast", search_paths=[folder], try_relative_path=False, allow_inspection=False)
    lines = []
    for name in MODULES:
        module = package[name.removeprefix("holdfast").removeprefix(".")] if name != "holdfast" else package
        exported = [str(it) for it in module.exports or ()]
        lines += [f"# {name}", *sorted(line for it in exported for line in _lines(f"{name}.{it}", module[it])), ""]
    return "\n".join(lines)


def _lines(path: str, it: Any) -> Iterator[str]:
    if it.is_alias:
        it = it.final_target
    if it.is_class:
        bases = ", ".join(str(base) for base in it.bases)
        yield f"class {path}({bases})"
        for name, member in sorted(_members(it).items()):
            # Users make an object only if its class documents the arguments.
            made = name == "__init__" and "Args:" in (it.docstring.value if it.docstring else "")
            if made or not name.startswith("_"):
                yield from _lines(f"{path}.{name}", member)
    elif it.is_function:
        for one in it.overloads or [it]:
            yield f"{'async ' if 'async' in it.labels else ''}{path}{_signature(one)}"
    elif it.is_attribute:
        yield f"{path}: {it.annotation or (it.value if path.rpartition('.')[2].isupper() else '')}".rstrip(": ")
    else:
        yield f"module {path}"


def _class(it: Any, base: Any) -> Any:
    """The class of this package that a base is, by its name or as `Lock[Lease]`. None: it is another package's."""
    expression = base.left if isinstance(base, griffe.ExprSubscript) else base
    path = getattr(expression, "canonical_path", "")
    if not path.startswith("holdfast."):
        return None
    found = it.package[path.removeprefix("holdfast.")]
    found = found.final_target if found.is_alias else found
    return _class(it, found.value) if found.is_attribute else found


def _members(it: Any) -> dict[str, Any]:
    """The members of a class and of its bases in this package. (griffe passes over a base such as `Lock[Lease]`.)"""
    found: dict[str, Any] = {}
    for base in reversed(it.bases):
        if (other := _class(it, base)) is not None:
            found |= _members(other)
    own: dict[str, Any] = it.members
    return found | own


def _signature(it: Any) -> str:
    words, before = [], None
    for one in it.parameters:
        kind = one.kind
        if kind is griffe.ParameterKind.keyword_only and before not in (kind, griffe.ParameterKind.var_positional):
            words.append("*")
        if before is griffe.ParameterKind.positional_only and kind is not before:
            words.append("/")
        stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(kind, "")
        text = f"{stars}{one.name}" + (f": {one.annotation}" if one.annotation else "")
        words.append(text + (f" = {one.default}" if one.default is not None and not stars else ""))
        before = kind
    return f"({', '.join(words)})" + (f" -> {it.returns}" if it.returns else "")
