"""The contract's fixtures: every test here runs once for each driver."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from contract.cluster import Cluster
from contract.faces import FACES, Face
from contract.simulated import Simulated, SimulatedCluster

from holdfast.embedded import Nodes

# What the simulator's driver has not: observers and callbacks, tasks that inherit, a clock that runs while a test computes, real
# servers' own faults.
ONLY_REAL = {
    "test_ready_says_how_the_nodes_are",
    "test_b15_ready_complains_of_one_server_with_two_names",
    "test_b58_passwords_are_sent_and_never_shown",
    "test_s30_a_node_that_restarted_empty_is_left_alone_until_it_cannot_have_forgotten_anything",
    "test_a_node_that_is_away_is_told_of_once",
    "test_a_lease_that_was_dropped_is_lost_when_its_time_is_over",
    "test_every_observer_hears_everything_whatever_another_does",
    "test_an_observer_hears_of_a_lock_s_life_in_order",
    "test_an_observer_that_raises_is_logged_and_hurts_nobody",
    "test_local_brings_its_own_nodes",
    "test_close_releases_and_tells_everybody",
    "test_what_is_said_last_is_not_undone_by_what_was_not_answered_before",
    "test_an_extension_lengthens_a_lease_and_not_its_renewals",
    "test_s17_a_majority_is_away_for_less_than_a_lease",
    "test_b46_a_holder_is_told_before_anybody_else_holds_it",
    "test_b03_half_a_second_is_renewed_by_half_a_second",
    "test_b19_the_wall_clock_decides_nothing",
    "test_s16_a_lease_is_lost_by_the_clock_and_not_when_somebody_notices",
    "test_s21_callbacks_that_raise_are_logged_and_hurt_nobody",
    "test_children_do_not_inherit",
    "test_who_waits_when_the_client_is_closed",
    "test_who_looks_on_when_the_client_is_closed",
    "test_a_decorated_function_waits_for_its_turn",
    "test_what_a_rate_cannot_decorate",
    "test_the_arguments_are_all_the_function_s",
    "test_a_client_that_is_closed_while_somebody_waits",
    "test_a_decorated_function_is_run_once_for_its_key",
    "test_d21_other_arguments_than_those_of_the_result_are_misuse",
    "test_what_is_run_is_a_function_of_the_face",
    "test_a_decorated_function_computes_once_for_each_key",
    "test_s11_a_decorated_function_is_skipped",
    "test_what_cannot_be_decorated",
    "test_a_closed_client_is_opened_again_by_entering_it",
    "test_a_lease_of_before_does_not_touch_the_client_that_was_opened_again",
    "test_whoever_waits_for_an_extension_is_not_forgotten_by_a_release",
    "test_observers_hear_that_it_was_left",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The simulator takes part in what it can; nothing is skipped at run time."""
    items[:] = [it for it in items if not (isinstance(it, pytest.Function) and it.originalname in ONLY_REAL and "[simulated" in it.name)]


# `./task test` asks the threads and the simulator, and `./task test --all` asyncio, too.
@pytest.fixture(params=[*(pytest.param(it, marks=pytest.mark.servers) if it == "asyncio" else it for it in FACES), "simulated"])
async def face(request: pytest.FixtureRequest) -> AsyncIterator[Face]:
    """A driver, and its face."""
    face = {**FACES, "simulated": Simulated}[request.param]()
    yield face
    await face.finish()


@pytest.fixture
def five(face: Face, nodes: Nodes) -> Cluster | SimulatedCluster:
    """Five nodes that all tests share, and that no test does any harm."""
    return SimulatedCluster(face.world, 5) if isinstance(face, Simulated) else Cluster(nodes)


@pytest.fixture
async def three(face: Face) -> AsyncIterator[Cluster]:
    """Three nodes of the test's own."""
    async with face.nodes(3) as cluster:
        yield cluster


@pytest.fixture
async def own_five(face: Face) -> AsyncIterator[Cluster]:
    """Five nodes of the test's own, which it may stop and restart."""
    async with face.nodes(5) as cluster:
        yield cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock's name that no other test uses."""
    return re.sub(r"[^\w-]+", ".", request.node.name, flags=re.ASCII)
