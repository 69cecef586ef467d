"""pytest fixtures for code that uses holdfast: real nodes, fresh clients, work done once per run.

With pytest-xdist, all workers share the nodes.

Knows pytest, what pytest-xdist hands to its workers, and both faces. Must not know your code.

Load it in the conftest.py at the root of your tests:

    pytest_plugins = ["holdfast.testing.plugin"]

(It is no entry point, or every run of pytest in your environment would import holdfast, and before
coverage measures anything.)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from .. import Holdfast, embedded
from .. import aio as asynchronous
from ..embedded import Nodes
from ..errors import ConfigError, Misuse
from .ending import ends

__all__ = [
    "Clients",
    "SharedNodes",
    "alocks",
    "holdfast_client",
    "holdfast_nodes",
    "lock_cluster",
    "locks",
    "once_per_run",
]

KEEP = 86400.0  # seconds for which a run knows what was made
_HANDED = "holdfast"  # what the controller hands to each worker of pytest-xdist
_RUN = "holdfast-run"  # and the prefix of this run
_nodes = pytest.StashKey[Nodes]()
_run = pytest.StashKey[str]()


@dataclass(frozen=True)
class SharedNodes:
    """Nodes that another process of this run has started.

    Attributes:
        urls: Their addresses.
        run_ids: Their run ids.
        environment: The variables by which a program finds them.
    """

    urls: tuple[str, ...]
    run_ids: tuple[str, ...]
    environment: Mapping[str, str]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand nodes to a worker of pytest-xdist. Runs in the controller."""
    node.workerinput[_RUN] = _prefix(node.config)
    try:
        nodes = _started(node.config)
    except ConfigError:
        # There is no server. A worker that needs one says so.
        return
    started = sorted(embedded.started.intersection(nodes.urls))
    node.workerinput[_HANDED] = (list(nodes.urls), list(nodes.run_ids), dict(nodes.environment), started)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Undo what the workers of pytest-xdist have made. Runs in the controller, after them."""
    config = session.config
    if _nodes in config.stash and config.pluginmanager.hasplugin("dsession"):
        _undo(config.stash[_nodes].urls, _prefix(config))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the nodes."""
    if _nodes in config.stash:
        config.stash[_nodes].close()


class Clients:
    """Makes clients of the session's nodes, and closes them when the test ends.

    All clients of one test share a prefix that no other test has. So they compete for the same
    locks, and what an earlier test has left behind does not matter.

    Attributes:
        prefix: The prefix of all names in this test.
    """

    def __init__(self, urls: tuple[str, ...]) -> None:
        self.prefix = f"test-{secrets.token_hex(4)}:"
        self._urls = urls
        self._made: list[Holdfast] = []
        self._made_for_asyncio: list[asynchronous.Holdfast] = []

    def __call__(self, **options: Any) -> Holdfast:
        """Make a client for threads.

        `options`: the client's own; `prefix` is the test's unless you name another one.
        """
        client = Holdfast(*self._urls, **{"prefix": self.prefix, **options})
        self._made.append(client)
        return client

    def aio(self, **options: Any) -> asynchronous.Holdfast:
        """Make a client for asyncio, with the same options.

        It ends with its event loop, if the test does not close it before.
        """
        client = asynchronous.Holdfast(*self._urls, **{"prefix": self.prefix, **options})
        self._made_for_asyncio.append(client)
        return client

    def close(self) -> None:
        """Close all clients."""
        for client in self._made:
            client.close()
        for waits in self._made_for_asyncio:
            # A loop that is over has ended its client. One that lasts for longer than a test has
            # not, and runs no code now.
            for loop in {loop for drivers in waits._loops for loop in drivers}:
                if not loop.is_closed() and not loop.is_running():
                    loop.run_until_complete(waits.close())


@pytest.fixture(scope="session")
def holdfast_nodes(request: pytest.FixtureRequest) -> Nodes | SharedNodes:
    """Three real nodes for the whole run. With pytest-xdist, all workers share them.

    Do not harm them: `lock_cluster` is for that.

    Override this fixture for other nodes, such as `holdfast.testing.memory()`, which needs no
    server.
    """
    handed = getattr(request.config, "workerinput", {}).get(_HANDED)
    if handed is None:
        return _started(request.config)
    urls, run_ids, environment, started = handed
    # The credentials of the environment are not for them in this process either.
    embedded.started.update(started)
    return SharedNodes(tuple(urls), tuple(run_ids), environment)


@pytest.fixture(scope="session")
def once_per_run(holdfast_nodes: Nodes | SharedNodes, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """A function that makes something once for all workers of pytest-xdist, and returns it to each.

    `once_per_run("database", make_database)` calls `make_database()` in one worker. The others wait
    for what it returns, which must be JSON. `at_end` undoes it.
    """
    shared = hasattr(request.config, "workerinput")
    if shared and not isinstance(holdfast_nodes, SharedNodes):
        raise Misuse("once_per_run needs nodes that all workers share: do not override the fixture holdfast_nodes")
    prefix = _prefix(request.config)
    with Holdfast(*holdfast_nodes.urls, prefix=prefix) as client:

        def once(key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return client.once(key, keep=KEEP).run(function, *args, **kwargs)

        yield once
    if not shared:
        _undo(holdfast_nodes.urls, prefix)


@pytest.fixture
def holdfast_client(holdfast_nodes: Nodes | SharedNodes) -> Iterator[Clients]:
    """Make clients for one test.

    `holdfast_client(ttl=2)` makes one for threads, `holdfast_client.aio(ttl=2)` one for asyncio.
    """
    clients = Clients(holdfast_nodes.urls)
    try:
        yield clients
    finally:
        clients.close()


@pytest.fixture
def locks(holdfast_client: Clients) -> Holdfast:
    """A client for threads, new for each test."""
    return holdfast_client()


@pytest.fixture
def alocks(holdfast_client: Clients) -> asynchronous.Holdfast:
    """A client for asyncio, new for each test, with the same names as `locks`."""
    return holdfast_client.aio()


@pytest.fixture
def lock_cluster() -> Iterator[Nodes]:
    """Five real nodes for one test, which may kill, restart and freeze them."""
    with Nodes(5) as nodes:
        yield nodes


def _started(config: pytest.Config) -> Nodes:
    """The nodes of this process, which it starts at the first use."""
    if _nodes not in config.stash:
        nodes = Nodes(3)
        nodes.start()
        config.stash[_nodes] = nodes
    return config.stash[_nodes]


def _prefix(config: pytest.Config) -> str:
    """The prefix of what is made once. Nodes that stay know what earlier runs have made."""
    handed: str | None = getattr(config, "workerinput", {}).get(_RUN)
    return handed or config.stash.setdefault(_run, f"run-{secrets.token_hex(8)}:")


def _undo(urls: tuple[str, ...], prefix: str) -> None:
    """Call the functions of `at_end` whose key was made, also if one of them raises."""
    if not ends:
        return
    errors = list[Exception]()
    with Holdfast(*urls, prefix=prefix) as client:
        for key, function in ends.items():
            try:
                made = client.once(key, keep=KEEP).result()
                if made:
                    function(made.value)
            except Exception as error:
                error.add_note(f"at_end({key!r})")
                errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("functions of at_end failed", errors)
