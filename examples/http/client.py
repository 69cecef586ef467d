"""Run a command while holding a lock, by way of `holdfast serve`: client.py NAME COMMAND [ARG...]

The command gets FENCING_TOKEN, for the requests that it makes.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

GATEWAY = os.environ.get("HOLDFAST_GATEWAY", "http://127.0.0.1:7420")
TOKEN = os.environ.get("HOLDFAST_GATEWAY_TOKEN", "")
TTL = int(os.environ.get("TTL_MS", "10000"))
# A clock that goes on while the machine sleeps, as the gateway's does.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
OVER = {"lost", "released", "unknown-lease"}


def now() -> float:
    return time.clock_gettime(CLOCK)


class Lease:
    """A lease of a lock. It is held for certain only before `until`."""

    def __init__(self) -> None:
        self.path = f"/v1/leases/{secrets.token_hex(16)}"
        self.until = 0.0
        self.said: dict[str, Any] = {}
        self.fencing_token = ""

    def ask(self, method: str, path: str, body: dict[str, Any], patience: float) -> str:
        """Send a request. Returns the state that the answer says; empty if none came."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        request = urllib.request.Request(f"{GATEWAY}{self.path}{path}", json.dumps(body).encode(), headers, method=method)
        # Count from before it is sent: the answer may be on its way for long.
        sent = now()
        try:
            with urllib.request.urlopen(request, timeout=patience) as answer:
                self.said = json.load(answer)
                self.fencing_token = answer.headers.get("Fencing-Token", self.fencing_token)
        except urllib.error.HTTPError as error:
            self.said = json.load(error)
        except OSError:
            return ""
        state = str(self.said.get("state") or self.said["type"].removeprefix("/problems/"))
        if state == "held":
            self.until = sent + self.said["valid_ms"] / 1000
        return "lost" if state in OVER else state


def main(name: str, *command: str) -> int:
    lease, asked = Lease(), {"names": [name], "ttl_ms": TTL, "wait_ms": 20_000}
    while (state := lease.ask("PUT", "", asked, 30)) != "held":
        if state not in ("waiting", "", "draining", "overloaded", "no-quorum", "too-many"):
            print(f"client.py: {lease.said['detail']}", file=sys.stderr)
            return 75
        time.sleep(0 if state == "waiting" else 1)
    process = subprocess.Popen(command, env={**os.environ, "FENCING_TOKEN": lease.fencing_token}, start_new_session=True)
    while process.poll() is None:
        try:
            process.wait(min(TTL / 3000, max(0.0, lease.until - now())))
        except subprocess.TimeoutExpired:
            if lease.ask("POST", "/keepalive", {}, max(0.01, lease.until - now())) == "lost" or now() >= lease.until:
                print("client.py: the lock is lost", file=sys.stderr)
                os.killpg(process.pid, signal.SIGKILL)
    lease.ask("DELETE", "", {}, 3)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
