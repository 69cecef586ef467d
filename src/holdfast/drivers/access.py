"""How one gets in at a node: where it is, over TLS or not, and who one is there at this moment. For every driver.

Knows the user's `ssl` context and `credentials`, which are strangers' code. Must not know who connects, or when.
What the credentials are stands in nothing that is ever shown: neither in an error, nor in the repr of anything that is kept.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..wire.address import Address
from . import sockets

if TYPE_CHECKING:
    from ssl import SSLContext

    from .tls import Tunnel

Credentials = Callable[[str], object]  # (node) -> password, or (user, password), or an awaitable of one
Places = list[tuple[int, Any]]  # (family, socket address)


class Access:
    """The way in at one node. `at_hand`: nobody has to be asked for it, neither a name server nor `credentials`."""

    __slots__ = ("_context", "_credentials", "address")

    def __init__(self, address: Address, context: SSLContext | None, credentials: Credentials | None) -> None:
        self.address, self._context, self._credentials = address, context, credentials

    @property
    def at_hand(self) -> bool:
        return self._credentials is None and sockets.is_literal(self.address)

    def ask(self) -> tuple[Places, Address]:
        """Where to connect, best first, and the address with the credentials of the moment. May block."""
        places, said = self.begin_asking()
        return places, said if isinstance(said, Address) else self._with(said)

    def begin_asking(self) -> tuple[Places, Address | Awaitable[object]]:
        """The same; but what has to be awaited for the credentials is given back as it is, for `awaited`. May block."""
        places = sockets.places(self.address)
        if self._credentials is None:
            return places, self.address
        try:
            said: object = self._credentials(self.address.label)
        except BaseException as error:  # (one that ends a thread (sys.exit) must not end one of ours)
            failure = self._failure(error)
        else:
            return places, said if isinstance(said, Awaitable) else self._with(said)
        raise failure  # here, where the error that may have the secret in it is not its context

    async def awaited(self, said: Awaitable[object]) -> Address:
        """The address with the credentials that this brings."""
        try:
            return self._with(await said)
        except ConfigError:
            raise
        except Exception as error:
            failure = self._failure(error)
        raise failure

    def tunnel(self) -> Tunnel | None:
        """TLS for one connection; None: there is none."""
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
                close = getattr(said, "close", None)  # (of a coroutine, that nobody will await)
                if callable(close):
                    close()
                raise ConfigError(f"credentials() gives a password or (user, password), not {type(said).__name__}")
        try:
            (user + password).encode()
        except UnicodeEncodeError:
            pass
        else:
            return replace(self.address, user=user, password=password)
        raise ConfigError("credentials() gave half of a surrogate pair, which UTF-8 cannot say")

    @staticmethod
    def _failure(error: BaseException) -> ConnectionError:
        """What was raised, and where; but not its words, in which the secret may be."""
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = "" if at is None else f" at {os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}"
        return ConnectionError(f"credentials() raised {type(error).__name__}{where}")


def accesses(addresses: Iterable[Address], context: SSLContext | None, credentials: Credentials | None) -> tuple[Access, ...]:
    """The ways in at these nodes. `context`: TLS as the user wants it, at all nodes that have it. ConfigError if that cannot work."""
    addresses = tuple(addresses)
    if credentials is not None:
        if not callable(credentials):
            raise ConfigError("credentials is a function of one argument, the node, that gives a password or (user, password)")
        if twice := [it.label for it in addresses if it.password]:
            raise ConfigError(f"{', '.join(twice)}: the address has a password, and there is credentials= too: leave one of them out")
    contexts = _contexts(addresses, context)
    found = tuple(Access(it, contexts.get(it.tls), credentials) for it in addresses)
    for it in found:
        _tried(it)
    return found


def _contexts(addresses: tuple[Address, ...], given: SSLContext | None) -> dict[object, SSLContext]:
    """The contexts by what the addresses say of TLS."""
    wanted = {it.tls: it.label for it in addresses if it.tls is not None}
    if given is None and not wanted:
        return {}
    from ssl import SSLContext

    from ..wire.address import Tls
    from .tls import context

    if given is None:
        return {tls: context(tls, label) for tls, label in wanted.items()}
    if not isinstance(given, SSLContext):
        raise ConfigError(f"ssl is an ssl.SSLContext, not {type(given).__name__}")
    if not wanted:
        raise ConfigError("ssl= is for nodes with TLS, and there are none: write rediss:// (or valkeys://) in their addresses")
    if both := [label for tls, label in wanted.items() if tls != Tls()]:
        raise ConfigError(f"{', '.join(both)}: the address has ssl_... options, and there is ssl= too: leave one of them out")
    return dict.fromkeys(wanted, given)


def _tried(access: Access) -> None:
    """Would TLS begin at all? A context may be a server's."""
    try:
        access.tunnel()
    except (OSError, ValueError) as error:  # (ssl.SSLError is the first)
        raise ConfigError(f"{access.address.label}: TLS cannot begin: {error}: is this the context of a client?") from None
