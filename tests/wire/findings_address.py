"""A finding in wire/address.py: this fails today."""

from __future__ import annotations

import traceback

import pytest

from holdfast.errors import ConfigError
from holdfast.wire.address import parse


@pytest.mark.parametrize("start", ["8675309", "sEcr3t:", "sEcr3t]"])
@pytest.mark.parametrize("special", "/?#")
@pytest.mark.parametrize("frame", ["redis://me:{}@h", "unix://:{}@/run/r.sock", "http://:{}@h"])
def test_the_beginning_of_an_unescaped_password_is_seen_nowhere(frame: str, special: str, start: str) -> None:
    """What stands before the first / ? # is shown as if it were host and port, whenever it looks a little like that.

    When something is hidden (an @ behind the first / ? #), nothing of what stands before can be told from a password: show "redis://...".
    """
    with pytest.raises(ConfigError) as caught:
        parse(frame.format(f"{start}{special}rest"))
    assert start not in "".join(traceback.format_exception(caught.value))
