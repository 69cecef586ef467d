"""Who a request is from, and what that client may do.

Knows the file of tokens, scopes and the headers that say who somebody is. Must not know what a
request asks for.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

from ..checks import shown
from ..errors import ConfigError, message_of

VERBS = ("lock", "read", "look", "lead", "rate", "once", "force")
# Where the state of a request says how it has arrived.
ARRIVED = "holdfast.arrived"
# A scope that has no pattern.
METRICS = "metrics"
_KEYS = {"sha256", "scopes", "max_leases", "note", "certificate"}


@dataclass(frozen=True, slots=True)
class Identity:
    """A client of the gateway.

    Attributes:
        name: What it is called. Leases belong to it, and the nodes show it.
        scopes: What it may do, such as "lock:invoice:*". The pattern covers the whole name, and
            may contain `*`, `?` and `[a-z]`.
        max_leases: How many leases it may have. None: as many as the gateway's options say.
        note: What is shown with its name.
        proofs: The digests of its token and its certificate.
    """

    name: str
    scopes: tuple[str, ...]
    max_leases: int | None = None
    note: str = ""
    proofs: tuple[str, str] = ("", "")

    def may(self, verb: str, name: str) -> bool:
        """Return whether it may do this with the thing of this name.

        Args:
            verb: "lock", "read", "look", "lead", "rate", "once" or "force".
            name: The whole name.
        """
        return any(it.startswith(f"{verb}:") and fnmatchcase(name, it[len(verb) + 1 :]) for it in self.scopes)

    def everywhere(self, verb: str) -> bool:
        """Return whether it may do this with every name."""
        return f"{verb}:*" in self.scopes

    @property
    def counts(self) -> bool:
        """Whether it may read the metrics."""
        return METRICS in self.scopes


# Who everybody is where nobody is asked.
EVERYBODY = Identity("local", (*[f"{it}:*" for it in VERBS], METRICS))


class Arrived(NamedTuple):
    """How a request has arrived, as the server of a gateway says.

    Attributes:
        address: The address of its client, or "uid:" and its user.
        uid: The user, on a Unix socket.
        known: Notes the client that the connection is from.
    """

    address: str
    uid: int | None
    known: Callable[[str], None]


@cache
def _user(uid: int) -> Identity:
    return replace(EVERYBODY, name=f"uid:{uid}")


@dataclass(frozen=True, slots=True)
class Clients:
    """All clients that a file of tokens names.

    Attributes:
        tokens: The clients by the SHA-256 digests of their tokens.
        certificates: The clients by the digests of their certificates, as a proxy says them.
    """

    tokens: Mapping[bytes, Identity] = field(default_factory=dict)
    certificates: Mapping[str, Identity] = field(default_factory=dict)

    def of_token(self, token: str) -> Identity | None:
        """Return the client that this token belongs to. Compares all, in constant time."""
        digest, found = hashlib.sha256(token.encode()).digest(), None
        for known, client in self.tokens.items():
            if hmac.compare_digest(known, digest):
                found = client
        return found

    def now(self, client: Identity) -> Identity | None:
        """Return a client of an earlier file as it is now. None: its token is not valid now."""
        known = (*self.tokens.values(), *self.certificates.values())
        return next((it for it in known if (it.name, it.proofs) == (client.name, client.proofs)), None)


def read(path: str) -> Clients:
    """Read a file of tokens.

    Args:
        path: A file in TOML, with tables `[client.NAME]`.

    Returns:
        Its clients.

    Raises:
        ConfigError: It cannot be read, or has something that does not exist.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & (stat.S_IRWXO | stat.S_IWGRP):
                raise ConfigError(f"the file of tokens {path} can be used by others: chmod 600 {path}")
            found = tomllib.load(file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the file of tokens {path} cannot be read: {error}") from None
    tables = found.pop("client", {})
    if found or not isinstance(tables, dict) or not all(isinstance(it, dict) for it in tables.values()):
        raise ConfigError(f"{path}: a file of tokens has tables [client.NAME], and nothing else")
    tokens, certificates = dict[bytes, Identity](), dict[str, Identity]()
    for name, table in tables.items():
        try:
            client, digest, certificate = _client(name, table)
        except ConfigError as error:
            raise ConfigError(f"{path}: [client.{name}]: {message_of(error)}") from None
        if digest in tokens or certificate in certificates:
            raise ConfigError(f"{path}: [client.{name}]: another client has the same token or certificate")
        if digest:
            tokens[digest] = client
        if certificate:
            certificates[certificate] = client
    return Clients(tokens, certificates)


def _client(name: str, table: Mapping[str, Any]) -> tuple[Identity, bytes, str]:
    if unknown := table.keys() - _KEYS:
        raise ConfigError(f"unknown setting {shown(min(unknown))}. Valid settings are {', '.join(sorted(_KEYS))}")
    digest, certificate = str(table.get("sha256", "")), str(table.get("certificate", "")).lower()
    for text in (digest, certificate):
        if text and (len(text) != 64 or set(text.lower()) - set("0123456789abcdef")):
            raise ConfigError(f"a SHA-256 digest has 64 digits from 0 to f, unlike {shown(text)}")
    if not digest and not certificate:
        raise ConfigError("it needs `sha256`: `holdfast serve --new-token NAME --tokens FILE` makes one")
    scopes, most, note = table.get("scopes", []), table.get("max_leases"), table.get("note", "")
    if not isinstance(scopes, list) or not all(isinstance(it, str) for it in scopes):
        raise ConfigError(f'scopes is a list of texts such as ["lock:invoice:*"], not {shown(scopes)}')
    for scope in scopes:
        verb, colon, pattern = scope.partition(":")
        if scope != METRICS and (verb not in VERBS or not colon or not pattern):
            raise ConfigError(
                f"unknown scope {shown(scope)}. Valid scopes are {METRICS} and VERB:PATTERN, "
                f"where the verb is {', '.join(VERBS[:-1])} or {VERBS[-1]}"
            )
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise ConfigError(f"max_leases is a whole number of at least 1, not {shown(most)}")
    if not isinstance(note, str) or len(note) > 256:
        raise ConfigError("note is a text of at most 256 characters")
    return Identity(name, tuple(scopes), most, note, (digest, certificate)), bytes.fromhex(digest), certificate


def identify(
    scope: Mapping[str, Any], headers: Mapping[bytes, bytes], clients: Clients | None, trusted: tuple[str, ...]
) -> Identity | None:
    """Find out who a request is from.

    Args:
        scope: The request, as ASGI has it.
        headers: Its headers.
        clients: The clients that are known. None: nobody is asked.
        trusted: Networks whose proxies say which certificate a client has shown.

    Returns:
        The client. None if the request does not say who it is from, or nobody knows that client.
    """
    arrived = arrived_of(scope)
    if clients is None:
        return EVERYBODY if arrived is None or arrived.uid is None else _user(arrived.uid)
    kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return clients.of_token(token.strip())
    return clients.certificates.get(_certificate(scope, headers, trusted))


def arrived_of(scope: Mapping[str, Any]) -> Arrived | None:
    """Return how a request has arrived. None: the server is not the gateway's own."""
    found: Arrived | None = scope.get("state", {}).get(ARRIVED)
    return found


def address_of(scope: Mapping[str, Any]) -> str:
    """Return the address that a request comes from."""
    arrived = arrived_of(scope)
    return str((scope.get("client") or ("",))[0]) if arrived is None else arrived.address


def note_client(scope: Mapping[str, Any], client: Identity) -> None:
    """Note that a connection is from a client, for which it stays open."""
    arrived = arrived_of(scope)
    if arrived is not None:
        arrived.known(client.name)


def _certificate(scope: Mapping[str, Any], headers: Mapping[bytes, bytes], trusted: tuple[str, ...]) -> str:
    """The digest of the certificate that the client has shown, also to a proxy. Empty: none."""
    tls = (scope.get("extensions") or {}).get("tls") or {}
    chain = tls.get("client_cert_chain") or ()
    if chain:
        import ssl

        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(next(iter(chain)))).hexdigest()
    said = headers.get(b"x-forwarded-client-cert")
    address = (scope.get("client") or ("",))[0]
    if said is None or not address or not any(_within(address, it) for it in trusted):
        return ""
    # The proxy that is next to the gateway adds the last element.
    pairs = [it.strip().partition("=") for it in said.decode("latin-1").split(",")[-1].split(";")]
    return next((value.strip('"').lower() for key, _, value in pairs if key.lower() == "hash"), "")


def _within(address: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
