"""Files that the environment names: one with credentials, and one with the authorities for TLS.

Knows their form, and who may read a secret. Must not know which variable named a file, or which
node it is for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container

from ..wire.address import Address, Tls

# Bytes of a file with credentials.
MOST = 4096
# Others may not read it, and the group may not change it. (The group may read it: that is how
# Kubernetes hands secrets to a container.)
FORBIDDEN = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


class Unusable(ConnectionError):
    """A file with credentials cannot be used. The message has nothing of what is in it."""


class CredentialsFile:
    """Credentials in a file, `user:password`, which is read before each connection.

    A password that is changed in the file is used from the next connection on.

    Args:
        path: Of the file.
        variable: What named it, for messages.
        strangers: The labels of nodes that it is not for, such as embedded servers.
    """

    def __init__(self, path: str, variable: str, strangers: Container[str] = ()) -> None:
        self._path = path
        self._variable = variable
        self._strangers = strangers

    def serves(self, address: Address) -> bool:
        """Are the credentials for this node? What an address says itself wins."""
        return not address.password and address.label not in self._strangers

    def __call__(self, node: str = "") -> tuple[str, str]:
        """Return the user, who may be empty, and the password.

        Raises:
            Unusable: The file cannot be read, others can read it, too, or it has another form.
        """
        told = f"{self._variable} names {self._path!r}, "
        try:
            # Without waiting for the other end, if it is a pipe.
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found = os.fstat(file)
                text = os.read(file, MOST + 1) if stat.S_ISREG(found.st_mode) else b""
            finally:
                os.close(file)
        except (OSError, ValueError) as error:
            raise Unusable(f"{told}which cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if not stat.S_ISREG(found.st_mode):
            raise Unusable(f"{told}which is not a file")
        if found.st_mode & FORBIDDEN:
            mode = stat.S_IMODE(found.st_mode)
            raise Unusable(f"{told}whose mode {mode:03o} lets others read or change it: chmod 600")
        pair = _pair(text)
        if pair is None:
            raise Unusable(f"{told}which must hold one line, user:password (or :password for the default user)")
        return pair


def _pair(text: bytes) -> tuple[str, str] | None:
    """The user and the password in a file's text; None if that has another form."""
    try:
        line = text.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return None
    user, colon, password = line.partition(":")
    well = colon and password and len(text) <= MOST and "\n" not in line and "\r" not in line
    return (user, password) if well else None


class Authority:
    """A file with the authorities that sign the nodes' certificates, for addresses that name none.

    Args:
        path: Of the file, in PEM.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def of(self, tls: Tls) -> Tls:
        """What an address says of TLS, with these authorities if it names none itself."""
        if tls.ca_certs or tls.ca_path or tls.ca_data or not tls.verify:
            return tls
        return Tls(
            ca_certs=self._path,
            certfile=tls.certfile,
            keyfile=tls.keyfile,
            password=tls.password,
            check_hostname=tls.check_hostname,
        )
