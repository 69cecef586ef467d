"""Where the command's configuration comes from: flags, `HOLDFAST_...`, and files in TOML.

Knows the names of settings, and files. Must not know verbs. A value comes from the first of these
places that has one: the command line, the environment, the file of `--config` or
`HOLDFAST_CONFIG`, the user's file, the system's file. Never from the working directory: `cd` would
then decide on which nodes a cron job of root locks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..checks import encrypted, shown
from ..errors import ConfigError
from ..options import OPTIONS, variable
from .durations import seconds_of

if TYPE_CHECKING:
    from ssl import SSLContext

    from .. import Holdfast
    from ..aio import Holdfast as AsyncHoldfast

Client = TypeVar("Client", "Holdfast", "AsyncHoldfast")
SYSTEM_FILE = "/etc/holdfast/config.toml"
# Files, which are no options of a client: the command reads them.
_FILES = ("credentials_file", "ca", "cert", "key")
KEYS = ("nodes", "shards", "previous", "ttl", "max_ttl", "prefix", "owner", *_FILES)
_PASSWORD = r"://[^/@\s]*:[^/@\s]+@"
OTHERS = 0o077  # the rights of everybody but the owner of a file


class Configuration(NamedTuple):
    """What the client is made of.

    Attributes:
        values: The settings that the command line or a file sets, by name.
    """

    values: dict[str, Any]

    def client(self, **more: Any) -> Holdfast:
        """Make the client. It reads from the environment what is not set here.

        Raises:
            ConfigError: A setting is wrong, or nothing names nodes.
        """
        from .. import Holdfast

        return _with_nodes(Holdfast(*self.values.get("nodes", ()), **self._options(more)))

    def async_client(self, **more: Any) -> AsyncHoldfast:
        """Make the client for asyncio. It reads from the environment what is not set here.

        Raises:
            ConfigError: A setting is wrong, or nothing names nodes.
        """
        from ..aio import Holdfast

        return _with_nodes(Holdfast(*self.values.get("nodes", ()), **self._options(more)))

    def _options(self, more: Mapping[str, Any]) -> dict[str, Any]:
        options = {it: value for it, value in self.values.items() if it not in ("nodes", *_FILES)} | dict(more)
        # The process that has the lease is not the one that does the work, which may live on.
        options["guardian"] = False
        if "credentials_file" in self.values:
            options["credentials"] = credentials(self.values["credentials_file"])
        tls: dict[str, str] = {it: self.values[it] for it in ("ca", "cert", "key") if it in self.values}
        if tls:
            options["ssl"] = _context(tls)
        return options


def _with_nodes(locks: Client) -> Client:
    # A client without nodes can describe locks, and refuses to be used. Every verb uses its client.
    if not locks.settings.addresses:
        raise locks.settings.nodeless
    return locks


def configuration(flags: Mapping[str, Any], environment: Mapping[str, str]) -> Configuration:
    """Collect the settings.

    Args:
        flags: What the command line says, by the names of the settings. None: it does not say. And
            `config` and `profile`.
        environment: The environment variables.

    Raises:
        ConfigError: A file cannot be read, or has a setting that does not exist.
    """
    values: dict[str, Any] = {}
    # What a place has said, so that later places cannot.
    decided = set[str]()
    for name in KEYS:
        by = variable(name)
        if flags.get(name) is not None:
            values[name] = flags[name]
        elif not environment.get(by, "").strip() or not (name in _FILES or OPTIONS[name].variable):
            continue
        elif name in _FILES:
            values[name] = environment[by]
        decided.add(name)
    if "nodes" in decided:
        # Shards of a file would replace them.
        decided.add("shards")
    profile = flags.get("profile") or environment.get("HOLDFAST_PROFILE") or None
    for path, wanted in _files(flags, environment):
        found, profile = _read(path, profile, wanted)
        values |= {name: value for name, value in found.items() if name not in decided}
        decided |= found.keys()
        if not found.keys().isdisjoint(("nodes", "shards")):
            decided |= {"nodes", "shards"}
    if profile is not None:
        raise ConfigError(f"no configuration file has a table [profile.{profile}]: `holdfast --help` lists the files")
    _check(values)
    return Configuration(values)


def _files(flags: Mapping[str, Any], environment: Mapping[str, str]) -> list[tuple[str, bool]]:
    """The files in order, and whether each must exist."""
    named = flags.get("config") or environment.get("HOLDFAST_CONFIG")
    home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME") or "/nonexistent", ".config")
    usual = [(os.path.join(home, "holdfast/config.toml"), False), (SYSTEM_FILE, False)]
    return [(named, True), *usual] if named else usual


def _load(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read().decode()
        found = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if mode & OTHERS and re.search(_PASSWORD, text):
        raise ConfigError(f"{path} has a password in it, and other users may read it: `chmod 600 {path}`")
    return found


def _read(path: str, profile: str | None, wanted: bool) -> tuple[dict[str, Any], str | None]:
    """The settings of one file, and the profile to look for in later files.

    The settings of the profile come first. If this file has the profile, no later file needs it.
    """
    if not wanted and not os.path.exists(path):
        return {}, profile
    found = _load(path)
    profiles = found.pop("profile", {})
    if not isinstance(profiles, dict) or not all(isinstance(it, dict) for it in profiles.values()):
        raise ConfigError(f"{path}: profiles are tables, [profile.NAME]")
    own = profiles.get(profile, {}) if profile is not None else {}
    for name, other in (("nodes", "shards"), ("shards", "nodes")):
        if name in own and other not in own:
            found.pop(other, None)
    found |= own
    _check(found)
    for name, value in found.items():
        if name not in KEYS:
            raise ConfigError(
                f"{path}: unknown setting {shown(name)}. Valid settings are {', '.join(KEYS)}, and [profile.NAME]"
            )
        form = "text" if name in _FILES else OPTIONS[name].form
        if form == "text" and not isinstance(value, str):
            raise ConfigError(f"{path}: {name} is text, not {shown(value)}")
        if form == "seconds" and isinstance(value, str):
            found[name] = seconds_of(value)
        if form == "nodes" and isinstance(value, str):
            found[name] = value.replace(",", " ").split()
    return found, None if profile in profiles else profile


def _check(values: Mapping[str, Any]) -> None:
    if "nodes" in values and "shards" in values:
        raise ConfigError("nodes and shards are both set: `shards` has all nodes in it, so leave `nodes` out")
    if ("cert" in values) != ("key" in values):
        raise ConfigError("cert and key belong together: a certificate of the client, and its private key")


def credentials(path: str) -> Callable[[str], tuple[str, str] | str]:
    """Return a function that reads user and password from a file, each time that it is called.

    Args:
        path: The file. It has one line, `user:password`, or a password alone.

    Raises:
        ConfigError: Other users may read the file, or it cannot be read.
    """

    def read(node: str = "") -> tuple[str, str] | str:
        try:
            with open(path, encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_mode & OTHERS:
                    raise ConfigError(f"other users may read {path}, which has a password in it: `chmod 600 {path}`")
                line = file.readline().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the credentials file {path} cannot be read: {error}") from None
        user, colon, password = line.partition(":")
        return (user, password) if colon else line

    read()
    return read


def _context(tls: Mapping[str, str]) -> SSLContext:
    import ssl

    try:
        context = ssl.create_default_context(cafile=tls.get("ca"))
        if "cert" in tls:
            context.load_cert_chain(tls["cert"], tls["key"], partial(encrypted, tls["key"]))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificates {', '.join(tls.values())} cannot be read: {error}") from None
    return context
