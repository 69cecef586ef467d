"""How a driver gets in at a node: its places, TLS, and the credentials of the moment.

For every driver. Knows the user's `ssl` context, `credentials` and `resolve`, which are foreign
code. Must not know who connects, or when. No error, and no repr of a kept object, shows
credentials.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..node import Credentials, Node, node_of
from ..wire.address import Address, Tls
from . import sockets
from .files import Authority, CredentialsFile, Unusable

if TYPE_CHECKING:
    from ssl import SSLContext

    from .tls import Tunnel

Places = list[tuple[int, Any]]  # (family, socket address)


class Access:
    """The way in at one node.

    `at_hand` means that it is known without asking a name server, Sentinels, `resolve` or
    `credentials`.

    `asks` says what is asked for before each connection, in the words of errors.

    `tls` has the options of its TLS. None: it uses none, or a context of the user's.
    """

    def __init__(
        self,
        node: Node,
        context: SSLContext | None,
        credentials: Credentials | None,
        patience: float,
        tls: Tls | None,
    ) -> None:
        self.tls = tls
        self.address, self._resolve, self._patience = node.address, node.resolve, patience
        self._context, self._credentials = context, credentials
        asked = {
            "the Sentinels": node.address.sentinels,
            "resolve()": node.resolve,
            # One with a file of holdfast's own is not the user's function.
            "credentials()": credentials,
        }
        self.asks = " and ".join(it for it, source in asked.items() if source is not None) or "the name server"

    @property
    def at_hand(self) -> bool:
        return self._credentials is None and not self.address.moves and sockets.is_literal(self.address)

    def ask(self) -> tuple[Places, Address]:
        """Return where to connect, best first, and the address with the credentials of the moment.

        May block.
        """
        address = self.place()
        places, said = self.begin_asking(address)
        return places, said if isinstance(said, Address) else self._with(said, address)

    def place(self) -> Address:
        """Return the address with the host and port of the moment. May block."""
        found = self.begin_finding()
        return found if isinstance(found, Address) else self._at(found)

    def begin_finding(self) -> Address | Awaitable[object]:
        """Return the address with the host and port of the moment, or an awaitable of what
        `resolve` says, for `found`. May block.
        """
        if self.address.sentinels is not None:
            from .sentinels import primary

            return self._at(primary(self.address, self._context, self._patience))
        if self._resolve is None:
            return self.address
        said = self._call(self._resolve, "resolve")
        return said if isinstance(said, Awaitable) else self._at(said)

    def begin_asking(self, address: Address) -> tuple[Places, Address | Awaitable[object]]:
        """Return where to connect, and the address with the credentials of the moment, or an
        awaitable of them for `signed`. May block.
        """
        places = sockets.places(address)
        if self._credentials is None:
            return places, address
        said = self._call(self._credentials, "credentials")
        return places, said if isinstance(said, Awaitable) else self._with(said, address)

    async def found(self, said: Awaitable[object]) -> Address:
        """Return the address at the place that an awaitable of `begin_finding` returns."""
        return self._at(await self._awaited(said, "resolve"))

    async def signed(self, said: Awaitable[object], address: Address) -> Address:
        """Return the address with the credentials that an awaitable of `begin_asking` returns."""
        return self._with(await self._awaited(said, "credentials"), address)

    def tunnel(self, address: Address | None = None) -> Tunnel | None:
        """Return TLS for one connection. None if the node does not use it.

        `address` has the host of the moment.
        """
        if self._context is None:
            return None
        from .tls import Tunnel

        return Tunnel(self._context, address or self.address)

    def _call(self, function: Credentials, name: str) -> object:
        try:
            return function(self.address.label)
        except BaseException as error:
            # Also SystemExit, which must not end a thread of holdfast's.
            failure = self._failure(error, name)
        # Raised here, so that the error, which may contain the secret, is not its context.
        raise failure

    async def _awaited(self, said: Awaitable[object], name: str) -> object:
        try:
            return await said
        except Exception as error:
            failure = self._failure(error, name)
        raise failure

    def _at(self, said: object) -> Address:
        match said:
            case (str(host), int(port)) if host and 0 < port < 65536 and not isinstance(port, bool):
                return self.address.but(host=host, port=port)
        discard(said)
        raise ConfigError(f"resolve() gives (host, port), such as ('10.0.0.7', 6379), not {type(said).__name__}")

    def _with(self, said: object, address: Address) -> Address:
        match said:
            case str():
                user, password = address.user, said
            case (str(user), str(password)):
                pass
            case _:
                discard(said)
                raise ConfigError(f"credentials() gives a password or (user, password), not {type(said).__name__}")
        try:
            (user + password).encode()
        except UnicodeEncodeError:
            pass
        else:
            return address.signed(user, password)
        raise ConfigError("credentials() gave half of a surrogate pair, which UTF-8 cannot say")

    @staticmethod
    def _failure(error: BaseException, name: str) -> ConnectionError:
        """Return an error with the kind and place of another, but without its text.

        The text may contain the secret.
        """
        if isinstance(error, Unusable):
            return error
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = "" if at is None else f" at {os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}"
        return ConnectionError(f"{name}() raised {type(error).__name__}{where}")


def discard(said: object) -> None:
    """Close a coroutine, which nobody will await."""
    close = getattr(said, "close", None)
    if callable(close):
        close()


def accesses(
    nodes: Iterable[Node | Address],
    context: SSLContext | Authority | None,
    credentials: Credentials | None,
    patience: float = 1.0,
) -> tuple[Access, ...]:
    """Return the ways in at these nodes.

    Args:
        nodes: The nodes. What a node says itself wins.
        context: The user's TLS context, for all nodes that use TLS; or the authorities for those
            addresses that name none. None makes one by address.
        credentials: The user's function, or None. Those of a file are for nodes whose addresses
            have no password.
        patience: For how many seconds the Sentinels of a node are asked, at most.

    Raises:
        ConfigError: The arguments do not go together.
    """
    made = [node_of(it) for it in nodes]
    # Those that the client's own options are for.
    addresses = tuple(it.address for it in made if it.credentials is None)
    if credentials is not None and not isinstance(credentials, CredentialsFile):
        if not callable(credentials):
            raise ConfigError(
                "credentials is a function of one argument, the node, that gives a password or (user, password)"
            )
        if twice := [it.label for it in addresses if it.password]:
            raise ConfigError(
                f"{', '.join(twice)}: the address has a password, and there is credentials= too: "
                "leave one of them out"
            )
    contexts = _contexts(tuple(it.address for it in made if it.ssl is None), context)
    found = tuple(
        Access(
            it,
            it.ssl or contexts.get(it.address.tls),
            it.credentials or _asked(it.address, credentials),
            patience,
            None if it.ssl else _tls(it.address.tls, context),
        )
        for it in made
    )
    for it in found:
        _tried(it)
    return found


def _asked(address: Address, credentials: Credentials | None) -> Credentials | None:
    """Return who is asked for a node's credentials. None: the address has them, if any."""
    return None if isinstance(credentials, CredentialsFile) and not credentials.serves(address) else credentials


def _tls(tls: Tls | None, given: SSLContext | Authority | None) -> Tls | None:
    """Return the options that a node's context is made of. None: there are none."""
    if tls is None or given is None:
        return tls
    return given.of(tls) if isinstance(given, Authority) else None


def _contexts(addresses: tuple[Address, ...], given: SSLContext | Authority | None) -> dict[object, SSLContext]:
    """Return the TLS contexts, by the TLS options of the addresses."""
    wanted = {it.tls: it.label for it in addresses if it.tls is not None}
    if not wanted and (given is None or isinstance(given, Authority)):
        return {}
    from ssl import SSLContext

    from .tls import context

    if given is None:
        return {tls: context(tls, label) for tls, label in wanted.items()}
    if isinstance(given, Authority):
        return {tls: context(given.of(tls), label) for tls, label in wanted.items()}
    if not isinstance(given, SSLContext):
        raise ConfigError(f"ssl is an ssl.SSLContext, not {type(given).__name__}")
    if not wanted:
        raise ConfigError(
            "ssl= is for nodes with TLS, and there are none: write rediss:// (or valkeys://) in their addresses"
        )
    if both := [label for tls, label in wanted.items() if tls != Tls()]:
        raise ConfigError(
            f"{', '.join(both)}: the address has ssl_... options, and there is ssl= too: leave one of them out"
        )
    return dict.fromkeys(wanted, given)


def _tried(access: Access) -> None:
    """Check that TLS can begin. The user's context may be one for servers."""
    address = access.address
    if address.sentinels is not None:
        # The node's own host is known when they have told it.
        address = address.but(host=address.sentinels.places[0][0])
    try:
        access.tunnel(address)
    except (OSError, ValueError) as error:
        label = access.address.label
        raise ConfigError(f"{label}: TLS cannot begin: {error}: is this the context of a client?") from None
