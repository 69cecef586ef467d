"""Defects that the audit of behaviours found, each as a test that fails today. Not collected by itself: name the file to run it.

When one is mended, its test moves to the module that it belongs to.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigError
from holdfast.wire.address import parse


@pytest.mark.parametrize(
    "url",
    [
        "redis://cache\n.example",  # connects to cache.example: white space is dropped in silence
        "redis://cache\t.example",
        "redis://h h",  # the others are refused only by a name server, every second, for ever
        "redis://h\0",
        "redis://\x7f",
        "redis://h%41",
        "redis://h:0",
        "unix:///run/a%00.sock",
        "unix:///run/a%0AERROR forged.sock",  # the label, and so each line of the log, has a line break in it
    ],
)
def test_b15_an_address_that_cannot_be_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError):
        parse(url)


def test_a_host_that_cannot_be_looked_up_is_refused_at_once() -> None:
    """A label of more than 63 bytes, or an empty one: no name server can be asked."""
    for host in ("a" * 70, "a..b"):
        with pytest.raises(ConfigError):
            parse(f"redis://{host}")


def test_b15_an_empty_list_of_nodes_is_not_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that came out empty must not lead to another cluster. (`Holdfast()` may.)"""
    monkeypatch.setenv("HOLDFAST_NODES", "redis://elsewhere")
    nothing: Any = []
    with pytest.raises(ConfigError, match="no nodes"):
        Holdfast(nothing)
