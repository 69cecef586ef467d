"""Measure the live page in Chromium: `./task bench page`.

Servers, the crowd, the gateway and the browser share this machine. `--held`, `--changes`, `--viewers` and `--minutes` choose the load.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from browser import chromium  # docs/site
from nemesis.processes import until
from playwright.sync_api import sync_playwright
from serve.page.kit import commands

from holdfast.embedded import Nodes

ROOT = Path(__file__).parents[3]
PORT = 7422
URL = f"http://127.0.0.1:{PORT}/"
# From the start of the navigation on: when the first lock is in view, and when all are.
FIRST = """() => new Promise(done => {
    const look = () => document.querySelector(".line") ? done(performance.now()) : requestAnimationFrame(look);
    look();
})"""
ALL = """count => new Promise(done => {
    const held = () => Number(document.querySelector(".totals b").textContent.replaceAll(",", ""));
    const look = () => held() >= count ? done(performance.now()) : setTimeout(look, 20);
    look();
})"""
# Scroll through all lines, and note each task that took longer than 50 ms.
SCROLL = """() => new Promise(done => {
    const long = [];
    const observer = new PerformanceObserver(list => long.push(...list.getEntries().map(it => Math.round(it.duration))));
    observer.observe({entryTypes: ["longtask"]});
    const grid = document.getElementById("grid");
    let frames = 0;
    const step = () => {
        grid.scrollTop += 700;
        frames += 1;
        if (grid.scrollTop + grid.clientHeight < grid.scrollHeight - 1) requestAnimationFrame(step);
        else setTimeout(() => { observer.disconnect(); done({frames, long}); }, 200);
    };
    requestAnimationFrame(step);
})"""


@contextmanager
def running(nodes: Nodes, *words: str) -> Iterator[psutil.Process]:
    """A program on these nodes."""
    process = subprocess.Popen([sys.executable, *words], env={**os.environ, **nodes.environment}, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def listening() -> bool:
    """Whether the gateway is there."""
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", PORT)) == 0


async def looks(stop: threading.Event) -> None:
    """One more viewer, which reads everything and shows nothing."""
    digest = ""
    async with httpx.AsyncClient(timeout=30) as client:
        while not stop.is_set():
            answer = await client.get(f"{URL}ui/snapshot", headers={"if-none-match": digest})
            digest = answer.headers["etag"]
            await asyncio.sleep(1)


def viewers(count: int, stop: threading.Event) -> threading.Thread:
    async def all_of() -> None:
        await asyncio.gather(*[looks(stop) for _ in range(count)])

    thread = threading.Thread(target=lambda: asyncio.run(all_of()), daemon=True)
    thread.start()
    return thread


def say(what: str, value: str) -> None:
    print(f"| {what} | {value} |", flush=True)


def used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measured(options: argparse.Namespace, nodes: Nodes, stack: ExitStack) -> None:
    gateway = stack.enter_context(running(nodes, "-m", "holdfast", "serve", "--bind", f"127.0.0.1:{PORT}"))
    stack.enter_context(running(nodes, str(ROOT / "examples/crowd.py"), "--held", str(options.held), "--changes", str(options.changes)))
    until(listening)
    time.sleep(3 + options.held / 500)
    tool = stack.enter_context(sync_playwright())
    flags = ["--no-sandbox", "--enable-precise-memory-info", "--js-flags=--expose-gc"]
    browser = tool.chromium.launch(executable_path=chromium(), args=flags)
    stack.callback(browser.close)
    requests: list[Any] = []
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.on("requestfinished", lambda it: requests.append(it) if "/ui/" not in it.url or it.url.endswith((".js", ".css")) else None)
    page.goto(URL)
    # The watcher has to find them once. What is measured is a page that opens while it works.
    page.evaluate(ALL, options.held)
    weight = sum(it.sizes()["responseBodySize"] for it in requests)
    say("Page without data", f"{weight / 1024:.0f} KB in {len(requests)} requests")
    again = browser.new_page(viewport={"width": 1440, "height": 900})
    again.goto(URL)
    say("First locks in view", f"{again.evaluate(FIRST) / 1000:.2f} s")
    say("All locks there", f"{again.evaluate(ALL, options.held) / 1000:.2f} s")
    time.sleep(3)
    scrolled = again.evaluate(SCROLL)
    say("Tasks over 50 ms while scrolling", f"{len(scrolled['long'])} in {scrolled['frames']} frames {scrolled['long'] or ''}")
    stop = threading.Event()
    thread = viewers(options.viewers - 2, stop)
    time.sleep(10)
    heap = "() => { gc(); return performance.memory.usedJSHeapSize; }"
    pids = [psutil.Process(nodes.pid(at)) for at in range(len(nodes))]
    began, cpu, memory = time.monotonic(), used(gateway), gateway.memory_info().rss
    node_cpu = sum(map(used, pids))
    heaps = []
    for _ in range(max(1, round(options.minutes * 6))):
        time.sleep(10)
        heaps.append(page.evaluate(heap) / 1e6)
    passed = time.monotonic() - began
    say("Interval of surveys", page.locator(".foot").inner_text().rpartition("every ")[2])
    say(f"Gateway, {options.viewers} viewers", f"{100 * (used(gateway) - cpu) / passed:.0f} % of a core")
    say("Memory of the gateway", f"{memory / 1e6:.0f} MB, then {gateway.memory_info().rss / 1e6:.0f} MB")
    say("Heap of the page", f"{heaps[0]:.0f} MB, then {heaps[-1]:.0f} MB after {passed / 60:.0f} min")
    watched = (sum(map(used, pids)) - node_cpu) / passed / len(pids)
    stop.set()
    thread.join(30)
    page.close()
    again.close()
    time.sleep(15)
    began, node_cpu = time.monotonic(), sum(map(used, pids))
    time.sleep(20)
    alone = (sum(map(used, pids)) - node_cpu) / (time.monotonic() - began) / len(pids)
    say("Each node, watched and not", f"{100 * watched:.1f} % and {100 * alone:.1f} % of a core")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./task bench page", description=__doc__)
    parser.add_argument("--held", type=int, default=10_000, help="locks that are held (default: %(default)s)")
    parser.add_argument("--changes", type=float, default=100, help="locks that change each second (default: %(default)s)")
    parser.add_argument("--viewers", type=int, default=20, help="of which two are browsers (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=2, help="for heap, memory and CPU (default: %(default)s)")
    options = parser.parse_args()
    with Nodes(5) as nodes, ExitStack() as stack:
        measured(options, nodes, stack)
    with Nodes(3) as nodes, running(nodes, "-m", "holdfast", "serve", "--bind", f"127.0.0.1:{PORT}"):
        until(listening)
        asyncio.run(glance())
        time.sleep(15)
        before = commands(nodes)
        time.sleep(10)
        say("Commands from 15 s after the last viewer on, in 10 s", str(commands(nodes) - before))


async def glance() -> None:
    """Look for three seconds."""
    try:
        async with asyncio.timeout(3):
            await looks(threading.Event())
    except TimeoutError:
        pass


if __name__ == "__main__":
    main()
