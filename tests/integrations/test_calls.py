"""Messages that are not sent twice, without a framework."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from queue import SimpleQueue
from typing import Any, cast

import pytest

from holdfast import Holdfast, NoQuorum, current
from holdfast.embedded import Nodes
from holdfast.integrations.calls import PATIENCE, Delivery, Single, UniqueCalls, abortable


def load(feed: str, fast: bool = False) -> None: ...


def test_of_many_senders_and_workers_one_message_is_under_way(nodes: Nodes) -> None:
    unique, queue, numbers = UniqueCalls(load, "load", {"unique_until": "finished"}), SimpleQueue[Any](), count()
    under_way, most = set[str](), 0

    def publish(name: str) -> tuple[str, str]:
        nonlocal most
        identity = str(next(numbers))
        under_way.add(identity)
        most = max(most, len(under_way))
        queue.put((name, identity))
        # The worker begins before the sender has noted that it has sent the message.
        time.sleep(0.05)
        return identity, identity

    def send(locks: Holdfast) -> None:
        for _ in range(30):
            # An argument that equals its default is the same as none.
            sent = unique.send(locks, ("a",), {"fast": False}, publish, str)
            assert unique.send(locks, ("b",), {}, lambda name: ("", "other"), str) in ("", "other")
            assert sent.isdigit()

    def work(locks: Holdfast) -> None:
        while (found := queue.get()) is not None:
            delivery = Delivery(unique, locks, *found)
            delivery.begin()
            time.sleep(0.02)
            under_way.remove(found[1])
            delivery.end()

    with Holdfast(*nodes.urls, prefix="calls:") as here, Holdfast(*nodes.urls, prefix="calls:") as there, ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, it) for it in (here, there)]
        senders = [pool.submit(send, it) for it in (here, there)]
        for it in senders:
            it.result()
        queue.put(None)
        queue.put(None)
        for it in workers:
            it.result()
    assert most == 1
    assert next(numbers) > 5


def test_without_a_majority_nothing_is_sent_and_what_was_sent_is_done(caplog: pytest.LogCaptureFixture) -> None:
    unique = UniqueCalls(load, "load", {})
    with Holdfast("redis://127.0.0.1:1", node_timeout=0.2) as locks:
        with pytest.raises(NoQuorum):
            unique.send(locks, ("a",), {}, pytest.fail, pytest.fail)
        delivery = Delivery(unique, locks, "a", "1")
        delivery.begin()
        delivery.end()
    assert "a duplicate of 'a' may be sent, or refused" in caplog.text


def test_a_function_may_release_its_lock_before_its_end(nodes: Nodes) -> None:
    def work(error: BaseException | None) -> str:
        current().release()
        if error is not None:
            raise error
        return "done"

    single = Single(work, "early", {}, "later", None)
    with Holdfast(*nodes.urls) as locks:
        assert single.call(locks, (None,), {}, True, None) == "done"
        with pytest.raises(ZeroDivisionError):
            single.call(locks, (ZeroDivisionError(),), {}, True, lambda *it: abortable(*it, print, ZeroDivisionError))


@pytest.mark.parametrize("busy, message, wait", [("later", True, PATIENCE), ("later", False, 0), ("skip", True, 0)])
def test_only_a_message_that_can_come_back_waits(busy: str, message: bool, wait: float) -> None:
    class Locks:
        def locked(self, name: str, **options: Any) -> Any:
            raise LookupError(options)

    single = Single(load, "load", {}, busy, None)
    with pytest.raises(LookupError) as asked:
        single.call(cast(Holdfast, Locks()), ("a",), {}, message, None)
    assert asked.value.args == ({"wait": wait},)
