"""What surrounds a client: whether holdfast can work here, and the `HOLDFAST_...` variables.

Knows platforms, and the variables' names and forms. Must not know what the values are for:
`engine.settings` checks them.

All clients of the same nodes must agree on nodes, prefix and `max_ttl`. The environment carries
these to every process of a service without a line of code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Iterable
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..options import OPTIONS, flag, seconds, variable
from ..wire.address import Url

if TYPE_CHECKING:
    from ..drivers.files import Authority, CredentialsFile

NODES, PREVIOUS = "HOLDFAST_NODES", "HOLDFAST_PREVIOUS"
DEBUG = "HOLDFAST_DEBUG"
CREDENTIALS_FILE, CA = "HOLDFAST_CREDENTIALS_FILE", "HOLDFAST_CA"
# The options that variables set, besides the addresses of nodes.
_OPTIONS = tuple(name for name, it in OPTIONS.items() if it.variable and it.form != "nodes")


def nodes() -> str:
    """The text of HOLDFAST_NODES, empty if it is not set."""
    return Url(os.environ.get(NODES, "").strip())


def previous() -> str:
    """The text of HOLDFAST_PREVIOUS, empty if it is not set."""
    return Url(os.environ.get(PREVIOUS, ""))


def utf8(text: str) -> str:
    """Return a text of the command line, or of the environment, as the UTF-8 that its bytes are.

    Python has decoded these bytes by the locale, so the same name was another one on a host with
    ISO-8859-1. Bytes that are not UTF-8 become halves of surrogate pairs, which no name may have.
    """
    return os.fsencode(text).decode("utf-8", "surrogateescape")


def debug() -> bool:
    """Is a lease to remember the line that acquired it?

    HOLDFAST_DEBUG says so, or else Python's development mode.

    Raises:
        ConfigError: HOLDFAST_DEBUG is neither 0 nor 1.
    """
    text = os.environ.get(DEBUG, "")
    return flag(text, DEBUG) if text.strip() else sys.flags.dev_mode


_PACKAGE = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}{os.sep}"


def caller() -> str:
    """Return the file and line of the innermost call that is not in holdfast, as "app.py:12".

    "an unknown line" if all are in holdfast.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def options() -> dict[str, Any]:
    """Return the client's options that the environment sets, by the names of the arguments."""
    found: dict[str, Any] = {}
    for name in _OPTIONS:
        called = variable(name)
        text = os.environ.get(called, "")
        if OPTIONS[name].form == "text" and text:
            found[name] = utf8(text)
        elif text.strip():
            found[name] = flag(text, called) if OPTIONS[name].form == "flag" else seconds(text.strip(), name, called)
    return found


def credentials(strangers: Container[str] = ()) -> CredentialsFile | None:
    """The file that HOLDFAST_CREDENTIALS_FILE names; None if it is not set.

    Args:
        strangers: The labels of nodes that it is not for.

    Raises:
        ConfigError: The file cannot be used.
    """
    path = os.environ.get(CREDENTIALS_FILE, "")
    if not path:
        return None
    from ..drivers.files import CredentialsFile, Unusable

    file = CredentialsFile(path, CREDENTIALS_FILE, strangers)
    try:
        file()
    except Unusable as error:
        complaint = str(error)
    else:
        return file
    raise ConfigError(complaint)


def authority() -> Authority | None:
    """The file that HOLDFAST_CA names; None if it is not set."""
    path = os.environ.get(CA, "")
    if not path:
        return None
    from ..drivers.files import Authority

    return Authority(path)


def explained(error: ConfigError, given: Iterable[str]) -> ConfigError:
    """The same error, which also says which variables set the options that it is about.

    Args:
        error: What is wrong.
        given: The options that were arguments, and so came from no variable.
    """
    variables = {it: variable(it) for it in _OPTIONS if it not in given} | {"ssl_ca_certs": CA}
    if "nodes" not in given:
        variables["is named twice"] = NODES
    guilty = [
        name
        for it, name in variables.items()
        if os.environ.get(name) and re.search(rf"\b{it}\b", error.message) and name not in error.message
    ]
    return blamed(error, " and ".join(guilty)) if guilty else error


def blamed(error: ConfigError, variables: str) -> ConfigError:
    """The same error, which also says which variables set what is wrong."""
    return ConfigError(f"{error.message} (the environment sets {variables})")


def check_platform() -> None:
    """Refuse what holdfast cannot work on.

    Raises:
        ConfigError: This is Windows, a process that eventlet has patched, or a subinterpreter.
    """
    if sys.platform == "win32":
        raise ConfigError(
            "holdfast runs on Linux and macOS; Windows has neither the clock nor the sockets that it relies on"
        )
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise ConfigError("holdfast does not work under eventlet's monkey_patch(): use gevent, threads or asyncio")
    if not _in_main_interpreter():
        raise ConfigError(
            "holdfast does not work in a subinterpreter, which can neither start its thread nor see forks: "
            "use a process of its own (under mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        )


def _in_main_interpreter() -> bool:
    # Python 3.13 gave the module its name, and its answers a second value, the owner.
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        current, main = interpreters.get_current(), interpreters.get_main()
        return bool(current[0] == main[0]) if isinstance(current, tuple) else bool(current == main)
    return True
