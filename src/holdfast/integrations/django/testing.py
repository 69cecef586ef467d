"""A test runner for `manage.py test --parallel`.

It starts servers once for a run, and each worker has names of its own. Knows Django's test runner.
"""

from __future__ import annotations

import os
from typing import Any

from django.test import runner
from django.test.utils import override_settings

from ... import Holdfast
from .locks import given, is_local

__all__ = ["HoldfastRunner"]


def _begin_worker(*begun: Any) -> None:
    """Begin a parallel worker as Django does, and keep its locks apart from those of others."""
    runner._init_worker(*begun)
    found = _nodes_apart()
    prefix = f"{found.pop('PREFIX', '')}{runner._worker_id}:"
    override_settings(HOLDFAST={**found, "PREFIX": prefix}).enable()


class _Suite(runner.ParallelTestSuite):  # type: ignore[misc]  # (Django has no types)
    init_worker = _begin_worker


class HoldfastRunner(runner.DiscoverRunner):  # type: ignore[misc]  # (Django has no types)
    """Django's test runner, with locks for parallel tests: `TEST_RUNNER` in your settings.

    With `HOLDFAST = {"NODES": "local"}`, it starts servers once for the run. With `--parallel`,
    each worker puts its number before all names, so that tests do not wait for each other's locks.
    """

    parallel_test_suite = _Suite
    _servers: Holdfast | None = None

    def setup_test_environment(self, **kwargs: Any) -> None:
        """Start the servers, if the settings ask for them.

        Args:
            kwargs: As Django passes them.
        """
        super().setup_test_environment(**kwargs)
        if not is_local():
            return
        self._servers = Holdfast.local(3)
        # Workers that are not forked read the environment too.
        assert self._servers.servers is not None
        os.environ.update(self._servers.servers.environment)
        self._settings = override_settings(HOLDFAST=_nodes_apart())
        self._settings.enable()

    def teardown_test_environment(self, **kwargs: Any) -> None:
        """Stop the servers.

        Args:
            kwargs: As Django passes them.
        """
        if self._servers is not None:
            self._settings.disable()
            self._servers.close()
        super().teardown_test_environment(**kwargs)


def _nodes_apart() -> dict[str, Any]:
    """The settings without "local": the environment has the addresses of the servers."""
    return {it: value for it, value in given().items() if it != "NODES" or not is_local()}
