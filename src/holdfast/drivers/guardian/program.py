"""What a guardian runs: it waits for the death of a client's process, and releases its tokens.

It runs by itself and imports nothing of holdfast, save for TLS: a process that does next to nothing
should be small. Knows the form of the `records`, and what the `keeper` tells it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # (`signal` loads enum)
import _socket
import marshal
import os
import select
import sys
import time
from _thread import LockType, allocate_lock, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GRAIN = 256
# Seconds before each attempt to release everything at a node. `ENOUGH` of them succeed: the node may
# read what the dead process has sent last after the first.
PAUSES = (0.0, 0.002, 0.02, 0.2, 1.0, 3.0)
ENOUGH = 3
# Seconds that a node may take to answer.
PATIENCE = 2.0
# Seconds after which it looks again which processes live, first and at last.
SOON, LATER = 0.005, 1.0


class NodeAccess:
    """How to speak to a node.

    Args:
        told: What the client has told: the values of all attributes.

    Attributes:
        engine: The number of the engine whose node it is.
        node: Its number there.
        lasts: Seconds that a lease on it lasts at most.
        place: Its host and port, or the path of its socket.
        login: A user and a password, if it wants them.
        database: The number of its database.
        tls: The options of its TLS, if it uses it.
        context: What they are worth.
    """

    engine: int
    node: int
    lasts: float
    place: tuple[str, int] | str
    login: tuple[bytes, bytes] | None
    database: int
    tls: dict[str, Any] | None

    def __init__(self, told: dict[str, object]) -> None:
        vars(self).update(told)
        if self.tls is not None:
            # Loaded now, and not when there is a hurry. The package would load far more by itself.
            package = type(sys)("holdfast")
            here = os.path.abspath(__file__)
            package.__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(here)))]
            sys.modules.setdefault("holdfast", package)
            from holdfast.drivers.tls import context
            from holdfast.wire.address import Tls

            self.context = context(Tls(**self.tls), "")


def main(process: int, link: int, records: int, mark: str, born: int) -> None:
    """Wait for the client's process to die, then release what it has recorded.

    Args:
        process: Its pidfd.
        link: The socket on which it tells of nodes, of which its forks have copies.
        records: The file of its records.
        mark: What the environment of all that it starts has in it.
        born: When it started, as `/proc` says.
    """
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)
    nodes: dict[tuple[int, int], NodeAccess] = {}
    # How long a lease may last, of which a client tells before it asks for one.
    lasts, died = LATER, float("inf")
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    waiting.register(link, select.POLLIN)
    left = {process, link}
    while left:
        for file, _ in waiting.poll(None if process in left else LATER * 1000):
            message = b"" if file == process else os.read(link, 1 << 20)
            if message:
                try:
                    node = NodeAccess(marshal.loads(message))
                except Exception:
                    # A certificate cannot be read any more: the locks there end with their ttl.
                    continue
                lasts = max(lasts, node.lasts)
                nodes[node.engine, node.node] = node
                continue
            waiting.unregister(file)
            left.discard(file)
            if file == process:
                died = time.monotonic()
        if time.monotonic() >= died + lasts:
            return
    pause = SOON
    while kin := _kin(mark.encode(), born):
        _await(kin, pause)
        pause = min(pause * 2, LATER)
        if time.monotonic() >= died + lasts:
            return
    _free(nodes, _recorded(records))


# ---------------------------------------------------------- who lives


def _kin(mark: bytes, born: int) -> int:
    """Return the id of a process that the dead one has started, or 0."""
    me, reaper = os.getpid(), os.getppid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == me:
            continue
        try:
            # The state, the parent, and (the 20th) when it started.
            status = _read(name, "stat").rpartition(b") ")[2].split()
            if int(status[19]) < born or status[0] in b"ZX":
                continue
            environment = _read(name, "environ")
            # One that is just being started has no environment yet. It has the parent that this
            # process has now, which was a child of the dead one, too.
            new = not environment and int(status[1]) == reaper
            if new or mark in environment or mark in _read(name, "maps"):
                return int(name)
        except (OSError, IndexError):
            # It has ended, or is another user's.
            continue
    return 0


def _read(process: str, name: str) -> bytes:
    file = os.open(f"/proc/{process}/{name}", os.O_RDONLY)
    try:
        parts = [os.read(file, 1 << 16)]
        # A status is read at once.
        while name != "stat" and (part := os.read(file, 1 << 16)):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _await(process: int, seconds: float) -> None:
    """Wait until a process has ended, but no longer than this."""
    try:
        file = os.pidfd_open(process)
    except OSError:
        return
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    waiting.poll(seconds * 1000)
    os.close(file)


# ---------------------------------------------------------- what is released


def _recorded(file: int) -> dict[int, list[bytes]]:
    """Return the commands that are recorded, by the number of the engine."""
    used = int.from_bytes(os.pread(file, 8, 0), "little")
    data, place = os.pread(file, used, 0), GRAIN
    found: dict[int, list[bytes]] = {}
    while place < used:
        engine = int.from_bytes(data[place + 2 : place + 4], "little")
        end = place + 8 + int.from_bytes(data[place + 4 : place + 8], "little")
        if data[place]:
            found.setdefault(engine, []).append(data[place + 8 : end])
        place += data[place + 1] * GRAIN
    return found


def _free(nodes: dict[tuple[int, int], NodeAccess], recorded: dict[int, list[bytes]]) -> None:
    """Release everything on all nodes at once."""
    threads = []
    for (engine, _), node in nodes.items():
        if engine in recorded:
            threads.append(allocate_lock())
            threads[-1].acquire()
            start_new_thread(_release, (node, recorded[engine], threads[-1]))
    for done in threads:
        done.acquire()


def _release(node: NodeAccess, commands: list[bytes], done: LockType) -> None:
    link: _socket.socket | None = None
    told = 0
    for pause in PAUSES:
        time.sleep(pause)
        try:
            if link is None:
                link = _connected(node)
            _say(link, commands)
            told += 1
        except Exception:
            link = None
        if told == ENOUGH:
            break
    done.release()


def _connected(node: NodeAccess) -> _socket.socket:
    """Connect to a node, and say who speaks. Locks are not released where it is not believed."""
    place = node.place
    where: Any
    if isinstance(place, str):
        family, where = _socket.AF_UNIX, place
    else:
        family, _, _, _, where = _socket.getaddrinfo(*place, 0, _socket.SOCK_STREAM)[0]
    link = _socket.socket(family, _socket.SOCK_STREAM)
    link.settimeout(PATIENCE)
    link.connect(where)
    if node.tls is not None:
        import socket

        plain = socket.socket(fileno=link.detach())
        plain.settimeout(PATIENCE)
        link = node.context.wrap_socket(plain, server_hostname=place[0].partition("%")[0])
    greeting: list[tuple[bytes, ...]] = [(b"CLIENT", b"SETNAME", b"holdfast-guardian")]
    if node.database:
        greeting.insert(0, (b"SELECT", b"%d" % node.database))
    if node.login is not None:
        greeting.insert(0, (b"AUTH", *node.login))
    _say(link, [b"*%d\r\n%b" % (len(it), b"".join(map(_bulk, it))) for it in greeting])
    return link


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


def _say(link: _socket.socket, commands: list[bytes]) -> None:
    """Say all this, and read as many answers. Each is one line."""
    link.sendall(b"".join(commands))
    left = len(commands)
    while left > 0:
        data = link.recv(65536)
        if not data:
            raise ConnectionError
        left -= data.count(b"\n")


if __name__ == "__main__":
    with open("/proc/self/comm", "w") as comm:
        comm.write("holdfast-guard")
    client, told, noted, marked, began = sys.argv[1:]
    main(int(client), int(told), int(noted), marked, int(began))
    os._exit(0)
