"""Clients from settings: of a framework, of an application, or of a file.

Knows the options of a client, and how settings write them as text. Must not know frameworks: each
one says how its settings are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from . import checks
from .aio import Holdfast as AsyncHoldfast
from .client.sync import Holdfast
from .errors import ConfigError
from .face import spreading
from .node import Node
from .options import NODES, OPTIONS, flag, seconds
from .wire.address import Url

__all__ = ["Clients", "imported"]

# In place of addresses: servers in a temporary directory, for tests.
LOCAL = "local"

C = TypeVar("C", Holdfast, AsyncHoldfast)
Settings = Mapping[str, Any]


class Clients:
    """The two clients that a program makes of its settings: one for threads, one for asyncio.

    A client is made at its first use, and connects at its own first use. A process that was forked
    may use both: holdfast opens new connections there.
    """

    def __init__(
        self, settings: Settings | Callable[[], Settings], prefix: str = "", where: str = "the settings"
    ) -> None:
        """Remember where the settings are. They are read at the first use.

        Settings are called like the options of `Holdfast`, in capitals or not: `ttl`, `max_ttl`,
        `prefix` and so on. `nodes` is a list of addresses, or a text with commas between them.
        "local" starts servers in a temporary directory, for tests. A number may be written as text.
        `restart_guard` may be "off". `observer`, `around`, `ssl` and `credentials` may be the
        dotted path of an object. Environment variables give what the settings leave out.

        Args:
            settings: The settings, or a function that returns them.
            prefix: What the names of holdfast's settings begin with, such as "HOLDFAST_". Settings
                with other names are ignored. Default: all settings are holdfast's.
            where: What messages call the settings.

        Raises:
            ConfigError: At the first use of a client, if a setting cannot work.
        """
        self._settings, self._prefix, self._where = settings, prefix, where
        self._made: dict[type[Any], Any] = {}

    @property
    def locks(self) -> Holdfast:
        """The client for threads.

        Raises:
            ConfigError: A setting cannot work. The message has its name as you wrote it.
        """
        return self._client(Holdfast)

    @property
    def alocks(self) -> AsyncHoldfast:
        """The client for asyncio.

        Raises:
            ConfigError: A setting cannot work. The message has its name as you wrote it.
        """
        return self._client(AsyncHoldfast)

    def close(self) -> None:
        """Close the client for threads, and forget both clients. The next use makes new ones.

        Close the client for asyncio before, with `await clients.alocks.close()` on its event loop.
        """
        made = self._made.pop(Holdfast, None)
        self._made.clear()
        if made is not None:
            made.close()

    def _client(self, kind: type[C]) -> C:
        if kind not in self._made:
            fresh = self._make(kind)
            # Two threads may get here at once. A client that nobody uses has no connections.
            if self._made.setdefault(kind, fresh) is not fresh and isinstance(fresh, Holdfast):
                fresh.close()
        made: C = self._made[kind]
        return made

    def _make(self, kind: type[C]) -> C:
        settings = self._settings() if callable(self._settings) else self._settings
        names = _names(settings, self._prefix, self._where)
        options = {option: _value(option, settings[name], name) for option, name in names.items()}
        nodes = options.pop("nodes", ())
        if nodes == LOCAL:
            make: Callable[..., C] = kind.local
            if kind is AsyncHoldfast:
                # Both clients use the same servers.
                make = partial(kind, *self.locks.urls)
        else:
            make = partial(kind, *nodes) if isinstance(nodes, list | tuple) else partial(kind, shards=nodes)
        return _made(make, options, names, self._where)


def imported(path: str, what: str) -> Any:
    """Import what a dotted path names, such as "package.module.name" or "package.module:name".

    Args:
        path: The path.
        what: Which setting has it, for the error.

    Returns:
        The object.

    Raises:
        ConfigError: The path names nothing.
    """
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        form = "the dotted path of an object, such as 'package.module.name'"
        raise ConfigError(f"{what} is {form}; {path!r} is not: {error}") from error


def _names(settings: Settings, prefix: str, where: str) -> dict[str, str]:
    """The options that the settings have, with their names as the user wrote them."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        if not name.lower().startswith(prefix.lower()):
            continue
        option = name[len(prefix) :].lower()
        known = OPTIONS.get(option)
        # Frameworks list settings that nobody has set.
        if value is None and not (known and known.off):
            continue
        if known is None:
            valid = ", ".join(f"{prefix}{it if prefix.islower() else it.upper()}" for it in OPTIONS)
            raise ConfigError(f"{where}: unknown setting {name!r}. Valid settings are {valid}.")
        if option in found:
            raise ConfigError(f"{where}: {found[option]!r} and {name!r} are the same setting: leave one out")
        found[option] = name
    return found


def _value(option: str, value: object, name: str) -> Any:
    """A setting as the option of a client."""
    if option == "nodes":
        return _nodes(value, name)
    if not isinstance(value, str):
        return value
    match OPTIONS[option].form:
        case "seconds":
            return seconds(value, option, name)
        case "flag":
            return flag(value, name)
        case "object":
            return imported(value, name)
        case "nodes":
            return spreading.listed(Url(value))
    return value


def _nodes(value: object, name: str) -> Any:
    """Addresses one by one, several sets of them, or LOCAL."""
    if isinstance(value, str):
        if value.strip().lower() == LOCAL:
            return LOCAL
        found = spreading.listed(Url(value))
        return found if len(found) > 1 else spreading.only(found)
    if isinstance(value, list | tuple) and all(isinstance(it, str | Node) for it in value):
        return [Url(it) if isinstance(it, str) else it for it in value]
    raise ConfigError(f"{name} is a list of addresses, or a text with commas between them, not {checks.shown(value)}")


def _made(make: Callable[..., C], options: Mapping[str, Any], names: Mapping[str, str], where: str) -> C:
    """Make the client. An error names the settings without which there would be none."""
    try:
        return make(**options)
    except ConfigError as error:
        raise ConfigError(f"{', '.join(_culprits(options, names)) or where}: {error.message}") from error


def _culprits(options: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """The settings that are to blame: each of them alone keeps the others from working."""
    others = {option: value for option, value in options.items() if option not in NODES}
    if _work(others):
        return [names[it] for it in NODES if it in names]
    return [names[it] for it in others if _work({option: value for option, value in others.items() if option != it})]


def _work(options: Mapping[str, Any]) -> bool:
    """Can a client be made with these options? (A client that is not used sends nothing.)"""
    try:
        Holdfast("redis://nowhere", **options)
    except ConfigError:
        return False
    return True
