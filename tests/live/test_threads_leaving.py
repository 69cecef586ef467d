"""A lease that is being left: who may still join it, renew it, hand it on, and believe in it?

An exception strikes wherever it can in holdfast's own code while a lease is acquired, extended or released, as
that of a signal's handler can. While the exception is being handled, its traceback keeps everything alive that it met on its
way; that is when a lease which is about to be released was joined. The I/O thread is kept busy for a moment, so that it has not
yet heard of what the interrupted caller said.
"""

from __future__ import annotations

import dis
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import CodeType, FrameType
from typing import Any

import pytest
from contract.cluster import Cluster
from live.kit import io_thread_of
from proof.misuse import misuse

from holdfast import Holdfast, LeaseState, Lock, current
from holdfast.drivers.threads import io_thread as io_thread_module
from holdfast.drivers.threads.direct import Direct
from holdfast.drivers.threads.io_thread import IOThread
from holdfast.errors import LockBusy, LockLost, Misuse
from holdfast.face.sync.lock import Lock as LockOfThreads

TTL = 20.0  # seconds: much longer than any step of these tests, so that a lock that is free was released
SOON = 5.0
BUSY = 0.002  # seconds for which the I/O thread hears nothing

# The interpreter looks for signals when a function begins, when a call of C code returns and when a loop goes back:
# an exception strikes after these instructions alone, if the next one is of the same frame.
LOOKS = ("CALL", "JUMP_BACKWARD", "RESUME")

pytestmark = pytest.mark.filterwarnings("ignore:.*discarded without release:ResourceWarning")


class Interrupt(BaseException):
    """What a handler raises."""


class Strike:
    """In its block, raises Interrupt where the interpreter looks for signals in holdfast's own code, counted from 1."""

    def __init__(self, at: int) -> None:
        self.at, self.count, self.where = at, 0, ""
        # The frame that has just been where the interpreter looks.
        self._looks_in: FrameType | None = None
        self._looks: dict[CodeType, set[int]] = {}

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, *raised: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        # An exception in a finalizer reaches nobody.
        if not frame.f_globals.get("__name__", "").startswith("holdfast.") or code.co_name == "__del__":
            return None
        if code not in self._looks:
            self._looks[code] = {it.offset for it in dis.get_instructions(code) if it.opname.startswith(LOOKS)}
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            if self._looks_in is frame:
                self.count += 1
                if self.count == self.at:
                    sys.settrace(None)
                    self.where, self._looks_in = frame.f_code.co_name, None
                    raise Interrupt(f"{self.where}, line {frame.f_lineno}")
            self._looks_in = frame if frame.f_lasti in self._looks[frame.f_code] else None
        return self._stepped


class Place:
    """A client, a rival, and the nodes."""

    def __init__(self, nodes: Cluster) -> None:
        self._nodes, self._serial = nodes, 0
        options: dict[str, Any] = {"ttl": TTL, "max_ttl": TTL}
        self.client, self.rival = Holdfast(*nodes.urls, **options), Holdfast(*nodes.urls, **options)

    def __enter__(self) -> Place:
        self.client.ready()
        self.rival.ready()
        return self

    def __exit__(self, *raised: object) -> None:
        self.client.close()
        self.rival.close()

    def name(self) -> str:
        """A name that nobody has used."""
        self._serial += 1
        return f"left{self._serial}"

    @property
    def io_thread(self) -> IOThread:
        return io_thread_of(self.client)

    def busy(self) -> None:
        """The I/O thread hears nothing for a moment."""
        self.io_thread.ask(lambda now: time.sleep(BUSY))

    def heard(self) -> None:
        """The I/O thread has heard all that it was told."""
        heard = threading.Event()
        self.io_thread.ask(lambda now: heard.set())
        assert heard.wait(SOON)

    def held(self, lease: Any) -> bool:
        """Do the nodes say so, too, and does the I/O thread?"""
        self.heard()
        return bool(lease.held) and self._nodes.holders(lease.name).count(lease.token) >= 2

    def renewed(self) -> list[str]:
        """The names that the client renews or waits for."""
        return [it.recipe.label for it in list(self.io_thread.engine.live.values()) if it._renewal.wanted]


@pytest.fixture(scope="module")
def place(three: Cluster) -> Iterator[Place]:
    with Place(three) as place:
        yield place


# What is done while the interrupt strikes. Each is given the lock and the strike, and gives the lease to `got`.
Got = list[Any]


def releases(lock: Lock, strike: Strike, got: Got) -> None:
    got.append(lock.acquire())
    with strike:
        got[0].release()


def confirms(lock: Lock, strike: Strike, got: Got) -> None:
    got.append(lock.acquire())
    with strike:
        got[0].release(confirm=True)


def leaves(lock: Lock, strike: Strike, got: Got) -> None:
    with ExitStack() as after:
        with lock as lease:
            got.append(lease)
            del lease
            after.enter_context(strike)


def leaves_the_inner_block(lock: Lock, strike: Strike, got: Got) -> None:
    with ExitStack() as after, lock as outer:
        got.append(outer)
        del outer
        with lock as lease:
            got.append(lease)
            del lease
            after.enter_context(strike)


def extends(lock: Lock, strike: Strike, got: Got) -> None:
    with lock as lease:
        got.append(lease)
        del lease
        with strike:
            got[0].extend()


def acquires(lock: Lock, strike: Strike, got: Got) -> None:
    with strike:
        lease = lock.acquire()
    got.append(lease)
    lease.release()


def tries(lock: Lock, strike: Strike, got: Got) -> None:
    with strike:
        lease = lock.try_acquire()
    assert lease is not None
    got.append(lease)
    lease.release()


def calls(lock: Lock, strike: Strike, got: Got) -> None:
    with strike:
        lock(lambda: got.append(current()))()


def steps(lock: Lock, strike: Strike, got: Got) -> None:
    def generates() -> Iterator[None]:
        got.append(current())
        yield

    with strike:
        for _ in lock(generates)():
            pass


def enters(lock: Lock, strike: Strike, got: Got) -> None:
    with ExitStack() as after:
        after.enter_context(strike)
        with lock as lease:
            sys.settrace(None)
            got.append(lease)


def enters_again(lock: Lock, strike: Strike, got: Got) -> None:
    with lock:
        with ExitStack() as after:
            after.enter_context(strike)
            with lock as lease:
                sys.settrace(None)
                got.append(lease)


Use = Callable[[Lock, Strike, Got], None]
USES: tuple[Use, ...] = (releases, confirms, leaves, leaves_the_inner_block, extends, acquires, tries, calls, steps, enters, enters_again)


def struck(place: Place, use: Use, at: int, reentrant: bool) -> bool:
    """Interrupt the use at one place, then ask who may do what. False: it was over before."""
    name, strike, got = place.name(), Strike(at), Got()
    lock = place.client.lock(name, reentrant=reentrant, wait=SOON)
    place.busy()
    try:
        use(lock, strike, got)
    except Interrupt as interrupt:
        told = f"interrupted at place {at}: {interrupt}"
        # Nobody but the block itself gives its lease back. (Before the release has begun, nothing can: see `WithBlock`.)
        if use is leaves:
            assert not got[0].held or strike.where in ("__call__", "_leave", "release"), f"{told}: it is not given back"
        _asks(place, lock, got, told)
    else:
        return False
    # The traceback is gone, and with it all that it kept. What was interrupted before it could say anything is not
    # renewed, and ends with its ttl; all else is free now.
    got.clear()
    place.heard()
    assert name not in place.renewed(), told
    return True


def _asks(place: Place, lock: Lock, got: Got, told: str) -> None:
    believed = [lease for lease in got if lease.held]
    # Who may join: a block that enters again really has the lock, and does not wait for itself.
    if believed and not lock._terms.reentrant:
        assert lock.try_acquire() is None, f"{told}: two are inside"
    else:
        try:
            with lock as again:
                assert place.held(again), f"{told}: a block runs without the lock"
                assert all(it.held for it in believed), f"{told}: it was believed, and is no more"
        except (LockBusy, Misuse) as error:
            raise AssertionError(f"{told}: it waits for itself") from error
    # Who may believe: whoever is told that it is held has it.
    for lease in got:
        if lease in believed:
            assert place.held(lease), f"{told}: it is believed, and not held"
        else:
            with misuse("not_held"):
                lease.check()
            with misuse("not_held"):
                lease.extend()
    # Who may hand it on: given back, it is free for others long before its ttl is over.
    for lease in got:
        lease.release()
    if got:
        with place.rival.lock(lock.name, wait=SOON) as other:
            assert other.held and not any(it.held for it in got), told


AGAIN = (leaves_the_inner_block, enters_again)
CASES = [(use, reentrant) for use in USES for reentrant in (True, False) if reentrant or use not in AGAIN]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("use, reentrant", CASES, ids=lambda it: it.__name__ if callable(it) else "again" if it else "once")
def test_wherever_it_is_interrupted(place: Place, use: Use, reentrant: bool) -> None:
    use(place.client.lock(place.name(), reentrant=True, wait=SOON), Strike(0), Got())
    count = 0
    while struck(place, use, count + 1, reentrant):
        count += 1
    assert count > 10


@pytest.mark.parametrize("enters", [False, True])
def test_what_was_acquired_is_given_back_if_its_caller_is_interrupted_before_it_has_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, enters: bool
) -> None:
    """At the one moment that a few instructions in hundreds show: the nodes have granted it, and nobody has the lease."""
    lock = place.client.lock(place.name())
    obtain = LockOfThreads._obtain

    def interrupted(*arguments: Any) -> None:
        obtain(*arguments)
        raise Interrupt

    class Entered(dict[Any, Any]):
        def __setitem__(self, *_: object) -> None:
            raise Interrupt

    if enters:
        monkeypatch.setattr(lock, "_entered", Entered())
    else:
        monkeypatch.setattr(LockOfThreads, "_obtain", interrupted)
    with pytest.raises(Interrupt):
        lock.__enter__() if enters else lock.acquire()
    monkeypatch.undo()
    with place.rival.lock(lock.name, wait=SOON) as other:
        assert other.held, "it was free long before its ttl"


def test_what_was_interrupted_twice_is_found_by_the_io_thread(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first exception strikes in the release, the second one while that is being handled: nothing was said."""
    with Holdfast(*three.urls, ttl=1.5) as client, Holdfast(*three.urls) as rival:
        lease = client.lock("twice").acquire()
        io_thread = client._driver.io_thread
        with monkeypatch.context() as patch:
            patch.setattr(IOThread, "ask", interrupts)
            patch.setattr(Direct, "release", interrupts)
            with pytest.raises(Interrupt):
                lease.release()
        assert lease.state is LeaseState.RELEASED and (io_thread.engine.live or io_thread.direct.done)
        with rival.lock("twice", wait=1.5 / 3 + io_thread_module.SWEEP + SOON) as other:
            assert other.held
        with monkeypatch.context() as patch:
            patch.setattr(IOThread, "_sweep", lambda io_thread, now: None)
            lease = client.lock("twice").acquire()
            with pytest.MonkeyPatch.context() as again:
                again.setattr(IOThread, "ask", interrupts)
                again.setattr(Direct, "release", interrupts)
                with pytest.raises(Interrupt):
                    lease.release()
            with pytest.raises(LockBusy):
                rival.lock("twice", wait=1.5 * 2).acquire()
            lease.release()  # said again
        with rival.lock("twice", wait=SOON):
            pass


def interrupts(*_: object) -> None:
    raise Interrupt


def test_an_interrupted_release_can_be_repeated_and_tells_of_a_loss(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with Holdfast(*three.urls, ttl=0.4) as client:
        lease = client.lock("repeated", renew=False).acquire()
        with monkeypatch.context() as patch:
            patch.setattr(IOThread, "ask", interrupts)
            patch.setattr(Direct, "release", interrupts)
            with pytest.raises(Interrupt):
                lease.release()
        assert lease.state is LeaseState.RELEASED
        time.sleep(0.5)
        assert lease.state is LeaseState.LOST
        with pytest.raises(LockLost):
            lease.release()
        assert lease.state is LeaseState.RELEASED


# ------------------------------------------------ several threads, one lease


def together(*calls: Callable[[], object]) -> list[object]:
    """Call these at the same moment, each in a thread: what they return or raise."""
    barrier, outcomes = threading.Barrier(len(calls)), list[object]()

    def call(what: Callable[[], object]) -> None:
        barrier.wait(SOON)
        try:
            outcomes.append(what())
        except BaseException as error:
            outcomes.append(error)

    users = [threading.Thread(target=call, args=[it], daemon=True) for it in calls]
    for user in users:
        user.start()
    for user in users:
        user.join(SOON)
    assert not any(it.is_alive() for it in users), "it hangs"
    return outcomes


@pytest.mark.parametrize("confirm", [False, True])
def test_several_threads_release_the_same_lease(place: Place, confirm: bool) -> None:
    lock = place.client.lock(place.name())
    for _ in range(30):
        lease = lock.acquire()
        place.busy()
        outcomes = together(*[partial(lease.release, confirm)] * 3)
        assert all(isinstance(it, int) for it in outcomes), outcomes
        assert lease.state is LeaseState.RELEASED
        if confirm:
            assert max(outcomes) >= 2  # type: ignore[call-overload]  # (numbers, as asserted above)


def test_a_watchdog_releases_while_the_block_is_left(place: Place) -> None:
    lock = place.client.lock(place.name())

    def block(leaving: threading.Event) -> None:
        with lock as lease:
            watchdogs.append(lease.release)
            entered.set()
            leaving.wait(SOON)
            place.busy()

    for _ in range(30):
        watchdogs: list[Callable[[], object]] = []
        entered, leaving = threading.Event(), threading.Event()
        user = threading.Thread(target=block, args=[leaving], daemon=True)
        user.start()
        assert entered.wait(SOON)
        leaving.set()
        together(*watchdogs)
        user.join(SOON)
        assert not user.is_alive(), "it hangs"
