"""Run a command while holding a lock, by way of `holdfast serve`: client.py NAME COMMAND [ARG...]"""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

GATEWAY = urlsplit(os.environ.get("HOLDFAST_GATEWAY", "http://127.0.0.1:7420"))
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {os.getenv('HOLDFAST_GATEWAY_TOKEN', '')}", "Connection": "close"}
TTL = int(os.environ.get("TTL_MS", "10000"))
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # it goes on while the machine sleeps


class Lease:
    def __init__(self) -> None:
        self.id, self.until = os.urandom(16).hex(), 0.0
        self.said: dict[str, Any] = {}

    def left(self) -> float:
        return max(0.0, self.until - time.clock_gettime(CLOCK))

    def ask(self, method: str, path: str, body: dict[str, Any], patience: float) -> str:
        connection = getattr(http.client, f"{GATEWAY.scheme.upper()}Connection")(GATEWAY.netloc, timeout=patience)
        # Count from before it is sent: the answer may be on its way for long.
        sent = time.clock_gettime(CLOCK)
        try:
            connection.request(method, f"/v1/leases/{self.id}{path}", json.dumps(body), HEADERS)
            answer = connection.getresponse()
            self.said = json.load(answer) | {"fencing_token": answer.headers["Fencing-Token"]}
        # No answer, or that of a proxy which reached no gateway.
        except (OSError, http.client.HTTPException, ValueError):  # type: ignore[attr-defined]  # mypy takes this file for it
            return ""
        # With the gateway's name in its id, any gateway behind a balancer finds the lease.
        self.id = self.said.get("id", self.id)
        state = str(self.said.get("state") or self.said["type"].removeprefix("/problems/"))
        if state == "held":
            self.until = sent + self.said["valid_ms"] / 1000
        return "lost" if state in ("lost", "released", "unknown-lease", "gateway-gone") else state

    def beat(self) -> None:
        while left := self.left():
            time.sleep(min(TTL / 3000, left))
            if self.ask("POST", "/keepalive", {}, self.left() + 0.01) == "lost":
                self.until = 0.0


def main(name: str, *command: str) -> int:
    lease = Lease()
    # After a long wait, the answer's time is over when it comes, so it asks again. While it waits, it may begin again.
    while (state := lease.ask("PUT", "", {"names": [name], "ttl_ms": TTL, "wait_ms": 20_000}, 30)) != "held" or not lease.left():
        if state in ("lost", "gateway-unreachable"):
            lease = Lease()
        elif state not in ("held", "waiting", "", "draining", "overloaded", "no-quorum", "too-many"):
            print(f"client.py: {lease.said['detail']}", file=sys.stderr)
            return 75
        time.sleep(0 if state in ("held", "waiting") else 1)
    told: list[int] = []  # signals are for the command: from its beginning, none ends this program alone
    for it in (signal.SIGINT, signal.SIGTERM):
        signal.signal(it, lambda number, _: told.append(number))
    process = subprocess.Popen(command, env=os.environ | {"FENCING_TOKEN": lease.said["fencing_token"]}, start_new_session=True)
    # A time-out is for each step of a request, and not for all of it. So a thread asks, and this one looks at the clock.
    threading.Thread(target=lease.beat, daemon=True).start()
    while process.poll() is None and lease.left():
        process.send_signal(told.pop()) if told else time.sleep(min(0.01, lease.left()))
    if process.poll() is None:
        print("client.py: the lock is lost", file=sys.stderr)
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    lease.ask("DELETE", "", {}, 3)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
