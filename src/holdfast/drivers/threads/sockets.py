"""The sockets of one I/O thread, and the bell that wakes it.

Knows `poll`, sockets, TLS and descriptors. Must not know callers, leases or the protocol.

What is sent and received goes through `unyielding`, which keeps the interpreter's lock: the I/O
thread gives up the interpreter only to sleep.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...clock import Sources
from ...engine.engine import Engine
from ...engine.ready import Ready
from ...wire.address import Address
from .. import sockets, unyielding
from ..access import Access, Places
from ..greenlets import start_new_thread

if TYPE_CHECKING:
    from ..tls import Tunnel

Ask = Callable[[Callable[[float], None]], None]

CHUNK = 65536
# Bytes that are read from one node before the others have their turn.
GULP = 1 << 18
# Seconds between two looks at the sockets while the kernel has no memory or no descriptors for
# waiting.
GLANCE = 0.05


class NodeSocket:
    """One socket: connecting, then connected.

    Attributes:
        address: With the place and the credentials of the moment.
        asked: When the place was asked for.
        tunnel: Its TLS, if it has one.
        rest: Bytes that the kernel has not taken yet.
        opening: Is it still connecting?
    """

    def __init__(self, node: int, places: Places, address: Address, tunnel: Tunnel | None, asked: float) -> None:
        self.node = node
        self.places = list(places)
        self.address = address
        self.asked = asked
        self.tunnel = tunnel
        self.rest = b""
        self.opening = True
        family, where = self.places.pop(0)
        self.sock = sockets.open_socket(family)
        self.file = self.sock.fileno()
        try:
            self.sock.connect(where)
        except BlockingIOError:
            pass
        except BaseException:
            self.sock.close()
            raise


class WakeupPipe:
    """A pipe that callers ring and the I/O thread polls.

    It is closed with the last reference to the bell. A caller that rings has one: between the
    number of a file and the write to it another thread may run, and the number of a file that was
    closed may be a stranger's by then.
    """

    def __init__(self) -> None:
        self.file = -1
        self.clapper = -1

    def hang(self) -> bool:
        """Make the pipe.

        False without descriptors: then the I/O thread looks at short intervals instead.
        """
        try:
            file, clapper = os.pipe()
        except OSError:
            return False
        os.set_blocking(file, False)
        os.set_blocking(clapper, False)
        self.file = file
        self.clapper = clapper
        return True

    def ring(self) -> None:
        """Wake the I/O thread. Callers do, on their own threads."""
        try:
            os.write(self.clapper, b"!")
        except OSError:
            # It is full of rings, or was never hung.
            pass

    def close(self) -> None:
        """Close the pipe, if there is one. In a forked child these are copies of the parent's.

        Of several threads that do so, one closes each file.
        """
        for name in ("file", "clapper"):
            # (One C call, so one thread gets the number.)
            file = vars(self).pop(name, -1)
            setattr(self, name, -1)
            if file >= 0:
                os.close(file)

    __del__ = close


class Sockets:
    """All sockets of an I/O thread: it waits for them, reads, sends, dials and hangs up, and tells
    the engine.

    Attributes:
        by_node: The link to each node; None while there is none.
        by_file: The same, by the number of the file.
        closing: Whether the client is being closed, so that no node is dialled any more.
        drained: Whether the kernel has just taken what one link had left over. Then its connection
            may have more to say.
    """

    def __init__(self, engine: Engine, access: Sequence[Access], sources: Sources) -> None:
        self.engine = engine
        self.clock = sources.clock
        self.closing = False
        self.drained = False
        self.bell = WakeupPipe()
        self.by_node: list[NodeSocket | None] = [None] * len(access)
        self.by_file: dict[int, NodeSocket] = {}
        self._access = access
        # Nodes whose names, or credentials, are being asked for; and those of which it is asked
        # whether they are still where they were.
        self._finding: set[int] = set()
        self._placing: set[int] = set()
        # What was answered to that. (Nobody wants anything of an idle I/O thread by it.)
        self._answers: deque[tuple[int, Address | Exception, float]] = deque()
        self._poll = select.poll()
        # What was received last.
        self._buffer = bytearray(CHUNK)
        self.view = memoryview(self._buffer)
        self.place = unyielding.place(self._buffer)
        # What callers have received, and left to the I/O thread.
        self.unheard: deque[tuple[NodeSocket, bytes]] = deque()
        # The files of all links that are made, as the C library's `poll` wants them.
        self._files: Any = None

    @property
    def sending(self) -> bool:
        """Has the kernel not taken all bytes yet?"""
        return any(link is not None and link.rest for link in self.by_node)

    @property
    def files(self) -> Any:
        """The connections that are made and not encrypted, as the C library's `poll` wants them."""
        files = self._files
        if files is None:
            # (One C call copies the table: a caller that was interrupted for long may come here
            # late.)
            links = list(self.by_file.values())
            files = self._files = unyielding.polled([it.file for it in links if not it.opening and it.tunnel is None])
        return files

    # ------------------------------------------------ waiting and reading

    def hang_bell(self) -> None:
        """Have the bell wake `wait`, as soon as descriptors allow."""
        if self.bell.file < 0 and self.bell.hang():
            self._poll.register(self.bell.file, select.POLLIN)

    def wait(self, pause: float) -> list[tuple[int, int]]:
        """Wait for `pause` seconds at most.

        Returns:
            What can be read or written now: files, and what `poll` says of each.
        """
        try:
            return self._poll.poll(pause * 1000)
        except (OSError, MemoryError):
            # The kernel has no memory, or a limit was lowered. Connections that are made can be
            # used.
            time.sleep(min(pause, GLANCE))
            return [(file, select.POLLIN | select.POLLOUT) for file, link in self.by_file.items() if not link.opening]

    def hear(self, ready: list[tuple[int, int]], now: float, judging: bool = False) -> None:
        """Read.

        Args:
            ready: What `wait` has returned.
            now: The time.
            judging: Read everything that lies unread, however many bytes it is. It ends even if a
                node goes on and on.
        """
        while self._answers:
            node, answer, asked = self._answers.popleft()
            self._placing.discard(node)
            self.engine.upkeep.placed(node, now, answer, asked)
        while self.unheard:
            left, data = self.unheard.popleft()
            if self.by_node[left.node] is left:
                self.engine.upkeep.received(left.node, data, now)
                if self.engine.upkeep.broken:
                    self._hang_up(self.engine.upkeep.cut())
        for file, event in ready:
            if file == self.bell.file:
                if unyielding.read(file, self.place, CHUNK) < 0:
                    os.read(file, CHUNK)
            elif (link := self.by_file.get(file)) is not None:
                if link.opening:
                    self._opened(link, now)
                elif not event & ~select.POLLOUT or self._read(link, now, judging):
                    if event & select.POLLOUT and link.rest and self.by_node[link.node] is link:
                        self._send(link, b"", now)
                # Perhaps this one: it is not lost twice.
                if self.engine.upkeep.broken:
                    self._hang_up(self.engine.upkeep.cut())

    def _read(self, link: NodeSocket, now: float, judging: bool) -> bool:
        """Read what has come on one link. False: it has failed."""
        left = GULP
        while self.by_node[link.node] is link:
            try:
                size = unyielding.recv(link.file, self.place, CHUNK, 0)
                if size < 0:
                    size = link.sock.recv_into(self._buffer)
            except BlockingIOError:
                break
            except Exception as error:
                self.engine.upkeep.lost(link.node, now, error)
                return False
            if not size:
                self.engine.upkeep.lost(link.node, now, ConnectionError("it closed the connection"))
                return False
            heard = self.clock()
            if link.tunnel is None:
                self.engine.upkeep.received(link.node, self.view[:size], heard)
            else:
                self._opened_up(link, link.tunnel, self.view[:size], heard)
            # Perhaps this one: not a byte more of it.
            if self.engine.upkeep.broken:
                self._hang_up(self.engine.upkeep.cut())
            if size < CHUNK:
                break
            if judging:
                left = max(left, sockets.unread(link.sock) + size)
                judging = False
            left -= size
            if left <= 0:
                break
        return True

    def _opened_up(self, link: NodeSocket, tunnel: Tunnel, data: memoryview, now: float) -> None:
        """Tell the engine what TLS has brought."""
        opened = tunnel.open
        meant = tunnel.received(data)
        if tunnel.open and not opened:
            # (What TLS still has to say leaves together with our first words.)
            self.engine.upkeep.connected(link.node, now, link.address, link.asked)
        else:
            self._send(link, b"", now)
        if meant and self.by_node[link.node] is link:
            self.engine.upkeep.received(link.node, meant, now)
        if tunnel.fault is not None and self.by_node[link.node] is link:
            self.engine.upkeep.lost(link.node, now, tunnel.fault)

    def _opened(self, link: NodeSocket, now: float) -> None:
        try:
            code = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError as error:
            self.engine.upkeep.lost(link.node, now, error)
            return
        if not code:
            link.opening = False
            self._files = None
            self._poll.modify(link.sock, select.POLLIN)
            if link.tunnel is None:
                self.engine.upkeep.connected(link.node, now, link.address, link.asked)
            else:
                link.tunnel.begin()
                self._send(link, b"", now)
        elif link.places:
            self._drop(link)
            self._dial(link.node, link.places, link.address, link.asked, now)
        else:
            self.engine.upkeep.lost(link.node, now, OSError(code, os.strerror(code)))

    # ------------------------------------------------ sending

    def speak(self, now: float) -> None:
        """Send what connections have to say, in one write a node.

        Whatever fails there breaks a connection of the engine.
        """
        self.drained = False
        links = self.by_node
        for connection in self.engine.connections:
            if connection.out and (link := links[connection.node]) is not None and not link.rest:
                try:
                    data = connection.take()
                except Exception as error:
                    self.engine.upkeep.faulted(connection.node, now, error)
                else:
                    self._send(link, data, now)

    def _send(self, link: NodeSocket, data: bytes, now: float) -> None:
        """Send what has waited, then this; what does not fit waits."""
        try:
            if link.tunnel is not None:
                data = link.tunnel.sealed(data)
            data = link.rest + data if link.rest else data
            count = unyielding.send(link.file, data, min(len(data), unyielding.MOST), 0)
            if count < 0:
                count = link.sock.send(data)
        except BlockingIOError:
            count = 0
        except Exception as error:
            self.engine.upkeep.lost(link.node, now, error)
            return
        if count < len(data) or link.rest:
            link.rest = data[count:]
            # (What is said meanwhile waits for this.)
            self.drained |= not link.rest
            self._poll.modify(link.sock, select.POLLIN | select.POLLOUT if link.rest else select.POLLIN)

    def resume(self, link: NodeSocket, now: float) -> None:
        """Go on to send what a caller could not send at once."""
        if self.by_node[link.node] is link:
            self._send(link, b"", now)

    # ------------------------------------------------ connecting and closing

    def connect(self, ready: Ready, now: float, ask: Ask) -> None:
        """Hang up, then dial. Whatever fails there breaks a connection of the engine.

        Args:
            ready: What the engine wants.
            now: The time.
            ask: Has the I/O thread do something in a later turn. For threads that look for a node's
                address.
        """
        self._hang_up(ready.hangups)
        for node in ready.dials:
            self._connect(node, now, ask)
        for node in ready.places:
            if node not in self._placing:
                self._placing.add(node)
                try:
                    start_new_thread(self._locate, (node, now))
                except Exception as error:
                    self._answers.append((node, error, now))

    def _connect(self, node: int, now: float, ask: Ask) -> None:
        """Dial a node, as soon as it is known where it is and who we are there."""
        access = self._access[node]
        try:
            places = access.ask() if access.at_hand else None
            # (Where somebody is asking already, the answer to the last attempt is good for this
            # one, too.)
            if places is None and node not in self._finding:
                self._finding.add(node)
                self.engine.connections[node].asks = access.asks
                start_new_thread(self._find, (node, now, ask))
        except Exception as error:
            # No threads, no descriptors, no memory: whatever it is, no other node has it.
            self._finding.discard(node)
            self.engine.upkeep.lost(node, now, error)
        else:
            if places is not None:
                self._found(node, places, now, now)

    def _locate(self, node: int, asked: float) -> None:
        """Ask whether a node is still where it was, on a thread of its own."""
        try:
            answer: Address | Exception = self._access[node].place()
        except Exception as error:
            answer = error
        self._answers.append((node, answer, asked))
        self.bell.ring()

    def _find(self, node: int, asked: float, ask: Ask) -> None:
        """Ask where the node is and who we are there, on a thread of its own: a name server may
        take its time.
        """
        try:
            answer: tuple[Places, Address] | Exception = self._access[node].ask()
        except Exception as error:
            answer = error
        ask(partial(self._found, node, answer, asked))

    def _found(self, node: int, answer: tuple[Places, Address] | Exception, asked: float, now: float) -> None:
        self._finding.discard(node)
        if self.by_node[node] is not None or self.closing:
            return
        if isinstance(answer, Exception):
            self.engine.upkeep.lost(node, now, answer)
        else:
            places, address = answer
            self.engine.connections[node].asks = ""
            self._dial(node, sockets.in_turn(places, self.engine.connections[node].fails), address, asked, now)

    def _dial(self, node: int, places: Places, address: Address, asked: float, now: float) -> None:
        """Connect to the first place that does not refuse at once; if it refuses later, the others
        have their turn.
        """
        refusal: Exception = OSError(f"{address.label} has no address")
        for n in range(len(places)):
            try:
                link = NodeSocket(node, places[n:], address, self._access[node].tunnel(address), asked)
            except Exception as error:
                refusal = error
                continue
            self._poll.register(link.sock, select.POLLOUT)
            self.by_node[node] = link
            self.by_file[link.file] = link
            return
        self.engine.upkeep.lost(node, now, refusal)

    def _hang_up(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            if (link := self.by_node[node]) is not None:
                sockets.reset(link.sock)
                self._drop(link)

    def _drop(self, link: NodeSocket) -> None:
        self.by_node[link.node] = None
        self._files = None
        del self.by_file[link.file]
        self._poll.unregister(link.file)
        # (Its number may soon be another's.)
        link.file = -1
        # (What the kernel complains of has been closed all the same.)
        with suppress(OSError):
            link.sock.close()

    def shut(self) -> list[int]:
        """Close everything, and put a bell in place that does not hang yet.

        Returns:
            The nodes that there was a link to.
        """
        links = list(self.by_file.values())
        for link in links:
            self._drop(link)
        if self.bell.file >= 0:
            self._poll.unregister(self.bell.file)
        # (Not closed here: a caller may be ringing it.)
        self.bell = WakeupPipe()
        return [link.node for link in links]

    def forget_inherited(self) -> None:
        """In a forked child: the sockets are the parent's.

        Closed, not reset, and nothing is said on them.

        Once: in a child of the child these numbers are other files. (Of a fork that Python was not
        told of, several
        threads may learn at the same moment: each file is taken by one of them.)
        """
        while self.by_file:
            try:
                _, link = self.by_file.popitem()
            except KeyError:
                break
            link.sock.close()
        self.bell.close()
