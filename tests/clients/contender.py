"""One process of the storm. It takes the lock again and again, and writes down when it held it, as clients/node/storm does."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from typing import Any

from holdfast import Holdfast, LockBusy, LockLost, NoQuorum


def main(task: dict[str, Any]) -> None:
    file = os.open(task["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    locks = Holdfast(*task["urls"], max_ttl=task["maxTtl"] / 1000, prefix=task["prefix"], ttl=task["ttl"] / 1000)
    register = socket.create_connection(("127.0.0.1", task["register"])).makefile("rw")

    def says(*words: object) -> str:
        print(*words, file=register, flush=True)
        return register.readline().strip()

    while True:
        lock = locks.lock(task["name"], wait=0 if random.random() < 0.1 else 5)
        try:
            with lock as lease:
                old = says("read", lease.fence)
                # Some sections are longer than a lease, and are renewed.
                for _ in range(500 if random.random() < task["long"] else random.randint(3, 10)):
                    now = time.monotonic_ns()
                    lease.check()
                    os.write(file, b"%d %d\n" % (lease.fence, now))
                    time.sleep(0.001)
                if old != "refused":
                    says("write", lease.fence, old, int(old) + 1)
        except (LockBusy, LockLost, NoQuorum):
            pass
        time.sleep(random.uniform(0.001, 0.1))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
