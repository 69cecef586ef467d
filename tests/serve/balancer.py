"""A real balancer before gateways: Debian's HAProxy, which asks `/readyz`, and takes them in turn."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from nemesis.processes import Running, free_port

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


def program() -> str:
    found = shutil.which("haproxy") or "/usr/sbin/haproxy"
    assert Path(found).exists(), "the tests need HAProxy: apt-get install haproxy"
    return found


class Balancer(Running):
    """An HAProxy before these ports."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        port, config = free_port(), folder / "haproxy.cfg"
        self.url = f"http://127.0.0.1:{port}"
        shared = "".join(it for it in BACKEND.splitlines(True) if not it.startswith("    server "))
        servers = "".join(f"    server gateway-{it} 127.0.0.1:{it} check\n" for it in ports)
        config.write_text(CONFIG.format(port=port, backend=shared + servers))
        super().__init__(program(), "-db", "-f", config)
