"""TLS as a filter of bytes, for every driver: what a node sent goes in and what it meant comes out, and the other way round.

Knows `ssl`, and says its errors in words that tell what to do. Must not know sockets, or who moves the bytes. Loaded only by who needs it.
"""

from __future__ import annotations

import os
import ssl
from functools import partial

from ..errors import ConfigError
from ..wire.address import Address, Tls

CHUNK = 65536


def context(tls: Tls, label: str) -> ssl.SSLContext:
    """What TLS needs to know, from files and folders that are read now. ConfigError if they are not there, or no good."""
    doing = "the system's authorities"
    try:
        if tls.ca_certs or tls.ca_path or tls.ca_data:
            doing = " and ".join(f"ssl_{it}" for it in ("ca_certs", "ca_path", "ca_data") if getattr(tls, it))
        if tls.ca_path and not os.path.isdir(tls.ca_path):  # (OpenSSL would look there when it is too late)
            raise NotADirectoryError(f"{tls.ca_path!r} is no folder")
        made = ssl.create_default_context(cafile=tls.ca_certs or None, capath=tls.ca_path or None, cadata=tls.ca_data or None)
        # A node that asks for new keys again and again would keep us busy with nothing else. No server asks for them.
        made.options |= ssl.OP_NO_RENEGOTIATION
        made.check_hostname = tls.check_hostname
        made.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
        if tls.certfile:
            doing = f"ssl_certfile {tls.certfile!r}" + (f" with ssl_keyfile {tls.keyfile!r}" if tls.keyfile else "")
            made.load_cert_chain(tls.certfile, tls.keyfile or None, partial(_password, tls))
    except (OSError, ValueError) as error:  # (ssl.SSLError is an OSError)
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, ssl.SSLError):
            told = (error.reason or "they are to be PEM files, with all that is named in them").lower().replace("_", " ")
        raise ConfigError(f"{label}: {doing} cannot be used: {told}") from None
    return made


def _password(tls: Tls) -> str:
    """The key's. (Without this OpenSSL would ask for it at the terminal.)"""
    if not tls.password:
        raise ValueError("the key is encrypted, and there is no ssl_password")
    return tls.password


class Tunnel:
    """One connection's TLS. `context` says whom to trust; the node's certificate has to be its host's own.

    `open`: both sides have agreed; `fault`: why nothing more will come of it. Both are for reading only.
    """

    __slots__ = ("_host", "_in", "_kept", "_out", "_tls", "fault", "open")

    def __init__(self, context: ssl.SSLContext, address: Address) -> None:
        self._host = address.host.partition("%")[0]  # (the interface in an IPv6 address is nobody's name)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=self._host)
        self._kept = b""  # bytes that TLS does not take yet
        self.open = False
        self.fault: Exception | None = None

    def begin(self) -> None:
        """Say what has to be said first: it is to be had from `sealed`."""
        self.received(b"")

    def received(self, data: bytes | memoryview) -> bytes:
        """What these bytes meant. Afterwards look at `open`, at `fault`, and whether there is something `sealed` to be sent."""
        meant = []
        try:
            self._in.write(data)
            if not self.open:
                self._tls.do_handshake()
                self.open = True
            while plain := self._tls.read(CHUNK):  # a record at a time
                meant.append(plain)
            self.fault = ConnectionError("it closed the connection")
        except ssl.SSLWantReadError:
            pass
        except Exception as error:
            self.fault = self._told(error)
        return b"".join(meant)

    def sealed(self, data: bytes = b"") -> bytes:
        """These bytes as they are to be sent, after whatever TLS itself has to say.

        TLS takes no bytes while it waits for the node, for example to agree on new keys. They are kept, and are the first to be
        sealed the next time.

        Raises:
            Exception: What is wrong, in words. The connection is of no use any more.
        """
        try:
            rest = memoryview(self._kept + data if self._kept else data)
            self._kept = b""
            while rest:  # (Python has OpenSSL take all at once, but promises nothing)
                try:
                    rest = rest[self._tls.write(rest) :]
                except ssl.SSLWantReadError:
                    self._kept = bytes(rest)
                    break
            return self._out.read()
        except Exception as error:
            failure = self._told(error)
        raise failure

    def _told(self, error: Exception) -> Exception:
        """The same in words, and without anything that cannot be pickled. A ConfigError is what time will not mend."""
        if not isinstance(error, ssl.SSLError):
            return ConnectionError(f"TLS failed: {str(error) or type(error).__name__}")
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = _VERIFICATION.get(error.verify_code, "ssl_ca_certs names the authorities that are to be trusted")
            return ConfigError(f"its certificate is not good for {self._host}: {error.verify_message.rstrip('.')}; {advice}")
        reason = (error.reason or str(error)).lower().replace("_", " ")
        if error.reason in _NO_TLS:
            return ConfigError(f"it does not speak TLS ({reason}): write redis:// instead of rediss://, or name its TLS port")
        if "alert" in reason:
            for advice, alerts in _ALERTS.items():
                if any(it in reason for it in alerts):
                    return ConfigError(f"it refuses us ({reason}): {advice}")
        return ConnectionError(f"TLS failed: {reason}")


_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
# What to do about a server's alert. A server that speaks TLS 1.2 says "handshake failure" in two cases.
_CERTIFICATE = "ssl_certfile and ssl_keyfile name the certificate that it may ask for"
_VERSIONS = "it accepts none of our TLS versions or ciphers: compare its tls-protocols and tls-ciphers with the SSLContext of ssl="
_ALERTS = {
    _CERTIFICATE: ("certificate", "unknown ca", "access denied"),
    _VERSIONS: ("protocol version", "insufficient security"),
    f"{_VERSIONS}; or {_CERTIFICATE}": ("handshake failure",),
}
_AUTHORITY = "if that is its authority, name it with ssl_ca_certs"
_NAME = "name the node as its certificate does"
_VERIFICATION = {  # by OpenSSL's numbers (X509_V_ERR_...)
    9: "look at this machine's clock",
    10: "renew it",
    18: _AUTHORITY,
    19: _AUTHORITY,
    20: _AUTHORITY,
    21: _AUTHORITY,
    62: _NAME,
    64: _NAME,
}
