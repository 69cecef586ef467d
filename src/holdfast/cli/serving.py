"""`serve`: locks over HTTP.

Knows the options of the gateway. Must not know HTTP. The gateway is an extra: without it, the verb
says which one.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import secrets
from argparse import Namespace
from typing import Any

from ..clock import clock
from ..errors import ConfigError
from .codes import CONFIG, DONE
from .configuration import configuration
from .options import Usage
from .running import quiet
from .voice import Voice

PORT = 7420
SCOPES = '["lock:*", "look:*"]'
# How many collections of younger objects come before one of all objects: usually, as Python has it,
# and after one that took longer than `QUICK` seconds.
USUAL, RARE, QUICK = 10, 300, 0.02


def serve(options: Namespace) -> int:
    """Serve the gateway until SIGTERM."""
    if options.new_token is not None:
        return _new_token(options.new_token)
    voice = Voice()
    quiet(voice)
    try:
        from ..serve.server import Address, loop_factory, serve
    except ImportError as missing:
        needed = 'pip install "holdfast[serve]"'
        voice.say(f"`holdfast serve` needs packages that are not installed ({missing.name}): {needed}")
        return CONFIG
    host, port = bound(options.listen)
    if options.advertise is not None and options.client_ca is not None:
        raise ConfigError("--advertise and --client-ca exclude each other: a gateway has no certificate for the others")
    address = Address(
        host=host,
        port=port,
        cert=options.server_cert,
        key=options.server_key,
        client_ca=options.client_ca,
        insecure=options.insecure,
    )
    config = configuration(vars(options), os.environ)
    settings = _settings(options, host)

    async def run() -> None:
        from prometheus_client import CollectorRegistry

        from ..metrics import Metrics

        registry = CollectorRegistry()
        metrics = Metrics(registry=registry)
        locks = config.async_client(observer=metrics)
        metrics.follow(locks)
        await serve(locks, address, options.drain, _saying(voice), registry=registry, **settings)

    _collect_by_cost()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())
    return DONE


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


def bound(text: str) -> tuple[str, int]:
    """Return the host and the port of an address such as `127.0.0.1:7420`, `[::1]:7420` or `:7420`.

    Of `unix:/path`, all is the host.

    Raises:
        Usage: It is no address.
    """
    if text.startswith("unix:"):
        return text, 0
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise Usage(f"--listen is HOST:PORT, such as 127.0.0.1:{PORT}, or unix:PATH; not {text!r}")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def _settings(options: Namespace, host: str) -> dict[str, Any]:
    shown = f"[{host}]" if ":" in host else host
    names = ("localhost", "127.0.0.1", "[::1]", shown, *options.host_name)
    return {
        "tokens": options.tokens,
        "allow_force": options.allow_force,
        "page": not options.no_page,
        "page_only": options.page_only,
        "grafana_url": options.grafana_url,
        "host_names": tuple(dict.fromkeys(it.lower() for it in names)),
        "advertise": options.advertise,
        "peer_ca": options.peer_ca,
        "audit": options.audit,
        "trusted_proxies": tuple(options.trust_proxy),
        "max_requests": options.max_requests,
        "max_connections": options.max_connections,
        "max_lag": options.max_lag,
    }


def _saying(voice: Voice) -> Any:
    def say(text: str) -> None:
        red = voice.terminal and text.startswith("INSECURE") and not os.environ.get("NO_COLOR")
        if red:
            os.write(2, b"\x1b[31m")
        voice.say(text)
        if red:
            os.write(2, b"\x1b[0m")

    return say


def _new_token(name: str) -> int:
    """Print a new token, and what the file of tokens needs for it. Neither is kept anywhere."""
    if not name or not all(it.isalnum() or it in "-_" for it in name):
        raise ConfigError(f"the name of a client has letters, digits, `-` and `_`; not {name!r}")
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    print(f"# The token of {name}. It is shown once: {token}")
    print(f'[client.{name}]\nsha256 = "{digest}"\nscopes = {SCOPES}')
    return DONE
