"""TLS as a filter of bytes, for every driver. It turns received bytes into plain ones, and plain
bytes into bytes to send.

Knows `ssl`, and rewrites its errors so that they say what to do. Must not know sockets, or who
moves the bytes. Loaded only for nodes that use TLS.
"""

from __future__ import annotations

import os
import ssl
from functools import partial

from ..errors import ConfigError
from ..wire.address import Address, Tls

CHUNK = 65536


def context(tls: Tls, label: str) -> ssl.SSLContext:
    """Make a TLS context. Its files and folders are read now.

    Args:
        tls: The TLS options of an address.
        label: The node, for errors.

    Raises:
        ConfigError: A file or folder does not exist, or cannot be used.
    """
    doing = "the system's authorities"
    try:
        if tls.ca_certs or tls.ca_path or tls.ca_data:
            doing = " and ".join(f"ssl_{it}" for it in ("ca_certs", "ca_path", "ca_data") if getattr(tls, it))
        # OpenSSL would look into the folder only later.
        if tls.ca_path and not os.path.isdir(tls.ca_path):
            raise NotADirectoryError(f"{tls.ca_path!r} is no folder")
        made = ssl.create_default_context(
            cafile=tls.ca_certs or None, capath=tls.ca_path or None, cadata=tls.ca_data or None
        )
        # No server asks for new keys. A node that does so again and again would keep the client busy.
        made.options |= ssl.OP_NO_RENEGOTIATION
        made.check_hostname = tls.check_hostname
        made.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
        if tls.certfile:
            doing = f"ssl_certfile {tls.certfile!r}" + (f" with ssl_keyfile {tls.keyfile!r}" if tls.keyfile else "")
            made.load_cert_chain(tls.certfile, tls.keyfile or None, partial(_password, tls))
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, ssl.SSLError):
            told = error.reason or "they are to be PEM files, with all that is named in them"
            told = told.lower().replace("_", " ")
        raise ConfigError(f"{label}: {doing} cannot be used: {told}") from None
    return made


def _password(tls: Tls) -> str:
    """Return the key's password. Without this, OpenSSL would ask for it at the terminal."""
    if not tls.password:
        raise ValueError("the key is encrypted, and there is no ssl_password")
    return tls.password


class Tunnel:
    """One connection's TLS.

    Attributes:
        open: Whether both sides have agreed. For reading only.
        fault: The error that ended the connection, or None. For reading only.
    """

    def __init__(self, context: ssl.SSLContext, address: Address) -> None:
        # The interface in an IPv6 address is not part of the name.
        self._host = address.host.partition("%")[0]
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=self._host)
        # Bytes that TLS does not take yet.
        self._kept = b""
        self.open = False
        self.fault: Exception | None = None

    def begin(self) -> None:
        """Begin the handshake. `sealed` then returns its first bytes."""
        self.received(b"")

    def received(self, data: bytes | memoryview) -> bytes:
        """Take in received bytes, and return the plain ones.

        Afterwards check `open` and `fault`, and send what `sealed` returns.
        """
        meant = []
        try:
            self._in.write(data)
            if not self.open:
                self._tls.do_handshake()
                self.open = True
            # A record at a time.
            while plain := self._tls.read(CHUNK):
                meant.append(plain)
            self.fault = ConnectionError("it closed the connection")
        except ssl.SSLWantReadError:
            pass
        except Exception as error:
            self.fault = self._told(error)
        return b"".join(meant)

    def sealed(self, data: bytes = b"") -> bytes:
        """Return the bytes to send for these plain ones, after those of TLS itself.

        TLS takes no bytes while it waits for the node, for example to agree on new keys. They are
        kept, and are the first to be sealed the next time.

        Raises:
            Exception: The error, in plain words. The connection cannot be used any more.
        """
        try:
            rest = memoryview(self._kept + data if self._kept else data)
            self._kept = b""
            # Python has OpenSSL take all at once, but promises nothing.
            while rest:
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
        """Return an error in plain words, which can be pickled.

        It is a ConfigError if waiting cannot help.
        """
        if not isinstance(error, ssl.SSLError):
            return ConnectionError(f"TLS failed: {str(error) or type(error).__name__}")
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = _VERIFICATION.get(error.verify_code, "ssl_ca_certs names the authorities that are to be trusted")
            reason = error.verify_message.rstrip(".")
            return ConfigError(f"its certificate is not good for {self._host}: {reason}; {advice}")
        reason = (error.reason or str(error)).lower().replace("_", " ")
        if error.reason in _NO_TLS:
            return ConfigError(
                f"it does not speak TLS ({reason}): write redis:// instead of rediss://, or name its TLS port"
            )
        if "alert" in reason:
            for advice, alerts in _ALERTS.items():
                if any(it in reason for it in alerts):
                    return ConfigError(f"it refuses us ({reason}): {advice}")
        return ConnectionError(f"TLS failed: {reason}")


_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
# What to do about a server's alert. A server that speaks TLS 1.2 says "handshake failure" in two
# cases.
_CERTIFICATE = "ssl_certfile and ssl_keyfile name the certificate that it may ask for"
_VERSIONS = (
    "it accepts none of our TLS versions or ciphers: "
    "compare its tls-protocols and tls-ciphers with the SSLContext of ssl="
)
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
