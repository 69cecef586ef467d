"""Mutants as patches: another text in a method. One that no longer applies fails.

Knows source text. Must not know what it means.
"""

from __future__ import annotations

import sys
import textwrap
from inspect import getsource
from typing import Any

import pytest


def method(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, text: str, other: str) -> None:
    """Put another text into a method of a class, wherever it inherits it from."""
    owner = next(it for it in kind.__mro__ if name in vars(it))
    before: Any = vars(owner)[name]
    plain: Any = before.fget if isinstance(before, property) else before
    source = textwrap.dedent(getsource(plain))
    assert source.count(text) == 1, f"{kind.__name__}.{name} has changed: so must this mutant"
    made: dict[str, Any] = {}
    exec(source.replace(text, other), dict(vars(sys.modules[owner.__module__])), made)
    monkeypatch.setattr(owner, name, made[name])


def whole(kind: type, text: str, other: str) -> type:
    """A class with another text in it, wherever it stands."""
    source = textwrap.dedent(getsource(kind))
    assert text in source, f"{kind.__name__} has changed: so must this mutant"
    made: dict[str, Any] = {}
    exec(source.replace(text, other), dict(vars(sys.modules[kind.__module__])), made)
    changed: type = made[kind.__name__]
    return changed
