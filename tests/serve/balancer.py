"""A real balancer before gateways: Debian's HAProxy, which asks `/readyz`, and takes them in turn."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

CONFIG = """
global
    maxconn 2000
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 60s
    timeout queue 5s
    retries 2
    option redispatch
frontend clients
    bind 127.0.0.1:{port}
    default_backend gateways
{backend}"""
PAGE = Path(__file__).parents[2] / "docs/gateway.md"
# As the page has it, but for the addresses.
BACKEND = "backend gateways\n" + PAGE.read_text().partition("```text\nbackend gateways\n")[2].partition("```")[0]


def free() -> int:
    """A port that nobody has. A program that is told it listens there soon.

    Not one of those that the kernel gives to connections: while nobody listens there, one of them might get it.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are all in use")


def program() -> str:
    found = shutil.which("haproxy") or "/usr/sbin/haproxy"
    assert Path(found).exists(), "the tests need HAProxy: apt-get install haproxy"
    return found


class Balancer:
    """An HAProxy before these ports."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self.port = free()
        self.url = f"http://127.0.0.1:{self.port}"
        self._config = folder / "haproxy.cfg"
        shared = "".join(it for it in BACKEND.splitlines(True) if not it.startswith("    server "))
        servers = "".join(f"    server gateway-{it} 127.0.0.1:{it} check\n" for it in ports)
        self._config.write_text(CONFIG.format(port=self.port, backend=shared + servers))
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        words = [program(), "-db", "-f", str(self._config)]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def restart(self) -> None:
        """Kill it with all its connections, and start it again."""
        self._end(signal.SIGKILL)
        self._process = self._started()

    def stop(self, seconds: float) -> None:
        """Let it swallow everything for a while: connections open, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait()


