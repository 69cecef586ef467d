"""A user's asyncio code in virtual time: the shipped face and driver, on simulated nodes."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import anyio.to_thread
import pytest

import holdfast
from holdfast import LockBusy, LockLost, Misuse
from holdfast.aio import Holdfast, Lease
from holdfast.drivers import sockets
from holdfast.errors import ConfigError
from holdfast.events import Event
from holdfast.testing.laws import Laws
from holdfast.testing.simulation import Simulation, Stuck
from holdfast.testing.world import Violation

pytestmark = pytest.mark.worlds


def story(
    seed: int = 0, turns: int = 5, storm: bool = True, observer: Callable[[Event], None] | None = None
) -> tuple[Simulation, list[int]]:
    """Three clients add to one register, each addition under the lock."""
    simulation = Simulation(nodes=5, seed=seed, max_ttl=2.0)
    fences: list[int] = []

    async def adds(locks: Holdfast) -> None:
        for _ in range(turns):
            try:
                async with locks.lock("register", ttl=1.0) as lease:
                    await asyncio.sleep(0.3)
                    lease.check()
                    fences.append(lease.fence or 0)
            except LockLost:
                continue

    async def main() -> None:
        clients = [simulation.client(ttl=1.0, max_ttl=2.0, outage=60.0, observer=observer) for _ in range(3)]
        if storm:
            simulation.storm()
        async with asyncio.TaskGroup() as group:
            for locks in clients:
                group.create_task(adds(locks))
        simulation.calm()
        for locks in clients:
            await locks.close()

    simulation.run(main())
    return simulation, fences


def test_users_are_served_one_after_the_other_in_virtual_time() -> None:
    simulation, fences = story(storm=False)
    assert len(fences) == 15
    assert fences == sorted(set(fences))
    assert 15 * 0.3 < simulation.now < 15 * 0.32 + 1


@pytest.mark.parametrize("seed", range(6))
def test_whatever_goes_wrong_fences_grow_and_no_law_is_broken(seed: int) -> None:
    simulation, fences = story(seed)
    assert fences == sorted(set(fences))
    assert simulation.world.chance.happened
    assert all(simulation.laws.looked[law] for law in ("exclusion", "fence", "majority", "zombie", "no expiry"))


def test_the_same_seed_is_the_same_history_to_the_microsecond() -> None:
    """Whatever a client tells by the machine's clock differs. (Who may read that is in `src/ruff.toml`.)"""

    def told(seed: int) -> list[str]:
        found: list[str] = []

        def tell(it: object) -> None:
            found.append(repr(it))

        async def calls() -> None:
            async with simulation.client(observer=tell) as locks:
                tell(await locks.rate("api", 2, 1).take())
                await locks.force_release("nobody has it", "to see when")

        async def paused() -> None:
            process = simulation.process(calls())
            await asyncio.sleep(0.001)
            process.pause(4)
            await process

        simulation, _ = story(seed, turns=2, observer=tell)
        simulation.run(paused())
        return [*found, simulation.world.fingerprint()]

    assert told(3) == told(3) != told(4)


def test_a_fault_may_be_left_out() -> None:
    everything, _ = story(2, turns=3)
    first = everything.world.chance.happened[0]
    simulation = Simulation(nodes=5, seed=2, max_ttl=2.0, only=[first])
    simulation.storm()
    simulation.world.run(20.0)
    assert simulation.world.chance.happened in ([first], [])


def test_a_broken_lock_is_found_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: 1)
    with pytest.raises(Violation, match=r"^(majority|counted|exclusion)") as raised:
        _ = [story(seed) for seed in range(10)]
    notes = "\n".join(raised.value.__notes__)
    assert "in the simulated world of seed " in notes
    assert " sends to node " in notes
    del raised
    gc.collect()  # what was under way has ended in peace: else pytest complains here


def test_what_can_never_end_is_told() -> None:
    with pytest.raises(RuntimeError, match="nothing is left to happen"):
        Simulation().run(asyncio.Event().wait())


# ------------------------------------------------ what never ends


def deadlock(simulation: Simulation, how: str = "another client", **options: Any) -> Coroutine[Any, Any, None]:
    """Two tasks each hold what the other waits for."""

    async def takes(locks: Holdfast, first: str, second: str) -> None:
        async with locks.lock(first):
            await asyncio.sleep(1)
            async with locks.lock(second, **options):
                pass

    async def main() -> None:
        one, two = simulation.client(), simulation.client()
        both = takes(one, "a", "b"), takes(one if how == "the same client" else two, "b", "a")
        if how.startswith("process"):
            first, _ = [simulation.process(it) for it in both]
            await first
        else:
            await asyncio.gather(*both)

    return main()


@pytest.mark.parametrize("how", ["another client", "the same client", "process 'process N'"])
def test_a_deadlock_of_the_application_ends_and_names_the_tasks_and_their_locks(how: str) -> None:
    simulation = Simulation()
    with pytest.raises(Stuck) as raised:
        simulation.run(deadlock(simulation, how))
    task = "process N" if how.startswith("process") else "Task-N"
    lines = [
        "everybody waits, and nothing is left to happen but that leases are renewed. These tasks wait:",
        "  Task-N: deadlock.<locals>.main at test_simulation.py:N",
        f"  {task}: deadlock.<locals>.takes at test_simulation.py:N waits for the lock 'b', which {how} holds",
        f"  {task}: deadlock.<locals>.takes at test_simulation.py:N waits for the lock 'a', which {how} holds",
    ]
    assert re.sub(r"(Task-|process |py:)\d+", r"\1N", str(raised.value)).splitlines() == lines
    assert 65 < simulation.now < 70
    assert "in the simulated world of seed 0" in "\n".join(raised.value.__notes__)


def test_a_wait_that_ends_is_no_deadlock() -> None:
    simulation = Simulation()
    with pytest.raises(LockBusy):
        simulation.run(deadlock(simulation, wait=3600))
    assert simulation.now > 3600, "which takes no time"


def test_a_hold_that_ends_is_no_deadlock() -> None:
    simulation = Simulation()

    async def main() -> None:
        async with simulation.client() as one, simulation.client() as two:
            lease = await one.lock("x", max_hold=1000).acquire()
            async with two.lock("x"):
                assert simulation.now > 1000
            assert not lease.held

    simulation.run(main())


def test_nodes_that_come_back_are_no_deadlock() -> None:
    simulation = Simulation()

    async def main() -> None:
        async with simulation.client(outage=3000) as locks:
            for node in simulation.nodes:
                node.vanish(1000)
            async with locks.lock("x"):
                assert simulation.now > 1000

    simulation.run(main())


def test_a_run_has_a_limit() -> None:
    simulation = Simulation()

    async def main() -> None:
        async with simulation.client() as locks, locks.lock("x"):
            await asyncio.sleep(3600)

    with pytest.raises(Stuck, match=r"(?s)not ended by its limit, at 60 s.*Task-\d+: .*main at test_simulation.py:"):
        simulation.run(main(), limit=60)
    assert simulation.now < 125, "what its end takes"
    simulation.run(asyncio.sleep(50), limit=60)  # counts from now
    simulation.run(asyncio.sleep(8000), limit=timedelta(hours=3))
    with pytest.raises(Stuck, match="limit"):
        simulation.run(asyncio.sleep(8000))


@pytest.mark.parametrize("limit", [0, -1, "1", None, float("inf")])
def test_a_limit_is_checked(limit: Any) -> None:
    with pytest.raises(ConfigError, match="limit is"):
        Simulation().run(asyncio.sleep(1), limit=limit)


def test_what_waits_on_after_it_was_cancelled_ends_as_well() -> None:
    simulation = Simulation()

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    with pytest.raises(Stuck):
        simulation.run(stubborn(), limit=60)
    gc.collect()


# ------------------------------------------------ the real world


def test_a_client_is_of_no_use_outside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation()
    locks = simulation.client()

    def dialled(*_: object) -> None:
        raise AssertionError("a real socket was opened")

    monkeypatch.setattr(sockets, "open_socket", dialled)

    async def outside() -> None:
        with pytest.raises(Misuse, match=r"only in code that simulation\.run"):
            await locks.lock("x").acquire()
        with pytest.raises(Misuse, match=r"only in code that simulation\.run"):
            await locks.ready()
        with pytest.raises(Misuse, match=r"only in code that simulation\.run"):
            locks.nodes()
        await locks.close()

    asyncio.run(outside())
    Simulation(seed=2).run(outside())
    monkeypatch.undo()

    async def inside() -> None:
        async with simulation.client() as again, again.lock("x"):
            pass

    simulation.run(inside())


def test_threads_of_any_kind_and_other_servers_are_refused() -> None:
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()  # it has a thread that waits

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ConnectionRefusedError, match="only its nodes"):
            await asyncio.open_connection("192.0.2.77", 80)
        with pytest.raises(RuntimeError, match="not in virtual time"):
            await anyio.to_thread.run_sync(int)
        with pytest.raises(RuntimeError, match="not in virtual time"):
            threading.Thread(target=int).start()
        with pytest.raises(RuntimeError, match="not in virtual time"):
            await loop.run_in_executor(pool, int)
        with pytest.raises(RuntimeError, match="not in virtual time"):
            pool.submit(loop.call_soon_threadsafe, int).result()
        with pytest.raises(holdfast.HoldfastError, match=r"cannot start its background thread: .*not in virtual time"):
            holdfast.Holdfast("redis://192.0.2.1").lock("x", wait=1).acquire()

    Simulation().run(main())
    pool.shutdown()
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()


# ------------------------------------------------ operators


async def _take(locks: Holdfast, kind: str) -> Lease:
    """Acquire "job" as a lock, or as one side of a read-write lock."""
    if kind == "lock":
        return await locks.lock("job", ttl=2).acquire()
    both = locks.rwlock("job")
    side = both.write(ttl=2) if kind == "writer" else both.read(ttl=2)
    return await side.acquire()


def _forced(kind: str) -> tuple[list[str], int]:
    """Take a held lock away while another client waits for it. Returns what both callers saw, and on how many nodes it was taken."""
    simulation = Simulation()
    seen: list[str] = []
    taken = 0

    async def waits(locks: Holdfast) -> None:
        lease = await _take(locks, "lock" if kind == "lock" else "writer")
        seen.append("the next one has it")
        await lease.release(confirm=True)

    async def main() -> None:
        nonlocal taken
        async with simulation.client() as one, simulation.client() as two:
            lease = await _take(one, kind)
            waiter = asyncio.create_task(waits(two))
            await asyncio.sleep(0.1)
            taken = await two.force_release("job", "its holder hangs")
            await waiter
            await asyncio.sleep(0.1)
            seen.append(lease.state.name)

    simulation.run(main())
    return seen, taken


@pytest.mark.parametrize("kind", ["lock", "reader", "writer"])
def test_a_lock_that_an_operator_takes_away_breaks_no_law(kind: str) -> None:
    assert _forced(kind) == (["the next one has it", "LOST"], 3)


def test_an_operator_whom_the_laws_do_not_see_breaks_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the laws learn nothing of what nodes publish."""
    monkeypatch.setattr(Laws, "published", lambda *_: None)
    with pytest.raises(Violation, match=r"^(majority|exclusion|counted): "):
        _forced("lock")


def test_an_operator_excuses_no_lock_but_the_one_that_was_taken() -> None:
    """Planted: two clients that name different nodes hold one lock, while an operator takes another lock away."""
    simulation = Simulation(nodes=5)

    async def takes(nodes: list[int]) -> None:
        async with simulation.client(nodes) as locks, locks.lock("job"):
            await asyncio.sleep(1)

    async def main() -> None:
        async with simulation.client() as locks:
            lost = await locks.lock("other").acquire()
            await locks.force_release("other", "its holder hangs")
            await asyncio.gather(takes([0, 1, 2]), takes([2, 3, 4]))
            lost.check()

    with pytest.raises(Violation, match=r"^majority: "):
        simulation.run(main())


# ------------------------------------------------ owners


def _owners(options: dict[str, Any]) -> list[str]:
    """The owner of a held lock as an error names it and as `inspect` shows it, and the owner of the next one."""
    simulation = Simulation()
    found: list[str] = []

    async def main() -> None:
        async with simulation.client(**options) as one, simulation.client() as two:
            async with one.lock("job"):
                with pytest.raises(LockBusy) as busy:
                    await two.lock("job", wait=0.01).acquire()
                found.append(str(busy.value.owner))
                found.append(str((await two.inspect("job")).owner))
            async with two.lock("job"):
                found.append(str((await one.inspect("job")).owner))

    simulation.run(main())
    return found


def test_a_simulated_client_is_its_own_owner() -> None:
    """Neither the machine's name nor the process's number is in a simulated history: they differ from run to run."""
    assert _owners({}) == ["client-1", "client-1", "client-2"]


def test_an_owner_that_is_given_stays() -> None:
    assert _owners({"owner": "billing"}) == ["billing", "billing", "client-2"]
