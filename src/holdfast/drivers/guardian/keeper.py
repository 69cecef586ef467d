"""What a client does for its guardian: it starts the process, and records what it asks nodes for.

Knows processes and forks. Must not know how a guardian judges that everybody is dead, or how it
speaks to nodes: `program` does.

There is one guardian for each process, whatever number of clients and event loops it has. It ends
with the last of them, or with the process.
"""

from __future__ import annotations

import _socket
import marshal
import os
import subprocess
import sys
from _thread import allocate_lock
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from ...errors import ConfigError
from ...log import logger
from ...protocol.claim import Claim
from ...wire.address import Address
from ..access import Access
from ..forks import FORKS
from .records import Records

# In the environment of what this process starts: a mark for this process, and for each that it was
# forked by. (As in `program`.)
MARK = "HOLDFAST_GUARDED"
# How often a guardian may end by itself, or not be started, before there is none any more.
FAILURES = 3
# How many records are written between two looks whether the guardian lives. (A power of two.)
LOOKS = 64


class Keeper:
    """The guardian of this process, as its clients see it."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        # Its name is in `/proc/*/maps` of each fork.
        self.records = Records(f"holdfast-{mark}")
        self.engines = count(1)
        self.users: set[int] = set()
        self._told: dict[tuple[int, int], bytes] = {}
        # The number of a file, and no object: a fork would close that at its end, with a warning.
        self._link = -1
        self._guardian: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._starting = allocate_lock()
        # How many records were written.
        self.written = count(1)
        self._full = False

    def tell(self, engine: int, node: int, message: bytes) -> None:
        """Tell the guardian how to speak to a node, and start it if it does not run."""
        self._told[engine, node] = message
        if self._guardian is None:
            self._start()
        else:
            self._send(message)

    def look(self) -> None:
        """Start the guardian again if it has ended."""
        guardian = self._guardian
        if guardian is not None and guardian.poll() is not None:
            self._guardian = None
            self._cut()
            self._failures += 1
            _warn(f"the guardian of this process has ended with status {guardian.returncode}")
            self._start()

    def full(self) -> None:
        """Note that a record was not written."""
        if not self._full:
            self._full = True
            _warn("this process has more locks than its guardian has room for")

    def stop(self) -> None:
        """End the guardian: nothing is to be released."""
        guardian, self._guardian = self._guardian, None
        self._cut()
        if guardian is not None:
            guardian.kill()
            guardian.wait()

    def _start(self) -> None:
        # (Another thread, or what the handler of a signal has interrupted, is doing it.)
        if self._failures >= FAILURES or not self._starting.acquire(False):
            return
        try:
            # (Not of `socket`, which gevent may have patched.)
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            self._link = ours.detach()
            me = os.pidfd_open(os.getpid())
            files = (me, theirs.fileno(), self.records.file)
            program = os.path.join(os.path.dirname(__file__), "program.py")
            environment = {name: value for name, value in os.environ.items() if name != MARK}
            try:
                # A session of its own: Ctrl-C, and a signal to the whole group, do not reach it.
                self._guardian = subprocess.Popen(
                    [sys.executable, "-I", "-S", program, *map(str, files), self._mark, str(_born())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=environment,
                    pass_fds=files,
                    start_new_session=True,
                )
            finally:
                os.close(me)
                theirs.close()
            for message in list(self._told.values()):
                self._send(message)
        except (OSError, RuntimeError) as error:
            self._failures += 1
            self._cut()
            _warn(f"the guardian of this process cannot be started: {error}")
        finally:
            self._starting.release()

    def _send(self, message: bytes) -> None:
        # It fails if the guardian is stopped and has not read for long, or has ended: then locks end
        # with their ttl.
        with suppress(OSError, ValueError):
            link = _socket.socket(fileno=self._link)
            try:
                link.send(message, _socket.MSG_NOSIGNAL)
            finally:
                link.detach()

    def _cut(self) -> None:
        link, self._link = self._link, -1
        if link >= 0:
            os.close(link)


def _warn(what: str) -> None:
    logger("guardian").warning("%s. Without it, the locks of a killed process are free after their ttl", what)


class GuardedEngine:
    """One engine's part in the guardian of its process."""

    def __init__(self, lasts: float, access: Sequence[Access]) -> None:
        self._lasts, self._access = lasts, access
        self._keeper: Keeper | None = None
        # By token: where its record is.
        self._places: dict[bytes, int] = {}

    def connected(self, node: int, address: Address) -> None:
        """Note where a node is, and whom it knows this client as."""
        if self._keeper is None:
            try:
                self._keeper = _keeper()
            except OSError as error:
                _warn(f"the guardian of this process has no memory: {error}")
                return
            self._engine = next(self._keeper.engines) % 65536
            self._keeper.users.add(id(self))
        tls = self._access[node].tls
        login = ((address.user or "default").encode(), address.password.encode())
        self._keeper.tell(
            self._engine,
            node,
            marshal.dumps({
                "engine": self._engine,
                "node": node,
                "lasts": self._lasts,
                "place": address.path or (address.host, address.port),
                "login": login if address.user or address.password else None,
                "database": address.database,
                "tls": None if tls is None else {it: getattr(tls, it) for it in type(tls).fields},
            }),
        )  # fmt: skip

    def asks(self, claim: Claim, token: bytes) -> None:
        """Note that a request with this token is about to leave."""
        keeper = self._keeper
        if keeper is None or claim.stays:
            return
        # At each renewal, and now and then.
        known = token in self._places
        if known or not next(keeper.written) % LOOKS:
            keeper.look()
        # One that stays taken for a while is nobody's to release.
        if known or claim.timing.at_least:
            return
        place = keeper.records.write(self._engine, claim.recipe.release(token, True, 0.0))
        if place:
            self._places[token] = place
        else:
            keeper.full()

    def ends(self, token: bytes) -> None:
        """Note that the release of this token is about to leave."""
        if self._keeper is not None and (place := self._places.pop(token, 0)):
            self._keeper.records.drop(place)

    def stays(self, token: bytes) -> None:
        """Note that this token is not to be released."""
        if self._keeper is not None and (place := self._places.pop(token, 0)):
            self._keeper.records.clear(place)

    def close(self) -> None:
        """Note that the engine has ended."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None and keeper is _keepers.get(_me()):
            for place in self._places.values():
                keeper.records.drop(place)
            keeper.users.discard(id(self))
            if not keeper.users:
                # (A client that has begun just now keeps it, and starts a guardian again.)
                del _keepers[_me()]
                keeper.stop()


def prepare(access: Sequence[Access]) -> None:
    """Check that a guardian can work here, and mark what this process starts from now on.

    Raises:
        ConfigError: It cannot.
    """
    if not hasattr(os, "pidfd_open") or not hasattr(os, "memfd_create"):
        raise ConfigError("guardian=True needs Linux 5.3 or newer, which tells when another process has died")
    try:
        os.close(os.pidfd_open(os.getpid()))
        _born()
    except OSError as error:
        raise ConfigError(f"guardian=True needs Linux 5.3 or newer, and /proc: {error}") from None
    if getattr(sys, "frozen", False) or not sys.executable:
        raise ConfigError("guardian=True starts a Python process, and sys.executable is no Python here")
    if own := [it.address.label for it in access if it.address.tls is not None and it.tls is None]:
        raise ConfigError(
            f"{', '.join(own)}: guardian=True cannot hand an SSLContext to another process: leave ssl= out, and "
            "write ssl_... options in the address"
        )
    if _me() not in _marks:
        _mark()


def _born() -> int:
    """Return when this process started, as `/proc` counts it."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b") ")[2].split()[19])


# By process: its mark, and its guardian, once it needs one. A fork keeps those of the processes that
# it was forked by, whose memory it goes on to share: by that, their guardians know it.
_marks: dict[tuple[int, int], str] = {}
_keepers: dict[tuple[int, int], Keeper] = {}


def _me() -> tuple[int, int]:
    return os.getpid(), len(FORKS)


def _mark() -> str:
    mark = _marks[_me()] = os.urandom(8).hex()
    os.environ[MARK] = f"{os.environ.get(MARK, '')} {mark}".lstrip()
    return mark


def _keeper() -> Keeper:
    me = _me()
    if me not in _keepers:
        # A fork that Python was not told of has no mark.
        _keepers.setdefault(me, Keeper(_marks.get(me) or _mark()))
    return _keepers[me]


def _forked() -> None:
    if _marks:
        _mark()


os.register_at_fork(after_in_child=_forked)
