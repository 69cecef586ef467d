"""What the page says while clients work, nodes are killed, and locks are taken away."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from nemesis.processes import until
from playwright.sync_api import expect
from serve.page.kit import PATIENCE, QUICK, Gateway, client, gateway, line, opened

from holdfast import LockLost
from holdfast.embedded import Nodes

expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="module")
def own() -> Iterator[Nodes]:
    """Nodes that tests may kill."""
    with Nodes(5) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def forcing(own: Nodes) -> Iterator[Gateway]:
    with gateway(own, QUICK, allow_force=True) as found:
        yield found


def holds(page: Any, name: str, who: str) -> None:
    expect(line(page, name).locator(".holder")).to_contain_text(who)


@pytest.mark.timeout(120)
def test_the_story(browser: Any, own: Nodes, forcing: Gateway) -> None:
    """Three workers and a queue; a node dies and comes back; a leader resigns; a lock is taken away."""
    with client(own, "one", QUICK) as one, client(own, "two", QUICK) as two, client(own, "three", QUICK) as three:
        page = opened(browser, forcing.url)
        first = one.lock("deploy", note="build 7").acquire()
        waiters = [it.lock("deploy") for it in (two, three)]
        leadership = three.election("poller", "http://three").campaign()
        # Those who wait do it in threads of their own.
        second: list[Any] = []
        threading.Thread(target=lambda: second.append(waiters[0].acquire()), daemon=True).start()
        holds(page, "deploy", "one · build 7")
        expect(line(page, "deploy").locator(".queue")).to_have_text("1")
        holds(page, "poller[election]", "three")
        expect(page.locator(".safe")).to_have_text("✓ Safe to lose 2 of 5 nodes")

        own.kill(4)
        expect(page.locator(".node.down")).to_contain_text("down")
        expect(page.locator(".safe")).to_have_text("✓ Safe to lose 1 of 5 nodes")
        expect(page.locator("[aria-live=polite]")).to_have_text("node node-4 went down")
        own.restart(4)
        expect(page.locator(".node.guarded")).to_contain_text(re.compile(r"guarded.*[1-6] s left", re.DOTALL))
        expect(page.locator(".guard rect")).to_have_count(10)
        expect(page.locator(".node.up")).to_have_count(5)

        leadership.resign()
        expect(line(page, "poller[election]")).to_have_count(0)

        line(page, "deploy").click()
        detail = page.locator("#detail")
        expect(detail).to_contain_text("build 7")
        expect(detail.locator(".people")).to_contain_text("two")
        expect(detail).to_contain_text(str(first.fence))
        page.click("#take")
        dialog = page.locator("dialog")
        expect(dialog).to_contain_text("one")
        expect(dialog).to_contain_text("two")
        confirm = dialog.get_by_role("button", name="Take it away")
        expect(confirm).to_be_disabled()
        page.fill("#reason", "it hangs")
        page.fill("#typed", "deplo")
        expect(confirm).to_be_disabled()
        page.fill("#typed", "deploy")
        confirm.click()
        expect(dialog).to_have_count(0)
        until(lambda: first.lost.is_set())
        with pytest.raises(LockLost) as lost:
            first.check()
        assert lost.value.reason == "forced"
        until(lambda: second)
        holds(page, "deploy", "two")
        expect(detail.locator(".strip rect")).to_have_count(2)
        page.keyboard.press("Escape")
        expect(page.locator(".audit")).to_contain_text("it hangs")
        expect(page.locator(".totals")).to_contain_text("1 taken away today")
        second[0].release()
        expect(line(page, "deploy")).to_have_count(0)
        assert page.wrong == [] and page.evaluate("violations") == []
        page.context.close()


@pytest.mark.timeout(120)
def test_without_a_majority_the_page_says_what_cannot_be_done(browser: Any, own: Nodes, forcing: Gateway) -> None:
    page = opened(browser, forcing.url)
    expect(page.locator(".node.up")).to_have_count(5)
    for at in range(2):
        own.kill(at)
    expect(page.locator(".safe.bare")).to_have_text("▲ No spare node")
    expect(page.locator(".alarm.bare")).to_contain_text("3 of the 5 nodes are up and 3 are needed. If one more fails, no lock")
    own.kill(2)
    expect(page.locator(".safe.outage")).to_have_text("✕ Outage: no quorum")
    expect(page.locator(".alarm.outage")).to_contain_text("2 of the 5 nodes are up and 3 are needed")
    expect(page.locator(".foot")).to_contain_text("not complete")
    for at in range(3):
        own.restart(at)
    expect(page.locator(".alarm")).to_contain_text("3 are guarded")
    expect(page.locator(".node.up")).to_have_count(5)
    expect(page.locator(".alarm")).to_have_count(0)
    page.context.close()


def test_a_lock_that_changed_hands_is_not_taken(browser: Any, nodes: Nodes) -> None:
    """Between the dialog and its confirmation, another client gets the lock."""
    with gateway(nodes, allow_force=True) as serving, client(nodes, "one") as one, client(nodes, "two") as two:
        lease = one.lock("page:hands").acquire()
        page = opened(browser, serving.url)
        page.fill("#filter", "page:")
        line(page, "page:hands").click()
        page.click("#take")
        page.fill("#reason", "it hangs")
        page.fill("#typed", "page:hands")
        lease.release()
        with two.lock("page:hands") as other:
            page.locator("dialog").get_by_role("button", name="Take it away").click()
            expect(page.locator("dialog [role=alert]")).to_contain_text("two holds it now. Nothing was taken away")
            other.check()
            page.keyboard.press("Escape")
            expect(page.locator("dialog")).to_have_count(0)
        page.context.close()
