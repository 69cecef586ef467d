"""What a reader sees, whatever the names, the rights, the width and the theme are. And that the tests see what is wrong."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from browser import AUDIT, axe  # docs/site
from nemesis.harm import frozen
from playwright.sync_api import expect
from serve.page.kit import PATIENCE, Gateway, client, gateway, line, opened
from serve.serving import write_tokens

from holdfast import Holdfast, HoldfastError, LockLost
from holdfast.embedded import Nodes

expect.set_options(timeout=PATIENCE * 1000)

HOSTILE = {
    "<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
    "right\u202eleft": "right\\u202eleft",
    "two\nlines": "two\\nlines",
    "x" * 512: "x" * 512,
    "lock 🔒": "lock 🔒",
    "'\"&amp;": "'\"&amp;",
    "end ": "end\\x20",
    "..": "..",
    "a/b?c#d%2F": "a/b?c#d%2F",
}


@pytest.fixture(scope="module")
def scene(nodes: Nodes) -> Iterator[Holdfast]:
    """Locks of each kind, one of them with a queue."""
    with client(nodes, "ci@build-7:4121") as locks, client(nodes, "api-3:118") as other:
        leases = [locks.lock(f"invoice:{it}").acquire() for it in range(40)]
        leases += [locks.semaphore("gpu", 4, note=f"train-{it}").acquire() for it in range(3)]
        leases += [locks.lock("deploy", note="build 7 · ansible-playbook site.yml").acquire(), locks.rwlock("catalog").read().acquire()]
        waits = other.lock("deploy")

        def wait() -> None:
            # (The client ends before it has the lock, if a test fails.)
            with suppress(HoldfastError):
                waits.acquire().release()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        with locks.election("poller", "http://10.0.0.7:8000"):
            yield locks
        for lease in leases:
            lease.release()
        thread.join(PATIENCE)


@pytest.fixture(scope="module")
def serving(nodes: Nodes) -> Iterator[Gateway]:
    with gateway(nodes, allow_force=True) as found:
        yield found


def test_hostile_names_are_shown_and_inert(browser: Any, nodes: Nodes, serving: Gateway) -> None:
    with client(nodes, "<b>bold</b>") as locks:
        leases = [locks.lock(it, note="</script><script>alert(2)</script>").acquire() for it in HOSTILE]
        page = opened(browser, serving.url)
        for shown in HOSTILE.values():
            expect(line(page, shown)).to_have_count(1)
            line(page, shown).click()
            expect(page.locator("#detail h2")).to_have_text(shown, use_inner_text=False)
            expect(page.locator("#detail dd").first).to_have_text("<b>bold</b>")
            expect(page.locator("#detail")).to_contain_text("</script>")
        assert harmed(page) == []
        # Such a name can be typed as it is shown, and taken away.
        line(page, "right\\u202eleft").click()
        expect(page.locator("#detail h2")).to_have_text("right\\u202eleft")
        page.click("#take")
        page.fill("#reason", "hostile")
        page.fill("#typed", "right\\u202eleft")
        page.locator("dialog").get_by_role("button", name="Take it away").click()
        expect(page.locator("dialog")).to_have_count(0)
        expect(line(page, "right\\u202eleft")).to_have_count(0)
        page.context.close()
        for lease in leases:
            with suppress(LockLost):
                lease.release()


def harmed(page: Any) -> list[str]:
    """What a name has brought about that is more than text."""
    found: list[str] = page.wrong + page.evaluate("violations")
    return found + ["a name is an element"] * page.evaluate("document.querySelectorAll('#page img, #page script').length")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, scene: Holdfast, serving: Gateway, theme: str) -> None:
    page = opened(browser, serving.url, theme=theme, bypass_csp=True)
    page.evaluate(axe())
    line(page, "deploy").click()
    expect(page.locator("#take")).to_be_visible()
    # (Axe is asked in the page's own world, and the policy is off for it alone.)
    assert page.evaluate(ALL) == []
    page.click("#take")
    assert page.evaluate(ALL) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("dialog .keys")).to_be_visible()
    assert page.evaluate(ALL) == []
    page.context.close()


# All findings, of whatever impact.
ALL = AUDIT % ("", ["minor", "moderate", "serious", "critical"])


def test_the_keyboard_alone_is_enough(browser: Any, nodes: Nodes, scene: Holdfast, serving: Gateway) -> None:
    """From opening the page to taking a lock away, without the mouse."""
    with client(nodes, "one") as locks:
        lease = locks.lock("keys:1").acquire()
        page = opened(browser, serving.url)
        press = page.keyboard.press
        press("/")
        page.keyboard.type("keys")
        expect(page.locator(".line")).to_have_count(1)
        press("Enter")
        assert page.evaluate("document.activeElement.id") == "grid"
        press("j")
        press("k")
        press("Enter")
        expect(page.locator("#detail h2")).to_have_text("keys:1")
        expect(page.locator("#detail")).to_be_focused()
        expect(page.locator("#take")).to_be_visible()
        for _ in range(6):
            press("Tab")
            if page.evaluate("document.activeElement.id") == "take":
                break
        press("Enter")
        expect(page.locator("#reason")).to_be_focused()
        page.keyboard.type("by hand")
        press("Tab")
        page.keyboard.type("keys:1")
        press("Enter")
        expect(page.locator("dialog")).to_have_count(0)
        # Its line is gone, and the focus is not lost.
        expect(page.locator(".line")).to_have_count(0)
        # (As soon as the page is drawn again.)
        expect(page.locator("body :focus")).to_have_count(1)
        press("Escape")
        expect(page.locator("#grid")).to_be_focused()
        expect(page.locator(".audit")).to_contain_text("by hand")
        press("g")
        press("n")
        expect(page.locator("#nodes")).to_be_focused()
        press("?")
        expect(page.locator("dialog .keys")).to_be_visible()
        press("Escape")
        expect(page.locator("#nodes")).to_be_focused()
        page.context.close()
        with pytest.raises(LockLost):
            lease.check()


def test_the_address_is_a_link_to_what_somebody_looks_at(browser: Any, nodes: Nodes, scene: Holdfast, serving: Gateway) -> None:
    page = opened(browser, serving.url)
    page.fill("#filter", "invoice:1*")
    expect(page.locator(".line")).to_have_count(11)
    line(page, "invoice:17").click()
    expect(page.locator("#detail h2")).to_have_text("invoice:17")
    link = page.url
    assert link == f"{serving.url}#lock=invoice%3A17&filter=invoice%3A1*"
    page.go_back()
    expect(page.locator("#detail h2")).to_have_text("Taken away")
    expect(page.locator("#filter")).to_have_value("invoice:1*")
    page.context.close()
    page = opened(browser, serving.url, place=link.removeprefix(serving.url), width=390, height=844)
    expect(page.locator("#detail h2")).to_have_text("invoice:17")
    # On a phone, the lock fills the screen, and the list has each holder.
    assert page.locator("#detail").bounding_box() == {"x": 0, "y": 0, "width": 390, "height": 844}
    page.get_by_role("button", name="Close").click()
    expect(line(page, "invoice:17").locator(".holder")).to_be_visible()
    page.context.close()


def test_what_is_old_is_grey_and_says_its_age(browser: Any) -> None:
    """Two of three nodes are frozen: the nodes are still true, and the locks are those of a moment that is named."""
    with Nodes(3) as own, gateway(own) as serving, client(own, "one") as locks, locks.lock("old:1"):
        page = opened(browser, serving.url)
        expect(line(page, "old:1")).to_have_count(1)
        expect(page.locator("[class*=stale]")).to_have_count(0)
        with frozen(own, 0, 1):
            expect(page.locator(".link-lost")).to_have_text(re.compile(r"locks as of \d\d:\d\d:\d\d, \d.*ago"))
            expect(page.locator(".page.stale-locks")).to_have_count(1)
            expect(page.locator(".safe.outage")).to_be_visible()
        expect(page.locator(".link-live")).to_be_visible()
        page.context.close()


def test_a_page_that_nobody_sees_asks_for_nothing(browser: Any, nodes: Nodes, serving: Gateway) -> None:
    page = opened(browser, serving.url)
    expect(page.locator(".foot")).to_contain_text("complete")
    asked: list[str] = []
    page.on("request", lambda it: asked.append(it.url))
    hide = """Object.defineProperty(document, "hidden", {value: %s, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"))"""
    page.evaluate(hide % "true")
    page.wait_for_timeout(1500)
    asked.clear()
    page.wait_for_timeout(2500)
    assert asked == []
    page.evaluate(hide % "false")
    page.wait_for_timeout(3500)
    # At most one a second, and a 304 if nothing has changed.
    assert 2 <= len(asked) <= 4
    page.context.close()


def test_tokens(browser: Any, nodes: Nodes, tmp_path: Path) -> None:
    """A wrong token, one that may look, and one that may force some locks."""
    file = tmp_path / "tokens.toml"
    write_tokens(file, looks='"look:*"', forces='"look:*", "force:page:*"', blind='"lock:*"')
    with gateway(nodes, allow_force=True, tokens=str(file)) as serving, client(nodes, "one") as locks:
        with locks.lock("page:mine"), locks.lock("other:mine"):
            page = opened(browser, serving.url)
            for token, told in (("nonsense", "does not know the token"), ("blind", "lacks a scope"), ("looks", "")):
                page.fill("#token", token)
                page.get_by_role("button", name="Look").click()
                if told:
                    expect(page.locator("dialog")).to_contain_text(told)
            page.fill("#filter", ":mine")
            line(page, "page:mine").click()
            expect(page.locator("#detail")).to_contain_text("votes")
            expect(page.locator("#take")).to_have_count(0)
            page.evaluate("sessionStorage.setItem('holdfast.token', 'forces')")
            page.reload()
            expect(page.locator(".link-live")).to_be_visible()
            page.fill("#filter", ":mine")
            line(page, "page:mine").click()
            expect(page.locator("#take")).to_be_visible()
            line(page, "other:mine").click()
            expect(page.locator("#detail h2")).to_have_text("other:mine")
            expect(page.locator("#detail")).to_contain_text("votes")
            expect(page.locator("#take")).to_have_count(0)
            assert page.context.cookies() == []
            page.context.close()


def test_a_gateway_that_ends_and_comes_back(browser: Any, nodes: Nodes) -> None:
    with client(nodes, "one") as locks, gateway(nodes) as serving:
        page = opened(browser, serving.url)
        page.fill("#filter", "page:")
        with locks.lock("page:before"):
            expect(line(page, "page:before")).to_have_count(1)
            expect(page.locator(".link-live")).to_be_visible()
            serving.stop()
            expect(page.locator(".link-lost")).to_have_text(re.compile(r"no answer since \d\d:\d\d:\d\d, [3-9]\.\d.s ago"))
            # What was known stays in view, in grey.
            expect(line(page, "page:before")).to_have_count(1)
            assert page.evaluate("getComputedStyle(document.querySelector('.line b')).color") == page.evaluate(
                "getComputedStyle(document.querySelector('.foot')).color"
            )
        with locks.lock("page:after"):
            serving.start()
            expect(page.locator(".link-live")).to_be_visible()
            expect(line(page, "page:after")).to_have_count(1)
            expect(line(page, "page:before")).to_have_count(0)
        page.context.close()
