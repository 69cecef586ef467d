"""A directory for sockets: private, with a short path, or an error that says what to do."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.folders import LONGEST, private


def test_the_directory_is_private_and_a_socket_fits(tmp_path: Path) -> None:
    folder = private("node-3/socket")
    try:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent == Path(tempfile.gettempdir())
    finally:
        folder.rmdir()


@pytest.mark.parametrize("over", [0, 1])
def test_a_path_may_be_just_as_long_as_an_address_has_room(over: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    within = len("/holdfast-12345678/socket")
    base = tmp_path / ("x" * (LONGEST - within - len(str(tmp_path)) - 1 + over))
    base.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    folder = private("socket")
    try:
        assert folder.parent == (Path("/tmp") if over else base)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            (folder / "socket").unlink()
    finally:
        folder.rmdir()


@pytest.mark.parametrize("name", ["has space", "50%", "question?"])
def test_what_a_url_would_have_to_quote_is_not_used(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(tempfile.mkdtemp(dir="/tmp", suffix=name))
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    folder = private("socket")
    try:
        assert folder.parent == Path("/tmp")
    finally:
        folder.rmdir()
        base.rmdir()


def test_no_directory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="Set TMPDIR to a directory with a short name"):
        private("socket")
