"""Faults planted into the kits for users' tests, each with the test that has to find it.

(Those of embedded servers and of signal handlers are here, too.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from live import test_embedded
from proof import patches
from testing import test_inprocess, test_process, test_simulation

from holdfast import embedded, folders
from holdfast.client import shared as client
from holdfast.testing import inprocess, simulation
from holdfast.testing.process import Process

Plant = Callable[[pytest.MonkeyPatch], object]


def method(kind: type, name: str, text: str, other: str) -> Plant:
    return lambda monkeypatch: patches.method(monkeypatch, kind, name, text, other)


def function(it: Any, text: str, other: str) -> Plant:
    return lambda monkeypatch: patches.function(monkeypatch, it, text, other)


def whole(module: Any, name: str, text: str, other: str) -> Plant:
    return lambda monkeypatch: monkeypatch.setattr(module, name, patches.whole(getattr(module, name), text, other))


def without_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.method(monkeypatch, embedded._Server, "__init__", 'f"requirepass {self._password}\\n"', '""')
    # Such a server never takes the password that it is asked with: this need not be waited for.
    monkeypatch.setattr(embedded, "_PATIENCE", 2.0)


def a_deadlock_ends() -> None:
    simulated = simulation.Simulation()
    with pytest.raises(simulation.Stuck, match="but that leases are renewed"):
        simulated.run(test_simulation.deadlock(simulated), limit=300)


PLANTED: dict[str, tuple[Plant, Callable[..., object]]] = {
    "a deadlock is taken for patience": (
        method(simulation.Simulation, "deadlock", "or self._comes(loop, clients):", "or True:"),
        a_deadlock_ends,
    ),
    "a wait that ends is taken for a deadlock": (
        method(simulation.Simulation, "_comes", "it._deadline < inf if", "False if"),
        test_simulation.test_a_wait_that_ends_is_no_deadlock,
    ),
    "a hold that ends is taken for a deadlock": (
        method(simulation.Simulation, "_comes", "it.timing.max_hold < inf for", "False for"),
        test_simulation.test_a_hold_that_ends_is_no_deadlock,
    ),
    "a run has no limit": (
        method(simulation.Simulation, "_begin", "self.ends = self.now + limit", "self.ends = self.now + 10_000"),
        test_simulation.test_a_run_has_a_limit,
    ),
    "a thread may start": (
        function(simulation._refused, "if isinstance(asyncio._get_running_loop(), _Loop):", "if False:"),
        test_simulation.test_threads_of_any_kind_are_refused,
    ),
    "a paused process goes on": (
        method(Process, "run", "if self.paused or", "if"),
        test_process.test_nothing_of_a_paused_process_runs_and_everything_of_others_does,
    ),
    "a client notices first": (
        method(Process, "run", " or (self._behind and self.is_a_clients(callback))", ""),
        test_process.test_a_paused_holder_writes_late_and_is_refused_by_its_fence,
    ),
    "a crashed process goes on": (
        method(Process, "run", "elif not self.crashed:", "else:"),
        test_process.test_a_crashed_holder_releases_nothing_and_none_of_its_code_runs,
    ),
    "a cut leaves connections whole": (
        method(Process, "cut_off", "plug.link.deaf = plug.link.mute = True", "pass"),
        test_process.test_a_process_that_is_cut_off_loses_its_lock_and_others_do_not_notice,
    ),
    "a client may be two processes'": (
        method(simulation.Simulation, "use", "elif shown.process is not process:", "elif False:"),
        test_process.test_a_client_belongs_to_one_process,
    ),
    "an error of a process is swallowed": (
        method(Process, "failure", "if self.awaited or", "if True or self.awaited or"),
        test_process.test_an_error_that_nobody_awaits_is_raised_by_the_run,
    ),
    "a node in memory is taken for a new server": (
        whole(inprocess, "_Node", "OLD if uptime == MATURE else uptime", "0.0"),
        test_inprocess.test_two_clients_for_threads_have_the_lock_one_after_the_other,
    ),
    "two sets of nodes in memory look like one": (
        whole(inprocess, "_Node", "secrets.token_hex(20).encode()", "b'%040d' % self.index"),
        test_inprocess.test_two_sets_of_them_are_strangers,
    ),
    "ports ask for no password": (
        without_a_password,
        test_embedded.test_ports_ask_for_a_password_that_no_command_line_shows,
    ),
    "the command line shows the password": (
        method(embedded._Server, "spawn", '"--bind", "127.0.0.1"]', '"--bind", "127.0.0.1", "--masterauth", self._password]'),
        test_embedded.test_ports_ask_for_a_password_that_no_command_line_shows,
    ),
    "a path that is too long is used": (
        function(folders.private, "<= LONGEST", "<= 10 * LONGEST"),
        test_embedded.test_a_folder_whose_path_no_socket_can_have_is_not_used,
    ),
    "a second client waits for a guard": (
        function(client._fresh, "if node.label in started", "if False"),
        test_embedded.test_a_second_client_need_not_wait_for_a_guard,
    ),
    "a restarted node is taken for a fresh one": (
        method(
            embedded.Nodes,
            "restart",
            "if not server.answered():",
            "if not server.answered() or started.update({server.label: server.run_id}):",
        ),
        test_embedded.test_a_node_that_was_restarted_is_guarded_all_the_same,
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.slow
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant, test = PLANTED[fault]
    plant(monkeypatch)
    # A thread that starts because of a fault may fail when the test is over: that is no other test's failure.
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    before = set(threading.enumerate())
    parts = {"monkeypatch": monkeypatch, "tmp_path": tmp_path, "name": "x" * 90}
    given = {name: parts[name] for name in signature(test).parameters}
    with pytest.raises(BaseException):  # noqa: B017 (a test may fail in any way)
        test(**given)
    for thread in {it for it in threading.enumerate() if it.name.startswith("AnyIO")} - before:
        thread.join(5)
