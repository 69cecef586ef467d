"""Loops, threads and processes: whose a client and a lease are, and how they end (B-34, S-23)."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

import pytest
from contract.cluster import ask
from contract.programs import program, run
from live.test_aio_kit import SOON, STRICT, Complaints, calm, client, connected, driver_of, ended, gone, left, ran, some, true, turns
from nemesis.processes import until
from proof.misuse import misuse

from holdfast.aio import Lease
from holdfast.embedded import Nodes

# ------------------------------------------------ loops


def test_a_client_outlives_its_loops(nodes: Nodes) -> None:
    """At module level, used by one `asyncio.run` after another: each has connections of its own, and leaves nothing."""
    locks, name, fences = client(nodes), some("runs"), []

    async def main() -> None:
        async with locks.lock(name, wait=0) as lease:
            fences.append(lease.fence)

    for _ in range(5):
        ended(main)
        assert left(nodes, name) == []
    assert fences == sorted(fences)
    assert len(locks._loops[0]) == 1  # loops that were closed are forgotten


def test_the_end_of_a_run_gives_back_what_is_held(nodes: Nodes) -> None:
    """From `acquire`, from tasks that the end cancels, and what waits does not get it afterwards."""
    locks, names = client(nodes), [some("end") for _ in range(4)]
    held: list[Lease] = []

    async def works() -> None:
        async with locks.lock(names[1]):
            await asyncio.sleep(SOON)

    async def waits() -> None:
        await locks.lock(names[0]).acquire()

    async def streams() -> Any:
        async with locks.lock(names[2]) as lease:
            yield lease

    async def main() -> None:
        held.append(await locks.lock(names[0]).acquire())
        held.append(await locks.lock(names[3], ttl=20).acquire())
        stream = streams()
        held.append(await anext(stream))
        kept.append((stream, asyncio.create_task(works()), asyncio.create_task(waits())))
        await true(lambda: len(left(nodes, *names)) == 4 * 5 + 2 * 5)

    kept: list[Any] = []
    with Complaints() as complaints:
        asyncio.run(main())
    assert complaints.heard == []
    assert left(nodes, *names) == []  # at once: the end has waited for the nodes' answers
    kept.clear()
    held.clear()
    gc.collect()
    assert complaints.heard == []


def test_a_program_that_leaves_its_loop_as_it_is_releases_at_its_exit(nodes: Nodes) -> None:
    """As Daphne does when it is told to end. Nothing runs in the loop any more."""
    source = """
import asyncio
from holdfast.aio import Holdfast

async def works(locks):
    async with locks.lock("exit:2", ttl=20):
        await asyncio.sleep(60)

async def main():
    global lease, task
    locks = Holdfast()
    task = asyncio.create_task(works(locks))
    lease = await locks.lock("exit:1", ttl=20).acquire()
    while len(locks.leases()) < 2:
        await asyncio.sleep(0)

asyncio.new_event_loop().run_until_complete(main())
"""
    assert run(source, nodes, patience=30)[0] == 0
    asyncio.run(gone(nodes, "exit:1", "exit:2"))


@pytest.mark.parametrize("takes", [0.0, 0.05, 60.0])
def test_on_lost_at_the_end_of_a_run(nodes: Nodes, takes: float) -> None:
    """What a lease's end sets off is not torn off silently: it ends by itself, or is cancelled."""
    locks, steps = client(nodes, node_timeout=0.3), []

    async def on_lost(lease: Lease) -> None:
        steps.append("begun")
        try:
            await asyncio.sleep(takes)
            steps.append("done")
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    async def main() -> None:
        held.append(await locks.lock(some("end"), on_lost=on_lost).acquire())

    held: list[Lease] = []
    ended(main)
    assert steps == ["begun", "cancelled" if takes == 60.0 else "done"]
    assert "closed" in repr(held[0]._lost)


def test_several_loops_in_several_threads_at_once(nodes: Nodes) -> None:
    """On one client, and on one description: loops come and go beside each other."""
    locks, inside, name = client(nodes), [0], some("threads")
    lock, own = locks.lock(name), [some("own") for _ in range(4)]
    failures: list[BaseException] = []
    began = threading.Barrier(4)

    async def main(mine: str) -> None:
        for _ in range(4):
            async with lock:
                inside[0] += 1
                assert inside[0] == 1
                await asyncio.sleep(0)
                inside[0] -= 1
            async with locks.lock(mine) as lease:
                assert lease.held

    def run(mine: str) -> None:
        try:
            began.wait(SOON)
            for _ in range(4):
                asyncio.run(main(mine))
        except BaseException as error:
            failures.append(error)

    with Complaints() as complaints:
        threads = [threading.Thread(target=run, args=(mine,)) for mine in own]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []
    assert complaints.heard == []
    assert left(nodes, name, *own) == []


def test_a_lease_is_its_loops(nodes: Nodes) -> None:
    locks, name = client(nodes), some("loop")
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    lease: Lease = first.run_until_complete(locks.lock(name).acquire())
    leader = first.run_until_complete(locks.election(name).campaign())

    async def elsewhere() -> None:
        for what in (lambda: lease.held, lambda: lease.state, lambda: lease.remaining, lease.check):
            with misuse("wrong_loop", match="another event loop"):
                what()
        for coroutine in (lease.extend(), lease.release(), lease.release(confirm=True)):
            with misuse("wrong_loop"):
                await coroutine
        assert lease.fence > 0 and lease.name == name and lease.token  # facts are anybody's
        for it, kind in ((lease, "Lease"), (leader, "Leadership")):
            assert repr(it) == f"<{kind} {name!r} fence={it.fence} of another process or event loop>"

    second.run_until_complete(elsewhere())
    with misuse("wrong_loop"):  # in no loop at all
        lease.check()
    for it in (lease, leader):
        first.run_until_complete(it.release(confirm=True))
    assert left(nodes, name) == []
    for loop in (first, second):
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@calm
async def test_b34_nothing_remains_after_closing(nodes: Nodes) -> None:
    """No task, no timer, no socket, and the driver itself goes without the collector's help in the end."""
    sockets = _sockets()
    loop: Any = asyncio.get_running_loop()
    for _ in range(3):
        async with await connected(nodes) as locks:
            async with locks.lock(some("remains")):
                pass
            assert _sockets() in (0, sockets + 5)
            driver = driver_of(locks)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await turns(2)
        assert _sockets() == sockets
        assert not [it for it in loop._scheduled if not it.cancelled() and getattr(it._callback, "__self__", None) is driver]
        del driver, locks
        gc.collect()
        for _ in range(3):
            await turns(1)
            assert asyncio.all_tasks() == {asyncio.current_task()}


def _sockets() -> int:
    """How many sockets this process has. (Elsewhere than on Linux: none, ever, and less is tested.)"""
    count = 0
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except FileNotFoundError:  # (the list's own)
            continue
    return count


# ------------------------------------------------ processes


@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.PyDLL(None).fork()"], ids=["told", "Python is not told"])
def test_s23_a_fork_leaves_the_parent_its_locks(nodes: Nodes, fork: str) -> None:
    """The child may not use the lease, takes its own locks, and ends as processes end; the parent notices nothing."""
    said = ran(
        nodes,
        """
        import asyncio, ctypes, os, sys, time, warnings
        from holdfast.aio import Holdfast
        from holdfast.errors import Misuse, is_closed

        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads
        down = []
        # With a prefix of its own: other tests use some of these nodes only, and clients warn of that.
        locks = Holdfast(prefix="s23:", observer=lambda event: getattr(event, "state", "") == "down" and down.append(event))

        async def child():
            async with locks.lock("fork:child", wait=5) as mine:
                mine.check()
                assert await locks.lock("fork:a").try_acquire() is None

        async def block():
            async with locks.lock("fork:block"):
                await asyncio.sleep(60)

        async def main():
            await locks.ready()
            lease = await locks.lock("fork:a").acquire()
            waiting = asyncio.create_task(locks.lock("fork:a").acquire())
            inside = asyncio.create_task(block())
            await asyncio.sleep(0.05)
            pid = FORK
            if not pid:
                sys.unraisablehook = lambda what: None  # (the copies of the parent's loop and tasks)
                for misuse in (lambda: lease.held, lease.check, lambda: lease.release().send(None), lambda: lease.extend().send(None)):
                    try:
                        misuse()
                    except Misuse:
                        continue
                    os._exit(2)
                asyncio._set_running_loop(None)
                asyncio.run(child())
                del lease, waiting, inside
                raise SystemExit(0)  # tears everything down: nothing of that may be said on the parent's connections
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                await asyncio.sleep(0.01)
            lease.check()
            assert not waiting.done()
            assert await lease.extend() > 5
            async with asyncio.timeout(10):
                while lease.votes < 5:  # extending waits for a majority only
                    await asyncio.sleep(0.01)
            await lease.release()
            await (await waiting).release()
            assert not inside.done()
            inside.cancel()
            print(len(down))

        if __name__ == "__main__":
            asyncio.run(main())
        """.replace("FORK", fork),
    )
    assert said.split() == ["0"]
    assert left(nodes, "s23:fork:a", "s23:fork:block", "s23:fork:child") == []


def test_a_forked_child_does_not_keep_the_parents_connections(nodes: Nodes) -> None:
    """Else a node would go on handing locks to a parent that was killed, for as long as a child of it lives."""
    source = """
        import asyncio, os, signal, sys, time, warnings
        from holdfast.aio import Holdfast

        warnings.simplefilter("ignore", DeprecationWarning)
        locks = Holdfast(owner="forking")

        async def main():
            await locks.ready()
            lease = await locks.lock("forked", ttl=30).acquire()
            if not (child := os.fork()):
                os.close(1)
                os.close(2)
                time.sleep(60)
                os._exit(0)
            print(child, flush=True)
            sys.stdin.readline()
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """

    def seen() -> int:
        return sum("name=holdfast:forking:" in ask(url, "CLIENT", "LIST") for url in nodes.urls)

    with program(source, nodes, flags=STRICT) as running:
        child = int(running.hear())
        try:
            assert seen() == 5
            running.tell()
            running.end(SOON)
            until(lambda: not seen(), SOON)
            os.kill(child, 0)  # it still lives
        finally:
            os.kill(child, 9)
    for url in nodes.urls:
        ask(url, "DEL", "forked")


def test_a_child_of_a_fork_that_python_was_not_told_of_drops_its_parents_blocks(nodes: Nodes) -> None:
    """In the child, the coroutine is closed in the middle of its block. The lock is the parent's, and so is the connection."""
    source = """
        import asyncio, ctypes, os
        from holdfast.aio import Holdfast

        locks = Holdfast()

        async def block():
            async with locks.lock("fork:dropped") as lease:
                await asyncio.sleep(0.5)
                lease.check()
                print(lease.votes, await lease.extend() > 5)

        async def main():
            await locks.ready()
            inside = asyncio.create_task(block())
            while not any(it.votes == 5 for it in locks.leases()):
                await asyncio.sleep(0.01)
            pid = ctypes.PyDLL(None).fork()
            if not pid:
                inside.get_coro().close()
                os._exit(0)
            os.waitpid(pid, 0)
            await asyncio.sleep(0.1)
            await inside
            await locks.close()

        asyncio.run(main())
    """
    assert ran(nodes, source) == "5 True\n"
    assert left(nodes, "fork:dropped") == []
