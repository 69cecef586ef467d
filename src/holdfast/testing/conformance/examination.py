"""The whole examination of one server, and its table.

Knows which checks there are. Must not know command lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ...scripts import BASIC, LOADED
from ...wire import address as addresses
from .behaviour import NotPermitted, expiries, facts_of, greeting, product_of, pushes, restart, tracking
from .connection import BadServer, BareConnection
from .contract import Contract
from .storm import storm

OK, UNFIT, DENIED, LEFT_OUT = "ok", "unfit", "not permitted", "left out"
CLIENTS = 32


@dataclass(frozen=True)
class Check:
    """One check of an examination.

    Attributes:
        name: What was checked.
        verdict: "ok", "unfit", "not permitted" (an optional command) or "left out".
        detail: What was measured, or what is wrong.
    """

    name: str
    verdict: str
    detail: str


@dataclass
class Examination:
    """What is known of one server.

    Attributes:
        label: The server's address, without a password.
        product: Its product and version, such as "valkey 9.1.2". Empty if it did not tell.
        checks: The checks, in the order in which they were made.
    """

    label: str
    product: str = ""
    checks: list[Check] = field(default_factory=list)

    @property
    def fit(self) -> bool:
        """Whether the server can be a node: no check found anything wrong."""
        return bool(self.checks) and all(it.verdict != UNFIT for it in self.checks)

    def table(self) -> str:
        """Return the checks as lines of text, and the verdict as the last one."""
        width = max(len(it.name) for it in self.checks)
        lines = [f"{it.name:{width}}  {it.verdict:13}  {it.detail}".rstrip() for it in self.checks]
        wrong = [it.name for it in self.checks if it.verdict == UNFIT]
        verdict = "can be a node" if self.fit else f"cannot be a node: {', '.join(wrong)}"
        return "\n".join([*lines, f"{self.label} ({self.product or 'unknown server'}): {verdict}"])


def examine(
    url: str,
    *,
    requests: int = 20_000,
    seconds: float = 60.0,
    prefix: str = "holdfast-conformance:",
    restart_command: str | Callable[[], object] = "",
) -> Examination:
    """Examine a server.

    Args:
        url: Its address, as a client of holdfast has it.
        requests: How many requests the storm on one lock makes (default 20,000).
        seconds: How long that storm lasts at most (default 60).
        prefix: How every key begins (default "holdfast-conformance:").
        restart_command: A shell command that restarts the server, or a function that does it.
            Empty: no restart is checked.

    Returns:
        What was found.

    Raises:
        ConfigError: The address is not valid.
    """
    address = addresses.parse(url)
    found = Examination(address.label)
    # Two examinations of one server must not meet, nor what an earlier one has left.
    own = f"{prefix}{os.urandom(6).hex()}:"

    def dial(all_scripts: bool = False) -> BareConnection:
        made = BareConnection(address, LOADED if all_scripts else BASIC)
        try:
            made.greet()
        except BaseException:
            made.close()
            raise
        return made

    if not _checked(found, "greeting", partial(greeting, dial)):
        return found
    one, two = dial(True), dial(True)
    try:
        found.product = product_of(facts_of(one))
        _behave(found, one, two, own)
    finally:
        one.close()
        two.close()
    _checked(found, "atomicity", partial(_atomicity, dial, f"{own}storm".encode(), requests, seconds))
    if restart_command:
        _checked(found, "restart", partial(restart, dial, f"{own}restart".encode(), restart_command))
    else:
        found.checks.append(Check("restart", LEFT_OUT, "name a command with --restart"))
    return found


def _behave(found: Examination, one: BareConnection, two: BareConnection, prefix: str) -> None:
    for name, check in Contract(one, two, prefix).checks().items():
        _checked(found, f"scripts: {name}", check)
    _checked(found, "expiries", partial(expiries, one, two, f"{prefix}expiry".encode()))
    _checked(found, "pushes", partial(pushes, one, two))
    _checked(found, "tracking", partial(tracking, one, two, f"{prefix}tracked".encode()))


def _atomicity(dial: Callable[[], BareConnection], name: bytes, requests: int, seconds: float) -> str:
    outcome = storm(dial, name, CLIENTS, requests, seconds)
    if outcome.wrong:
        raise BadServer(outcome.wrong[0])
    if not outcome.grants:
        raise BadServer("nobody got the lock")
    return f"{outcome.requests} requests, {outcome.grants} grants, {outcome.pushed} by push, {outcome.seconds:.1f} s"


def _checked(found: Examination, name: str, check: Callable[[], str | None]) -> bool:
    """Make a check, and note what came of it. Returns whether the server passed."""
    try:
        verdict, detail = OK, check() or ""
    except NotPermitted as error:
        verdict, detail = DENIED, str(error)
    except BadServer as error:
        verdict, detail = UNFIT, str(error)
    # An answer of another shape than any that the check takes apart.
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        verdict, detail = UNFIT, f"an answer that cannot be understood ({type(error).__name__}: {error})"
    found.checks.append(Check(name, verdict, detail))
    return verdict != UNFIT
