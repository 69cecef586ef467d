"""How a driver gets in at a node: its places, TLS, and the credentials of the moment.

For every driver. Knows the user's `ssl` context and `credentials`, which are foreign code. Must not
know who connects, or when. No error, and no repr of a kept object, shows credentials.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..wire.address import Address
from . import sockets
from .files import Authority, CredentialsFile, Unusable

if TYPE_CHECKING:
    from ssl import SSLContext

    from .tls import Tunnel

# (node) -> password, or (user, password), or an awaitable of one.
Credentials = Callable[[str], object]
Places = list[tuple[int, Any]]  # (family, socket address)


class Access:
    """The way in at one node.

    `at_hand` means that it is known without asking a name server or `credentials`.
    """

    __slots__ = ("_context", "_credentials", "address")

    def __init__(self, address: Address, context: SSLContext | None, credentials: Credentials | None) -> None:
        self.address, self._context, self._credentials = address, context, credentials

    @property
    def at_hand(self) -> bool:
        return self._credentials is None and sockets.is_literal(self.address)

    def ask(self) -> tuple[Places, Address]:
        """Return where to connect, best first, and the address with the credentials of the moment.

        May block.
        """
        places, said = self.begin_asking()
        return places, said if isinstance(said, Address) else self._with(said)

    def begin_asking(self) -> tuple[Places, Address | Awaitable[object]]:
        """Return the same as `ask`, or an awaitable of the credentials for `awaited`. May block."""
        places = sockets.places(self.address)
        if self._credentials is None:
            return places, self.address
        try:
            said: object = self._credentials(self.address.label)
        except BaseException as error:
            # Also SystemExit, which must not end a thread of holdfast's.
            failure = self._failure(error)
        else:
            return places, said if isinstance(said, Awaitable) else self._with(said)
        # Raised here, so that the error, which may contain the secret, is not its context.
        raise failure

    async def awaited(self, said: Awaitable[object]) -> Address:
        """Return the address with the credentials that an awaitable of `begin_asking` returns."""
        try:
            return self._with(await said)
        except ConfigError:
            raise
        except Exception as error:
            failure = self._failure(error)
        raise failure

    def tunnel(self) -> Tunnel | None:
        """Return TLS for one connection. None if the node does not use it."""
        if self._context is None:
            return None
        from .tls import Tunnel

        return Tunnel(self._context, self.address)

    def _with(self, said: object) -> Address:
        match said:
            case str():
                user, password = self.address.user, said
            case (str(user), str(password)):
                pass
            case _:
                # Close a coroutine, which nobody will await.
                close = getattr(said, "close", None)
                if callable(close):
                    close()
                raise ConfigError(f"credentials() gives a password or (user, password), not {type(said).__name__}")
        try:
            (user + password).encode()
        except UnicodeEncodeError:
            pass
        else:
            return self.address.signed(user, password)
        raise ConfigError("credentials() gave half of a surrogate pair, which UTF-8 cannot say")

    @staticmethod
    def _failure(error: BaseException) -> ConnectionError:
        """Return an error with the kind and place of another, but without its text.

        The text may contain the secret.
        """
        if isinstance(error, Unusable):
            return error
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = "" if at is None else f" at {os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}"
        return ConnectionError(f"credentials() raised {type(error).__name__}{where}")


def accesses(
    addresses: Iterable[Address], context: SSLContext | Authority | None, credentials: Credentials | None
) -> tuple[Access, ...]:
    """Return the ways in at these nodes.

    Args:
        addresses: The nodes.
        context: The user's TLS context, for all nodes that use TLS; or the authorities for those
            addresses that name none. None makes one by address.
        credentials: The user's function, or None. Those of a file are for nodes whose addresses
            have no password.

    Raises:
        ConfigError: The arguments do not go together.
    """
    addresses = tuple(addresses)
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
    contexts = _contexts(addresses, context)
    found = tuple(Access(it, contexts.get(it.tls), _asked(it, credentials)) for it in addresses)
    for it in found:
        _tried(it)
    return found


def _asked(address: Address, credentials: Credentials | None) -> Credentials | None:
    """Return who is asked for a node's credentials. None: the address has them, if any."""
    return None if isinstance(credentials, CredentialsFile) and not credentials.serves(address) else credentials


def _contexts(addresses: tuple[Address, ...], given: SSLContext | Authority | None) -> dict[object, SSLContext]:
    """Return the TLS contexts, by the TLS options of the addresses."""
    wanted = {it.tls: it.label for it in addresses if it.tls is not None}
    if not wanted and (given is None or isinstance(given, Authority)):
        return {}
    from ssl import SSLContext

    from ..wire.address import Tls
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
    try:
        access.tunnel()
    except (OSError, ValueError) as error:
        label = access.address.label
        raise ConfigError(f"{label}: TLS cannot begin: {error}: is this the context of a client?") from None
