"""Loads the modules of a package when their names are first used.

So `import holdfast` costs only what a program uses.

Knows modules by their names. Must not know what is in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a package's `__getattr__` and `__dir__` (PEP 562).

    Args:
        package: The name of the package, or of a module.
        modules: The names that each module has, by the module's name relative to the package, or
            to the one that the module is in.

    Returns:
        The two functions.
    """
    where = {name: module for module, names in modules.items() for name in names}
    namespace = vars(sys.modules[package])

    def __getattr__(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(where[name], namespace["__package__"]), name)
        return value

    return __getattr__, lambda: sorted({*namespace, *where})
