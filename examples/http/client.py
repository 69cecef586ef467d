"""Run a command while holding a lock, by way of `holdfast serve`: client.py NAME COMMAND [ARG...]"""

import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

GATEWAY = urlsplit(os.environ.get("HOLDFAST_GATEWAY", "http://127.0.0.1:7420"))
TOKEN = "Bearer " + os.environ.get("HOLDFAST_GATEWAY_TOKEN", "")
HEADERS = {"Content-Type": "application/json", "Authorization": TOKEN, "Connection": "close"}
TTL = int(os.environ.get("TTL_MS", "10000"))
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # it goes on while the machine sleeps
OVER = {"lost", "released", "unknown-lease", "gateway-gone"}


class Lease:
    def __init__(self) -> None:
        self.id, self.until, self.fencing_token = secrets.token_hex(16), 0.0, ""
        self.said: dict[str, Any] = {}

    @property
    def left(self) -> float:
        return max(0.0, self.until - time.clock_gettime(CLOCK))

    def ask(self, method: str, path: str, body: dict[str, Any], patience: float) -> str:
        by = getattr(http.client, f"{GATEWAY.scheme.upper()}Connection")  # HTTPConnection, or HTTPSConnection
        connection = by(GATEWAY.netloc, timeout=patience)
        # Count from before it is sent: the answer may be on its way for long.
        sent = time.clock_gettime(CLOCK)
        try:
            connection.request(method, f"/v1/leases/{self.id}{path}", json.dumps(body), HEADERS)
            answer = connection.getresponse()
            self.said = json.load(answer)
        # No answer, or that of a proxy which reached no gateway.
        except (OSError, http.client.HTTPException, ValueError):  # type: ignore[attr-defined]  # mypy takes this file for it
            return ""
        # With the gateway's name in its id, any gateway behind a balancer finds the lease.
        self.id = self.said.get("id", self.id)
        state = str(self.said.get("state") or self.said["type"].removeprefix("/problems/"))
        if state == "held":
            self.until, self.fencing_token = sent + self.said["valid_ms"] / 1000, answer.headers["Fencing-Token"]
        return "lost" if state in OVER else state


def beat(lease: Lease) -> None:
    while left := lease.left:
        time.sleep(min(TTL / 3000, left))
        if lease.ask("POST", "/keepalive", {}, lease.left + 0.01) == "lost":
            lease.until = 0.0


def main(name: str, *command: str) -> int:
    lease, asked = Lease(), {"names": [name], "ttl_ms": TTL, "wait_ms": 20_000}
    # Only an answer in time makes it believe that it has the lock. While it waits, it may begin again.
    while (state := lease.ask("PUT", "", asked, 30)) != "held":
        if state in ("lost", "gateway-unreachable"):
            lease, state = Lease(), ""
        if state not in ("waiting", "", "draining", "overloaded", "no-quorum", "too-many"):
            print(f"client.py: {lease.said['detail']}", file=sys.stderr)
            return 75
        time.sleep(0 if state == "waiting" else 1)
    process = subprocess.Popen(command, env={**os.environ, "FENCING_TOKEN": lease.fencing_token}, start_new_session=True)
    # A time-out is for each step of a request, and not for all of it. So a thread asks, and this one looks at the clock.
    threading.Thread(target=beat, args=(lease,), daemon=True).start()
    while process.poll() is None:
        try:
            process.wait(min(0.05, lease.left))
        except subprocess.TimeoutExpired:
            if not lease.left:
                print("client.py: the lock is lost", file=sys.stderr)
                os.killpg(process.pid, signal.SIGKILL)
    lease.ask("DELETE", "", {}, 3)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
