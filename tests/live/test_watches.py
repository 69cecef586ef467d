"""Threads that wait for nodes' news: their I/O thread stays for them, and news that come as they turn to wait are not missed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.clock import clock
from holdfast.drivers.threads import io_thread as io_thread_module
from holdfast.embedded import Nodes
from holdfast.engine.plans import Ask, Do, Pause, Plan
from holdfast.wire.resp import pack

LONG = 50.0


def news(watch: Any) -> Plan[None]:
    """All nodes have some for it."""
    inbox = watch.token.split(b":")[1]
    yield Ask(dict.fromkeys(range(5), pack(b"PUBLISH", inbox, b"n %b 0 {x}:y" % watch.token)))


def test_an_io_thread_is_not_idle_while_somebody_waits_for_news(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_thread_module, "IDLE", 0.05)
    told: list[Any] = []

    def waits() -> Plan[None]:
        told.append((yield Do(lambda it: it.listen())))
        yield Pause(LONG, told[0])
        told.append(clock())

    with Holdfast(*nodes.urls) as locks, Holdfast(*nodes.urls) as other:
        locks.ready()
        io_thread = locks._driver.io_thread
        waiting = threading.Thread(target=locks._look, args=(waits(),))
        waiting.start()
        while not told:
            threading.Event().wait(0.01)
        threading.Event().wait(0.5)  # ten times as long as an idle one stays
        assert not io_thread.unused and any(io_thread.sockets.by_node)
        other._look(news(told[0]))
        waiting.join(LONG)
        assert len(told) == 2, "it has heard them"
        told.clear()
        began = clock()
        while not io_thread.unused:  # with nobody who waits it is
            assert clock() < began + LONG
            threading.Event().wait(0.01)


def test_news_that_come_as_somebody_turns_to_wait_are_not_missed(nodes: Nodes) -> None:
    with Holdfast(*nodes.urls) as locks:
        locks.ready()
        driver = locks._driver
        watch = driver.listen()
        watch.news = True  # after the waiter has looked, and before the I/O thread knows that it waits
        began = clock()
        driver._attend(watch, began + LONG, None)
        assert clock() < began + LONG / 2
