"""One node as a program describes it: its address, and what an address cannot say.

Knows addresses, and which options of a node go together. Must not know who connects, or when:
`drivers.access` asks the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import ConfigError
from .wire import address
from .wire.address import Address, Described, masked

if TYPE_CHECKING:
    from ssl import SSLContext

# (node) -> password, or (user, password), or an awaitable of one.
Credentials = Callable[[str], object]
# (node) -> (host, port), or an awaitable of them.
Resolve = Callable[[str], object]


class Node(Described, kw_only=False):
    """A node, with options that its address cannot hold.

    An address is the short form: `Holdfast("redis://a")` and `Holdfast(Node("redis://a"))` are the
    same. Nodes cannot be changed, and may be shared by clients. `repr()` shows no password.
    """

    address: Address
    credentials: Credentials | None
    ssl: SSLContext | None
    resolve: Resolve | None

    def __init__(
        self,
        url: str,
        *,
        credentials: Credentials | None = None,
        ssl: SSLContext | None = None,
        resolve: Resolve | None = None,
        failover: float | None = None,
        unproven: bool = False,
    ) -> None:
        """Check the options. Asks nobody, and connects to nothing.

        Args:
            url: The address, in any form that `Holdfast` takes.
            credentials: A function that is called with the node's address before each connection,
                and returns a password or (user, password). It may block: it runs in another thread.
                With asyncio it may be a coroutine function (default: those of the client).
            ssl: An SSLContext for this node. The address has to say `rediss://` (default: that of
                the client, or the `ssl_...` options of the address).
            resolve: A function that is called with the node's address before each connection, and
                every `max_ttl` / 6 while there is one, and
                returns the (host, port) of the primary at this moment. It may block, and may be a
                coroutine function, like `credentials`. The host and port in `url` are then only the
                node's name. Clients treat a server that no client has seen there before as one that
                was just promoted (default: the place in the address).
            failover: Seconds for which a primary that was replaced may go on granting locks, from
                0 to 86400, in place of `?failover=` (default: nobody has said).
            unproven: Use the server even if it is neither Redis nor Valkey, and warn of it, in
                place of `?unproven=true`. Examine it first: `python -m
                holdfast.testing.conformance URL` (default: refuse such a server).

        Raises:
            ConfigError: The address or an option cannot work, or something is said twice.
        """
        where = address.parse(masked(url))
        if credentials is not None:
            _check_function(credentials, "credentials", "that gives a password or (user, password)")
            if where.password:
                raise ConfigError(
                    f"{where.label}: the address has a password, and there is credentials= too: leave one of them out"
                )
        if resolve is not None:
            _check_function(resolve, "resolve", "that gives (host, port)")
            if where.path or where.sentinels is not None:
                raise ConfigError(
                    f"{where.label}: resolve= finds a host and a port, and this address has another way to its server: "
                    "leave resolve= out, or write redis://name"
                )
            where = where.but(moves=True)
        if failover is not None:
            if where.failover is not None:
                raise ConfigError(f"{where.label}: failover is said twice, in the address and as an argument")
            where = where.but(failover=address.bound(failover, where.label))
        if not isinstance(unproven, bool):
            raise ConfigError(f"{where.label}: unproven is True or False, not {type(unproven).__name__}")
        if unproven:
            where = where.but(unproven=True)
        if ssl is not None:
            _check_context(ssl, where)
        super().__init__(address=where, credentials=credentials, ssl=ssl, resolve=resolve)

    @classmethod
    def of(cls, client: Any, *, failover: float | None = None, unproven: bool = False) -> Node:
        """Make a node with the settings of another library's client.

        holdfast opens connections of its own. It sends nothing through the client, does not change
        or close it, and need not have its library installed.

        Args:
            client: A client of redis-py, valkey-py, coredis or GLIDE, for threads or asyncio; or a
                configuration of GLIDE. Also one that finds its server by Sentinels, and one with a
                credential provider.
            failover: As for `Node`.
            unproven: As for `Node`.

        Returns:
            The node. It has the server's address, and the client's credentials and TLS.

        Raises:
            ConfigError: The client has a setting that holdfast cannot follow, or is no such client.
                The message names it.
        """
        from .foreign_clients import place

        found = place(client)
        made = cls(
            found.address, credentials=found.login, ssl=found.context(), failover=failover, unproven=unproven
        )
        if found.sentinel_login is None:
            return made
        # The Sentinels' password is not in the address, which is text.
        user, password = found.sentinel_login
        where, known = made.address, made.address.sentinels
        assert known is not None
        signed = address.Sentinels(known.places, known.group, user, password)
        return _remade(made, where.but(sentinels=signed))

    @property
    def label(self) -> str:
        """The address without user, password and options, as `nodes()` and errors show it."""
        return self.address.label

    @property
    def failover(self) -> float | None:
        """Seconds for which a primary that was replaced may go on, or None."""
        return self.address.failover

    def __repr__(self) -> str:
        said = ["" if self.failover is None else f"failover={self.failover:g}"]
        said += ["unproven=True"] if self.address.unproven else []
        # What a function's repr shows may be a secret: a partial shows its arguments.
        said += [f"{it}=..." for it in ("credentials", "ssl", "resolve") if getattr(self, it) is not None]
        return f"Node({', '.join([repr(self.label), *filter(None, said)])})"


def node_of(given: object) -> Node:
    """Return the node that an address describes, or the node itself.

    Args:
        given: A `Node`, an `Address` or a URL.

    Raises:
        ConfigError: It is none of them. The message shows no password.
    """
    if isinstance(given, Node):
        return given
    return _remade(None, address.parse(given))


def _remade(like: Node | None, where: Address) -> Node:
    """Return a node at this address, with the functions and the TLS context of another one."""
    made = Node.__new__(Node)
    functions = {it: getattr(like, it, None) for it in ("credentials", "ssl", "resolve")}
    Described.__init__(made, address=where, **functions)
    return made


def _check_function(function: object, name: str, does: str) -> None:
    if not callable(function):
        raise ConfigError(f"{name} is a function of one argument, the node, {does}")


def _check_context(given: object, where: Address) -> None:
    from ssl import SSLContext

    from .wire.address import Tls

    if not isinstance(given, SSLContext):
        raise ConfigError(f"ssl is an ssl.SSLContext, not {type(given).__name__}")
    if where.tls is None:
        raise ConfigError(f"{where.label}: ssl= is for nodes with TLS: write rediss:// (or valkeys://)")
    if where.tls != Tls():
        raise ConfigError(
            f"{where.label}: the address has ssl_... options, and there is ssl= too: leave one of them out"
        )
