"""A server whose scripts are not atomic: a real one, behind a proxy that runs each script command by command.

So Garnet runs scripts unless it is told otherwise. Each connection has a thread, an interpreter of its
own and a connection to the real server, so commands of two scripts mix as chance has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import hiredis
from lupa import lua51 as lupa

from holdfast.wire.resp import pack

PREAMBLE = b"""
return function(source, call, keys, argv)
    local function asked(strict)
        return function(...)
            local answer = call(strict, ...)
            if type(answer) == 'table' and answer.err and strict then error(answer.err) end
            return answer
        end
    end
    local env = {redis = {call = asked(true), pcall = asked(false)}, KEYS = keys, ARGV = argv}
    setmetatable(env, {__index = _G})
    local chunk = setfenv and setfenv(loadstring(source), env) or load(source, 'script', 't', env)
    return chunk()
end
"""


class Torn:
    """Listens on a Unix socket, and hands every command on to a real server; but scripts in pieces."""

    def __init__(self, backend: str, path: Path) -> None:
        self._backend = backend
        self.url = f"unix://{path}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # `close` alone does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=_Session(client, self._backend).serve, daemon=True).start()


class _Session:
    """One client's connection."""

    scripts: dict[bytes, bytes] = {}  # noqa: RUF012  (all sessions share what any of them has loaded)

    def __init__(self, client: socket.socket, backend: str) -> None:
        self._client = client
        self._front = _dialled(backend)
        self._side = _dialled(backend)
        self._replies = hiredis.Reader()
        self._lock = threading.Lock()
        self._lua = lupa.LuaRuntime(encoding=None, unpack_returned_tuples=False)
        self._evaluate = self._lua.execute(PREAMBLE)

    def serve(self) -> None:
        """Answer until the client goes."""
        threading.Thread(target=self._pump, daemon=True).start()
        reader = hiredis.Reader()
        with contextlib.suppress(OSError):
            while data := self._client.recv(1 << 16):
                reader.feed(data)
                while (words := reader.gets()) is not False:
                    self._take(words)
        self._client.close()
        for it in (self._front, self._side):
            with contextlib.suppress(OSError):
                it.shutdown(socket.SHUT_RDWR)
            it.close()

    def _pump(self) -> None:
        """Whatever the real server says on this connection, its client is told: answers and pushes."""
        with contextlib.suppress(OSError):
            while data := self._front.recv(1 << 16):
                with self._lock:
                    self._client.sendall(data)

    def _take(self, words: list[bytes]) -> None:
        if words[0].upper() == b"SCRIPT":
            self.scripts[hashlib.sha1(words[2]).hexdigest().encode()] = words[2]
        if words[0].upper() == b"EVALSHA":
            answer = self._run(self.scripts[words[1]], int(words[2]), words[3:])
            with self._lock:
                self._client.sendall(answer)
        else:
            self._front.sendall(pack(*words))

    def _run(self, source: bytes, keys: int, words: list[bytes]) -> bytes:
        lua = self._lua
        try:
            found = self._evaluate(source, self._call, lua.table_from(words[:keys]), lua.table_from(words[keys:]))
        except lupa.LuaError as error:
            return b"-ERR %b\r\n" % str(error).encode().replace(b"\n", b" ").replace(b"\r", b" ")
        return self._packed(found)

    def _call(self, strict: bool, *words: Any) -> Any:
        self._side.sendall(pack(*[it if isinstance(it, bytes) else f"{it:.17g}".encode() for it in words]))
        while (reply := self._replies.gets()) is False:
            self._replies.feed(self._side.recv(1 << 16))
        return self._inside(reply)

    def _inside(self, reply: Any) -> Any:
        """An answer as Lua has it."""
        if reply is None:
            return False
        if isinstance(reply, hiredis.ReplyError):
            return self._lua.table_from({b"err": str(reply).encode()})
        if isinstance(reply, list):
            return self._lua.table_from([self._inside(it) for it in reply])
        return reply

    def _packed(self, found: Any) -> bytes:
        """What a script returns, as the client reads it."""
        if found is None or found is False:
            return b"_\r\n"
        if isinstance(found, bytes):
            return b"$%d\r\n%b\r\n" % (len(found), found)
        if isinstance(found, int | float):
            return b":%d\r\n" % int(found)
        items = [found[it + 1] for it in range(len(found))]
        return b"*%d\r\n" % len(items) + b"".join(map(self._packed, items))


def _dialled(backend: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(backend.removeprefix("unix://"))
    return sock
