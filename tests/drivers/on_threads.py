"""The bench of the driver for threads: the I/O thread and its callers are greenlets.

Only one of them runs, until it would wait. (greenlet comes with gevent.) Knows what that driver
takes threads, locks and `poll` from. The calls of the C library that the driver prefers to a
socket's methods report trouble here, and then it asks the socket.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any
from unittest import mock

from drivers.bench import TTL, Bench, Call, Lease, Socket, Taken, loaded
from greenlet import getcurrent, greenlet

from holdfast.drivers import unyielding
from holdfast.protocol.timing import Timing


class Gate:
    """A lock of `_thread`, for greenlets."""

    def __init__(self, bench: ThreadsBench) -> None:
        self._bench, self._taken = bench, False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        until = self._bench.time() + (inf if timeout < 0 else timeout)
        while self._taken and blocking and self._bench.time() < until:
            self._bench.rests()
        if self._taken:
            return False
        self._taken = True
        return True

    def release(self) -> None:
        if not self._taken:
            raise RuntimeError("release unlocked lock")
        self._taken = False

    def locked(self) -> bool:
        return self._taken


class Poll:
    """What `select.poll` makes. Of numbers that are no fake socket's (the I/O thread's bell), the kernel is asked."""

    def __init__(self, bench: ThreadsBench) -> None:
        self._bench, self._real = bench, select.poll()
        self._sockets: dict[int, tuple[Socket, int]] = {}
        self._spins = 0

    def register(self, what: Any, events: int) -> None:
        if isinstance(what, Socket):
            self._sockets[what.fileno()] = what, events
        else:
            self._real.register(what, events)

    modify = register

    def unregister(self, what: Any) -> None:
        if what in self._sockets:
            del self._sockets[what]
        else:
            self._real.unregister(what)

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self._spins = 0 if timeout else self._spins + 1
        assert self._spins < 100, "it spins"
        if timeout:
            self._bench.rests()
        ready = self._real.poll(0)
        for number, (sock, events) in self._sockets.items():
            can = events & ((select.POLLIN if sock.unread else 0) | (select.POLLOUT if sock.node >= 0 else 0))
            if can:
                ready.append((number, can))
        if timeout:
            self._bench.looked()
        return ready


class ThreadsBench(Bench):
    """See `bench.py`."""

    def __init__(self) -> None:
        super().__init__()
        modules = loaded("threads")
        self._main = getcurrent()
        self._io_threads: list[greenlet] = []
        self._callers: list[greenlet] = []
        self._calls = [mock.patch.object(unyielding, name, return_value=-1) for name in ("recv", "send", "poll")]
        for it in self._calls:
            it.start()
        world: dict[str, Any] = {
            "select": SimpleNamespace(poll=lambda: Poll(self), POLLIN=select.POLLIN, POLLOUT=select.POLLOUT),
            "allocate_lock": lambda: Gate(self),
            "shut_gate": self._shut_gate,
            "get_ident": lambda: id(getcurrent()),
            "start_new_thread": self._start,
        }
        for module in modules:
            names = vars(module)
            names.update({name: it for name, it in world.items() if name in names})
        self.driver = self.made(modules)

    def _start(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._io_threads.append(greenlet(lambda: function(*arguments)))

    def _shut_gate(self) -> Gate:
        gate = Gate(self)
        gate.acquire()
        return gate

    def given(self) -> dict[str, Any]:
        return {"sources": self.sources}

    def rests(self) -> None:
        """A greenlet would wait: it has nothing to do until the test lets it go on."""
        self._main.switch()

    @property
    def engine(self) -> Any:
        return self.driver.io_thread.engine

    def turn(self) -> None:
        for it in self._io_threads:
            it.switch()
        self._io_threads = [it for it in self._io_threads if not it.dead]

    def callers(self) -> None:
        for it in self._callers:
            it.switch()
        self._callers = [it for it in self._callers if not it.dead]

    def _call(self, call: Call, function: Callable[[], object]) -> Call:
        def run() -> None:
            try:
                function()
            except Exception as error:
                call.error = error
            call.done = True

        self._callers.append(greenlet(run))
        self._callers[-1].switch()
        return call

    def acquire(self, name: str = "a") -> Taken:
        call = Taken(Lease())

        def acquire() -> None:
            self.driver.acquire(call.lease, self.recipes(name), Timing(TTL))
            call.at, call.until = self.time(), call.lease._pending.claim.until

        self._call(call, acquire)
        return call

    def close(self) -> None:
        super().close()
        # A fault may have left them waiting. What is left of them says so, to nobody.
        logging.disable(logging.CRITICAL)
        try:
            for it in [*self._callers, *self._io_threads]:
                it.throw()
        finally:
            logging.disable(logging.NOTSET)
            for patch in self._calls:
                patch.stop()
