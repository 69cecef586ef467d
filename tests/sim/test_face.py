"""The face of simulated worlds is the one that ships: what it adds is listed."""

from __future__ import annotations

import inspect
from types import ModuleType

from sim import face

from holdfast import aio

# What a class of the simulated face has of its own, and why what ships cannot do it.
OWN = {
    "Lease": {
        "_check_owner": "a task of the world has no event loop",
        "_enter": "nobody cancels a task of the world",
        "__del__": "Python runs finalizers when it likes",
    },
    "Lock": {"_kind": "its leases", "_task": "the task that runs is one of the world's"},
    "Semaphore": {},
    "Leadership": {},
    "Election": {"_kind": "its leases"},
    "Holdfast": {
        "__init__": "nodes instead of addresses",
        "_prepare": "drivers of the world instead of an event loop's",
        "_driver": "the same",
        "_lock": "locks of this face",
        "_class": "semaphores and elections of this face",
        "close": "there is no event loop to ask for",
    },
}
PYTHONS = {
    "__module__", "__doc__", "__slots__", "__parameters__", "__orig_bases__", "__abstractmethods__", "_abc_impl", "__annotations__",
    "__dict__", "__weakref__",
}  # fmt: skip


def additions(module: ModuleType) -> dict[str, set[str]]:
    """What each class of the module has of its own."""
    found = {name: it for name, it in vars(module).items() if inspect.isclass(it) and it.__module__ == module.__name__}
    return {name: set(vars(it)) - PYTHONS for name, it in found.items()}


def test_the_simulated_face_adds_what_is_listed_and_no_more() -> None:
    assert additions(face) == {name: set(own) for name, own in OWN.items()}
    for name in OWN:
        assert issubclass(getattr(face, name), getattr(aio, name))
