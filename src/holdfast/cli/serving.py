"""`serve`: locks over HTTP.

Knows the options of the gateway. Must not know HTTP. The gateway is an extra: without it, the verb
says which one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import os
import secrets
import tomllib
from argparse import Namespace
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ..clock import clock
from ..errors import ConfigError
from ..serve.gateway import Gateway
from ..serve.options import Options
from ..serve.server import ListenAddress, loop_factory
from ..serve.server import serve as serve_gateway
from .codes import CONFIG, DONE
from .configuration import configuration
from .options import Usage
from .output import Output, quiet

PORTS = {"--listen": 7420, "--resp": 7421}
SCOPES = '["lock:*", "look:*"]'
# How many collections of younger objects come before one of all objects: usually, as Python has it,
# and after one that took longer than `QUICK` seconds.
USUAL, RARE, QUICK = 10, 300, 0.02


def serve(options: Namespace) -> int:
    """Serve the gateway until SIGTERM."""
    if options.new_token is not None:
        return _new_token(options.new_token, options.tokens)
    if options.page_only and options.resp is not None:
        raise Usage("--page-only shows a page over HTTP, and through --resp anybody could lock: leave out one of them")
    output = Output()
    quiet(output)
    try:
        doors = _doors(options)
    except ImportError as missing:
        needed = 'pip install "holdfast[serve]"'
        output.say(f"`holdfast serve` needs packages that are not installed ({missing.name}): {needed}")
        return CONFIG
    if options.advertise is not None and options.client_ca is not None:
        raise ConfigError("--advertise and --client-ca exclude each other: a gateway has no certificate for the others")
    config = configuration(vars(options), os.environ)
    if options.local and options.nodes:
        raise Usage("--local brings its own nodes: leave out --nodes")
    settings = _settings(options, bound(options.listen)[0])

    async def run() -> None:
        if _speaks_http(options):
            from prometheus_client import CollectorRegistry

            from ..metrics import Metrics

            settings["registry"] = CollectorRegistry()
            metrics = Metrics(registry=settings["registry"])
            locks = config.async_client(observer=metrics)
            metrics.follow(locks)
        else:
            locks = config.async_client()
        await serve_gateway(Gateway(locks, Options(**settings)), doors, options.drain, _saying(output))

    _collect_by_cost()
    with contextlib.ExitStack() as stack:
        if options.local:
            from ..embedded import Nodes

            output.say("it has its own nodes, which end with it: for the programs of one machine")
            # Clients may still believe in leases of an earlier run, so these nodes are guarded at first.
            own = Nodes()
            own._new = False
            config.values["nodes"] = stack.enter_context(own).urls
        stack.enter_context(asyncio.Runner(loop_factory=loop_factory())).run(run())
    return DONE


def _speaks_http(options: Namespace) -> bool:
    return options.resp is None or options.http


def _doors(options: Namespace) -> list[Any]:
    """Return the protocols that are spoken, and where. Only what is needed for them is loaded."""
    files = {"cert": options.server_cert, "key": options.server_key, "client_ca": options.client_ca}
    doors: list[Any] = []

    def add(where: str, option: str, door: Any, scheme: str) -> None:
        host, port = bound(where, option)
        doors.append((ListenAddress(host=host, port=port, scheme=scheme, insecure=options.insecure, **files), door))

    if _speaks_http(options):
        from ..serve.http import Http

        add(options.listen, "--listen", Http(), "http")
    if options.resp is not None:
        from ..serve.resp import Resp

        add(options.resp, "--resp", Resp(), "redis")
    return doors


def _collect_by_cost() -> None:
    """Let Python's garbage collector look at all objects less often if that takes long.

    With 10,000 requests it takes more than a second, in which nobody is answered. With few requests
    it takes some milliseconds, so there it goes on as usual, and no garbage is left for long. What
    is loaded by now stays, and is never looked at.
    """
    began = 0.0

    def heard(phase: str, about: dict[str, int]) -> None:
        nonlocal began
        if about["generation"] < len(gc.get_threshold()) - 1:
            return
        if phase == "start":
            began = clock()
        else:
            gc.set_threshold(*gc.get_threshold()[:2], USUAL if clock() - began < QUICK else RARE)

    gc.freeze()
    gc.callbacks.append(heard)


def bound(text: str, option: str = "--listen") -> tuple[str, int]:
    """Return the host and the port of an address such as `127.0.0.1:7420`, `[::1]:7420` or `:7420`.

    Of `unix:/path`, all is the host.

    Raises:
        Usage: It is no address.
    """
    if text.startswith("unix:"):
        return text, 0
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise Usage(f"{option} is HOST:PORT, such as 127.0.0.1:{PORTS[option]}, or unix:PATH; not {text!r}")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def _settings(options: Namespace, host: str) -> dict[str, Any]:
    shown = f"[{host}]" if ":" in host else host
    names = ("localhost", "127.0.0.1", "[::1]", *[shown] * (not host.startswith("unix:")), *options.host_name)
    # Most options have the gateway's names.
    given = {it.name: getattr(options, it.name) for it in fields(Options) if hasattr(options, it.name)}
    hosts, proxies = tuple(dict.fromkeys(it.lower() for it in names)), tuple(options.trust_proxy)
    return {**given, "page": not options.no_page, "host_names": hosts, "trusted_proxies": proxies}


def _saying(output: Output) -> Any:
    def say(text: str) -> None:
        red = output.terminal and text.startswith("INSECURE") and not os.environ.get("NO_COLOR")
        if red:
            os.write(2, b"\x1b[31m")
        output.say(text)
        if red:
            os.write(2, b"\x1b[0m")

    return say


def _new_token(name: str, path: str | None) -> int:
    """Make a token, write its digest to the file of tokens, and print it. It is kept nowhere."""
    if not name or not all(it.isalnum() or it in "-_" for it in name):
        raise ConfigError(f"the name of a client has letters, digits, `-` and `_`; not {name!r}")
    if path is None:
        raise Usage("--new-token NAME needs --tokens FILE, where the digest of the token is written")
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    place = os.path.realpath(path)
    try:
        _replace(place, lambda text: _with_client(path, text, name, digest))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file of tokens {path} cannot be written: {error}") from None
    print(token)
    return DONE


def _replace(path: str, change: Callable[[str], str]) -> None:
    """Change the text of a file, which is another file afterwards, of the same owner."""
    new = f"{path}.new"
    # If another process does the same, this fails.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            text = ""
            if os.path.exists(path):
                there = os.stat(path)
                os.fchown(descriptor, there.st_uid, there.st_gid)
                os.fchmod(descriptor, there.st_mode & 0o640)
                with open(path, encoding="utf-8") as old:
                    text = old.read()
            file.write(change(text))
            file.flush()
            os.fsync(descriptor)
        os.rename(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _with_client(path: str, text: str, name: str, digest: str) -> str:
    """Return the text of a file of tokens with another digest of a client, which may be new."""
    lines = [*text.splitlines(), ""] if text and not text.endswith("\n") else text.split("\n")
    head, entry = f"[client.{name}]", f'sha256 = "{digest}"'
    at = next((number for number, line in enumerate(lines) if line.partition("#")[0].strip() == head), None)
    if at is None:
        lines[-1:] = [head, entry, f"scopes = {SCOPES}", ""]
    else:
        following = [number for number in range(at + 1, len(lines)) if lines[number].startswith("[")]
        end = min(following, default=len(lines))
        rest = [line for line in lines[at + 1 : end] if line.partition("=")[0].strip() != "sha256"]
        lines[at + 1 : end] = [entry, *rest]
    made = "\n".join(lines)
    with contextlib.suppress(tomllib.TOMLDecodeError, KeyError, TypeError):
        wanted = tomllib.loads(text)
        wanted.setdefault("client", {}).setdefault(name, {"scopes": json.loads(SCOPES)})["sha256"] = digest
        if tomllib.loads(made) == wanted:
            return made
    raise ConfigError(f"{path} is no plain file of tokens: set {entry} in {head} by hand, with a token of your own")
