"""Threads and their locks as they are now: gevent turns them into greenlets, perhaps after this was
imported.

Knows `_thread`, which is looked up at every use. Must not know gevent.
"""

from __future__ import annotations

import _thread
from _thread import LockType
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any


def allocate_lock() -> LockType:
    """Return a lock for threads, or for greenlets."""
    return _thread.allocate_lock()


def shut_gate() -> LockType:
    """Return a lock that is taken. Its next caller waits until another thread releases it."""
    gate = _thread.allocate_lock()
    gate.acquire()
    return gate


def get_ident() -> int:
    """Return the number of this thread or greenlet."""
    return _thread.get_ident()


def start_new_thread(function: Callable[..., object], arguments: tuple[Any, ...]) -> int:
    """Call a function in a new thread or greenlet."""
    return _thread.start_new_thread(function, arguments)


def patched() -> bool:
    """Whether gevent has turned threads into greenlets by now."""
    return not isinstance(_thread.start_new_thread, BuiltinFunctionType)


def carrier() -> int:
    """Return the system's number of this thread, which all greenlets of a hub share."""
    return _thread.get_native_id()


class ThreadIdentity:
    """A thread or a greenlet, while it lives. Its number may be reused after its end."""


_own = _thread._local()


def itself() -> ThreadIdentity:
    """Return the thread or greenlet that runs here."""
    global _own
    # Greenlets have a kind of their own.
    if type(_own) is not _thread._local:
        _own = _thread._local()
    try:
        found: ThreadIdentity = _own.identity
    except AttributeError:
        found = _own.identity = ThreadIdentity()
    return found
