"""TLS for tests: certificates of their own authorities, and two ways to have TLS in front of real nodes.

A server that was built without TLS gets a `Proxy` of the test's own before it; one that has TLS (Debian's) speaks it itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import trustme
from contract.cluster import Cluster
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from holdfast import embedded

NAMES = ("127.0.0.1", "::1", "localhost")  # those of the nodes


@dataclass(frozen=True)
class Paper:
    """A certificate and its key, in files."""

    cert: str
    key: str


class Papers:
    """Certificates, good ones and others, and the authorities who gave them."""

    def __init__(self, folder: Path, locked: str = "pa55 w0rd/") -> None:
        authority, self._folder = trustme.CA(), folder
        self.authority = str(folder / "authority.pem")
        authority.cert_pem.write_to_path(self.authority)
        self.stranger = str(folder / "stranger.pem")
        trustme.CA().cert_pem.write_to_path(self.stranger)
        past = datetime.now(UTC) - timedelta(days=1)
        self.node = self._paper("node", authority.issue_cert(*NAMES))
        self.other = self._paper("other", authority.issue_cert("other.example"))
        self.linked = self._paper("linked", authority.issue_cert("fe80::7"))
        self.expired = self._paper("expired", authority.issue_cert(*NAMES, not_before=past - timedelta(days=9), not_after=past))
        self.early = self._paper("early", authority.issue_cert(*NAMES, not_before=past + timedelta(days=9)))
        self.client = self._paper("client", authority.issue_cert("client.example"))
        self.both, self.locked = self.client.cert.replace(".pem", ".both.pem"), self._locked(self.client, locked)
        self.nobodys = self._paper("nobodys", trustme.CA().issue_cert("client.example")).cert.replace(".pem", ".both.pem")
        self.folder = str(self._hashed(authority))

    def _paper(self, name: str, leaf: trustme.LeafCert) -> Paper:
        paper = Paper(str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key"))
        leaf.private_key_and_cert_chain_pem.write_to_path(self._folder / f"{name}.both.pem")
        leaf.cert_chain_pems[0].write_to_path(paper.cert)
        leaf.private_key_pem.write_to_path(paper.key)
        return paper

    def _locked(self, paper: Paper, password: str) -> str:
        """Its key, in a file that needs a password."""
        key = load_pem_private_key(Path(paper.key).read_bytes(), None)
        data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
        path = Path(f"{paper.key}.locked")
        path.write_bytes(data)
        return str(path)

    def _hashed(self, authority: trustme.CA) -> Path:
        """A folder of authorities as OpenSSL reads it: a file's name is the hash of its subject, in small letters and UTF-8."""
        subject = x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject
        plain = [x509.NameAttribute(it.oid, str(it.value).lower(), x509.name._ASN1Type.UTF8String) for it in subject]
        sets = x509.Name(plain).public_bytes()
        sets = sets[2 if sets[1] < 0x80 else 2 + (sets[1] & 0x7F) :]  # without the head of the sequence
        folder = self._folder / "authorities"
        folder.mkdir()
        number = int.from_bytes(hashlib.sha1(sets).digest()[:4], "little")
        authority.cert_pem.write_to_path(folder / f"{number:08x}.0")
        return folder


class Front(ABC):
    """TLS in front of nodes. `urls`: of it, without options."""

    def __init__(self, nodes: Cluster, papers: Papers) -> None:
        self.nodes, self.papers = nodes, papers
        self.urls: list[str] = []

    async def open(self) -> None:
        """Listen."""
        self.urls = [f"rediss://127.0.0.1:{await self._listen(node)}" for node in range(len(self.nodes))]
        await self.show(self.papers.node)

    @abstractmethod
    async def close(self) -> None:
        """Listen no more."""

    @abstractmethod
    async def _listen(self, node: int) -> int: ...

    @abstractmethod
    async def show(self, paper: Paper, timing: bool = False, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        """Have the nodes show this certificate from now on; `demand`: and ask for the client's; `most`: and speak TLS up to this one."""

    @property
    def trusted(self) -> list[str]:
        """Their addresses, and whom to trust."""
        return [f"{it}?ssl_ca_certs={self.papers.authority}" for it in self.urls]


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """A port at which `talk` is spoken with whoever connects. Nothing of it is left when it is closed."""

    def __init__(self, talk: Talk) -> None:
        self._talk, self._clients = talk, dict[asyncio.Task[Any], asyncio.WriteTransport]()
        self._accepted: list[asyncio.Transport] = []

    async def open(self) -> int:
        """Listen; at which port."""
        self._server = await asyncio.get_running_loop().create_server(self._spoken, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _spoken(self) -> asyncio.Protocol:
        return _Kept(self._accepted, asyncio.StreamReader(), self._met)

    async def close(self) -> None:
        """Hang up on everybody."""
        self._server.close()
        await _turns()  # what has just been accepted becomes a client
        for transport in self._accepted:
            transport.abort()
        # Where TLS was begun on a connection, uvloop does not tell its reader of the end.
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
        await _turns()  # what was aborted is closed

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, transport = asyncio.current_task(), writer.transport
        assert task is not None
        self._clients[task] = transport
        try:
            await self._talk(reader, writer)
        except (OSError, AttributeError):  # (the latter is what asyncio makes of a client that hangs up as TLS is agreed on)
            pass
        finally:
            if writer.transport is None:  # which it then forgets, and stumbles over when the writer dies
                writer._transport = transport  # type: ignore[attr-defined]  # (private, and without a type)
            writer.transport.abort()
            transport.abort()
            del self._clients[task]


class _Kept(asyncio.StreamReaderProtocol):
    """What is spoken on a connection that was accepted. Its listener has to end it, whatever becomes of the talk."""

    def __init__(self, accepted: list[asyncio.Transport], reader: asyncio.StreamReader, met: Callable[..., Awaitable[None]]) -> None:
        super().__init__(reader, met)
        self._accepted = accepted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as loops call it
        self._accepted.append(transport)
        super().connection_made(transport)


async def _turns() -> None:
    """Let the loop do what it has begun, however busy the machine is."""
    for _ in range(10):
        await asyncio.sleep(0)


class Proxy(Front):
    """One that ends TLS in front of each node. `mute`: it forwards nothing any more; `names`: those that clients asked for."""

    def __init__(self, nodes: Cluster, papers: Papers) -> None:
        super().__init__(nodes, papers)
        self.mute, self.names = False, list[str | None]()
        self.ended: list[Exception | None] = []  # how clients ended their connections
        self._listeners: list[Listener] = []

    async def _listen(self, node: int) -> int:
        self._listeners.append(Listener(partial(self._talk, self.nodes.urls[node].removeprefix("unix://"))))
        return await self._listeners[-1].open()

    async def show(self, paper: Paper, timing: bool = False, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(paper.cert, paper.key)
        self._context.maximum_version = most
        self._context.sni_callback = lambda connection, name, context: self.names.append(name)
        if timing:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(self.papers.authority)

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.close()

    async def _talk(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(self._context)
        inner, outer = await asyncio.open_unix_connection(path)
        backwards = asyncio.create_task(self._pump(inner, writer))
        try:
            self.ended.append(await self._pump(reader, outer))
        finally:
            writer.transport.abort()
            outer.transport.abort()
            await backwards

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exception | None:
        try:
            while data := await reader.read(65536):
                if not self.mute:
                    writer.write(data)
                    await writer.drain()
        except OSError as error:
            return error
        finally:
            writer.close()
        return None


class Own(Front):
    """Servers that speak TLS themselves."""

    async def close(self) -> None:
        self.nodes.everywhere("CONFIG", "SET", "tls-port", 0)

    async def _listen(self, node: int) -> int:
        return embedded._free_port()

    async def show(self, paper: Paper, timing: bool = False, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        for node in range(len(self.urls)):
            words = ["tls-cert-file", paper.cert, "tls-key-file", paper.key, "tls-ca-cert-file", self.papers.authority]
            words += ["tls-auth-clients", "yes" if timing else "no"]
            words += ["tls-protocols", "TLSv1.2" if most == ssl.TLSVersion.TLSv1_2 else "TLSv1.2 TLSv1.3"]
            for _ in range(5):  # (a port that was free may be somebody else's by now)
                answer = self.nodes.ask(node, "CONFIG", "SET", *words, "tls-port", self.urls[node].rpartition(":")[2])
                if "Unable to listen" not in str(answer):
                    break
                self.urls[node] = f"rediss://127.0.0.1:{await self._listen(node)}"
            assert answer == "OK", answer


def has_tls(server: str) -> bool:
    """Was this server built with TLS? (Asked for TLS without a certificate, only such a one complains of TLS's settings.)"""
    command = [server, "--port", "0", "--tls-port", "1", "--tls-cert-file", "/no/certificate"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return "Failed to configure TLS" in told.stdout + told.stderr


FRONTS: dict[str, type[Front]] = {"proxy": Proxy}
if has_tls(embedded.find_server()):
    FRONTS["own"] = Own
