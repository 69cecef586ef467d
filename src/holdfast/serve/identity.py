"""Who a request is from, and what that client may do.

Knows the file of tokens, scopes and the headers that say who somebody is. Must not know what a
request asks for.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ..checks import shown
from ..errors import ConfigError, message_of

VERBS = ("lock", "read", "look", "lead", "rate", "once", "force")
# Where the state of a request says how it has arrived.
ARRIVED = "holdfast.arrived"
# A scope that has no pattern.
METRICS = "metrics"


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("([0-9a-fA-F]{64})?", value) is not None


# The settings of a client: what each is, and whether a value is that.
_SETTINGS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "sha256": ("a SHA-256 digest, which has 64 digits from 0 to f", _is_digest),
    "certificate": ("a SHA-256 digest, which has 64 digits from 0 to f", _is_digest),
    "scopes": (
        'a list of texts such as ["lock:invoice:*"]',
        lambda it: isinstance(it, list) and all(isinstance(one, str) for one in it),
    ),
    "max_leases": ("a whole number of at least 1", lambda it: type(it) is int and it >= 1),
    "note": ("a text of at most 256 characters", lambda it: isinstance(it, str) and len(it) <= 256),
}


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
        # Most clients may do it with every name, and to match patterns takes longer.
        return self.everywhere(verb) or any(fnmatchcase(f"{verb}:{name}", it) for it in self.scopes)

    def everywhere(self, verb: str) -> bool:
        """Return whether it may do this with every name."""
        return f"{verb}:*" in self.scopes


# Who everybody is where nobody is asked.
EVERYBODY = Identity("local", (*[f"{it}:*" for it in VERBS], METRICS))


def anybody(uid: int | None) -> Identity:
    """Return who a client is where nobody is asked. On a Unix socket, it is a user."""
    return EVERYBODY if uid is None else replace(EVERYBODY, name=f"uid:{uid}")


class Arrived(NamedTuple):
    """How a request has arrived.

    Attributes:
        address: The address of its client, or "uid:" and its user.
        uid: The user, on a Unix socket.
        known: Notes the client that the connection is from. It stays open for that client.
        cut: Whether the gateway itself has ended the connection, to make room.
        gone: Notes that the connection has ended.
    """

    address: str
    uid: int | None = None
    known: Callable[[str], object] = str
    cut: Callable[[], bool] = bool
    gone: Callable[[], object] = bool


@dataclass(frozen=True, slots=True)
class TokenFile:
    """All clients that a file of tokens names.

    Attributes:
        tokens: The clients by the SHA-256 digests of their tokens.
        certificates: The clients by the digests of their certificates, as a proxy says them.
    """

    tokens: dict[str, Identity] = field(default_factory=dict)
    certificates: dict[str, Identity] = field(default_factory=dict)

    def of_token(self, token: str) -> Identity | None:
        """Return the client that this token belongs to."""
        # How long the look-up takes says nothing of a token: nobody can choose what its digest begins with.
        return self.tokens.get(hashlib.sha256(token.encode()).hexdigest())

    def now(self, client: Identity) -> Identity | None:
        """Return a client of an earlier file as it is now. None: its token is not valid now."""
        known = (*self.tokens.values(), *self.certificates.values())
        return next((it for it in known if (it.name, it.proofs) == (client.name, client.proofs)), None)


def read(path: str) -> TokenFile:
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
    clients = TokenFile({}, {})
    for name, table in tables.items():
        try:
            client = _client(name, table)
            for known, proof in zip((clients.tokens, clients.certificates), client.proofs, strict=True):
                if proof and known.setdefault(proof, client) is not client:
                    raise ConfigError("another client has the same token or certificate")
        except ConfigError as error:
            raise ConfigError(f"{path}: [client.{name}]: {message_of(error)}") from None
    return clients


def _client(name: str, table: Mapping[str, Any]) -> Identity:
    if unknown := table.keys() - _SETTINGS.keys():
        raise ConfigError(f"unknown setting {shown(min(unknown))}. Valid settings are {', '.join(sorted(_SETTINGS))}")
    for key, value in table.items():
        form, right = _SETTINGS[key]
        if not right(value):
            raise ConfigError(f"{key} is {form}, not {shown(value)}")
    if not table.get("sha256") and not table.get("certificate"):
        raise ConfigError("it needs `sha256`: `holdfast serve --new-token NAME --tokens FILE` makes one")
    for scope in table.get("scopes", ()):
        verb, _, pattern = scope.partition(":")
        if scope != METRICS and (verb not in VERBS or not pattern):
            raise ConfigError(
                f"unknown scope {shown(scope)}. Valid scopes are {METRICS} and VERB:PATTERN, "
                f"where the verb is {', '.join(VERBS[:-1])} or {VERBS[-1]}"
            )
    proofs = table.get("sha256", "").lower(), table.get("certificate", "").lower()
    return Identity(name, tuple(table.get("scopes", ())), table.get("max_leases"), table.get("note", ""), proofs)


def identify(
    scope: Mapping[str, Any], headers: Mapping[bytes, bytes], clients: TokenFile | None, trusted: tuple[str, ...]
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
    if clients is None:
        return anybody(arrived_of(scope).uid)
    kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return clients.of_token(token.strip())
    return clients.certificates.get(_certificate(scope, headers, trusted))


def arrived_of(scope: Mapping[str, Any]) -> Arrived:
    """Return how a request has arrived, also if the server is not the gateway's own."""
    found: Arrived | None = scope.get("state", {}).get(ARRIVED)
    return found or Arrived(str((scope.get("client") or ("",))[0]))


def _certificate(scope: Mapping[str, Any], headers: Mapping[bytes, bytes], trusted: tuple[str, ...]) -> str:
    """The digest of the certificate that the client has shown to a proxy. Empty: none."""
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
