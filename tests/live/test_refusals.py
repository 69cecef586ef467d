"""A proxy that cannot be a node, Debian's twemproxy, is refused in words that say what it may be, before `node_timeout` is over.

What servers, Sentinels and other products say of themselves: tests/wire/test_handshake.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from contract.cluster import ask
from contract.faces import Face
from live.test_promotion import ports
from nemesis.processes import Running, free_port

from holdfast.errors import NoQuorum

NODE_TIMEOUT = 10.0  # seconds: a refusal needs none of them, however busy the machine is


def program(name: str) -> str:
    found = shutil.which(name) or f"/usr/sbin/{name}"
    if not Path(found).exists():
        pytest.skip(f"needs {name} (apt-get install {name})")
    return found


def answers(port: int) -> bool:
    try:
        return ask(f"redis://127.0.0.1:{port}", "GET", "x") is None
    except OSError:
        return False


async def test_a_proxy_that_understands_commands(face: Face, tmp_path: Path) -> None:
    """twemproxy hangs up at the first command that it does not know, HELLO. So may a server that is just going: nobody is told of a
    mistake, and the cause says what it may be."""
    async with ports(face, 1) as nodes:
        listens, file, server = free_port(), tmp_path / "nutcracker.yml", nodes.urls[0].removeprefix("redis://")
        file.write_text(f"pool:\n  listen: 127.0.0.1:{listens}\n  redis: true\n  servers:\n   - {server}:1\n")
        with Running(program("nutcracker"), "-c", file, "-s", free_port(), "-a", "127.0.0.1", "-o", tmp_path / "log"):
            await face.until(lambda: answers(listens))
            one = face.keep(face.kind(f"redis://127.0.0.1:{listens}", node_timeout=NODE_TIMEOUT, outage=0.2))
            began = face.now()
            with pytest.raises(NoQuorum, match="twemproxy"):
                await face.acquire(one.lock("x", wait=NODE_TIMEOUT))
            assert face.now() - began < NODE_TIMEOUT
            await face.finish()
